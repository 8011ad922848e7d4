"""`python -m bench ray` with a program in the place of Ray's Python."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.__main__ import main
from bench.ray_serve import names

ENGINE = {"ray": "2.60.0", "python": "CPython 3.11.7", "calls": 3}


def program(folder: Path, *lines: object, code: int = 0) -> str:
    """An executable that prints these lines of JSON, whatever it is asked, and exits with this code."""
    path = folder / "python"
    text = "".join(json.dumps(line) + "\n" for line in lines)
    path.write_text(f"#!{sys.executable}\nimport sys\nsys.stdout.write({text!r})\nsys.exit({code})\n")
    path.chmod(0o755)
    return str(path)


def rows(router: str, hot: list[int], **more: Any) -> list[dict[str, Any]]:
    held = {"router": router, "split": hot, "together": 0.5, **more}
    return [
        *({"row": {**held, "case": case}} for case in names.CASES),
        {"row": {"router": router, "case": "turns", "kept": 0.875, "split": [80, 80, 80]}},
        {"row": {"router": router, "case": "call", "samples_s": [0.002, 0.004, 0.003]}},
    ]


LINES = (
    {"doing": "Ray Serve"},
    {"engine": ENGINE},
    *rows(names.LBCH, [13, 4, 13], as_in_process=30),
    *rows(names.CONSISTENT_HASH, [30, 0, 0]),
)


def test_the_table_has_a_line_for_each_router(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ray", "--ray-python", program(tmp_path, *LINES)]) == 0
    shown = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "Ray 2.60.0, CPython 3.11.7, three replicas; 3 timed calls" in shown
    assert "lbch 13/4/13 13/4/13 50% 13/4/13 90/90 88% 3.00 ms 33%" in shown
    assert "consistent hash 30/0/0 30/0/0 50% 30/0/0 88% 3.00 ms 33%" in shown


def test_json_has_each_case_of_each_router(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ray", "--ray-python", program(tmp_path, *LINES), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["engine"] == ENGINE
    ours = report["rows"][0]
    assert ours["router"] == names.LBCH
    assert ours["hot"] == {"split": [13, 4, 13], "together": 0.5, "as_in_process": 30}
    assert (ours["call_s"], ours["call_spread_s"]) == (0.003, [0.0025, 0.0035])


def test_an_environment_without_ray_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lacking = program(tmp_path, {"error": "'python' must have ray[serve]: No module named 'ray'"}, code=1)
    assert main(["ray", "--ray-python", lacking]) == 2
    assert "--ray-python 'python' must have ray[serve]" in capsys.readouterr().err


def test_a_run_that_fails_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ray", "--ray-python", program(tmp_path, *LINES[:4], code=1)]) == 1
    assert "Ray's environment failed" in capsys.readouterr().err
