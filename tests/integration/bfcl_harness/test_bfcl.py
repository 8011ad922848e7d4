"""BFCL, as it is on PyPI, under the gate: the same results, by another schedule."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from harness_recordings import ToolRun, check_recording
from integration.bfcl_harness.environment import package
from integration.bfcl_harness.harness_runs import MODEL, Project, jsonl, most_at_once, scripted_worker
from integration.bfcl_harness.right_answers import CATEGORY, right_answers

CASES = [f"{CATEGORY}_{number}" for number in (0, 1, 2, 3, 4, 6, 7, 9, 10, 11)]
WRONG = CASES[3]
C_E = 2
SCHEDULES = {
    "plain": {},
    "unified": {"CORESCHED_SAMPLE_CONCURRENCY": f"{C_E}", "CORESCHED_ENVIRONMENT_CONCURRENCY": f"{C_E}"},
    "decoupled": {
        "CORESCHED_SAMPLE_CONCURRENCY": f"{len(CASES)}",
        "CORESCHED_ENVIRONMENT_CONCURRENCY": f"{C_E}",
    },
}


@dataclass(frozen=True)
class Runs:
    project: Project
    done: dict[str, subprocess.CompletedProcess[str]]
    requests: dict[str, list[dict[str, Any]]]
    """The worker's request log, by schedule."""
    calls: dict[str, list[dict[str, Any]]]
    """Whose tool calls ran when, by schedule."""
    recorded: Path
    """The recording of the decoupled one."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    folder = tmp_path_factory.mktemp("bfcl")
    lines = right_answers(package(), CASES).splitlines(keepends=True)
    lines[CASES.index(WRONG)] = json.dumps(
        {**json.loads(lines[CASES.index(WRONG)]), "replies": [{"content": "I cannot."}]}
    )
    done, requests, calls = {}, {}, {}
    with scripted_worker(folder, "\n".join(line.strip() for line in lines)) as url:
        project = Project(folder / "project", url)
        project.choose(CATEGORY, CASES)
        for name, gate in SCHEDULES.items():
            before = len(jsonl(folder / "requests.jsonl"))
            words = project.generate(name, "--num-threads", f"{len(CASES)}")
            gate = {**gate, "CORESCHED_RECORD": str(folder / "recorded")} if name == "decoupled" else gate
            done[name] = project.run_observed(folder / f"{name}.jsonl", *words, **gate)
            requests[name] = jsonl(folder / "requests.jsonl")[before:]
            calls[name] = jsonl(folder / f"{name}.jsonl")
        yield Runs(project, done, requests, calls, folder / "recorded")


def test_every_test_case_has_its_row(runs: Runs) -> None:
    for name in SCHEDULES:
        assert runs.done[name].returncode == 0, runs.done[name].stderr
        assert sorted(runs.project.rows(name)) == sorted(CASES)
        assert not any("traceback" in row for row in runs.project.rows(name).values())


def test_no_more_tool_calls_run_at_once_than_the_environment_concurrency(runs: Runs) -> None:
    assert most_at_once(runs.calls["plain"]) > C_E
    assert most_at_once(runs.calls["decoupled"]) == C_E
    assert most_at_once(runs.calls["unified"]) <= C_E
    assert len(runs.calls["plain"]) == len(runs.calls["decoupled"]) == len(runs.calls["unified"])


def test_every_request_of_a_gated_run_carries_its_test_case_as_label(runs: Runs) -> None:
    by_name = {name: [request["label"] for request in runs.requests[name]] for name in SCHEDULES}
    assert set(by_name["plain"]) == {None}
    for name in ("unified", "decoupled"):
        assert len(by_name[name]) == len(by_name["plain"])
        turns = {case: sum(map(len, row["latency"])) for case, row in runs.project.rows(name).items()}
        assert {case: by_name[name].count(case) for case in CASES} == turns


def test_the_recording_has_what_the_worker_and_the_tools_saw(runs: Runs) -> None:
    tools = [ToolRun(call["sample"], call["start"], call["end"]) for call in runs.calls["decoupled"]]
    check_recording(runs.recorded, runs.requests["decoupled"], tools, C_E)


def test_bfcl_scores_a_gated_run_as_it_scores_a_plain_one(runs: Runs) -> None:
    scores = {}
    for name in SCHEDULES:
        words = ("--model", MODEL, "--test-category", CATEGORY, "--partial-eval")
        done = runs.project.run("evaluate", *words, "--result-dir", name, "--score-dir", f"{name}-score")
        assert done.returncode == 0, done.stderr
        (path,) = (runs.project.folder / f"{name}-score").rglob("*_score.json")
        scores[name] = path.read_text()
    head = json.loads(scores["plain"].splitlines()[0])
    assert (head["correct_count"], head["total_count"]) == (len(CASES) - 1, len(CASES))
    assert f'"{WRONG}"' in scores["plain"].splitlines()[1]
    assert scores["unified"] == scores["decoupled"] == scores["plain"]


def test_a_row_has_the_waits_of_its_trajectory(runs: Runs) -> None:
    assert not any("coresched" in row for row in runs.project.rows("plain").values())
    waits = {
        name: [row["coresched"] for row in runs.project.rows(name).values()]
        for name in SCHEDULES
        if name != "plain"
    }
    assert sorted(wait["label"] for wait in waits["decoupled"]) == sorted(CASES)
    assert sum(wait["environment_queue_s"] > 0 for wait in waits["decoupled"]) > 1
    assert sum(wait["admission_wait_s"] > 0.05 for wait in waits["unified"]) >= len(CASES) - C_E - 1
    for row in runs.project.rows("unified").values():
        assert set(row) - {"coresched"} == set(runs.project.rows("plain")[row["id"]])


def test_the_summary_counts_what_ran_and_gives_the_makespan(runs: Runs) -> None:
    assert "this is plain bfcl" in runs.done["plain"].stderr
    for name, gate in list(SCHEDULES.items())[1:]:
        (line,) = re.findall(r"coresched: C_S=.*", runs.done[name].stderr)
        assert f"C_S={gate['CORESCHED_SAMPLE_CONCURRENCY']} C_E={C_E}: {len(CASES)} samples finished" in line
        assert re.search(r"0 withdrawn, makespan \d+\.\d\d s", line)
        assert f" {len(runs.requests[name])} turns " in line
        print(name, line)
