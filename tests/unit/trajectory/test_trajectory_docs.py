"""Runs the examples of docs/traces.md and holds its comparison tables to the generator."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

from coresched.cli.main import main
from coresched.errors import InputError
from coresched.trajectory.generator import PROFILES, generate
from coresched.trajectory.importers.formats import FORMATS
from coresched.trajectory.profile import profile
from coresched.trajectory.reader import load_trajectories

PAGE = (Path(__file__).parents[3] / "docs" / "traces.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_python_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = blocks("python")
    exec(example, {})


def test_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (commands,) = blocks("console")
    for command in commands.splitlines():
        program, *arguments = shlex.split(command.removeprefix("$ "))
        assert program == "coresched"
        assert main(arguments) == 0


def test_the_line_shown_is_a_trajectory_and_its_prompts_are_as_said(tmp_path: Path) -> None:
    (example,) = blocks("json")
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(json.loads(example)))
    assert load_trajectories(path)[0].prompt_tokens() == [1800, 2230]


def test_the_error_shown_is_the_error_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stage = {"response_tokens": 1}
    turns = [{"output_tokens": n, "env": stage} for n in (1, 1, 1, -5)]
    lines = [
        {"id": str(n), "initial_prompt_tokens": 1, "turns": turns[: 4 if n == 7 else 1]} for n in range(1, 8)
    ]
    Path("traces.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (shown,) = blocks("text")
    with pytest.raises(InputError) as refused:
        load_trajectories("traces.jsonl")
    assert str(refused.value) == shown.strip()


def test_the_generated_numbers_shown_are_the_generators() -> None:
    found = {name: profile(generate(name, 2000, 7)) for name in PROFILES}
    percentiles = {
        "turns": "turns_per_trajectory",
        "output tokens a turn": "output_tokens",
        "response tokens": "response_tokens",
        "environment, s": "environment_s",
        "inference, s": "inference_s",
    }
    rows = {
        cells[0]: cells[1:]
        for cells in ([cell.strip() for cell in row.strip("|").split("|")] for row in PAGE.splitlines())
    }
    expected = {
        row: [getattr(getattr(of, quantity), p, None) for of in found.values() for p in ("p50", "p90")]
        for row, quantity in percentiles.items()
    }
    expected["initial prompt tokens, mean"] = [of.initial_prompt_tokens.mean for of in found.values()]
    expected["final context tokens, mean"] = [of.final_context_tokens.mean for of in found.values()]
    expected["environment share of the seconds"] = [of.environment_share for of in found.values()]
    for row, values in expected.items():
        assert len(rows[row]) == len(values)
        for cell, value in zip(rows[row], values, strict=True):
            if value is None:
                assert cell == "-"
                continue
            shown = cell.split(" / ")[1].replace(",", "")
            number = float(shown.strip("%")) / (100 if "%" in shown else 1)
            assert number == pytest.approx(value, rel=0.011), row


def test_the_table_of_formats_lists_each_with_the_qualities_it_can_have() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| [^|]+\| (\w+)[^|]*\| (\w+)[^|]*\| (\w+)", PAGE, re.MULTILINE)
    listed = {name: (tokens, inference, environment) for name, tokens, inference, environment in rows}
    expected = {
        name: (
            "estimated" if name in ("swe-agent", "openai-messages") else "exact",
            re.match(r"\w+", importer.inference)[0],  # type: ignore[index]
            re.match(r"\w+", importer.environment)[0],  # type: ignore[index]
        )
        for name, importer in FORMATS.items()
    }
    assert {name: listed[name] for name in expected} == expected | {"tracelab": ("exact", "derived", "exact")}


def test_the_import_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(Path(__file__).parent / "recordings" / "task-0.traj.json", tmp_path)
    (example,) = blocks("py")
    exec(example, {})
