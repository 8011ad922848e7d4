"""The checker finds what is wrong with a run, and nothing else: logs are doctored one fault at a time."""

import dataclasses
from collections.abc import Callable

import pytest
from chaos_logs import GRACE_S, Run, joined, left, times, trajectory
from hypothesis import given
from hypothesis import strategies as st

from bench.chaos.attempts import Attempt, Held, MalformedLogError, Session, read_sessions
from bench.chaos.checker import most_at_once
from bench.chaos.events import Event


def found(run: Run) -> dict[str, list[str]]:
    return {name: each for name, each in dataclasses.asdict(run.findings()).items() if each}


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert found(Run()) == {}


def test_a_process_may_die_between_finishing_a_sample_and_hearing_of_it() -> None:
    run = Run()
    run.cut("second", "b", "finished")
    run.died_at["second"] = 30.0
    assert found(run) == {}


def never_finished(run: Run) -> None:
    run.cut("second", "b", "finishing")
    run.died_at["second"] = 30.0


def unfinished_in_the_report(run: Run) -> None:
    run.report[2] = dataclasses.replace(run.report[2], state="admitted")
    run.totals = {"admitted": 0}


def not_reported(run: Run) -> None:
    run.names.append("d")
    run.totals = {"samples": 4, "finished": 4}


def finished_again(run: Run) -> None:
    run.events["third"] = [joined(40), *trajectory("a", 41), left(50)]
    run.report[0] = times("a", admissions=2)
    run.turns, run.stages, run.readmissions = 9, 5, 2


def run_elsewhere_while_alive(run: Run) -> None:
    run.events["second"] = [joined(0), *trajectory("c", 2.25), *trajectory("b", 13.5), left(30)]


def run_elsewhere_before_the_grace_period_is_over(run: Run) -> None:
    run.events["second"] = [joined(0), *trajectory("c", 2.25), *trajectory("b", 16), left(30)]


def given_away_though_its_process_goes_on(run: Run) -> None:
    del run.died_at["first"]
    run.events["first"] += [*[*trajectory("b", 9)][6:], left(31)]
    run.cut("first", "b", "finished")
    run.events["first"].append(left(31))
    run.turns, run.stages = 8, 5


def never_submitted(run: Run) -> None:
    run.events["second"][-1:] = [*trajectory("x", 40), left(50)]
    run.turns, run.stages = 9, 5
    run.report.append(times("x"))
    run.totals = {"samples": 3, "finished": 3, "readmissions": 2}


def too_many_samples(run: Run) -> None:
    run.limits = (1, 1, 2)


def too_many_residents(run: Run) -> None:
    run.limits = (2, 1, 1)


def too_many_stages(run: Run) -> None:
    run.replace("second", "c", "environment_granted", at=4.5)


@pytest.mark.parametrize(
    ("doctor", "kind", "text"),
    [
        (never_finished, "lost", "b was finished by no session"),
        (unfinished_in_the_report, "lost", "c is admitted in the end"),
        (not_reported, "lost", "d is not in the report"),
        (finished_again, "twice", "a was finished twice: first/1, third/1"),
        (run_elsewhere_while_alive, "twice", "b went from first/1 to second/1 0.500 s before that was over"),
        (
            run_elsewhere_before_the_grace_period_is_over,
            "twice",
            "b went from first/1 to second/1 0.500 s before the end of its grace period",
        ),
        (
            given_away_though_its_process_goes_on,
            "twice",
            "b went from first/1 to second/1, which neither died nor was lost",
        ),
        (never_submitted, "twice", "x was admitted, and never submitted"),
        (too_many_samples, "over_limit", "2 samples at once, where 1 may be, at 2.250 s"),
        (too_many_residents, "over_limit", "2 residents at once, where 1 may be, at 2.500 s"),
        (too_many_stages, "over_limit", "2 environment stages at once, where 1 may be, at 4.500 s"),
    ],
)
def test_what_is_wrong_with_samples_is_found(doctor: Callable[[Run], None], kind: str, text: str) -> None:
    run = Run()
    doctor(run)
    assert text in found(run)[kind]


