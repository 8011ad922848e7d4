"""What is expected of each sample's length before it begins: its true length, and noise."""

import random
from math import exp

from coresched.lab.simulator.model import StepTimes
from coresched.lab.simulator.settings import RunSettings
from coresched.lab.simulator.workload import Workload


def expected_lengths(workload: Workload, settings: RunSettings, times: StepTimes) -> list[float | None]:
    """For each sample of ``workload``, in its order, the seconds expected of it; None where nothing is.

    A history is right about a sample but for a factor exp(sigma z), z standard normal and drawn anew for each
    seed of the run; sigma is ``settings.expectation_noise``. Policies that read no expectations get none.
    """
    if settings.admission_policy != "longest-expected-first":
        return [None] * workload.samples
    draws = random.Random(f"expectations {settings.seed}")
    return [
        length * exp(settings.expectation_noise * draws.gauss(0.0, 1.0))
        for length in lengths_alone_s(workload, times)
    ]


def lengths_alone_s(workload: Workload, times: StepTimes) -> list[float]:
    """Seconds of each sample with a worker and the environment to itself, but for attention to its context."""
    step_s = times.decode_step_s + times.decode_sequence_s
    request_s = times.turnaround_s + times.prefill_batch_s + times.prefill_request_s
    lengths = []
    for sample in range(workload.samples):
        length, cached = 0.0, 0
        for turn in range(workload.first_turn[sample], workload.first_turn[sample + 1]):
            new = workload.prompt_tokens[turn] - cached
            length += request_s + times.prefill_token_s * new + step_s * workload.output_tokens[turn]
            length += max(workload.environment_s[turn], 0.0)
            cached = workload.cached_tokens[turn]
        lengths.append(length)
    return lengths
