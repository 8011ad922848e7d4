"""The label capacity C_A of RP as an operator gives it: a count, or a plan."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from coresched.capacity.fields import is_count, one_line, shown
from coresched.errors import InputError

LABEL_CAPACITY_VARIABLE = "CORESCHED_LABEL_CAPACITY"
"""C_A itself, an integer."""
PLAN_VARIABLE = "CORESCHED_PLAN"
"""Path of what `coresched plan --json` printed."""

LARGEST_LABEL_CAPACITY = 1 << 24
CEILING = 65_536
"""Labels beyond which a larger set cannot matter and its own memory, about 200 bytes a label, begins to."""

FIELDS = ("label_capacity", "plan")


@dataclass(frozen=True)
class LabelCapacity:
    """C_A of one scheduler (of one rank, with data parallelism), and in words where it is from."""

    value: int
    source: str


@dataclass(frozen=True)
class Settings:
    """A mapping with `label_capacity`, or `plan`, a path, or both, or others of ``fields``."""

    values: Mapping[str, object]
    source: str
    subject: str
    """The source as the subject of a sentence that says what is wrong with it."""
    folder: Path
    """What the path of a plan starts from."""
    fields: tuple[str, ...] = FIELDS

    def check_fields(self) -> None:
        """Raises InputError for no field at all, and for any other."""
        for name in self.values:
            if name not in self.fields:
                raise InputError(
                    f"{self.subject} has a field {shown(name)}; it may have {_listed(self.fields, 'and')}"
                )
        if not self.values:
            raise InputError(f"{self.subject} is empty; give it {_listed(self.fields, 'or')}")


def _listed(names: tuple[str, ...], word: str) -> str:
    return f"{', '.join(names[:-1])} {word} {names[-1]}"


def asked_label_capacity(
    environment: Mapping[str, str], settings: Settings | None, engine: str
) -> LabelCapacity | None:
    """C_A by its variable, else by ``settings``, else by the plan that a variable or they name; else None.

    ``engine`` is "sglang" or "vllm", which a plan must be for. An empty variable is as good as none. All that
    is given is checked, also where something else prevails.
    Raises InputError naming the variable or the field, the value and the fix.
    """
    asked = _from_variable(environment.get(LABEL_CAPACITY_VARIABLE))
    plan, plan_named_by = environment.get(PLAN_VARIABLE), PLAN_VARIABLE
    if settings is not None:
        settings.check_fields()
        values = settings.values
        if "label_capacity" in values:
            value = _count(values["label_capacity"], f"label_capacity in {settings.source}")
            asked = asked or LabelCapacity(value, settings.source)
        if "plan" in values and not plan:
            plan_named_by = f"plan in {settings.source}"
            if not isinstance(values["plan"], str) or not values["plan"]:
                raise InputError(f"{plan_named_by} is {shown(values['plan'])}; it must be the path of a plan")
            plan = str(settings.folder / values["plan"])
    if plan:
        planned = _from_plan(plan, plan_named_by, engine)
        asked = asked or planned
    return asked


def json_object(path: str, named_by: str) -> dict[str, object]:
    """What a file holds that ``named_by`` names. Raises InputError where that is no JSON object."""
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


def _from_variable(text: str | None) -> LabelCapacity | None:
    if not text:
        return None
    stripped = text.strip()
    digits = stripped.isascii() and stripped.isdigit() and len(stripped) <= len(str(LARGEST_LABEL_CAPACITY))
    return LabelCapacity(
        _count(int(stripped) if digits else text, LABEL_CAPACITY_VARIABLE), LABEL_CAPACITY_VARIABLE
    )


def _from_plan(path: str, named_by: str, engine: str) -> LabelCapacity:
    """A plan's label capacity is of a worker, whose ranks of attention data parallelism share it."""
    values = json_object(path, named_by)
    footprint = values.get("footprint")
    if "label_capacity" not in values or not isinstance(footprint, dict):
        raise InputError(
            f"{named_by} names {one_line(path)}, which is no plan; write one with `coresched plan ... --json`"
        )
    if footprint.get("engine") != engine:
        raise InputError(
            f"{named_by} names {one_line(path)}, a plan for {shown(footprint.get('engine'))}; "
            f"make one with `coresched plan --engine {engine}`"
        )
    value = _count(values["label_capacity"], f"label_capacity in {one_line(path)}")
    ranks = _count(footprint.get("attention_dp"), f"footprint.attention_dp in {one_line(path)}")
    shared = "" if ranks == 1 else f", {value} a worker over {ranks} ranks"
    return LabelCapacity(-(-value // ranks), f"the plan {one_line(path)}{shared}")


def _count(value: object, name: str) -> int:
    if not is_count(value, 1, LARGEST_LABEL_CAPACITY):
        raise InputError(
            f"{name} is {shown(value)}; it must be an integer from 1 to {LARGEST_LABEL_CAPACITY:,}"
        )
    assert isinstance(value, int)
    return value
