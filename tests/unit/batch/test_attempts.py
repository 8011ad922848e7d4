"""Samples that are put back and tried again, and waits that go on after a break."""

import math
from typing import Literal

import pytest

from coresched.batch.coordinator import Coordinator


def admitted(*names: str, environment_policy: Literal["caas", "fcfs"] = "caas") -> Coordinator:
    """A coordinator with one environment slot and these samples admitted at 0."""
    batch = Coordinator(len(names), 1, environment_policy=environment_policy, band_s=1.0)
    for name in names:
        batch.submit(name, 0.0)
    assert batch.admit(0.0) == list(names)
    return batch


def test_a_sample_put_back_is_admitted_before_those_behind_it_as_a_fresh_trajectory() -> None:
    batch = Coordinator(2, 1)
    for name in ("a", "b", "c", "d"):
        batch.submit(name, 0.0)
    assert batch.admit(0.0) == ["a", "b"]
    batch.start_inference("a", 0.0)
    batch.finish_inference("a", 4.0)
    batch.start_inference("a", 4.0)
    batch.put_back("a", 6.0)
    lost = batch.times("a")
    assert (lost.state, lost.turns, lost.inference_s, lost.failed_inference_s) == ("returned", 1, 4.0, 2.0)
    assert (batch.returned, batch.admitted) == (1, 1)

    batch.submit("a", 7.0)
    assert batch.admit(8.0) == ["a"]
    fresh = batch.times("a")
    assert (fresh.turns, fresh.inference_s, fresh.failed_inference_s, fresh.admissions) == (0, 0.0, 0.0, 2)
    assert (fresh.submitted_at, fresh.admitted_at, fresh.admission_wait_s) == (7.0, 8.0, 1.0)
    assert (batch.summary().returned, batch.summary().readmissions) == (0, 1)


def test_samples_put_back_keep_their_order_and_hold_nobody_up_while_they_are_away() -> None:
    batch = Coordinator(1)
    for name in ("a", "b", "c", "d", "e"):
        batch.submit(name, 0.0)
    for name in ("a", "b", "c"):
        assert batch.admit(0.0) == [name]
        batch.put_back(name, 0.0)
    batch.put_back("e", 0.0)  # while it waits, its place still ahead
    for name in ("e", "c", "a"):
        batch.submit(name, 1.0)
    batch.put_back("c", 1.0)
    batch.submit("c", 1.0)
    order = []
    for now in range(2, 6):
        order += batch.admit(float(now))
        batch.finish(order[-1], float(now))
    assert order == ["a", "c", "d", "e"]
    assert batch.admit(9.0) == []
    assert batch.state("b") == "returned"


@pytest.mark.parametrize("policy", ["caas", "fcfs"])
def test_a_wait_that_goes_on_after_a_break_is_queued_as_of_its_beginning(
    policy: Literal["caas", "fcfs"],
) -> None:
    batch = admitted("a", "b", environment_policy=policy)
    batch.request_environment("a", 10.0)
    batch.cancel_environment("a", 11.0)
    batch.request_environment("b", 12.0)
    batch.request_environment("a", 13.0, since=10.0)
    assert batch.dispatch(15.0) == ["a"]
    assert batch.times("a").environment_queue_s == 1.0 + 5.0
    assert batch.times("a").environment_requested_at == 10.0


@pytest.mark.parametrize("since", [-0.5, 13.5, math.nan, math.inf])
def test_a_wait_cannot_have_begun_before_the_admission_or_after_now(since: float) -> None:
    batch = admitted("a")
    with pytest.raises(ValueError, match="since must be"):
        batch.request_environment("a", 13.0, since=since)
    assert batch.state("a") == "admitted"
    batch.request_environment("a", 1.0)  # the refused step did not move the clock either
