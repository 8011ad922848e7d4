"""The shortest environment job first, by durations that nobody can know: an oracle."""

from coresched.lab.simulator.environments.order import EnvironmentOrder, Jobs


class ShortestJobFirst(EnvironmentOrder):
    """SJF, which gives independent jobs the least mean wait (Smith 1956).

    Not preemptive: a short job waits for the long ones that run. A long job may wait as long as others come.
    """

    def __init__(self, jobs: Jobs) -> None:
        self._environment_s = jobs.workload.environment_s

    def key(self, sample: int, turn: int) -> float:
        return self._environment_s[turn]
