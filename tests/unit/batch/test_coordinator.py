"""Every step of the coordinator, what it changes, and what it refuses."""

import doctest
import math

import pytest

import coresched.batch.coordinator
from coresched.batch.coordinator import Coordinator
from coresched.batch.records import STEPS_IN_WORDS, TransitionError
from coresched.batch.sample import Sample


def admitted(*names: str, **options: object) -> Coordinator:
    """A coordinator with these samples admitted at 0."""
    batch = Coordinator(len(names), **options)  # type: ignore[arg-type]
    for name in names:
        batch.submit(name, 0.0)
    assert batch.admit(0.0) == list(names)
    return batch


def queued(*names: str, **options: object) -> Coordinator:
    """A coordinator with these samples in the environment queue since 1."""
    batch = admitted(*names, **options)
    for name in names:
        batch.request_environment(name, 1.0)
    return batch


def counts(batch: Coordinator) -> tuple[int, ...]:
    return (
        batch.waiting,
        batch.admitted,
        batch.environment_queued,
        batch.environment_running,
        batch.finished,
        batch.withdrawn,
    )


# A sample in each state, and the steps that state allows.
STATES = {
    "waiting": [],
    "admitted": ["admit"],
    "inference": ["admit", "start_inference"],
    "queued": ["admit", "request_environment"],
    "environment": ["admit", "request_environment", "dispatch"],
    "finished": ["admit", "finish"],
    "withdrawn": ["withdraw"],
    "returned": ["admit", "put_back"],
    "resident_queued": ["admit", "request_resident"],
}
ALLOWED = {
    "waiting": {"withdraw", "put_back"},
    "admitted": {
        "start_inference",
        "request_environment",
        "request_resident",
        "finish",
        "withdraw",
        "put_back",
    },
    "inference": {"finish_inference", "cancel_inference", "withdraw", "put_back"},
    "queued": {"cancel_environment", "withdraw", "put_back"},
    "environment": {"finish_environment", "cancel_environment", "withdraw", "put_back"},
    "finished": set(),
    "withdrawn": set(),
    "returned": {"withdraw"},
    "resident_queued": {"cancel_resident", "withdraw", "put_back"},
}
STEPS = sorted({"finish_resident"}.union(*ALLOWED.values()))


def in_state(state: str) -> Coordinator:
    batch = Coordinator(1, 1)
    batch.submit("s", 0.0)
    for step in STATES[state]:
        if step in ("admit", "dispatch"):
            assert getattr(batch, step)(0.0) == ["s"]
        else:
            getattr(batch, step)("s", 0.0)
    assert batch.state("s") == state
    return batch


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("step", STEPS)
def test_each_step_in_each_state_is_taken_or_refused_whole(state: str, step: str) -> None:
    batch = in_state(state)
    before = (batch.times("s"), counts(batch), batch.summary())
    if step in ALLOWED[state]:
        getattr(batch, step)("s", 1.0)
        assert batch.state("s") != state
        return
    with pytest.raises(TransitionError) as refused:
        getattr(batch, step)("s", 1.0)
    assert (refused.value.sample, refused.value.state, refused.value.asked) == ("s", state, step)
    assert "'s'" in str(refused.value)
    assert str(refused.value).endswith(f"does not allow {STEPS_IN_WORDS.get(step, step)}")
    assert (batch.times("s"), counts(batch), batch.summary()) == before
    batch.admit(0.0)  # the refused step did not move the clock either


@pytest.mark.parametrize("state", [state for state in STATES if ALLOWED[state]])
def test_withdraw_frees_what_the_sample_holds_exactly_once(state: str) -> None:
    batch = in_state(state)
    batch.withdraw("s", 1.0)
    assert counts(batch) == (0, 0, 0, 0, 0, 1)
    with pytest.raises(TransitionError):
        batch.withdraw("s", 1.0)
    assert counts(batch) == (0, 0, 0, 0, 0, 1)
    batch.submit("next", 1.0)
    assert batch.admit(1.0) == ["next"]
    batch.request_environment("next", 1.0)
    assert batch.dispatch(1.0) == ["next"]


