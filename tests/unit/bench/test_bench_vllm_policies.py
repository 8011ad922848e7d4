"""`python -m bench vllm-policies` around a program in vLLM's place."""

import json
import sys
from argparse import Namespace
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from bench.__main__ import main
from bench.machine import Machine
from bench.vllm_policies.batch import Outcome, run_batch, step_duration_s
from bench.vllm_policies.command import available, groups_of
from bench.vllm_policies.policies import FCFS, LPM, POLICIES, ROUTING_PREFIX
from bench.vllm_policies.processes import Run, RunFailedError, carry_out
from bench.vllm_policies.results import as_json, print_report
from bench.vllm_policies.setups import (
    MODELS,
    SETUPS,
    SHORT_QUEUE,
    TINY_SETUPS,
    TINY_SMALL_POOL,
    virtual_settings,
)
from bench.vllm_policies.tiny_models import TINY_MODELS
from coresched.trajectory.schema import Environment, Trajectory, Turn

MACHINE = Machine(cpu="a cpu", cores=2, system="a system", python="a Python", load=1.0)
RUNS = [Run(TINY_SMALL_POOL, "qwen3", policy) for policy in (FCFS, LPM, ROUTING_PREFIX)]


def stand_in(folder: Path, answers: str) -> str:
    """A program that does ``answers``, Python code, for each line's list ``runs``."""
    code = folder / "answers.py"
    code.write_text(
        f"import json, os, sys\nfor line in sys.stdin:\n    runs = json.loads(line)\n    {answers}\n"
    )
    program = folder / "python"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} {code}\n")
    program.chmod(0o755)
    return str(program)


def test_every_run_gets_its_result(tmp_path: Path) -> None:
    answer = "[print(json.dumps({'result': run['settings']}), flush=True) for run in runs]"
    results = dict(carry_out(stand_in(tmp_path, answer), [RUNS[:1], RUNS[1:]]))
    assert list(results) == RUNS
    assert [each["scheduler_cls"] for each in results.values()] == [run.policy.scheduler_cls for run in RUNS]
    assert {each["blocks"] for each in results.values()} == {TINY_SMALL_POOL.blocks["qwen3"]}


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ("print(json.dumps({'error': 'no room'}), flush=True)", "fcfs, tiny-small-pool, qwen3: no room"),
        ("sys.stderr.write('so be it'); sys.stderr.flush(); os._exit(3)", "ended with 3 .*so be it"),
    ],
)
def test_a_run_that_fails_is_named_with_what_was_said(tmp_path: Path, answers: str, message: str) -> None:
    with pytest.raises(RunFailedError, match=message):
        list(carry_out(stand_in(tmp_path, answers), [RUNS]))


def test_an_interpreter_that_cannot_be_used_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho 'No module named vllm' >&2\nexit 1\n")
    program.chmod(0o755)
    for command in ("vllm-policies", "vllm-priority"):
        assert main([command, "--vllm-python", "/no/such"]) == 2
        assert "--vllm-python '/no/such'" in capsys.readouterr().err
    assert main(["vllm-policies", "--vllm-python", str(program)]) == 2
    assert "No module named vllm; give the Python of an environment that has" in capsys.readouterr().err


def arguments(**given: Any) -> Namespace:
    return Namespace(**{"quick": False, "setup": None, "model": None, "policy": None, "seed": 0, **given})


def test_whole_engines_of_a_model_share_a_process_and_no_others() -> None:
    groups = groups_of(arguments(), [FCFS, ROUTING_PREFIX])
    large = [group for group in groups if not group[0].is_whole]
    whole = [group for group in groups if group[0].is_whole]
    assert len(large) == 2 * len(SETUPS) * len(MODELS)
    assert all(len(group) == 1 for group in large)
    assert [group[0].model for group in whole] == list(TINY_MODELS)
    assert all(len(group) == 2 * len(TINY_SETUPS) for group in whole)
    assert groups_of(arguments(model="qwen3", policy=["fcfs"], setup=["tiny-small-pool"]), [FCFS]) == [
        [Run(TINY_SMALL_POOL, "qwen3", FCFS)]
    ]


def test_orders_that_the_environment_lacks_are_left_out() -> None:
    few = available(POLICIES, ("coresched_vllm.RoutingPrefix",))
    assert [policy.title for policy in few] == ["fcfs", "lpm", "routing-prefix", "routing-prefix, C_A 8"]
    every = available(POLICIES, ("coresched_vllm.RoutingPrefix", "coresched_vllm.RoutingResidency"))
    assert tuple(every) == POLICIES
    assert len({policy.title for policy in POLICIES}) == len(POLICIES)


