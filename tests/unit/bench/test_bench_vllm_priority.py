"""`python -m bench vllm-priority` with a program in vLLM's place, and its plain-Python peer."""

import json
import sys
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.__main__ import main
from bench.vllm_priority import names
from bench.vllm_priority.plain import SortedQueue
from coresched.core.reference import ReferenceAttachedOrder, ReferencePrefixPolicy, ReferenceWaiting

ENGINE = {
    "vllm": "0.32.0",
    "python": "CPython 3.11.7",
    "model": "Qwen3-Next-80B-A3B",
    "block_tokens": 544,
    "resident": 100,
    "resident_tokens": 2_200_000,
    "running": 8,
    "repeats": 3,
}


def program(folder: Path, *lines: object, code: int = 0) -> str:
    """An executable that prints these lines of JSON, whatever it is asked, and exits with this code."""
    path = folder / "python"
    text = "".join(json.dumps(line) + "\n" for line in lines)
    path.write_text(f"#!{sys.executable}\nimport sys\nsys.stdout.write({text!r})\nsys.exit({code})\n")
    path.chmod(0o755)
    return str(path)


def row(waiting: int, case: str, policy: str, seconds: float) -> dict[str, Any]:
    samples = [seconds, 2 * seconds, seconds / 2]
    return {"row": {"waiting": waiting, "case": case, "policy": policy, "samples_s": samples}}


LINES = (
    {"doing": "the block pools"},
    {"engine": ENGINE},
    row(10, names.STEP, names.FCFS, 100e-6),
    row(10, names.STEP, names.RP, 80e-6),
    row(500, names.STEP, names.RP, 90e-6),
    row(10, names.NONE_NEW, names.RP, 2e-6),
    row(10, names.NONE_NEW, names.LPM, 200e-6),
)


def test_the_table_shows_each_order_beside_ours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["vllm-priority", "--vllm-python", program(tmp_path, *LINES)]) == 0
    shown = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "whole step 10 fcfs 100 µs 75% 1.25x" in shown
    assert "routing-prefix 80.0 µs 75%" in shown
    assert "500 routing-prefix 90.0 µs 75%" in [line.removeprefix("whole step ") for line in shown]
    assert "lpm 200 µs 75% 100x" in shown


def test_json_has_the_engine_and_a_row_for_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["vllm-priority", "--json", "--vllm-python", program(tmp_path, *LINES)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["engine"] == ENGINE
    assert report["rows"][0]["pass_s"] == 100e-6
    assert report["rows"][0]["ratio"] == 1.25
    assert len(report["rows"]) == 5


def test_a_program_that_fails_or_lacks_vllm_is_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["vllm-priority", "--vllm-python", program(tmp_path, code=1)]) == 1
    assert "vLLM's environment failed: it printed nothing" in capsys.readouterr().err
    assert main(["vllm-priority", "--vllm-python", program(tmp_path, {"error": "no vllm"}, code=1)]) == 2
    assert "--vllm-python no vllm" in capsys.readouterr().err


@given(
    admitted=st.lists(st.sampled_from("abcd"), max_size=8),
    waiting=st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 3), st.integers(0, 3)), max_size=20),
)
def test_the_plain_peer_orders_as_the_reference(
    admitted: list[str], waiting: list[tuple[str, int, int]]
) -> None:
    def requests() -> list[Any]:
        return [
            SimpleNamespace(number=number, session_id=label, arrival_time=float(entered), cached=hit)
            for number, (label, entered, hit) in enumerate(waiting)
        ]

    def enter(request: Any) -> ReferenceWaiting:
        return ReferenceWaiting("", request.session_id, request.arrival_time)

    def prefix_hit(request: Any) -> int:
        return int(request.cached)

    plain, reference = SortedQueue(2, prefix_hit), ReferenceAttachedOrder(ReferencePrefixPolicy(2), "waiting")
    for label in admitted:
        plain.admitted(label)
        reference.policy.admitted(label)
    ours, theirs = deque(requests()), requests()
    plain.order(ours)
    reference.order(theirs, enter, prefix_hit)
    assert [request.number for request in ours] == [request.number for request in theirs]
