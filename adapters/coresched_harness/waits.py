"""What a sample waited for, as all adapters write it into their harness's results; and a limit in its way."""

from __future__ import annotations

from typing import Any

from coresched.client.gate import Gate, Sample


def waits_of(sample: Sample) -> dict[str, Any]:
    """`label`, and the seconds so far before its admission, its environment slots and its resident slots."""
    return {
        "label": sample.id,
        "admission_wait_s": round(sample.admission_wait_s, 6),
        "environment_queue_s": round(sample.environment_queue_s, 6),
        "resident_wait_s": round(sample.resident_wait_s, 6),
    }


def too_few_samples(gate: Gate, option: str, given: int) -> str | None:
    """What is said where the harness's own limit, `given` by `option`, keeps the gate from its C_S."""
    wanted = gate.sample_concurrency
    if given >= wanted:
        return None
    return (
        f"{option} {given} is below CORESCHED_SAMPLE_CONCURRENCY {wanted}: this process never has more than "
        f"{given} samples; use {option} {wanted}"
    )
