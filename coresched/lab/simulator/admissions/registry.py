"""The orders and gates of this folder by name."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

from coresched.lab.simulator.admissions.gate import TurnGate, Workers
from coresched.lab.simulator.admissions.pause_resume import PauseResume
from coresched.lab.simulator.admissions.prefix_groups import prefix_groups
from coresched.lab.simulator.settings import RunSettings
from coresched.lab.simulator.workload import Workload

BATCH_ORDERS: Final[Mapping[str, Callable[[Workload, RunSettings], Sequence[int]]]] = {
    "prefix-groups": prefix_groups
}
TURN_GATES: Final[Mapping[str, Callable[[Workers], TurnGate]]] = {"pause-resume": PauseResume}


def submission(workload: Workload, settings: RunSettings) -> Sequence[int]:
    """The samples in the order in which the coordinator is told of them."""
    order = BATCH_ORDERS.get(settings.admission_policy)
    return range(workload.samples) if order is None else order(workload, settings)


def turn_gate(workload: Workload, settings: RunSettings, kv_tokens: int) -> TurnGate | None:
    """What the turns of a run must pass, if anything; ``kv_tokens`` is the KV pool of one worker."""
    gate = TURN_GATES.get(settings.admission_policy)
    return None if gate is None else gate(Workers(workload, settings.workers, kv_tokens))


def coordinated_admission(policy: str) -> Literal["submission", "longest-expected-first"]:
    """The order that the coordinator is given: its own, or that in which it is told of the samples."""
    return "longest-expected-first" if policy == "longest-expected-first" else "submission"
