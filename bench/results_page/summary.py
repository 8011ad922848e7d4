"""What the page needs of each bench's JSON, small enough to be kept beside it."""

import json
import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any, Final

from coresched.errors import InputError

BENCHES: Final = ("paper", "rivals", "better", "overhead", "capacity")
IF_THERE: Final = ("advised",)
"""Benches whose section the page has only where they were run."""
DIGITS: Final = 4
"""Significant digits that are kept."""
LEFT_OUT: Final = (
    "makespans_s",
    "method_makespans_s",
    "runs",
    "settings",
    "request_imbalance",
    "migrations",
    "parts",
)
"""What the page does not show."""


def read_results(folder: Path) -> dict[str, dict[str, Any]]:
    """The benches' JSON from ``folder``, by name; those of IF_THERE may be missing.

    Raises InputError for another that is missing, and for one that is none.
    """
    found = {}
    there = (name for name in IF_THERE if (folder / f"{name}.json").exists())
    for name in (*BENCHES, *there):
        file = folder / f"{name}.json"
        try:
            found[name] = json.loads(file.read_text())
        except OSError as error:
            raise InputError(
                f"{file} cannot be read ({error.strerror}); make it with `python -m bench {name} --json`"
            ) from None
        except ValueError as error:
            raise InputError(f"{file} is no JSON ({error}); make it again") from None
        if not isinstance(found[name], dict) or "command" not in found[name]:
            raise InputError(f"{file} is not what `python -m bench {name} --json` prints; make it again")
    return found


def summarise(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The same without single runs, with DIGITS digits, and with estimators summed up."""
    summary = {name: _small(dict(told)) for name, told in found.items()}
    for told in summary.values():
        told["command"] = shown_command(told["command"])
    summary["capacity"] = {
        **{name: summary["capacity"][name] for name in ("command", "date", "version")},
        "out_of_sample": _estimators(found["capacity"]["out_of_sample"]),
    }
    overhead = summary["overhead"]
    summary["overhead"] = {
        **{name: overhead[name] for name in ("command", "date", "version", "machine")},
        "rows": [
            {name: row[name] for name in ("case", "n", "peer", "ours_s", "peer_s", "ratio")}
            for row in overhead["rows"]
        ],
    }
    return summary


def packed(summary: Mapping[str, Any]) -> str:
    """As one line a bench, lists of like rows as columns and rows of values."""
    lines = [
        f"{json.dumps(name)}:{json.dumps(_pack(told), separators=(',', ':'))}"
        for name, told in summary.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def unpacked(text: str) -> dict[str, Any]:
    """The summary that `packed` made this text of."""
    found: dict[str, Any] = _unpack(json.loads(text))
    return found


def _pack(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _pack(inner) for name, inner in value.items()}
    if isinstance(value, list) and len(value) > 1 and all(isinstance(row, dict) for row in value):
        columns = list(value[0])
        if all(list(row) == columns for row in value):
            return {"columns": columns, "values": [[_pack(inner) for inner in row.values()] for row in value]}
    return value


def _unpack(value: Any) -> Any:
    if isinstance(value, dict):
        if list(value) == ["columns", "values"]:
            return [dict(zip(value["columns"], map(_unpack, row), strict=True)) for row in value["values"]]
        return {name: _unpack(inner) for name, inner in value.items()}
    return value


def shown_command(command: str) -> str:
    """The command with FILE for each recorded batch: where they lie is the reader's own."""
    words, shown, files = shlex.split(command), list[str](), False
    for word in words:
        if files and not word.startswith("--"):
            shown.append("FILE")
            continue
        files = word == "--trajectories"
        shown.append(word)
    return shlex.join(shown)


def _small(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _small(inner) for name, inner in value.items() if name not in LEFT_OUT}
    if isinstance(value, list):
        return [_small(inner) for inner in value]
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.{DIGITS}g}")
    return value


def _estimators(trials: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of each workload and estimator: the median and the worst makespan over that of the best cell."""
    cases: dict[tuple[str, str], list[float]] = {}
    for trial in trials:
        ratio = trial["ratio_to_best"]
        cases.setdefault((trial["workload"], trial["estimator"]), []).append(
            math.inf if ratio is None else ratio
        )
    return [
        {
            "workload": workload,
            "estimator": estimator,
            "seeds": len(ratios),
            "median": _finite(median(ratios)),
            "worst": _finite(max(ratios)),
        }
        for (workload, estimator), ratios in cases.items()
    ]


def _finite(ratio: float) -> float | None:
    """None where the planned pools cannot run the batch."""
    return float(f"{ratio:.{DIGITS}g}") if math.isfinite(ratio) else None
