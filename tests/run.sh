#!/usr/bin/env bash
# Sets up .venv and runs every check there is: style, types, tests with coverage.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -x .venv/bin/python ] || "${PYTHON:-python3}" -m venv .venv
.venv/bin/pip install -q --disable-pip-version-check --upgrade pip
.venv/bin/pip install -q --disable-pip-version-check -e '.[test,bench]'
.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/mypy &
types=$!  # beside the tests, the first of which wait for what they install
workers=$(.venv/bin/python -c 'import os; print(min(os.cpu_count() + 1, 4))')  # more than cores: many tests wait
tests=0
.venv/bin/python -m pytest -m 'not by_hand' -n "$workers" --dist loadfile --no-loadscope-reorder --cov --cov-report=term:skip-covered --cov-fail-under=90 --durations=40 --durations-min=5 "$@" || tests=$?
wait "$types"
exit "$tests"
