"""Runs scenarios of scheduler_scenarios.py, and checks what they say against the reference policy."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from integration.engines.loaded import run_loaded
from integration.vllm_engine.environment import HERE, LIBRARIES, OFFLINE, VLLM

from coresched.core.reference import ReferencePrefixPolicy, ReferenceWaiting

VARIABLES = ("CORESCHED_LABEL_CAPACITY", "CORESCHED_PLAN")

Outcomes = dict[str, dict[str, Any]]


def run_scenarios(names: Sequence[str], variables: Mapping[str, str] | None = None) -> Outcomes:
    """What each of them says. Fails where one ends in an exception.

    Where there are ``variables``, vLLM is loaded with them, from where PYTHONPATH among them says.
    """
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    environment |= {**OFFLINE, **(variables or {})}
    engine = VLLM if variables is None else LIBRARIES
    done = run_loaded(engine, HERE / "scheduler_scenarios.py", *names, environment=environment)
    found: Outcomes = dict(json.loads(line) for line in done.stdout.splitlines())
    assert set(found) == set(names), done.stderr[-4000:]
    for name, outcome in found.items():
        assert "failed" not in outcome, f"{name}: {outcome['failed']}"
    return found


def check_order(outcome: dict[str, Any], label_capacity: int) -> list[dict[str, Any]]:
    """Every pass of a step log against the reference policy, which only knows what `logged` promises."""
    policy = ReferencePrefixPolicy(label_capacity)
    known: dict[str, ReferenceWaiting] = {}
    preempted: list[str] = []
    steps: list[dict[str, Any]] = outcome["steps"]
    for step in steps:
        for name, label in step["arrived"]:
            known.setdefault(name, ReferenceWaiting(name, label, len(known)))
        hits: dict[str, int] = step["hits"]
        ordered = policy.order(
            [known[name] for name, _ in step["arrived"]], lambda one, hits=hits: hits[one.id]
        )
        assert step["order"] == [request.id for request in ordered]
        assert sorted(step["first"]) == sorted(preempted)
        queue = [*step["first"], *step["order"]]
        assert step["admitted"] == queue[: len(step["admitted"])]
        assert not (step["admitted"] and step["preempted"])
        assert not step["touched"]
        preempted = [*(name for name in preempted if name not in step["admitted"]), *step["preempted"]]
        for name in step["admitted"]:
            policy.admitted(known[name].label)
    assert outcome["labels"] == policy.labels()
    return steps
