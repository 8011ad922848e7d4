"""Samples whose prompts begin alike one after another, and first the groups that decode most."""

from coresched.lab.simulator.expectations import noise_factors
from coresched.lab.simulator.settings import RunSettings
from coresched.lab.simulator.workload import Workload


def prefix_groups(workload: Workload, settings: RunSettings) -> list[int]:
    """The samples in BatchLLM's order (arXiv:2412.03594).

    A group shares a prefix; groups go by tokens to decode over tokens to prefill, the shared ones once, the
    largest ratio first, so that decoding runs beside the prefill of what follows. What shares nothing is a
    group of its own. Simplified: a request is a whole trajectory, prefilled with perfect reuse; the length of
    its replies is known but for `expectation_noise`, an oracle at 0. Left out: the choice among levels of
    prefixes, of which a trace has one; batching by memory, which the workers do anyhow.
    """
    factors = noise_factors(workload.samples, settings)
    groups: dict[tuple[int, int], list[int]] = {}
    for sample in range(workload.samples):
        key = (workload.group[sample], -1) if workload.shared_tokens[sample] else (-1, sample)
        groups.setdefault(key, []).append(sample)

    def ratio(group: list[int]) -> float:
        decoded, shared = 0.0, workload.shared_tokens[group[0]]
        prefilled = shared
        for sample in group:
            cached = shared
            for turn in range(workload.first_turn[sample], workload.first_turn[sample + 1]):
                decoded += factors[sample] * workload.output_tokens[turn]
                prefilled += workload.prompt_tokens[turn] - cached
                cached = workload.cached_tokens[turn]
        return decoded / prefilled

    return [sample for group in sorted(groups.values(), key=ratio, reverse=True) for sample in group]
