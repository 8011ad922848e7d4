"""The job first of the trajectory that has most to do, this job included."""

from coresched.lab.simulator.environments.order import EnvironmentOrder, Jobs


class LongestRemaining(EnvironmentOrder):
    """Longest processing time first (Graham 1969), on what is left of each trajectory: an oracle.

    What is left is in seconds: the environment stages to come, and decoding the replies to come alone.
    """

    def __init__(self, jobs: Jobs) -> None:
        workload, times = jobs.workload, jobs.times
        token_s = times.decode_step_s + times.decode_sequence_s
        self._left_s = [0.0] * len(workload.environment_s)
        for sample in range(workload.samples):
            turns = range(workload.first_turn[sample], workload.first_turn[sample + 1])
            left_s, reply_s = 0.0, 0.0
            for turn in reversed(turns):
                left_s += reply_s + max(workload.environment_s[turn], 0.0)
                reply_s = workload.output_tokens[turn] * token_s
                self._left_s[turn] = left_s

    def key(self, sample: int, turn: int) -> float:
        return -self._left_s[turn]
