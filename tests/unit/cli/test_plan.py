"""`coresched plan` as a person meets it."""

import json
import os
from pathlib import Path

import pytest
from engine_reports import json_answer, serving, sglang_info, sglang_log, tiny_model, vllm_routes

from coresched.cli.main import main
from coresched.trajectory.generator import generate
from coresched.trajectory.writer import write_trajectories

MEMORY = ["--tp", "4", "--pool-memory", "20GiB"]
NUMBERS = ["--turns", "36/66", "--prompt", "1800", "--output", "89/681", "--response", "87/767"]


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    write_trajectories(tmp_path / "traces.jsonl", generate("swe", 40, 1))
    return "traces.jsonl"


def run(*words: str) -> int:
    try:
        return main(["plan", *words])
    except SystemExit as stopped:
        return int(stopped.code or 0)


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_it_prints_pools_concurrency_flags_and_notes(
    trace: str, engine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("Ling-3.0-flash", trace, "--engine", engine, *MEMORY, "--environment-concurrency", "4") == 0
    out = capsys.readouterr().out
    for words in (
        "memory of the pools",
        "sample concurrency",
        "label capacity",
        "limited by",
        "10 % longer",
        "note:",
    ):
        assert words in out
    flags = out.split("engine flags:\n")[1].splitlines()[0]
    assert ("--max-mamba-cache-size" if engine == "sglang" else "--max-num-seqs") in flags
    rest = [line for line in out.splitlines() if line != flags]
    assert max(len(line) for line in rest) <= 80


def test_variables_of_the_engine_stand_apart_from_its_flags(
    trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--engine", "vllm", "--no-one-state-per-trajectory")
    assert run("Ling-3.0-flash", trace, *MEMORY, *options) == 0
    out = capsys.readouterr().out
    assert "CORESCHED_" not in out.split("engine flags:\n")[1].splitlines()[0]
    assert "\nengine environment:\n  CORESCHED_ONE_STATE_PER_TRAJECTORY=0\n" in out


def test_json_is_the_whole_plan(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("Ling-3.0-flash", trace, *MEMORY, "--workers", "2", "--json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["workers"] == 2
    assert plan["footprint"]["kv_bytes"] == 8064
    assert {"concurrency", "reference_concurrency", "label_capacity", "ratio", "engine_flags"} <= plan.keys()


def test_a_workload_in_numbers(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("Ling-3.0-flash", *NUMBERS, *MEMORY, "--samples", "60", "--shared-prefix", "500") == 0
    assert "counts as running" in capsys.readouterr().out.replace("\n", " ")


def test_plot_is_written_whole(trace: str, tmp_path: Path) -> None:
    assert run("Ling-3.0-flash", trace, *MEMORY, "--json", "--plot", "plan.html") == 0
    page = (tmp_path / "plan.html").read_text()
    assert "<svg" in page
    assert "planned: r =" in page
    assert sorted(os.listdir(tmp_path)) == ["plan.html", "traces.jsonl"]


def test_a_dense_model_can_be_planned_and_drawn(trace: str) -> None:
    assert run("Llama-3.1-8B", trace, "--pool-memory", "20GiB", "--json", "--plot", "plan.html") == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["No-Such-Model", "traces.jsonl", *MEMORY], "No-Such-Model"),
        (["Ling-3.0-flash", "traces.jsonl"], "pool_memory is not given"),
        (["Ling-3.0-flash", *MEMORY], "name trace files, or all of"),
        (["Ling-3.0-flash", "traces.jsonl", *MEMORY, "--turns", "3"], "one way only"),
        (["Ling-3.0-flash", *NUMBERS, *MEMORY, "--shared-prefix", "-1"], "shared_prefix is -1"),
        (["Ling-3.0-flash", *NUMBERS, *MEMORY, "--shared-prefix", "9999"], "lower it"),
        (["Ling-3.0-flash", "traces.jsonl", "--tp", "3", "--pool-memory", "20GiB"], "tp"),
        (["Ling-3.0-flash", "traces.jsonl", "--tp", "4", "--pool-memory", "lots"], "pool_memory is 'lots'"),
        (["Ling-3.0-flash", "traces.jsonl", *MEMORY, "--margin", "7"], "margin is 7"),
        (["Ling-3.0-flash", "traces.jsonl", *MEMORY, "--plot", "no/where.html"], "create it first"),
        (["m", "traces.jsonl", *MEMORY, "--plot", "m/config.json"], "is an input of this command"),
        (
            ["m/config.json", "traces.jsonl", *MEMORY, "--plot", "m/config.json"],
            "is an input of this command",
        ),
        (["m", "traces.jsonl", "--from-log", "a.log", "--plot", "a.log"], "is an input of this command"),
        (["Ling-3.0-flash", "missing.jsonl", *MEMORY], "missing.jsonl"),
        (["Ling-3.0-flash", "traces.jsonl", *MEMORY, "--engine", "tgi"], "tgi"),
    ],
)
def test_bad_input_is_one_line(
    trace: str, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert said in captured.err


def test_memory_from_a_running_engine_or_its_log(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving({"/server_info": json_answer(sglang_info())}) as url:
        assert run("Ling-3.0-flash", trace, "--tp", "4", "--from-engine", url, "--json") == 0
        asked = json.loads(capsys.readouterr().out)
        assert any(url in line for line in asked["warnings"])
        assert not any("GiB" in line for line in asked["assumptions"])  # the memory is read, not assumed
        assert run("Ling-3.0-flash", trace, "--tp", "4", "--from-engine", url, "--engine", "vllm") == 2
        assert "make them agree" in capsys.readouterr().err
    (tmp_path / "boot.log").write_text(sglang_log())
    assert run("Ling-3.0-flash", trace, "--tp", "4", "--from-log", "boot.log", "--json") == 0
    logged = json.loads(capsys.readouterr().out)
    flags = logged["engine_flags"]
    assert flags[flags.index("--context-length") + 1] == "131072"  # the model's own is 262,144
    # 8,038,279 KV tokens of 8,064 B, and 306 slots of 18,995,200 B beside the padding slot.
    assert asked["pool_bytes"] == logged["pool_bytes"] == 8_038_279 * 8_064 + 307 * 18_995_200
    with serving(vllm_routes()) as url:
        short = ["--turns", "2", "--prompt", "50", "--output", "10", "--response", "10", "--samples", "40"]
        assert run(tiny_model(tmp_path), *short, "--engine", "vllm", "--from-engine", url, "--json") == 0
    assert json.loads(capsys.readouterr().out)["pool_bytes"] == 16_777_216  # its kv_cache_memory_bytes


def test_the_context_length_is_the_running_engines(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    with serving({"/server_info": json_answer(sglang_info({"context_length": 65_536}))}) as url:
        assert run("Ling-3.0-flash", trace, "--tp", "4", "--from-engine", url) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "--context-length 65536" in out
    assert f"note: pools have 65.8 GiB a GPU, from what {url} reports" in out
    assert "SGLang leaves" not in out


def test_memory_is_given_once(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("Ling-3.0-flash", trace, *MEMORY, "--from-log", "boot.log") == 2
    assert "both given" in capsys.readouterr().err
    assert run("Ling-3.0-flash", trace, "--tp", "4", "--from-log", "boot.log") == 2
    assert "boot.log" in capsys.readouterr().err
