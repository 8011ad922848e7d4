"""What `python -m bench rivals` compares, and how."""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.rivals.cases import Case, recorded_cases, shipped_cases, trajectories, workload
from bench.rivals.kinds import KINDS, PLAIN, comparisons, setting_of
from bench.rivals.options import add_options, cases_of, recorded_of, seeds_of
from bench.rivals.runs import Result, against, run_all
from bench.rivals.tables import rows_of, verdict
from coresched.cli.parser import CommandParser
from coresched.errors import InputError
from coresched.lab.policies import POLICIES
from coresched.trajectory.generator import generate
from coresched.trajectory.writer import write_trajectories


def result(makespan_s: float) -> Result:
    return Result(makespan_s, 0.9, 1.5, 0.1, 3)


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    return {case.name: case for case in shipped_cases()}


def recorded(folder: Path, samples: int = 24) -> str:
    path = folder / "batch.jsonl"
    write_trajectories(path, generate("swe", samples, seed=3))
    return str(path)


def test_cases_differ_in_their_workers_and_admit_as_many_for_each(cases: dict[str, Case]) -> None:
    assert len(cases) == 14
    for name in ("SWE", "BFCL", "WideSearch"):
        two, four = cases[f"{name}, W 2"].settings, cases[f"{name}, W 4"].settings
        assert (two.workers, four.workers) == (2, 4)
        assert four.sample_concurrency == 2 * two.sample_concurrency
        assert four.label_capacity == two.label_capacity


def test_every_policy_of_the_registry_is_compared_on_some_case(cases: dict[str, Case]) -> None:
    compared = {(one.kind, name) for one in comparisons(list(cases.values()), KINDS) for name in one.settings}
    assert compared == {(policy.kind, policy.name) for policy in POLICIES}


def test_one_setting_is_varied_at_a_time(cases: dict[str, Case]) -> None:
    for one in comparisons(list(cases.values()), KINDS):
        reference = one.settings[one.reference]
        for name, settings in one.settings.items():
            assert settings == replace(reference, **{setting_of(one.kind): name})  # type: ignore[arg-type]
        if one.base == PLAIN:
            assert (reference.worker_policy, reference.routing) == ("fcfs", "cache-aware")


def test_routers_are_compared_where_there_is_a_choice_and_environments_where_there_is_a_limit(
    cases: dict[str, Case],
) -> None:
    routed = list(comparisons(list(cases.values()), ["routing"]))
    assert {one.case.settings.workers for one in routed} == {2, 4}
    limited = list(comparisons(list(cases.values()), ["environment"]))
    assert [one.case.settings.environment_concurrency for one in limited] == [3, 5, 12]


def test_a_policy_is_held_to_the_reference_seed_by_seed(cases: dict[str, Case]) -> None:
    case = cases["SWE, W 2"]
    (one,) = comparisons([case], ["routing"], ["preble"])
    results = {
        (case, one.settings["lbch"]): [result(100.0 * seed) for seed in range(1, 7)],
        (case, one.settings["preble"]): [result(90.0 * seed) for seed in range(1, 7)],
    }
    rows = {row["policy"]: row for row in rows_of(one, results)}
    assert rows["preble"]["longer"] == pytest.approx({"median": -0.1, "low": -0.1, "high": -0.1})
    assert rows["lbch"]["longer"] is None
    assert "surely shorter than with lbch: preble; surely longer: none" in verdict(one, results)


def test_the_share_is_of_the_paired_run() -> None:
    mine, its = [result(110.0), *[result(100.0)] * 5], [result(100.0), *[result(50.0)] * 5]
    assert against(mine, its).median == 1.0
    assert against(mine, its).low == pytest.approx(0.1)


def test_runs_come_in_the_order_of_the_seeds_and_each_once(cases: dict[str, Case]) -> None:
    case = cases["generated terminal, W 2"]
    small = replace(case, settings=replace(case.settings, sample_concurrency=40))
    wanted = [(small, small.settings), (small, small.settings)]
    told: list[tuple[int, int]] = []
    first = run_all(wanted, [0, 1], lambda runs, of: told.append((runs, of)))
    again = run_all(wanted, [1])
    assert first[wanted[0]][1:] == again[wanted[0]]
    assert told == [(1, 2), (2, 2)]


