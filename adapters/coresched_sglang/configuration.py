"""The label capacity C_A that the operator asks for: from the environment, a small file, or a plan."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from coresched_engine import label_capacity
from coresched_engine.label_capacity import (
    LABEL_CAPACITY_VARIABLE,
    PLAN_VARIABLE,
    LabelCapacity,
    Settings,
    json_object,
)

from coresched.capacity.fields import one_line

FILE_VARIABLE = "CORESCHED_SGLANG_CONFIG"
"""Path of a JSON object with `label_capacity`, or `plan` (a path, from the file's folder), or both."""

VARIABLES = (LABEL_CAPACITY_VARIABLE, FILE_VARIABLE, PLAN_VARIABLE)
"""All that a label capacity can be given by."""


def asked_label_capacity(environment: Mapping[str, str]) -> LabelCapacity | None:
    """C_A by its variable, else by the file, else by the plan that a variable or the file names; else None.

    See `coresched_engine.label_capacity.asked_label_capacity`.
    """
    settings = None
    if path := environment.get(FILE_VARIABLE):
        shown = one_line(path)
        subject = f"{FILE_VARIABLE} names {shown}, which"
        settings = Settings(json_object(path, FILE_VARIABLE), shown, subject, Path(path).parent)
    return label_capacity.asked_label_capacity(environment, settings, "sglang")
