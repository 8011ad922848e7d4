"""Folders of replays with events that are written out by hand."""

from collections.abc import Sequence
from pathlib import Path

from simulated import trajectory

from coresched.lab.replay.endpoint import Endpoint, Served
from coresched.lab.replay.events import (
    Admission,
    AnyEvent,
    Completion,
    EnvironmentStage,
    EventLog,
    FailedInference,
    Inference,
)
from coresched.lab.replay.plan import ReplaySettings, make_plan
from coresched.lab.replay.prompts import TokenSource
from coresched.lab.replay.record import EVENTS, Client, write_run, write_summary
from coresched.lab.replay.run import Ending
from coresched.lab.replay.summary import measure

ENDPOINTS = [Endpoint("w0", "http://w0"), Endpoint("w1", "http://w1")]
PLAN = make_plan([trajectory(f"<t{n}>", [(4, 2.0, 3), (3, None, 0)]) for n in range(2)])

EVENTS_OF_TWO: list[AnyEvent] = [
    Admission("<t0>", 0.0),
    Admission("<t1>", 1.0),
    Inference("<t0>", 0, "w0", 0.0, 2.0, 10, 0, 4, 0.5),
    FailedInference("<t1>", 0, "w1", 1.0, 1.5, "connection broke off"),
    Inference("<t1>", 0, "w0", 1.5, 4.0, 30, 10, 4, 0.5),
    EnvironmentStage("<t0>", 0, 2.0, 2.0, 4.0, 2.0),
    EnvironmentStage("<t1>", 0, 4.0, 5.0, 7.0, 2.0),
    Inference("<t0>", 1, "w0", 4.0, 6.0, 17, 14, 3, 0.5),
    Completion("<t0>", 6.0),
    Inference("<t1>", 1, "w1", 7.0, 9.0, 37, 4, 3, 0.5),
    Completion("<t1>", 9.0),
]
"""Two trajectories of two turns, one failed request and one wait for a slot."""


def replay_folder(
    folder: Path, events: Sequence[AnyEvent] = EVENTS_OF_TWO, *, seed: int = 0, ending: Ending | None = None
) -> Path:
    """The folder of a replay with these events; without ``ending`` it was killed."""
    folder.mkdir(parents=True)
    write_run(
        folder,
        traces=[Path("traces.jsonl")],
        plan=PLAN,
        settings=ReplaySettings(sample_concurrency=2, environment_concurrency=1),
        tokens=TokenSource(seed, 1000, 2000),
        endpoints=ENDPOINTS,
        served=[Served("tiny", "sglang", None)] * 2,
        path="/generate",
        service=None,
        batch=None,
    )
    with EventLog(folder / EVENTS) as log:
        for event in events:
            log.add(event)
    if ending is not None:
        names = [one.name for one in ENDPOINTS]
        write_summary(folder, ending, measure(events, samples=2, endpoints=names), Client(9.0, 0.1))
    return folder