@pytest.mark.parametrize("step", STEPS)
def test_unknown_sample_is_a_lookup_error(step: str) -> None:
    batch = Coordinator(1)
    with pytest.raises(LookupError, match="'ghost'"):
        getattr(batch, step)("ghost", 0.0)
    with pytest.raises(LookupError, match="'ghost'"):
        batch.times("ghost")
    with pytest.raises(LookupError, match="'ghost'"):
        batch.state("ghost")


def test_admission_is_in_submission_order_as_slots_free() -> None:
    batch = Coordinator(2)
    for name in "abcde":
        batch.submit(name, 0.0)
    assert batch.admit(1.0) == ["a", "b"]
    assert batch.admit(1.0) == []
    batch.withdraw("c", 2.0)  # a waiter that gave up is stepped over
    batch.finish("b", 2.0)
    assert batch.admit(3.0) == ["d"]
    batch.withdraw("a", 4.0)
    assert batch.admit(4.0) == ["e"]
    assert batch.samples() == ["a", "b", "c", "d", "e"]
    assert len(batch) == 5
    assert "e" in batch
    assert "f" not in batch


def test_a_sample_keeps_its_slot_through_all_its_stages() -> None:
    batch = Coordinator(1, 1)
    batch.submit("a", 0.0)
    batch.submit("b", 0.0)
    assert batch.admit(0.0) == ["a"]
    for step in ("start_inference", "finish_inference", "request_environment"):
        getattr(batch, step)("a", 1.0)
        assert batch.admit(1.0) == []
    assert batch.dispatch(1.0) == ["a"]
    assert batch.admit(1.0) == []
    batch.finish_environment("a", 1.0)
    assert batch.admit(1.0) == []
    batch.finish("a", 1.0)
    assert batch.admit(1.0) == ["b"]


def test_duplicate_submit_is_refused_also_after_the_end() -> None:
    batch = in_state("finished")
    with pytest.raises(ValueError, match=r"'s'.*submitted before"):
        batch.submit("s", 1.0)
    assert counts(batch) == (0, 0, 0, 0, 1, 0)


def test_dispatch_keeps_to_the_environment_slots() -> None:
    batch = queued("a", "b", "c", environment_concurrency=2)
    assert batch.dispatch(1.0) == ["a", "b"]
    assert batch.dispatch(1.0) == []
    batch.finish_environment("a", 2.0)
    assert batch.dispatch(2.0) == ["c"]
    assert counts(batch) == (0, 3, 0, 2, 0, 0)


def test_without_a_cap_every_environment_job_starts() -> None:
    batch = queued(*"abcdef")
    assert batch.environment_concurrency is None
    assert batch.dispatch(1.0) == list("abcdef")


def test_cancelled_job_leaves_the_queue_or_returns_its_slot() -> None:
    batch = queued("a", "b", "c", environment_concurrency=1)
    assert batch.dispatch(2.0) == ["a"]
    batch.cancel_environment("b", 3.0)
    batch.cancel_environment("a", 4.0)
    assert batch.dispatch(4.0) == ["c"]
    assert batch.state("a") == batch.state("b") == "admitted"
    assert batch.times("a").environment_s == 2.0
    assert batch.times("a").environment_stages == 0
    assert batch.times("b").environment_queue_s == 2.0
    assert batch.times("b").environment_started_at is None
    batch.request_environment("b", 5.0)  # and may ask again
    assert batch.environment_queued == 1


def test_caas_prefers_the_deeper_trajectory_within_a_band() -> None:
    batch = admitted("shallow", "deep", environment_concurrency=1)
    for _ in range(2):
        batch.start_inference("deep", 1.0)
        batch.finish_inference("deep", 1.0)
    batch.request_environment("shallow", 2.0)
    batch.request_environment("deep", 29.0)
    assert batch.dispatch(29.0) == ["deep"]


