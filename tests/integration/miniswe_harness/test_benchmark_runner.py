"""mini-swe-agent's own benchmark runner on local tasks: not gated, unified by a service, and decoupled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness_recordings import ToolRun, check_recording
from integration.miniswe_harness.runs import (
    Run,
    commands,
    intervals,
    makespan_s,
    most_at_once,
    requests,
    running,
)
from integration.miniswe_harness.tasks import TIMEOUT_S, replies_of, write_configuration, write_tasks
from served import served
from simulated_worker import running_worker

from coresched.cli.main import main
from coresched.trajectory.reader import load_trajectories

TASKS, STUCK, SAMPLES, SLOTS = 6, 2, 6, 2


@dataclass(frozen=True)
class Runs:
    tasks: Path
    plain: Run
    unified: list[Run]
    """Two processes with half of the tasks each."""
    decoupled: Run
    one_worker: Path
    """The requests of all but the decoupled run."""
    two_workers: list[Path]
    """The requests of that one, by worker."""
    recorded: Path
    """Its recording."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    folder = tmp_path_factory.mktemp("miniswe")
    write_tasks(folder, TASKS, command_s=0.4, stuck=STUCK)
    names = ("plain", "unified-0", "unified-1", "decoupled")
    logs = [folder / f"requests-{number}.jsonl" for number in range(3)]
    with ExitStack() as stack:
        options = ("--speed", "10", "--served-model-name", "m", "--script", str(folder / "script.jsonl"))
        urls = [stack.enter_context(running_worker(*options, "--request-log", str(log)))[0] for log in logs]
        service, _ = stack.enter_context(served())
        for name in names:
            write_configuration(folder / name, urls[0])

        def start(name: str, *more: str, **variables: str) -> Run:
            return stack.enter_context(running(folder, folder / name, SAMPLES, *more, **variables))

        plain = start("plain")
        limits = {"CORESCHED_SAMPLE_CONCURRENCY": str(SLOTS), "CORESCHED_ENVIRONMENT_CONCURRENCY": str(SLOTS)}
        shared = {**limits, "CORESCHED_SERVICE": service, "CORESCHED_BATCH": "unified"}
        half = TASKS // 2
        unified = [
            start("unified-0", "--slice", f":{half}", **shared),
            start("unified-1", "--slice", f"{half}:", **shared),
        ]
        limits["CORESCHED_SAMPLE_CONCURRENCY"] = str(SAMPLES)
        limits["CORESCHED_RECORD"] = str(folder / "recorded")
        decoupled = start("decoupled", CORESCHED_WORKERS=",".join(urls[1:]), **limits)
        for run in (plain, *unified, decoupled):
            run.finish()
        yield Runs(folder, plain, unified, decoupled, logs[0], logs[1:], folder / "recorded")


def test_every_task_is_submitted_with_what_it_submits_without_a_gate(runs: Runs) -> None:
    for gated in ([runs.decoupled], runs.unified):
        submissions = {name: text for run in gated for name, text in run.submissions().items()}
        assert submissions == runs.plain.submissions()
        observations = {name: seen for run in gated for name, seen in run.observations().items()}
        assert observations == runs.plain.observations()
        for run in gated:
            statuses = [one["info"]["exit_status"] for one in run.trajectories().values()]
            assert set(statuses) == {"Submitted"}
    assert len(runs.plain.submissions()) == TASKS


def test_the_cap_holds_as_the_commands_see_it(runs: Runs) -> None:
    plain, unified, decoupled = (
        intervals(*(run.folder for run in group)) for group in ([runs.plain], runs.unified, [runs.decoupled])
    )
    assert len(plain) == len(unified) == len(decoupled) == 4 * TASKS
    assert most_at_once(unified) <= SLOTS
    assert most_at_once(decoupled) <= SLOTS
    print(f"makespan: unified {makespan_s(unified):.1f} s, decoupled {makespan_s(decoupled):.1f} s")


def test_only_what_never_ends_is_timed_out(runs: Runs) -> None:
    waits = []
    for name, one in runs.decoupled.trajectories().items():
        timed_out = [text for text in runs.decoupled.observations()[name] if "timed out after" in text]
        assert len(timed_out) == (1 if name in [f"task__{number}" for number in range(STUCK)] else 0)
        waits.append(one["info"]["coresched"]["environment_queue_s"])
    print(f"longest wait of a trajectory {max(waits):.1f} s, timeout of a command {TIMEOUT_S} s")


def test_every_request_of_a_gated_run_has_its_label(runs: Runs) -> None:
    expected = Counter(replies_of(runs.tasks))
    served_by = [Counter(entry["label"] for entry in requests(log)) for log in runs.two_workers]
    assert served_by[0] + served_by[1] == expected  # and none at the address in the configuration
    together = Counter(entry["label"] for entry in requests(runs.one_worker))
    assert together == expected + Counter({None: expected.total()})


def test_the_batch_s_own_recording_has_what_the_workers_and_the_commands_saw(runs: Runs) -> None:
    tools = [ToolRun(name, start / 1e9, end / 1e9) for name, start, end in commands(runs.decoupled.folder)]
    asked = [entry for log in runs.two_workers for entry in requests(log)]
    check_recording(runs.recorded, sorted(asked, key=lambda entry: entry["time"]), tools, SLOTS)


def test_the_harness_s_recording_has_no_queue_wait_in_its_stages(runs: Runs, tmp_path: Path) -> None:
    files = sorted(map(str, runs.decoupled.outputs.glob("*/*.traj.json")))
    trace = str(tmp_path / "trace.jsonl")
    assert main(["trace", "import", *files, "--output", trace]) == 0
    for trajectory in load_trajectories(trace):
        stages = [turn.env for turn in trajectory.turns[:-1]]
        assert all(stage is not None and stage.duration_quality == "exact" for stage in stages)
        recorded = runs.decoupled.trajectories()[trajectory.id]["messages"]
        measured = [one["extra"]["coresched"] for one in recorded if one["role"] in ("tool", "exit")]
        took = sum(turn.env.duration_s or 0 for turn in trajectory.turns if turn.env is not None)
        assert took == pytest.approx(sum(one["environment_s"] for one in measured), abs=1e-4)
        assert [turn.env.n_calls for turn in trajectory.turns if turn.env is not None].count(2) == 1
