"""A lower bound on the makespan of a batch, whatever schedules it, under the simulator's own time model."""

from dataclasses import dataclass

from coresched.lab.simulator.model import StepTimes, WorkerModel
from coresched.lab.simulator.workload import Workload


@dataclass(frozen=True)
class Bounds:
    """Seconds that no schedule can beat; the makespan is at least ``best``."""

    longest_chain_s: float
    """The trajectory that takes longest when it has a worker and the environment to itself."""
    environment_s: float
    """Environment work / C_E, after the earliest moment a stage can begin; 0 without a cap."""
    inference_s: float
    """Inference work / W: perfect reuse, every decode step with as many sequences as all memory admits."""

    @property
    def best(self) -> float:
        return max(self.longest_chain_s, self.environment_s, self.inference_s)


def lower_bounds(
    workload: Workload,
    model: WorkerModel,
    *,
    workers: int,
    environment_concurrency: int | None,
    shared_prefixes_cached: bool = False,
) -> Bounds:
    """Bound the makespan from three sides.

    A decode step of n sequences costs a + f(n) + c S with f piecewise linear, so each decoded token costs at
    least min(f(1), f(n_max) / n_max) and its share of a is at least a / n_max. Prefill computes at least the
    tokens no earlier turn could have left in the cache, in batches of at most a chunk and n_max requests.
    n_max is what the worker could run with all memory given to states, so runs that split it differently
    have the same bound. ``shared_prefixes_cached`` is for workers that reuse what a trajectory shares with
    its group, which the simulated one does not: the first turn then finds it. With one worker the longest
    chain's own steps and batches are serial with everything else.
    """
    times, chunk = model.times, model.prefill_chunk_tokens
    slots = model.pool_tokens * model.slots_per_request // model.request_state_tokens
    most = min(slots // model.slots_per_request, model.max_running_requests, workload.samples)
    longest, longest_steps, longest_turns = 0.0, 0, 0
    first_stage: list[float] = []
    environment = attended_s = context_s = 0.0
    decoded = new_total = requests = 0
    for sample in range(workload.samples):
        chain, steps, seen_environment = 0.0, 0, False
        cached = workload.shared_tokens[sample] if shared_prefixes_cached else 0
        turns = range(workload.first_turn[sample], workload.first_turn[sample + 1])
        for turn in turns:
            prompt, output = workload.prompt_tokens[turn], workload.output_tokens[turn]
            hit = min(cached, prompt - 1)
            new = prompt - hit
            part = times.prefill_token_s * new + times.prefill_attended_token_s * (new * (hit + new * 0.5))
            context = times.decode_context_token_s * (
                (output - 1) * (prompt + 1) + (output - 1) * (output - 2) * 0.5
            )
            chain += (
                times.turnaround_s
                + times.turnaround_token_s * prompt
                + times.prefill_batch_s * -(-new // chunk)
                + times.prefill_request_s
                + part
                + (output - 1) * (times.decode_step_s + _sequences_s(times, 1))
                + context
            )
            duration = workload.environment_s[turn]
            if duration >= 0:
                if not seen_environment:
                    first_stage.append(chain)
                    seen_environment = True
                chain += duration
                environment += duration
            attended_s += part
            context_s += context
            decoded += output - 1
            steps += output - 1
            new_total += new
            requests += 1
            cached = workload.cached_tokens[turn]
        longest = max(longest, chain)
        longest_steps, longest_turns = max(longest_steps, steps), max(longest_turns, len(turns))
    decode_steps = decoded / most
    batches = max(new_total / chunk, requests / most)
    if workers == 1:
        decode_steps, batches = max(decode_steps, longest_steps), max(batches, longest_turns)
    work = (
        decoded * min(_sequences_s(times, 1), _sequences_s(times, most) / most)
        + times.decode_step_s * decode_steps
        + context_s
        + attended_s
        + times.prefill_request_s * requests
        + times.prefill_batch_s * batches
    )
    capped = environment_concurrency is not None and bool(first_stage)
    return Bounds(
        longest_chain_s=longest,
        environment_s=environment / environment_concurrency + min(first_stage)
        if environment_concurrency is not None and capped
        else 0.0,
        inference_s=work / workers,
    )


def _sequences_s(times: StepTimes, sequences: int) -> float:
    knee = times.decode_knee_sequences
    return times.decode_sequence_s * min(sequences, knee) + times.decode_sequence_beyond_knee_s * max(
        0, sequences - knee
    )