def test_caas_prefers_the_earlier_band_to_depth() -> None:
    batch = admitted("shallow", "deep", environment_concurrency=1)
    batch.start_inference("deep", 1.0)
    batch.finish_inference("deep", 1.0)
    batch.request_environment("shallow", 29.9)
    batch.request_environment("deep", 30.0)
    assert batch.dispatch(30.0) == ["shallow"]


def test_caas_prefers_faster_turns_at_equal_depth_by_bucket_of_the_mean() -> None:
    batch = admitted("slow", "fast", environment_concurrency=1)
    batch.start_inference("slow", 4.0)
    batch.start_inference("fast", 4.0)
    batch.finish_inference("fast", 5.0)
    batch.finish_inference("slow", 8.0)
    batch.request_environment("slow", 8.0)
    batch.request_environment("fast", 8.5)
    assert batch.dispatch(9.0) == ["fast"]


def test_caas_buckets_the_mean_turn_not_the_sum() -> None:
    batch = admitted("slow", "fast", environment_concurrency=1)
    for beginning in (0.0, 10.0):
        batch.start_inference("slow", beginning)
        batch.start_inference("fast", beginning)
        batch.finish_inference("fast", beginning + 0.25)
        batch.finish_inference("slow", beginning + 0.75)
    batch.request_environment("slow", 11.0)
    batch.request_environment("fast", 11.0)
    assert batch.dispatch(11.0) == [
        "slow"
    ]  # one bucket, so the earlier request; the sums are 1.5 s and 0.5 s


def test_bands_count_from_the_first_submit() -> None:
    batch = Coordinator(2, 1)
    batch.admit(990.0)  # no beginning yet
    batch.submit("shallow", 1000.0)
    batch.submit("deep", 1000.0)
    batch.admit(1000.0)
    batch.start_inference("deep", 1000.0)
    batch.finish_inference("deep", 1001.0)
    batch.request_environment("shallow", 1015.0)
    batch.request_environment("deep", 1025.0)  # 1020 is a multiple of the band, but not since the beginning
    assert batch.dispatch(1025.0) == ["deep"]


def test_fcfs_is_the_order_of_requests_whatever_the_depth() -> None:
    batch = admitted("a", "b", "c", environment_concurrency=1, environment_policy="fcfs")
    for name in "cb":
        batch.start_inference(name, 0.0)
        batch.finish_inference(name, 0.0)
    order = ["a", "c", "b"]
    for name in order:
        batch.request_environment(name, 1.0)
    seen = []
    for _ in order:
        (name,) = batch.dispatch(2.0)
        batch.finish_environment(name, 2.0)
        seen.append(name)
    assert seen == order


def test_times_split_the_wait_from_the_job() -> None:
    batch = Coordinator(1, 1)
    batch.submit("a", 10.0)
    batch.submit("b", 10.5)
    batch.admit(11.0)
    batch.start_inference("a", 12.0)
    batch.finish_inference("a", 14.0)
    batch.start_inference("a", 14.0)
    batch.cancel_inference("a", 14.25)
    batch.request_environment("a", 15.0)
    batch.dispatch(18.0)
    batch.finish_environment("a", 25.0)
    batch.finish("a", 26.0)
    batch.admit(26.0)
    times = batch.times("a")
    assert times.state == "finished"
    assert (times.submitted_at, times.admitted_at, times.finished_at) == (10.0, 11.0, 26.0)
    assert (times.admission_wait_s, times.inference_s, times.failed_inference_s) == (1.0, 2.0, 0.25)
    assert (times.environment_queue_s, times.environment_s) == (3.0, 7.0)
    assert (times.turns, times.environment_stages) == (1, 1)
    assert (times.environment_requested_at, times.environment_started_at) == (15.0, 18.0)
    assert times.environment_ended_at == 25.0
    assert batch.times("b").admission_wait_s == 15.5
    summary = batch.summary()
    assert (summary.samples, summary.finished, summary.admitted) == (2, 1, 1)
    assert (summary.admission_wait_s, summary.makespan_s) == (16.5, 15.0)


