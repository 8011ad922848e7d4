"""`python -m bench sglang-batch` without its servers: what they are asked for, and what is shown."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from simulated import trajectory

from bench.__main__ import main
from bench.engine_batch.results import as_json, print_runs
from bench.engine_batch.runs import Comparison, Run
from bench.engine_batch.setups import COORDINATED, DECOUPLED, STOCK
from bench.engine_batch.sglang_command import DEVICE, SETUPS
from bench.engine_batch.sglang_servers import SGLang
from bench.machine import Machine
from bench.sglang_policies.models import write_model
from coresched.lab.replay.events import Admission, Completion, Inference
from coresched.lab.replay.summary import measure
from coresched.trajectory.generator import generate
from coresched.trajectory.scaling import scaled

MACHINE = Machine("a processor", 2, "Linux x86_64", "CPython 3.11", 0.5)


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    workload = scaled(generate("swe", 60, seed=1), turns_over=8)
    model = write_model("ling-3.0-flash", tmp_path_factory.mktemp("models"))
    made = DEVICE.plan(model, workload, 12)
    kind = SGLang("python", "0.5.23", made, DEVICE, options=[], speed=2.0)
    return Comparison(kind, SETUPS, workload, environment_concurrency=12)


def test_each_set_up_differs_from_the_stock_one_as_it_says(comparison: Comparison) -> None:
    kind = comparison.kind
    assert isinstance(kind, SGLang)
    made, planned = kind.made, kind.sample_concurrency
    settings = (setup.settings(planned, 12, speed=2.0) for setup in (STOCK, DECOUPLED, COORDINATED))
    stock, decoupled, coordinated = settings
    assert (stock.sample_concurrency, decoupled.sample_concurrency) == (12, made.reference_concurrency)
    assert made.reference_concurrency > 12
    assert STOCK.settings(planned, 12, seconds_over=10).band_s == 3.0
    assert (stock.router, decoupled.router, coordinated.router) == ("round-robin", "round-robin", "lbch")
    assert (decoupled.environment_policy, coordinated.environment_policy) == ("fcfs", "caas")
    assert {one.environment_concurrency for one in (stock, decoupled, coordinated)} == {12}
    assert "--max-mamba-cache-size" in DEVICE.flags(made)
    assert DEVICE.flags(made)[-2:] == ["--schedule-policy", "routing-prefix"]
    assert "--schedule-policy" not in DEVICE.flags(None)


def runs() -> list[Run]:
    found = []
    for number in range(2):
        for place, setup in enumerate(SETUPS):
            end = 400.0 - 100 * place
            turn = Inference("a", 0, f"engine-{place % 2}", 0.0, end - 1, 1000, 250 * place, 10, None)
            events = [Admission("a", 0.0), turn, Completion("a", end)]
            metrics = measure(events, samples=1, endpoints=["engine-0", "engine-1"])
            found.append(Run(number, setup, 12, metrics, 200.0, 80.0, 2.0))
    return found


def test_the_table_has_each_round_against_its_own_first(
    comparison: Comparison, capsys: pytest.CaptureFixture[str]
) -> None:
    print_runs("command", MACHINE, comparison, runs())
    lines = capsys.readouterr().out.splitlines()
    for name, words in (("decoupled", ["5.0", "25.0", "25.0", "20%"]), ("coordinated", ["3.3", "50.0"])):
        rows = [line for line in lines if line.startswith(f"{name} ")]
        assert len(rows) == 2
        assert all(word in rows[0].split() for word in words)
    assert max(map(len, lines)) <= 110
    assert any(line.startswith("Makespan of stock over coordinated: median 2.00") for line in lines)
    report = json.loads(as_json("command", MACHINE, comparison, runs()))
    assert [(run["round"], run["name"]) for run in report["runs"]] == [
        (number, setup.name) for number in range(2) for setup in SETUPS
    ]
    assert report["runs"][0]["metrics"]["makespan_s"] == 400.0
    assert report["makespan_ratios"]["coordinated"] == [2.0, 2.0]
    assert report["runs"][1]["recomputed_tokens"] == 750 - comparison.new_tokens


def test_what_no_earlier_turn_had_is_the_first_prompt_and_the_responses(comparison: Comparison) -> None:
    batch = [trajectory("a", [(5, 1.0, 20), (7, 1.0, 30), (9, 1.0, 40)], prompt=100)]
    assert replace(comparison, workload=batch).new_tokens == 150


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--sglang-python", "nowhere"], "--sglang-python 'nowhere' cannot be run"),
        (["--sglang-python", "true", "--trace", "nowhere.jsonl"], "nowhere.jsonl"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sglang-batch", *options]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err
