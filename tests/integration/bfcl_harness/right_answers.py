"""Test cases of BFCL's own data, and the worker's script that answers them as BFCL's ground truth does."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

CATEGORY = "multi_turn_base"


def right_answers(package: Path, cases: Sequence[str]) -> str:
    """Lines for `coresched worker --script`: a reply for each call of the ground truth, words after a turn.

    `package` is the folder of bfcl_eval, `cases` are ids of multi_turn_base.
    """
    data = package / "data"
    questions = _by_id(data / f"BFCL_v4_{CATEGORY}.json")
    answers = _by_id(data / "possible_answer" / f"BFCL_v4_{CATEGORY}.json")
    parameters = dict(_parameters(data / "multi_turn_func_doc"))
    lines = []
    for case in cases:
        replies: list[dict[str, Any]] = []
        for turn in answers[case]["ground_truth"]:
            replies += [{"tool_calls": [_call(text, parameters)]} for text in turn]
            replies.append({"content": "Done."})
        first = questions[case]["question"][0][0]["content"]
        lines.append(json.dumps({"match": first, "replies": replies}))
    return "\n".join(lines) + "\n"


def _by_id(path: Path) -> dict[str, Any]:
    return {entry["id"]: entry for entry in map(json.loads, path.read_text().splitlines())}


def _parameters(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """The names of each function's parameters, in order: the ground truth gives some by position."""
    for path in folder.glob("*.json"):
        for line in path.read_text().splitlines():
            function = json.loads(line)
            yield function["name"], list(function["parameters"]["properties"])


def _call(text: str, parameters: dict[str, list[str]]) -> dict[str, Any]:
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    assert isinstance(call.func, ast.Name)
    by_position = zip(parameters[call.func.id], call.args, strict=False)
    arguments = {name: ast.literal_eval(value) for name, value in by_position}
    arguments |= {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    return {"name": call.func.id, "arguments": arguments}