def test_failed_turns_are_no_part_of_the_mean() -> None:
    batch = admitted("retried", "slow", environment_concurrency=1, bucket_s=1.0)
    batch.start_inference("retried", 0.0)
    batch.cancel_inference("retried", 9.0)
    batch.start_inference("slow", 9.0)
    batch.finish_inference("slow", 11.0)
    batch.start_inference("retried", 11.0)
    batch.finish_inference("retried", 11.5)
    batch.request_environment("slow", 12.0)
    batch.request_environment("retried", 12.0)
    assert batch.dispatch(12.0) == ["retried"]


def test_a_sample_withdrawn_before_admission_waited_until_then() -> None:
    batch = Coordinator(1)
    batch.submit("a", 1.0)
    batch.withdraw("a", 4.0)
    times = batch.times("a")
    assert (times.admission_wait_s, times.admitted_at, times.finished_at) == (3.0, None, 4.0)
    assert batch.summary().makespan_s is None


@pytest.mark.parametrize("now", [math.nan, math.inf, -math.inf, 0.999, -5])
def test_time_must_be_finite_and_never_go_back(now: float) -> None:
    batch = in_state("admitted")
    batch.start_inference("s", 1.0)
    before = (batch.times("s"), counts(batch))
    for whole_batch in (batch.admit, batch.dispatch):
        with pytest.raises(ValueError, match="now must be"):
            whole_batch(now)
    for name, step in (("new", batch.submit), ("s", batch.finish_inference), ("s", batch.withdraw)):
        with pytest.raises(ValueError, match="now must be"):
            step(name, now)
    assert (batch.times("s"), counts(batch)) == before
    batch.finish_inference("s", 1.0)


