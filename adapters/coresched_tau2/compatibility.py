"""Whether the tau2 at hand has the places this adapter enters, in the form it was written for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from coresched_engine.places import Place
from coresched_harness.compatibility import Fit, uncalled

from coresched.errors import InputError

TESTED_VERSION = "1.0.1"

_BATCH = "tau2.runner.batch"
_ORCHESTRATOR = "tau2.orchestrator.orchestrator"

PLACES = (
    Place("tau2.cli.run_domain", ("config",)),
    Place("tau2.runner.worker.run_worker_command", ("controller", "slots")),
    Place("tau2.runner.controller._spawn_worker", ("controller_url", "slots", "index", "log_dir")),
    Place(f"{_BATCH}.run_single_task", ("config", "task")),
    Place(f"{_BATCH}.build_orchestrator", ("config", "task")),
    Place(f"{_ORCHESTRATOR}.Orchestrator.step", ("self",)),
    Place(f"{_ORCHESTRATOR}.Orchestrator._execute_tool_calls", ("self", "tool_calls")),
    Place("tau2.utils.llm_utils.completion", ()),
)

_CALLS = {
    f"{_ORCHESTRATOR}.Orchestrator.step": ("_execute_tool_calls", "generate_next_message"),
    "tau2.utils.llm_utils.generate": ("completion",),
    f"{_BATCH}.run_single_task": ("build_orchestrator",),
}
"""Functions that must call the places by these names, or replacing the names has no effect."""


def load_command_line() -> Any:
    """The module `tau2.cli`. Raises InputError where it cannot be had."""
    try:
        return import_module("tau2.cli")
    except ImportError as error:
        raise InputError(
            f"tau2 cannot be imported ({error}); install it from a checkout of "
            "github.com/sierra-research/tau2-bench"
        ) from None


def missing() -> list[str]:
    """What this adapter needs and the tau2 at hand lacks, a phrase each."""
    found = [reason for place in PLACES for reason in place.differences()]
    return found + list(uncalled(_CALLS))


FIT = Fit("tau2", TESTED_VERSION, "from a checkout of github.com/sierra-research/tau2-bench", missing)
