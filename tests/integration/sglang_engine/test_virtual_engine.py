"""SGLang's scheduler stepped from outside: what `virtual_engine_cases.py` sees in SGLang's interpreter."""

import json
import subprocess
from itertools import pairwise
from math import isclose
from pathlib import Path
from typing import Any

import pytest

from bench.sglang_policies.models import write_model
from bench.sglang_policies.processes import environment
from coresched.lab.simulator.model import load_worker_model

pytestmark = pytest.mark.sglang

Seen = dict[str, Any]


@pytest.fixture(scope="module")
def seen(sglang_python: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    model = write_model("ling-3.0-flash", tmp_path_factory.mktemp("models"))
    done = subprocess.run(
        [sglang_python, Path(__file__).with_name("virtual_engine_cases.py"), model],
        capture_output=True,
        text=True,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    cases: dict[str, Seen] = json.loads(done.stdout)
    assert not [name for name, case in cases.items() if "died" in case], done.stderr[-4000:]
    return cases


def test_a_request_alone_takes_what_the_step_times_say(seen: dict[str, Seen]) -> None:
    times = load_worker_model().times
    prefill_s = (
        times.prefill_batch_s
        + times.prefill_request_s
        + 1000 * times.prefill_token_s
        + 1000 * 500 * times.prefill_attended_token_s
    )
    decode_s = sum(
        times.decode_step_s + times.decode_sequence_s + context * times.decode_context_token_s
        for context in range(1001, 1010)
    )
    (finished,) = seen["alone"]["finished"]
    assert (finished["submitted_s"], finished["queued_s"], finished["started_s"]) == (0.5, 0.5, 0.5)
    assert isclose(finished["first_token_s"], 0.5 + prefill_s)
    assert isclose(finished["finished_s"], 0.5 + prefill_s + decode_s)
    assert seen["alone"]["now"] == finished["finished_s"]
    assert (len(finished["output_ids"]), seen["alone"]["steps"]) == (10, 10)
    assert (finished["prompt_tokens"], finished["cached_tokens"], finished["aborted"]) == (1000, 0, None)


def test_stamps_are_in_order_and_arrivals_wait_for_a_step_to_end(seen: dict[str, Seen]) -> None:
    for each in seen["whole"]["finished"]:
        moments = [
            each[f"{name}_s"] for name in ("submitted", "queued", "started", "first_token", "finished")
        ]
        assert moments == sorted(moments)
        assert isclose(each["queue_s"], each["started_s"] - each["queued_s"], abs_tol=1e-12)
    assert any(each["queued_s"] > each["submitted_s"] for each in seen["whole"]["finished"])
    assert any(each["queue_s"] > 0 for each in seen["whole"]["finished"])


@pytest.mark.parametrize("way", ["slices", "by events"])
def test_stepping_changes_nothing(seen: dict[str, Seen], way: str) -> None:
    assert seen[way]["finished"] == seen["whole"]["finished"]


def test_a_slice_ends_when_it_should_also_within_a_step(seen: dict[str, Seen]) -> None:
    stops = seen["slices"]["stops"]
    assert all(isclose(after - before, 0.01) for before, after in pairwise(stops))


def test_what_finishes_at_the_next_event_is_seen_at_once(seen: dict[str, Seen]) -> None:
    assert set(seen["by events"]["late"]) == {0.0}
    assert seen["by events"]["idle"] is True


def test_charging_the_scheduler_makes_requests_wait_for_it(seen: dict[str, Seen]) -> None:
    first, plain = (seen[case]["finished"][0] for case in ("charged", "whole"))
    assert first["started_s"] > plain["started_s"]
    assert first["finished_s"] > plain["finished_s"]
    assert first["output_ids"] == plain["output_ids"]


def test_the_loop_without_overlap_runs_too(seen: dict[str, Seen]) -> None:
    found, overlapped = (
        {each["request_id"]: each["output_ids"] for each in seen[case]["finished"]}
        for case in ("not overlapped", "whole")
    )
    assert found == overlapped
    assert seen["not overlapped"]["now"] != seen["whole"]["now"]


def test_time_passes_while_nothing_is_there(seen: dict[str, Seen]) -> None:
    idle = seen["idle"]
    assert (idle["nothing"], idle["at_first"]) == ([], 0.0)
    assert idle["first"]["submitted_s"] == idle["first"]["started_s"] == 3.0
    assert (idle["now"], idle["next"]) == (5.0, 8.0)
    (second,) = idle["second"]
    assert (second["started_s"], second["cached_tokens"]) == (8.0, 64)


def test_requests_are_aborted_where_they_are(seen: dict[str, Seen]) -> None:
    waiting, running, *others = seen["aborts"]["finished"]
    assert (waiting["request_id"], waiting["started_s"], waiting["output_ids"]) == ("waiting", None, [])
    assert 0.4 <= waiting["finished_s"] < 0.5
    assert running["request_id"] == "running"
    assert 0 < len(running["output_ids"]) < 50
    assert all(each["aborted"] for each in (waiting, running))
    assert [each["request_id"] for each in others] == ["also", "stays"]
    assert all(len(each["output_ids"]) == 50 and each["aborted"] is None for each in others)
    assert seen["aborts"]["in_flight"] == 0


def test_a_flush_empties_the_cache_unless_requests_run(seen: dict[str, Seen]) -> None:
    flushes = seen["flushes"]
    assert flushes["cached"] == [0, 960, 0]
    assert (flushes["flushed"], flushes["refused"]) == (True, False)
    assert flushes["fourth"][0]["cached_tokens"] == 960


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        ("id", "request_id 'r1' is in flight"),
        ("prompt", "request 'r2' has 0 prompt tokens"),
        ("output", "output_tokens is 0; it must be at least 1"),
        ("long", "4000 prompt and 100 output tokens are more than the 4094"),
        ("at", "at is 0.001; it must be 0.01 s, the present, or later"),
        ("until", "until is 0.001, before the present 0.01 s"),
        ("unknown", "request_id 'r3' is not in flight"),
        ("prefix", "request_id 'r1' begins 'r10', which SGLang would abort too"),
        ("second", "an engine was made in this process before"),
    ],
)
def test_bad_calls_are_refused(seen: dict[str, Seen], attempt: str, message: str) -> None:
    assert message in seen["refusals"][attempt]
    assert seen["refusals"]["ends_still"] == 2


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("unknown field", "server_args has no_such_field; SGLang's ServerArgs has no such field"),
        ("unknown policy", "SGLang refuses server_args: Unknown schedule_policy"),
        ("no model", "SGLang refuses server_args: "),
        ("stuck", "1 requests wait, none runs and none can be admitted; the first is 'r' with 100 prompt"),
    ],
)
def test_an_engine_that_cannot_serve_says_why(seen: dict[str, Seen], case: str, message: str) -> None:
    assert message in seen[case]["error"]
    assert "\n" not in seen[case]["error"]