def test_a_made_up_engine_has_the_blocks_of_its_model() -> None:
    settings = virtual_settings("Qwen3-Next-80B-A3B", SHORT_QUEUE)
    assert (settings["block_size"], settings["state_groups"]) == (544, 3)
    assert settings["max_num_seqs"] == 8
    job = Run(SHORT_QUEUE, "Qwen3-Next-80B-A3B", ROUTING_PREFIX).job()
    assert job["engine"] == "virtual"
    assert len(job["trajectories"]) == 96


def common(one: list[int], other: list[int]) -> int:
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))))


class WholeCache:
    """An engine that finds all but the last token of what it has seen, and does each request in a step."""

    def __init__(self) -> None:
        self.steps = self.empty_steps = self.scheduled_tokens = self.preemptions = 0
        self.scheduler = self
        self._seen: list[list[int]] = []
        self._waiting: list[tuple[str, list[int], int]] = []

    def has_unfinished_requests(self) -> bool:
        return bool(self._waiting)

    def submit(self, request_id: str, prompt: Any, output_tokens: int, *, session_id: str) -> None:
        self._waiting.append((request_id, list(prompt), output_tokens))

    def step(self) -> list[Any]:
        self.steps += 1
        if not self._waiting:
            return []
        name, prompt, count = self._waiting.pop(0)
        cached = max((common(prompt[:-1], seen) for seen in self._seen), default=0)
        tokens = prompt + list(range(1_000, 1_000 + count))
        self._seen.append(tokens[:-1])
        self.scheduled_tokens += len(tokens) - 1 - cached
        return [Namespace(request_id=name, tokens=tokens, prompt_tokens=len(prompt), cached_tokens=cached)]


def test_a_cache_of_everything_leaves_nothing_to_compute_again() -> None:
    turns = (Turn(5, env=Environment(1.0, 20)), Turn(7, kept_tokens=3, env=Environment(0.0, 9)), Turn(4))
    trajectories = [Trajectory(id=f"t{number}", initial_prompt_tokens=50, turns=turns) for number in range(3)]
    engine = WholeCache()
    found = run_batch(engine, trajectories, 2, seed=0)
    assert isinstance(found, Outcome)
    facts = found.as_json()
    assert facts["recomputed_tokens"] == 0
    assert (facts["later_turns"], facts["later_turns_without_hit"]) == (6, 0)
    assert facts["prompt_tokens"] == 3 * (50 + 75 + 87)
    assert facts["makespan_s"] > 2 * (1.0 + step_duration_s(50))  # two at a time, and a second for each
    assert run_batch(WholeCache(), trajectories, 2, seed=0).replies == found.replies


def result(makespan_s: float, replies: str = "same") -> dict[str, Any]:
    outcome = Outcome(steps=1_234, makespan_s=makespan_s, wall_s=2.5, ordering_s=0.0123, prefix_queries=2_000)
    outcome.prompt_tokens, outcome.cached_tokens, outcome.computed_tokens = 1_000, 750, 1_500_000
    outcome.later_turns, outcome.later_turns_without_hit, outcome.replies = 40, 3, replies
    return outcome.as_json()


def test_results_as_tables_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    results = {run: result(100.0 + place) for place, run in enumerate(RUNS)}
    results |= {
        Run(SHORT_QUEUE, MODELS[0], policy): result(9.0, policy.name) for policy in (FCFS, ROUTING_PREFIX)
    }
    print_report("python -m bench vllm-policies", MACHINE, "0.32.0", results)
    lines = capsys.readouterr().out.splitlines()
    assert "vllm 0.32.0" in lines
    assert sum(line.startswith(("tiny-small-pool: 8 traj", "short-queue: 96 traj")) for line in lines) == 2
    rows = [" ".join(line.split()) for line in lines if line.startswith("routing-prefix")]
    assert rows[0] == "routing-prefix 2.5 s 1,234 75.0 % 1.5M 7.5 % 0 12.3 ms"
    assert rows[1] == "routing-prefix 9.0 s 1,234 75.0 % 1.5M 7.5 % 0 12.3 ms"
    assert lines.count("Replies differ between these orders.") == 1
    as_json("command", MACHINE, "0.32.0", results)
    found = json.loads(capsys.readouterr().out)
    assert found["vllm"] == "0.32.0"
    assert [row["whole_engine"] for row in found["rows"]] == [True] * 3 + [False] * 2
    assert found["rows"][2]["policy"] == "routing-prefix"
