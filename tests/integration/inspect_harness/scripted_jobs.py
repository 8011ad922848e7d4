"""What the scripted worker says in these tests, and what the tools' processes leave behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Reply = dict[str, Any]

JOBS = 6
RIGHT = "done"
WRONG = "given up"


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"name": tool, "arguments": arguments}


def work(job: str, seconds: float = 0.15, then: str = "ok") -> dict[str, Any]:
    return call("work", job=job, seconds=seconds, then=then)


def lines() -> Iterator[tuple[str, list[Reply]]]:
    """What is matched in the first message of the user, and the replies."""
    yield "[BEGIN DATA]", [{"content": "GRADE: C"}]  # a judge's prompt, which quotes the others
    for number in range(JOBS):
        job = f"job-{number}"
        final = RIGHT if number % 3 else WRONG
        yield (
            f"{job};",
            [
                {"content": "One.", "tool_calls": [work(job)]},
                {"tool_calls": [work(job), work(job)]},  # in parallel
                {"content": final},
            ],
        )
    for name in ("error", "fail", "flaky"):
        yield f"{name};", [{"tool_calls": [work(name, 0.05, name)]}, {"content": RIGHT}]
    yield "endless;", [{"tool_calls": [work("endless", 0.05)]}]
    for number in range(3):
        job = f"boss-{number}"
        helper = call("helper", input=f"{job} helps;")
        yield (
            f"{job};",
            [
                {"tool_calls": [work(job), helper]},
                {"tool_calls": [call("ask", question=f"{job} asks;"), work(job)]},
                {"tool_calls": [call("submit", answer=RIGHT)]},
            ],
        )
        yield (
            f"{job} helps;",
            [{"tool_calls": [work(job)]}, {"tool_calls": [call("submit", answer="helped")]}],
        )
        yield f"{job} asks;", [{"content": "An answer."}]
    for number in range(3):
        yield f"timed-{number};", [{"tool_calls": [work(f"timed-{number}", 1.0)]}, {"content": RIGHT}]
    yield "late;", [{"tool_calls": [work("late", 30.0)]}, {"content": RIGHT}]
    for number in range(3):
        yield f"shell-{number};", [{"tool_calls": [call("bash", command="echo here")]}, {"content": RIGHT}]


def write_script(path: Path) -> None:
    script = [json.dumps({"match": match, "replies": replies}) for match, replies in lines()]
    path.write_text("\n".join(script) + "\n", encoding="utf-8")


def most_at_once(log: Path) -> int:
    """Of how many samples tools' processes ran at once. Lines are `start JOB TIME`, `end JOB TIME`."""
    events = []
    for line in log.read_text(encoding="utf-8").splitlines():
        what, job, at = line.split()
        events.append((float(at), 1 if what == "start" else -1, job))
    running: dict[str, int] = {}
    most = 0
    for _, step, job in sorted(events):
        running[job] = running.get(job, 0) + step
        most = max(most, sum(count > 0 for count in running.values()))
    assert events
    assert not any(running.values()), "a tool's process that ended without a line, or was ended"
    return most


def tool_runs(log: Path) -> list[tuple[str, float, float]]:
    """Each process's job, start and end; of those of a job beside each other, one from first to last."""
    found: list[tuple[str, float, float]] = []
    begun: dict[str, list[float]] = {}
    for line in log.read_text(encoding="utf-8").splitlines():
        what, job, at = line.split()
        if what == "start":
            begun.setdefault(job, []).append(float(at))
        else:
            found.append((job, begun[job].pop(0), float(at)))
    return found


def processes(log: Path) -> int:
    return sum(line.startswith("start") for line in log.read_text(encoding="utf-8").splitlines())
