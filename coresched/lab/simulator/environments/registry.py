"""The orders of this folder by name."""

from collections.abc import Callable, Mapping
from typing import Final, Literal

from coresched.lab.simulator.environments.longest_remaining import LongestRemaining
from coresched.lab.simulator.environments.order import EnvironmentOrder, EnvironmentQueue, Jobs
from coresched.lab.simulator.environments.sjf import ShortestJobFirst
from coresched.lab.simulator.environments.sjf_expected import ShortestExpectedJobFirst
from coresched.lab.simulator.model import StepTimes
from coresched.lab.simulator.settings import RunSettings
from coresched.lab.simulator.workload import Workload

PLAIN_ENVIRONMENTS: Final[Mapping[str, Callable[[Jobs], EnvironmentOrder]]] = {
    "sjf": ShortestJobFirst,
    "sjf-expected": ShortestExpectedJobFirst,
    "longest-remaining": LongestRemaining,
}


def environment_queue(workload: Workload, settings: RunSettings, times: StepTimes) -> EnvironmentQueue | None:
    """The queue in front of the coordinator's slots; None where the coordinator itself has the order."""
    order = PLAIN_ENVIRONMENTS.get(settings.environment_policy)
    return None if order is None else EnvironmentQueue(order(Jobs(workload, settings, times)))


def coordinated_environment(policy: str) -> Literal["fcfs", "caas"]:
    """The order that the coordinator is given: its own, or one that nobody asks it for."""
    return "caas" if policy == "caas" else "fcfs"
