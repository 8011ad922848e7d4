"""First the job of the trajectory that has most to do, this job included."""

from typing import Final

from coresched.lab.simulator.environments.order import EnvironmentOrder, Jobs
from coresched.lab.simulator.expectations import noise_factors, turns_alone_s

LEAST_LEFT: Final = 0.05
"""Of what a trajectory has done, what it is still expected to do once it is longer than expected."""


class LongestRemaining(EnvironmentOrder):
    """Longest processing time first (Graham 1969), on what is left of each trajectory.

    Lengths are seconds alone, stages and inference, as longest-expected-first admission expects them: known
    but for `expectation_noise`, so an oracle at 0. What was done is known exactly.
    """

    def __init__(self, jobs: Jobs) -> None:
        workload = jobs.workload
        factors = noise_factors(workload.samples, jobs.settings)
        turns_s = turns_alone_s(workload, jobs.times)
        self._left_s = [0.0] * len(turns_s)
        for sample in range(workload.samples):
            turns = range(workload.first_turn[sample], workload.first_turn[sample + 1])
            length_s = sum(turns_s[turn] for turn in turns)
            error_s = (factors[sample] - 1) * length_s
            later_s = 0.0
            for turn in reversed(turns):
                left_s = later_s + max(workload.environment_s[turn], 0.0)
                self._left_s[turn] = max(left_s + error_s, LEAST_LEFT * (length_s - left_s))
                later_s += turns_s[turn]

    def key(self, sample: int, turn: int) -> float:
        return -self._left_s[turn]
