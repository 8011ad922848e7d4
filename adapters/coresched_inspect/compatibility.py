"""Whether the inspect-ai at hand has the places this adapter enters, in the form it was written for."""

from __future__ import annotations

import inspect

from coresched_engine.places import Place, names_in_init, resolve
from coresched_harness.compatibility import Fit

TESTED_VERSION = "0.3.285"

ATTEMPT = "inspect_ai._eval.task.run._task_run_sample_attempt"
EXECUTE = "inspect_ai.model._call_tools._execute_tools_impl"
CALL = "inspect_ai.model._call_tools.call_tool"
GENERATE = "inspect_ai.model._model.Model.generate"
SANDBOX = "inspect_ai._eval.task.run.sandboxenv_context"
SETUP = "inspect_ai.util._sandbox.context.setup_sandbox_environment"
EXEC = "inspect_ai.util._sandbox.events.SandboxEnvironmentProxy.exec"

_LIMIT = "inspect_ai.util._limit._TimeLimit"

PLACES = (
    Place(ATTEMPT, ()),
    Place(EXECUTE, ("messages", "tools")),
    Place(CALL, ("tools", "message")),
    Place(GENERATE, ("self", "input")),
    Place("inspect_ai.model._model.ModelAPI.generate", ("self", "input", "tools", "tool_choice", "config")),
    Place(SANDBOX, ()),
    Place(SETUP, ("setup", "environments")),
    Place(EXEC, ("self", "cmd")),
    Place(f"{_LIMIT}._refresh_deadline", ("self",)),
    Place("inspect_ai.util.suspend_working_limit", ()),
)

_ATTEMPT_OPTIONS = ("create_sample_state", "task_name", "attempt", "run_id")
_LIMIT_FIELDS = ("_start_time", "_end_time")
_NAMES = ("inspect_ai.util._limit.time_limit_tree", "inspect_ai._util.working._untracked_sandbox_execs")


def missing() -> list[str]:
    """What this adapter needs and the inspect at hand lacks, a phrase each. Imports what it looks at."""
    found = [reason for place in PLACES for reason in place.differences()]
    attempt = resolve(ATTEMPT)
    if attempt is not None:
        takes = inspect.signature(attempt).parameters
        found += [f"{ATTEMPT} takes no {name}" for name in _ATTEMPT_OPTIONS if name not in takes]
    fields = names_in_init(_LIMIT)
    found += [f"{_LIMIT} has no {name}" for name in _LIMIT_FIELDS if name not in fields]
    found += [f"{name} does not exist" for name in _NAMES if resolve(name) is None]
    return found


FIT = Fit("inspect-ai", TESTED_VERSION, f"pip install 'inspect-ai=={TESTED_VERSION}'", missing)