@pytest.mark.parametrize(
    ("changes", "kind", "text"),
    [
        ({"in_flight": {"w0": 0, "w1": 2}}, "left_over", "2 requests are in flight on w1"),
        ({"totals": {"environment_running": 1}}, "left_over", "1 samples are environment_running in the end"),
        ({"totals": {"resident": 2}}, "left_over", "2 samples are resident in the end"),
        (
            {"totals": {"withdrawn": 1}},
            "report",
            "the report has 3 samples, 3 finished and 1 withdrawn, of 3",
        ),
        ({"readmissions": 0}, "report", "the report has 0 readmissions, with 4 admissions in all"),
        ({"turns": 8}, "report", "turn_ended was written down 7 to 7 times, the report has 8"),
        ({"turns": 6}, "report", "turn_ended was written down 7 to 7 times, the report has 6"),
        ({"stages": 5}, "report", "environment_ended was written down 3 to 4 times, the report has 5"),
        (
            {"report": [times("a", turns=3), times("b", admissions=2), times("c")]},
            "report",
            "a had (2, 1) turns and environment stages, the report has (3, 2)",
        ),
        (
            {"report": [times("a"), times("b"), times("c")], "readmissions": 0},
            "report",
            "b was admitted 2 times, the report has 1",
        ),
        (
            {"report": [times("a", admissions=3), times("b", admissions=2), times("c")], "readmissions": 3},
            "report",
            "4 admissions were written down and at most 1 can be missing, not 6",
        ),
    ],
)
def test_what_the_service_has_wrong_is_found(changes: dict[str, object], kind: str, text: str) -> None:
    run = Run()
    for name, value in changes.items():
        setattr(run, name, value)
    assert text in found(run)[kind]


def test_a_process_that_wakes_too_late_has_no_right_to_what_it_finds() -> None:
    run = Run()
    # Stalled since 4, it finds admission and grant at 30, and then hears that its session is over.
    stalled = [
        Event(at=30.0, kind="admitted", session=1, sample="c", asked_at=3.5),
        Event(at=30.25, kind="resident_granted", session=1, sample="c", asked_at=3.5),
        Event(at=30.5, kind="environment_granted", session=1, sample="c", asked_at=3.5),
        Event(at=31.0, kind="session_lost", session=1),
        joined(32.0, session=2),
        left(33.0, session=2),
    ]
    run.events["stalled"] = [joined(3.0), *stalled]
    run.report[2] = times("c", admissions=2)
    run.readmissions = 2
    run.limits = (2, 1, 2)
    assert found(run) == {}


@pytest.mark.parametrize(
    ("doctor", "text"),
    [
        (lambda run: run.drop("second", "c", "resident_granted"), "turn_started of c after admitted"),
        (lambda run: run.drop("second", "c", "turn_started"), "turn_ended of c after resident_granted"),
        (lambda run: run.drop("second", "c", "admitted"), "resident_granted of c after nothing"),
        (lambda run: run.events["second"].extend(trajectory("a", 50)), "goes on after its end"),
        (lambda run: run.events["second"].pop(), "ended without a word, and was not killed"),
        (lambda run: run.events["second"].insert(9, run.events["second"][1]), "was admitted c twice"),
        (lambda run: run.drop("second", "c", "finishing"), "finished of c after resident_ended"),
    ],
)
def test_a_harness_that_contradicts_itself_is_no_evidence(doctor: Callable[[Run], object], text: str) -> None:
    run = Run()
    doctor(run)
    with pytest.raises(MalformedLogError, match=text):
        run.findings()


def test_a_session_that_leaves_ends_what_it_began() -> None:
    events = {"p": [joined(0), *[*trajectory("a", 1)][:5], left(9)]}
    (session,) = read_sessions(events, {}, GRACE_S)
    with pytest.raises(MalformedLogError, match="p/1 left without ending a"):
        _ = session.attempts["a"].held


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 5)), max_size=12))
def test_the_most_at_once_is_what_counting_at_every_moment_gives(spans: list[tuple[int, int]]) -> None:
    attempt = Attempt(Session("p", 1), "s", [])
    slots = [Held(attempt, float(start), float(start + length)) for start, length in spans]
    counts = [sum(slot.start <= at < slot.end for slot in slots) for at in range(30)]
    most, at = most_at_once(slots)
    assert most == max(counts)
    assert not slots or counts[int(at)] == most
