"""Log lines as text and as JSON, and a stderr that nobody reads."""

import io
import json
import logging
import os
import sys
from datetime import datetime
from threading import Event
from typing import Any

import pytest

from coresched import logs
from coresched.logs import event, logging_to_stderr

LOGGER = logging.getLogger("coresched.tested")


def lines(monkeypatch: pytest.MonkeyPatch, form: Any, level: str = "info") -> list[str]:
    """What one script of events leaves on stderr."""
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    with logging_to_stderr("coresched serve", form, level):
        event(LOGGER, logging.DEBUG, "small", "a detail")
        event(
            LOGGER, logging.INFO, "batch_closed", "batch 'b' 100% closed\u2028", batch="b\n", makespan_s=None
        )
        logging.getLogger("another").info("not ours")
        logging.getLogger("another").warning("count %d", 7)
        try:
            raise ValueError("broken")
        except ValueError:
            LOGGER.exception("a call failed")
    return stderr.getvalue().splitlines()


def test_text(monkeypatch: pytest.MonkeyPatch) -> None:
    written = lines(monkeypatch, "text")
    assert written[:2] == ["coresched serve: batch 'b' 100% closed", ""]  # U+2028 splits a text into lines
    assert written[2:5] == [
        "coresched serve: count 7",
        "coresched serve: a call failed",
        "Traceback (most recent call last):",
    ]
    assert written[-1] == "ValueError: broken"


def test_json_is_one_object_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    closed, count, failed = (json.loads(line) for line in lines(monkeypatch, "json"))
    time = closed.pop("time")
    assert time.endswith("Z")
    assert abs(datetime.fromisoformat(time[:-1] + "+00:00").timestamp() - datetime.now().timestamp()) < 600
    assert closed == {
        "level": "info",
        "event": "batch_closed",
        "message": "batch 'b' 100% closed\u2028",
        "batch": "b\n",
        "makespan_s": None,
    }
    assert (count["level"], count["event"], count["message"]) == ("warning", "another", "count 7")
    assert "ValueError: broken" in failed["exception"]


@pytest.mark.parametrize(("level", "number"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_the_level_is_that_of_our_lines(monkeypatch: pytest.MonkeyPatch, level: str, number: int) -> None:
    # The warning of another package always comes; the exception is an error.
    assert len(lines(monkeypatch, "json", level)) == number + (level == "error")


def test_nothing_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers, level = list(logging.getLogger().handlers), logging.getLogger("coresched").level
    lines(monkeypatch, "text", "debug")
    assert logging.getLogger().handlers == handlers
    assert logging.getLogger("coresched").level == level


class Stuck(io.StringIO):
    """A stream that takes its first line only when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.let, self.took_four = Event(), Event(), Event()

    def write(self, text: str) -> int:
        self.asked.set()
        self.let.wait()
        written = super().write(text)
        if self.getvalue().count("\n") == 4:
            self.took_four.set()
        return written


def test_a_reader_that_is_stuck_stops_nobody_and_is_told_what_it_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stuck = Stuck()
    monkeypatch.setattr(sys, "stderr", stuck)
    monkeypatch.setattr(logs, "_LINES", 3)
    with logging_to_stderr("p", "text", "info"):
        event(LOGGER, logging.INFO, "n", "0")
        assert stuck.asked.wait(20)
        for number in range(1, 6):  # three fit
            event(LOGGER, logging.INFO, "n", str(number))
        stuck.let.set()
        assert stuck.took_four.wait(20)
        event(LOGGER, logging.INFO, "n", "6")
    assert stuck.getvalue().splitlines() == [
        "p: 0",
        "p: 1",
        "p: 2",
        "p: 3",
        "p: 2 lines were lost, as stderr was not read",
        "p: 6",
    ]


def test_a_reader_that_is_gone_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        with logging_to_stderr("p", "text", "info"):
            for _ in range(3):
                event(LOGGER, logging.INFO, "n", "line")
        monkeypatch.undo()
        os.dup2(os.open(os.devnull, os.O_WRONLY), stderr.fileno())
