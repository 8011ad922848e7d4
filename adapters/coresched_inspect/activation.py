"""When inspect is gated: by the environment variables of the process's gate, or by `enable` from Python."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from coresched.client.gate import Gate, process_gate
from coresched.client.gate.process import VARIABLES
from coresched.errors import InputError

_given: Gate | None = None
_off = False
_entered = False


def asked_for() -> bool:
    """Whether the environment asks for a gate, well or badly."""
    return any(os.environ.get(name, "").strip() for name in VARIABLES)


def enable(gate: Gate) -> None:
    """Gate all evals of this process through ``gate`` from now on, whatever the environment says.

    Raises InputError for an inspect-ai that this adapter does not fit. The gate is closed by whoever made it.
    """
    global _given, _off
    enter()
    from coresched_inspect.hooks import register

    register()
    _given, _off = gate, False


def disable() -> None:
    """Gate nothing any more. Samples that are under way go on as they began."""
    global _given, _off
    _given, _off = None, True


def gate_of_evals() -> Gate | None:
    """The gate that evals go through now; None where none was asked for, and inspect is left as it is.

    Raises InputError for variables that do not work, or an inspect-ai that this adapter does not fit.
    """
    if _off:
        return None
    if _given is not None:
        return _given
    if not asked_for():
        return None
    if os.environ.get("CORESCHED_WORKERS"):
        raise InputError(
            "CORESCHED_WORKERS is set, but inspect sends all requests to the model's base URL; leave it out, "
            "and give a `coresched gateway` in front of the workers as base URL"
        )
    gate = process_gate()
    enter()
    return gate


def enter() -> None:
    """Put this adapter into inspect, once. Raises InputError before anything is changed."""
    global _entered
    if _entered:
        return
    from coresched_inspect import compatibility
    from coresched_inspect.models import with_turns
    from coresched_inspect.samples import gated_attempt
    from coresched_inspect.tools import (
        followed_call,
        gated_command,
        gated_execution,
        gated_sandbox,
        gated_setup,
    )

    compatibility.FIT.check()
    _replace(compatibility.ATTEMPT, lambda original: gated_attempt(original, gate_of_evals))
    _replace(compatibility.SANDBOX, gated_sandbox)
    _replace(compatibility.SETUP, gated_setup)
    _replace(compatibility.EXECUTE, gated_execution)
    _replace(compatibility.CALL, followed_call)
    _replace(compatibility.GENERATE, with_turns)
    _replace(compatibility.EXEC, gated_command)
    _entered = True


def _replace(path: str, change: Callable[[Any], Any]) -> None:
    from coresched_engine.places import resolve

    owner, _, name = path.rpartition(".")
    place = resolve(owner)
    setattr(place, name, change(getattr(place, name)))
