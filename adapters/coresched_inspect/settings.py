"""inspect's own limits: where one is below the gate's, the gate's is never reached."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from coresched_harness.waits import too_few_samples

from coresched.client.gate import Gate

logger = logging.getLogger(__name__)

_warned: set[str] = set()


def warn_of_limits(gate: Gate, spec: Any, generation: Any) -> None:
    """Warn of each limit of a task (its EvalSpec and GenerateConfig) below the gate's, once a process."""
    for warning in too_low(gate, spec.config, generation, spec.sandbox):
        if warning not in _warned:
            _warned.add(warning)
            logger.warning("coresched: %s", warning)


def too_low(gate: Gate, config: Any, generation: Any, sandbox: Any) -> Iterator[str]:
    """What holds fewer than the gate's C_S or C_E, and how to change it."""
    samples, stages = gate.sample_concurrency, gate.environment_concurrency
    adaptive = _adaptive(generation)
    given = generation.max_connections
    most_samples = config.max_samples
    if most_samples is not None and (text := too_few_samples(gate, "--max-samples", most_samples)):
        yield text
    if most_samples is None:
        first = adaptive.start if adaptive else given
        if first is None or first < samples:
            admits = "few" if first is None else first
            yield (
                f"without --max-samples inspect admits {admits} samples, or as many as model calls it "
                f"finds room for, not CORESCHED_SAMPLE_CONCURRENCY={samples}; add "
                f"--max-samples {samples}"
            )
    most = adaptive.max if adaptive else given
    if most is not None and most < samples:
        name = "the maximum of adaptive connections" if adaptive else "--max-connections"
        yield (
            f"{name} is {most}, below CORESCHED_SAMPLE_CONCURRENCY={samples}: admitted samples wait for each "
            f"other's model calls; add --max-connections {samples}"
        )
    sandboxes = _sandboxes(config, sandbox)
    if sandboxes is not None and (text := too_few_samples(gate, "--max-sandboxes", sandboxes)):
        yield text
    processes = _subprocesses(config)
    if stages is not None and processes < stages:
        yield (
            f"--max-subprocesses is {processes}, below CORESCHED_ENVIRONMENT_CONCURRENCY={stages}: tools "
            f"that hold a slot wait for each other; add --max-subprocesses {stages}"
        )


def _adaptive(generation: Any) -> Any:
    """The bounds (`start`, `max`) of inspect's adaptive connections; None where their number is fixed."""
    from inspect_ai.util._concurrency import adaptive_active, resolve_adaptive

    if adaptive_active(generation.adaptive_connections, generation.max_connections, generation.batch):
        return resolve_adaptive(generation.adaptive_connections)
    return None


def _sandboxes(config: Any, sandbox: Any) -> int | None:
    if sandbox is None or config.max_sandboxes is not None:
        return None if sandbox is None else config.max_sandboxes
    from inspect_ai.util._sandbox.registry import registry_find_sandboxenv

    default: int | None = registry_find_sandboxenv(sandbox.type).default_concurrency()
    return default


def _subprocesses(config: Any) -> int:
    from inspect_ai.util._subprocess import default_max_subprocesses

    processes: int = config.max_subprocesses or default_max_subprocesses()
    return processes
