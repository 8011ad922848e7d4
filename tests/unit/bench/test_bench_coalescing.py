"""`python -m bench coalescing` with programs in the engines' place."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.__main__ import main
from bench.coalescing.setups import AS_IT_IS, costing
from bench.coalescing.simulated import FULL, WITH_ROOM, Pair, cases
from coresched.lab.simulator.model import load_worker_model


def program(folder: Path, *lines: object, code: int = 0) -> str:
    """An executable that prints these lines of JSON, whatever it is asked, and exits with this code."""
    path = folder / f"python-{len(list(folder.iterdir()))}"
    text = "".join(json.dumps(line) + "\n" for line in lines)
    path.write_text(f"#!{sys.executable}\nimport sys\nsys.stdout.write({text!r})\nsys.exit({code})\n")
    path.chmod(0o755)
    return str(path)


def run_of(variant: str, seed: int, makespan_s: float, prefilled: list[int]) -> dict[str, Any]:
    return {
        "row": {
            "prefill_batch_s": 0.02,
            "variant": variant,
            "seed": seed,
            "makespan_s": makespan_s,
            "ttft_s": 0.5,
            "forwards": {"extend": len(prefilled), "decode": 5},
            "prefilled": prefilled,
            "cpu_s": {"extend": [0.003] * len(prefilled), "decode": [0.001] * 5},
        }
    }


SGLANG = (
    {"engine": {"sglang": "0.5.23", "model": "a model"}},
    {"doing": "this"},
    run_of(AS_IT_IS, 0, 100.0, [1, 1, 1, 1]),
    run_of("held", 0, 90.0, [4]),
    run_of(AS_IT_IS, 1, 200.0, [1, 1, 1, 1]),
    run_of("held", 1, 190.0, [2, 2]),
)


def step(decoding: int, turns: int, *samples_s: float) -> dict[str, Any]:
    return {"row": {"kind": "step", "decoding": decoding, "turns": turns, "samples_s": samples_s}}


def batch(held: int, seed: int, makespan_s: float) -> dict[str, Any]:
    row = {"kind": "batch", "held": held, "seed": seed, "makespan_s": makespan_s, "ttft_s": 0.25}
    return {"row": {**row, "decode_step_s": [0.01] * 20, "prompt_step_s": [0.01, 0.02, 0.03]}}


VLLM = (
    {"engine": {"vllm": "0.32.0"}},
    step(0, 1, 0.01, 0.012, 0.05),
    step(32, 0, 0.01, 0.01, 0.02),
    step(32, 8, 0.018, 0.018, 0.03),
    batch(1, 0, 2.0),
    batch(8, 0, 3.0),
)


def shown(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]


def test_engines_have_their_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pythons = ["--sglang-python", program(tmp_path, *SGLANG), "--vllm-python", program(tmp_path, *VLLM)]
    assert main(["coalescing", "--engines-only", *pythons]) == 0
    lines = shown(capsys)
    assert f"{AS_IT_IS} 20 ms 150.0 s 0.50 s 4 1.0" in lines
    assert "held 20 ms 140.0 s -7.5 % 0.50 s 2 2.7" in lines
    assert "extend 3.00 ms 11" in lines
    assert "0 decoding 1 12.0 ms 12.00 ms" in lines
    assert "32 decoding 0 10.0 ms" in lines
    assert "32 decoding 8 18.0 ms 1.00 ms" in lines
    assert "8 held 3.00 s +50.0 % 0.25 s 20 10.0 ms 3 20.0 ms" in lines
    assert all(len(line) <= 80 for line in lines)


def test_simulated_runs_are_pairs_of_one_batch(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["coalescing", "--quick", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    fixed = {row["prefill_batch_s"]: [Pair(**run) for run in row["runs"]] for row in report["simulated"]}
    assert list(fixed) == [0.055, 0.02, 0.005]
    assert {len(pairs) for pairs in fixed.values()} == {6}
    # Fewer batches of a fixed cost save the more, the larger it is.
    dear, cheap = ([pair.change for pair in fixed[cost]] for cost in (0.055, 0.02))
    assert all(one < other < 0 for one, other in zip(dear, cheap, strict=True))


def test_each_workload_is_run_with_room_and_full() -> None:
    found = {(case.workload, case.settings.sample_concurrency) for case in cases()}
    assert {(name, concurrency) for name, (_, concurrency) in WITH_ROOM.items()} <= found
    assert set(FULL.items()) <= found


def test_only_the_fixed_cost_is_changed() -> None:
    model = load_worker_model()
    cheaper = costing(model, 0.02)
    assert cheaper.times.prefill_batch_s == 0.02
    assert costing(cheaper, model.times.prefill_batch_s) == model


def test_what_cannot_be_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["coalescing", "--engines-only"]) == 2
    assert "give --sglang-python or --vllm-python" in capsys.readouterr().err
    assert main(["coalescing", "--seeds", "3"]) == 2
    assert "--seeds 3 is too few for an interval; give at least 6" in capsys.readouterr().err
    failing = program(tmp_path, {"engine": {}}, code=3)
    assert main(["coalescing", "--engines-only", "--vllm-python", failing]) == 1
    assert "vLLM failed" in capsys.readouterr().err
