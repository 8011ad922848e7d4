"""The label capacity C_A that the operator asks for: from the environment, a small file, or a plan."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from coresched.capacity.fields import is_count, one_line, shown
from coresched.errors import InputError

LABEL_CAPACITY_VARIABLE = "CORESCHED_LABEL_CAPACITY"
"""C_A itself, an integer."""
FILE_VARIABLE = "CORESCHED_SGLANG_CONFIG"
"""Path of a JSON object with `label_capacity`, or `plan` (a path, from the file's folder), or both."""
PLAN_VARIABLE = "CORESCHED_PLAN"
"""Path of what `coresched plan --json` printed."""

LARGEST_LABEL_CAPACITY = 1 << 24
_FILE_FIELDS = ("label_capacity", "plan")


@dataclass(frozen=True)
class LabelCapacity:
    """C_A of one scheduler (of one rank, with attention data parallelism), and in words where it is from."""

    value: int
    source: str


def asked_label_capacity(environment: Mapping[str, str]) -> LabelCapacity | None:
    """C_A by its variable, else by the file, else by the plan that a variable or the file names; else None.

    An empty variable is as good as none. All that is given is checked, also where something else prevails.
    Raises InputError naming the variable or the field, the value and the fix.
    """
    asked = _from_variable(environment.get(LABEL_CAPACITY_VARIABLE))
    plan, plan_named_by = environment.get(PLAN_VARIABLE), PLAN_VARIABLE
    if path := environment.get(FILE_VARIABLE):
        values = _file(path)
        if "label_capacity" in values:
            value = _count(values["label_capacity"], f"label_capacity in {one_line(path)}")
            asked = asked or LabelCapacity(value, one_line(path))
        if "plan" in values and not plan:
            plan = _plan_path(path, values["plan"])
            plan_named_by = f"plan in {one_line(path)}"
    if plan:
        planned = _from_plan(plan, plan_named_by)
        asked = asked or planned
    return asked


def _from_variable(text: str | None) -> LabelCapacity | None:
    if not text:
        return None
    stripped = text.strip()
    digits = stripped.isascii() and stripped.isdigit() and len(stripped) <= len(str(LARGEST_LABEL_CAPACITY))
    return LabelCapacity(
        _count(int(stripped) if digits else text, LABEL_CAPACITY_VARIABLE), LABEL_CAPACITY_VARIABLE
    )


def _file(path: str) -> dict[str, object]:
    values = _json_object(path, FILE_VARIABLE)
    for name in values:
        if name not in _FILE_FIELDS:
            raise InputError(
                f"{FILE_VARIABLE} names {one_line(path)}, which has a field {shown(name)}; "
                f"it may have {' and '.join(_FILE_FIELDS)}"
            )
    if not values:
        raise InputError(
            f"{FILE_VARIABLE} names {one_line(path)}, which is empty; give it {' or '.join(_FILE_FIELDS)}"
        )
    return values


def _plan_path(path: str, plan: object) -> str:
    if not isinstance(plan, str) or not plan:
        raise InputError(f"plan in {one_line(path)} is {shown(plan)}; it must be the path of a plan")
    return str(Path(path).parent / plan)


def _from_plan(path: str, named_by: str) -> LabelCapacity:
    """A plan's label capacity is of a worker, whose ranks of attention data parallelism share it."""
    values = _json_object(path, named_by)
    footprint = values.get("footprint")
    if "label_capacity" not in values or not isinstance(footprint, dict):
        raise InputError(
            f"{named_by} names {one_line(path)}, which is no plan; write one with `coresched plan ... --json`"
        )
    if footprint.get("engine") != "sglang":
        raise InputError(
            f"{named_by} names {one_line(path)}, a plan for {shown(footprint.get('engine'))}; "
            "make one with `coresched plan --engine sglang`"
        )
    value = _count(values["label_capacity"], f"label_capacity in {one_line(path)}")
    ranks = _count(footprint.get("attention_dp"), f"footprint.attention_dp in {one_line(path)}")
    shared = "" if ranks == 1 else f", {value} a worker over {ranks} ranks"
    return LabelCapacity(-(-value // ranks), f"the plan {one_line(path)}{shared}")


def _json_object(path: str, named_by: str) -> dict[str, object]:
    try:
        values = json.loads(Path(path).read_bytes())
    except OSError as error:
        raise InputError(
            f"{named_by} names {one_line(path)}, which cannot be read: {error.strerror}; give a file"
        ) from None
    except (ValueError, RecursionError):
        raise InputError(f"{named_by} names {one_line(path)}, which is no JSON; give a JSON object") from None
    if not isinstance(values, dict):
        raise InputError(f"{named_by} names {one_line(path)}, which holds no JSON object; give one")
    return values


def _count(value: object, name: str) -> int:
    if not is_count(value, 1, LARGEST_LABEL_CAPACITY):
        raise InputError(f"{name} is {shown(value)}; it must be an integer from 1 to {LARGEST_LABEL_CAPACITY:,}")
    assert isinstance(value, int)
    return value