def test_what_is_not_cached_waits_for_the_guard_and_what_is_does_not(seen: dict[str, Seen]) -> None:
    fcfs, ours = (seen[f"returning, {policy}"] for policy in ("fcfs", "routing-residency"))
    assert fcfs["started"] == ["t0-3", "cold", "none", "t1-3"]
    assert fcfs["cached"]["t1-3"] == 0
    assert ours["started"] == ["t0-3", "t1-3", "cold", "none"]
    assert ours["waited"] == ["cold", "none"]
    assert ours["cached"]["t0-3"] == ours["cached"]["t1-3"] > 600


def test_the_guard_holds_nothing_back_while_nothing_runs(seen: dict[str, Seen]) -> None:
    ours = seen["nothing runs, routing-residency"]
    assert ours["ended"] == ["new-0", "new-1", "new-2"]
    assert ours["queue_s"][0] == 0.0
    assert ours["second waits for the first"] is True
    assert seen["nothing runs, fcfs"]["queue_s"][1] == 0.0


def test_the_prefill_delayer_waits_in_virtual_time(seen: dict[str, Seen]) -> None:
    delayed = seen["delayed"]
    assert isclose(delayed["first"], 1.0, abs_tol=0.1)
    assert isclose(delayed["alone"], 3.5, abs_tol=0.1)
    assert delayed["earlier"] == delayed["later"]
    assert isclose(delayed["later"], 6.25, abs_tol=0.1)