def test_a_recorded_batch_runs_with_memory_for_a_third_of_it(tmp_path: Path) -> None:
    one, two = recorded_cases([recorded(tmp_path)], None, None)
    assert (one.settings.sample_concurrency, one.settings.label_capacity) == (16, 8)
    assert (two.settings.sample_concurrency, two.settings.label_capacity) == (8, 4)
    assert two.model.pool_tokens < one.model.pool_tokens
    results = run_all([(case, case.settings) for case in (one, two)], [1])
    assert all(found[0].of_bound >= 1 for found in results.values())


def test_the_seed_of_a_recorded_batch_is_its_order(tmp_path: Path) -> None:
    one, _ = recorded_cases([recorded(tmp_path)], None, None)
    assert trajectories(one.source, 1) == trajectories(one.source, 2)
    first, second = (workload(one.source, 1, seed).prompt_tokens for seed in (1, 2))
    assert first != second
    assert sorted(first) == sorted(second)


def test_recorded_batches_are_said_by_size_not_by_where_they_lie(tmp_path: Path) -> None:
    cases = list(recorded_cases([recorded(tmp_path)], None, None))
    (one,) = recorded_of(cases)
    assert (one["name"], one["trajectories"]) == ("recorded 1", 24)
    assert str(tmp_path) not in json.dumps(recorded_of(cases))


def test_durations_that_are_absent_are_asked_for_before_anything_runs(tmp_path: Path) -> None:
    path = tmp_path / "absent.jsonl"
    turns = '[{"output_tokens":5,"env":{"response_tokens":5}},{"output_tokens":5}]'
    path.write_text('{"id":"a","initial_prompt_tokens":9,"turns":' + turns + "}\n")
    with pytest.raises(InputError, match="--absent-environment-s"):
        list(recorded_cases([str(path)], None, None))
    assert len(list(recorded_cases([str(path)], None, 1.0))) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--seeds", "5"], "--seeds 5 is too few for an interval; give at least 6"),
        (["--only", "no-such"], "--only no-such is no policy"),
        (["--kind", "routing", "--only", "fcfs"], "leave nothing to compare"),
        (["--trajectories", "no-such-file"], "no-such-file"),
        (["--case", "no-such"], """--case 'no-such' begins no case; there are "SWE, W 1", "SWE, W 2","""),
        (["--case", "SWE", "--case", "swe"], "--case 'swe' begins no case"),
        (["--environment-concurrency", "3"], "--environment-concurrency is for recorded batches; give --tra"),
        (["--absent-environment-s", "1"], "--absent-environment-s is for recorded batches; give --trajector"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rivals", *arguments]) == 2
    assert said in capsys.readouterr().err


def options(*arguments: str) -> argparse.Namespace:
    parser = CommandParser()
    add_options(parser, 20)
    return parser.parse_args(arguments)


def test_quick_is_what_was_not_told_otherwise(tmp_path: Path) -> None:
    assert [seeds_of(options(*given.split())) for given in ("", "--quick", "--quick --seeds 9")] == [20, 6, 9]
    quick = cases_of(options("--quick", "--trajectories", recorded(tmp_path)))
    assert [case.name for case in quick[2:]] == ["recorded 1, W 1", "recorded 1, W 2"]
    assert {case.name for case in cases_of(options("--quick", "--case", "BFCL"))} == {
        f"BFCL, W {workers}" for workers in (1, 2, 4)
    }


def test_the_command_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rivals", "--quick", "--kind", "routing", "--only", "round-robin", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["seeds"] == 6
    assert [(row["case"], row["policy"]) for row in told["rows"]] == [
        ("WideSearch, W 2", "round-robin"),
        ("WideSearch, W 2", "lbch"),
    ]
    assert all(row["of_bound"] >= 1 for row in told["rows"])