def test_a_span_that_no_double_holds_is_refused() -> None:
    batch = Coordinator(1)
    batch.submit("a", -1e308)
    with pytest.raises(ValueError, match="now must be"):
        batch.admit(1e308)
    assert batch.admit(0.0) == ["a"]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"sample_concurrency": 0}, ValueError, "sample_concurrency must be at least 1, got 0"),
        ({"sample_concurrency": 2.0}, TypeError, "sample_concurrency must be an int"),
        ({"sample_concurrency": True}, TypeError, "sample_concurrency must be an int"),
        ({"environment_concurrency": 0}, ValueError, "environment_concurrency must be at least 1, got 0"),
        ({"environment_concurrency": "3"}, TypeError, "environment_concurrency must be an int"),
        ({"environment_policy": "lifo"}, ValueError, "environment_policy must be .* got 'lifo'"),
        ({"environment_policy": None}, ValueError, "environment_policy must be .* got None"),
        ({"band_s": 0.0}, ValueError, "band_s must be above 0"),
        ({"bucket_s": -1.0}, ValueError, "bucket_s must be above 0"),
    ],
)
def test_bad_options_are_named(options: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Coordinator(**{"sample_concurrency": 1, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "error"), [("", ValueError), (7, TypeError), (None, TypeError)])
def test_bad_sample_names_are_refused(name: object, error: type[Exception]) -> None:
    batch = Coordinator(1)
    with pytest.raises(error, match="sample must"):
        batch.submit(name, 0.0)  # type: ignore[arg-type]
    assert len(batch) == 0


def test_options_can_be_read_back() -> None:
    batch = Coordinator(4, 2, environment_policy="fcfs", band_s=10, bucket_s=0.5)
    assert (batch.sample_concurrency, batch.environment_concurrency) == (4, 2)
    assert (batch.environment_policy, batch.band_s, batch.bucket_s) == ("fcfs", 10.0, 0.5)


def test_samples_are_made_by_the_coordinator_only() -> None:
    with pytest.raises(TypeError, match=r"Coordinator\.submit"):
        Sample()


def test_the_example_in_the_documentation() -> None:
    result = doctest.testmod(coresched.batch.coordinator)
    assert result.attempted > 0
    assert result.failed == 0


# Resident slots.


def test_a_resident_slot_is_kept_over_stages_and_granted_in_the_order_of_arrival() -> None:
    batch = admitted("a", "b", "c", resident_concurrency=1)
    for name, since in (("a", 1.0), ("b", 3.0), ("c", 2.0)):  # that of c went on after a break
        batch.request_resident(name, 3.0, since)
    assert batch.grant_residents(4.0) == ["a"]
    assert (batch.resident, batch.resident_queued, batch.state("b")) == (1, 2, "resident_queued")
    batch.start_inference("a", 5.0)
    batch.finish_inference("a", 6.0)
    batch.request_environment("a", 6.0)
    assert batch.dispatch(6.0) == ["a"]
    assert batch.grant_residents(7.0) == []
    batch.finish_environment("a", 8.0)
    batch.finish_resident("a", 9.0)
    assert batch.grant_residents(9.0) == ["c"]
    batch.put_back("c", 10.0)
    assert batch.grant_residents(10.0) == ["b"]
    batch.finish("b", 12.0)
    assert (batch.resident, batch.resident_queued) == (0, 0)
    times = batch.times("a")
    assert (times.resident_wait_s, times.resident_s, times.resident_requested_at) == (3.0, 5.0, 1.0)
    assert (times.resident_started_at, times.resident_ended_at, times.resident) == (4.0, 9.0, False)
    summary = batch.summary()
    assert (summary.resident_wait_s, summary.resident_s) == (3.0 + 7.0 + 7.0, 5.0 + 1.0 + 2.0)


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (
            "request_resident",
            "sample 's' holds a resident slot already, which does not allow sample.resident()",
        ),
        ("request_environment", None),
        ("finish_resident", None),
        ("cancel_resident", None),
    ],
)
def test_with_a_resident_slot_between_stages(step: str, said: str | None) -> None:
    batch = admitted("s", resident_concurrency=1)
    batch.request_resident("s", 0.0)
    assert batch.grant_residents(0.0) == ["s"]
    if said is None:
        getattr(batch, step)("s", 1.0)
        return
    with pytest.raises(TransitionError) as refused:
        getattr(batch, step)("s", 1.0)
    assert str(refused.value) == said
    assert batch.resident == 1


@pytest.mark.parametrize("stage", ["inference", "queued", "environment"])
def test_with_a_resident_slot_in_a_stage(stage: str) -> None:
    batch = admitted("s", resident_concurrency=1)
    batch.request_resident("s", 0.0)
    assert batch.grant_residents(0.0) == ["s"]
    for step in STATES[stage][1:]:
        batch.dispatch(0.0) if step == "dispatch" else getattr(batch, step)("s", 0.0)
    with pytest.raises(TransitionError, match="leave the stage first"):
        batch.finish_resident("s", 1.0)
    batch.cancel_resident("s", 2.0)
    assert (batch.state("s"), batch.resident) == (stage, 0)
    with pytest.raises(TransitionError):
        batch.cancel_resident("s", 3.0)


def test_without_a_resident_slot_none_is_given_back() -> None:
    batch = admitted("s")
    for step in ("finish_resident", "cancel_resident"):
        with pytest.raises(TransitionError, match="'s' holds no resident slot, which does not allow"):
            getattr(batch, step)("s", 1.0)


def test_the_resident_cap_is_checked() -> None:
    assert Coordinator(1).resident_concurrency is None
    assert Coordinator(1, resident_concurrency=3).resident_concurrency == 3
    with pytest.raises(ValueError, match="resident_concurrency must be at least 1, got 0"):
        Coordinator(1, resident_concurrency=0)
