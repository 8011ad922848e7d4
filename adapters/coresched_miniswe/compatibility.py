"""Whether the mini-swe-agent at hand has the places this adapter enters, in the form it was written for."""

from __future__ import annotations

from coresched_engine.places import Place, resolve
from coresched_harness.compatibility import Fit

TESTED_VERSION = "2.4.6"

PLACES = (
    Place("minisweagent.agents.default.DefaultAgent.run", ("self", "task")),
    Place(
        "minisweagent.run.benchmarks.utils.batch_progress.RunBatchProgressManager.on_instance_end",
        ("self", "instance_id"),
    ),
    Place("minisweagent.environments.get_environment_class", ("spec",)),
    Place("minisweagent.environments.local.LocalEnvironment.execute", ("self", "action")),
    Place("minisweagent.models.get_model_class", ("model_name", "model_class")),
    Place("minisweagent.utils.serialize.recursive_merge", ()),
)

_NAMES = ("minisweagent.exceptions.InterruptAgentFlow",)


def missing() -> list[str]:
    """What this adapter needs and the mini-swe-agent at hand lacks, a phrase each."""
    found = [reason for place in PLACES for reason in place.differences()]
    return found + [f"{name} does not exist" for name in _NAMES if resolve(name) is None]


FIT = Fit("mini-swe-agent", TESTED_VERSION, f"pip install mini-swe-agent=={TESTED_VERSION}", missing)
