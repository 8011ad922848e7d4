"""The history of a batch: whom it knows, and what is said of a file that is none."""

import logging
from pathlib import Path

import pytest

from coresched.batch.coordinator import Coordinator
from coresched.batch.history import History, history_of, read_history, task_of, write_history
from coresched.errors import InputError

LONGEST_FIRST = "longest-expected-first"


@pytest.mark.parametrize(
    ("sample", "task"),
    [
        ("astropy__astropy-12907", "astropy__astropy-12907"),
        ("django-11099#2", "django-11099"),
        ("live_simple_3-2-0@3fa9c1", "live_simple_3-2-0"),
        ("airline-0#3@3fa9c1", "airline-0"),
        ("task-1~2", "task-1"),
        ("17_epoch_2", "17"),
        ("gaia/17/epoch-1/attempt-2/Vx8", "17"),
        ("gaia/a%20b/c/epoch-1/attempt-2/Vx8", "a b/c"),
        ("#2", "#2"),
        ("mail@example", "mail@example"),
    ],
)
def test_attempts_at_a_task_share_its_history(sample: str, task: str) -> None:
    assert task_of(sample) == task
    assert History({task: 7.0}).expected(sample) == 7.0


def test_a_sample_has_its_own_before_that_of_its_task() -> None:
    history = History({"a": 1.0, "a#2": 9.0})
    assert (history.expected("a#2"), history.expected("a#3")) == (9.0, 1.0)


def test_the_first_unknown_sample_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    history = History({"a": 1.0})
    with caplog.at_level(logging.WARNING, "coresched.client"):
        assert history.expected("b#2") is history.expected("c") is None
    assert [record.getMessage() for record in caplog.records] == [
        "the history knows nothing of sample 'b#2' (task 'b'); such samples are admitted as if they were of "
        "median length"
    ]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    write_history(path, {"a": 3.5, "é": 2.0}, "turns", "--output")
    history = read_history(path)
    assert (history.expected("a"), history.expected("é")) == (3.5, 2.0)


def test_a_task_on_several_lines_took_their_mean(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text('{"task": "a", "seconds": 3}\n\n{"seconds": 6, "task": "a"}\n')
    assert read_history(path).expected("a") == 4.5


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("", "has no line; write it with `coresched trace history`"),
        ('{"task": "a", "turns": 3}\n{"task": "b"', "line 2: not JSON"),
        ("[1]", 'line 1: no JSON object; give {"task": NAME, UNIT: NUMBER}'),
        ('{"turns": 3}', "line 1: its fields are 'turns'; give"),
        (
            '{"task": "a", "turns": 3, "seconds": 2}',
            "line 1: its fields are 'task', 'turns', 'seconds'; give",
        ),
        ('{"task": "a", "hours": 3}', "line 1: its fields are 'task', 'hours'; give"),
        ('{"task": "a", "turns": 3}\n{"task": "b", "seconds": 3}', "line 2: seconds, while the lines before"),
        ('{"task": "a", "turns": -3}', "line 1: turns is -3; give a number from 0 to 1e+15"),
        ('{"task": "a", "seconds": 1.7e308}', "line 1: seconds is 1.7e+308; give a number from 0 to 1e+15"),
        ('{"task": "a", "seconds": 1' + 400 * "0" + "}", "line 1: seconds is 1000"),
        ('{"task": "a", "turns": "3"}', "line 1: turns is '3'; give a number"),
        ('{"task": "a", "turns": true}', "line 1: turns is True; give a number"),
        ('{"task": "", "turns": 3}', "line 1: task must not be empty"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, lines: str, said: str) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text(lines)
    with pytest.raises(InputError) as refused:
        read_history(path)
    assert said in str(refused.value)
    assert str(path) in str(refused.value)


def test_a_path_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none.jsonl' cannot be read: No such file"):
        read_history(tmp_path / "none.jsonl")


def test_the_policy_and_a_history_go_together() -> None:
    assert history_of("submission", None) is None
    assert history_of(LONGEST_FIRST, {}) is not None
    with pytest.raises(InputError, match="history is for admission_policy"):
        history_of("submission", {"a": 1.0})
    with pytest.raises(InputError, match="history must be given with admission_policy"):
        history_of(LONGEST_FIRST, None)
    with pytest.raises(TypeError, match="history must be a path or a mapping, got 3"):
        history_of(LONGEST_FIRST, 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="history of 'a': expected must be at least 0, got -1"):
        history_of(LONGEST_FIRST, {"a": -1})


def admitted(expected: list[float | None], policy: str = LONGEST_FIRST) -> str:
    batch = Coordinator(len(expected), admission_policy=policy)  # type: ignore[arg-type]
    for name, length in zip("abcdefgh", expected, strict=False):
        batch.submit(name, 0.0, length)
    return "".join(batch.admit(0.0))


def test_the_longest_expected_is_admitted_first() -> None:
    assert admitted([1, 5, 3]) == "bca"
    assert admitted([1, 5, 3], "submission") == "abc"
    assert admitted([2, 2, 3]) == "cab"


def test_without_an_expectation_a_sample_counts_with_the_median() -> None:
    assert admitted([None, 1, 5, 3, None]) == "cadeb"
    assert admitted([None, None]) == "ab"


def test_what_was_admitted_and_put_back_goes_first() -> None:
    batch = Coordinator(1, admission_policy=LONGEST_FIRST)
    batch.submit("short", 0.0, 1)
    assert batch.admit(0.0) == ["short"]
    batch.submit("long", 0.0, 9)
    batch.put_back("short", 1.0)
    batch.submit("short", 1.0)
    assert batch.admit(1.0) == ["short"]


@pytest.mark.parametrize(
    ("expected", "error"), [(-1, ValueError), (float("inf"), ValueError), ("3", TypeError), (True, TypeError)]
)
def test_an_expectation_that_is_none_changes_nothing(expected: object, error: type[Exception]) -> None:
    batch = Coordinator(1, admission_policy=LONGEST_FIRST)
    with pytest.raises(error, match=r"^expected must be"):
        batch.submit("a", 0.0, expected)  # type: ignore[arg-type]
    assert len(batch) == batch.waiting == 0


def test_another_policy_is_refused() -> None:
    with pytest.raises(ValueError, match=r'must be "submission" or "longest-expected-first", got \'lpt\''):
        Coordinator(1, admission_policy="lpt")  # type: ignore[arg-type]
