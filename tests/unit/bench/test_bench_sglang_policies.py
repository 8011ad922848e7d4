"""`python -m bench sglang-policies` around a program in SGLang's place."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from bench.__main__ import main
from bench.machine import Machine
from bench.sglang_policies.command import as_json, print_report
from bench.sglang_policies.models import MODELS, write_model
from bench.sglang_policies.policies import POLICIES, Policy
from bench.sglang_policies.processes import Run, RunFailedError, carry_out_all, sglang_version
from bench.sglang_policies.setups import LONG_QUEUE, SETUPS, smaller
from coresched.capacity.catalogue import catalogue_architecture
from coresched.capacity.config import read_architecture
from coresched.errors import InputError

MACHINE = Machine(cpu="a cpu", cores=2, system="a system", python="a Python", load=1.0)


def stand_in(folder: Path, answers: str) -> str:
    """A program that answers each job with what ``answers``, Python code, makes of the dict ``job``."""
    code = folder / "answers.py"
    code.write_text(
        f"import json, os, sys\nfor line in sys.stdin:\n    job = json.loads(line)\n    {answers}\n"
    )
    program = folder / "python"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} {code}\n")
    program.chmod(0o755)
    return str(program)


def test_every_job_gets_its_result(tmp_path: Path) -> None:
    python = stand_in(tmp_path, "print(json.dumps({'result': {'twice': 2 * job['number']}}), flush=True)")
    results = dict(carry_out_all(python, {f"job {number}": {"number": number} for number in range(7)}))
    assert results == {f"job {number}": {"twice": 2 * number} for number in range(7)}


def test_the_device_is_in_the_environment(tmp_path: Path) -> None:
    python = stand_in(tmp_path, "print(json.dumps({'result': dict(os.environ)}), flush=True)")
    ((_, seen),) = carry_out_all(python, {"one": {}})
    assert seen["CORESCHED_SIMDEVICE"] == "1"
    assert seen["PYTHONPATH"].split(":")[1].endswith("/adapters")


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ("print(json.dumps({'error': 'no room'}), flush=True)", "job 1: no room"),
        (
            "sys.stderr.write('so be it'); sys.stderr.flush(); os._exit(3)",
            "job 1: the process ended with 3 .*so be it",
        ),
    ],
)
def test_a_job_that_fails_is_named_with_what_was_said(tmp_path: Path, answers: str, message: str) -> None:
    with pytest.raises(RunFailedError, match=message):
        list(carry_out_all(stand_in(tmp_path, answers), {"job 1": {}}))


def test_an_interpreter_that_cannot_be_used_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match=r"--sglang-python '/no/such' cannot be run"):
        sglang_version("/no/such")
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho 'No module named sglang' >&2\nexit 1\n")
    program.chmod(0o755)
    assert main(["sglang-policies", "--sglang-python", str(program)]) == 2
    assert "No module named sglang; give the Python of an environment that has" in capsys.readouterr().err


def test_set_ups_are_the_same_for_the_same_seed() -> None:
    for setup in SETUPS:
        first, again, other = setup.trajectories(0), setup.trajectories(0), setup.trajectories(1)
        assert first == again != other
        assert len(first) == setup.samples
        assert {len(each.turns) for each in first} <= set(range(3, 9))
        assert all(turn.env is not None for each in first for turn in each.turns[:-1])
    assert LONG_QUEUE.sample_concurrency - LONG_QUEUE.max_running_requests > 128
    assert smaller(LONG_QUEUE).samples == LONG_QUEUE.samples


@pytest.mark.parametrize("model", MODELS)
def test_models_have_the_dimensions_of_the_catalogue(model: str, tmp_path: Path) -> None:
    ours, public = read_architecture(write_model(model, tmp_path)), catalogue_architecture(model)
    assert ours.state == public.state
    known = {name: value for name, value in asdict(public.attention).items() if value is not None}
    assert asdict(ours.attention).items() >= known.items()
    assert (ours.attention_layers, ours.state_layers) == (public.attention_layers, public.state_layers)
    assert ours.model_class == public.model_class


def test_a_job_has_the_policy_and_its_label_capacity(tmp_path: Path) -> None:
    job = Run(SETUPS[0], "ling-3.0-flash", Policy("routing-prefix", 12), seed=3).job(tmp_path)
    assert job["server_args"]["schedule_policy"] == "routing-prefix"
    assert job["environment"] == {"CORESCHED_LABEL_CAPACITY": "12"}
    assert job["settings"] == {"sample_concurrency": 48, "seed": 3}
    assert len({policy.title for policy in POLICIES}) == len(POLICIES)


def result(makespan_s: float) -> dict[str, Any]:
    return {
        "makespan_s": makespan_s,
        "cache_reuse": 0.75,
        "new_prefill_tokens": 1_000_000,
        "recomputed_tokens": 500_000,
        "later_turns": 40,
        "later_turns_without_hit": 3,
        "queue_p95_s": 12.34,
        "priority_calculation_s": 0.0123,
    }


def test_results_as_a_table_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    results = {
        Run(setup, "ling-3.0-flash", Policy(name)): result(100.0 + place)
        for place, setup in enumerate(SETUPS)
        for name in ("fcfs", "routing-prefix")
    }
    print_report("python -m bench sglang-policies", MACHINE, "0.5.23", results)
    lines = capsys.readouterr().out.splitlines()
    assert "sglang 0.5.23" in lines
    assert sum(line.startswith(("short-queue: 96 traj", "long-queue: 200 traj")) for line in lines) == 2
    rows = [line.split() for line in lines if line.startswith("routing-prefix")]
    assert " ".join(rows[0]) == "routing-prefix 100.0 s 75.0 % 1.5M 3 of 40 12.3 s 12.3 ms"
    assert rows[1][1] == "101.0"
    found = json.loads(as_json("command", MACHINE, "0.5.23", results))
    assert found["sglang"] == "0.5.23"
    assert [row["policy"] for row in found["rows"]] == ["fcfs", "routing-prefix"] * 3
    assert found["setups"]["long-queue"]["samples"] == 200
