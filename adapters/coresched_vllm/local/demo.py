"""The batch of `coresched demo --engine vllm`: one baseline and one coordinated run on the same servers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from coresched.lab.replay.conduct import Conducted, conduct
from coresched.lab.replay.endpoint import Endpoint
from coresched.lab.replay.plan import Plan, ReplaySettings, make_plan
from coresched.lab.replay.prompts import TokenSource
from coresched.lab.replay.recorded import RecordedRun, read_recorded
from coresched.trajectory.scaling import scaled
from coresched.trajectory.workloads import demo_workload
from coresched_vllm.local.flags import Pool
from coresched_vllm.local.servers import Server
from coresched_vllm.local.tiny_model import TOKEN_IDS, Shape

SHAPE: Final = Shape(hidden_size=256, layers="ccacca")
"""Wide enough that computing a prompt takes longer than vLLM's own work around it."""

NAMES: Final = ("vllm-0", "vllm-1")
ENVIRONMENT_CONCURRENCY: Final = 4
SAMPLE_CONCURRENCY: Final = 10
TURNS_OVER, TOKENS_OVER, SECONDS_OVER = 5, 6, 10
POOL: Final = Pool(blocks=96, max_num_seqs=4, max_num_batched_tokens=512, longest_context=4_096)
"""Room for about ten trajectories."""
LABEL_CAPACITY: Final = 10


@dataclass(frozen=True)
class DemoRun:
    """One way to schedule the batch."""

    name: str
    adds: str
    settings: ReplaySettings


PATIENCE_S: Final = 10.0

RUNS: Final = (
    DemoRun(
        "baseline",
        "one limit for samples and environments (C_S = C_E), FCFS, round robin, no labels, so vLLM is first "
        "come, first served",
        ReplaySettings(
            sample_concurrency=ENVIRONMENT_CONCURRENCY,
            environment_concurrency=ENVIRONMENT_CONCURRENCY,
            environment_policy="fcfs",
            router="round-robin",
            labelled=False,
            patience_s=PATIENCE_S,
        ),
    ),
    DemoRun(
        "coordinated",
        f"samples admitted apart from environments (C_S = {SAMPLE_CONCURRENCY}), CAAS, LBCH, and "
        "routing-prefix inside vLLM",
        ReplaySettings(
            sample_concurrency=SAMPLE_CONCURRENCY,
            environment_concurrency=ENVIRONMENT_CONCURRENCY,
            environment_policy="caas",
            router="lbch",
            band_s=30.0 / SECONDS_OVER,
            bucket_s=1.0 / SECONDS_OVER,
            patience_s=PATIENCE_S,
        ),
    ),
)


def planned(samples: int, seed: int) -> Plan:
    """The first ``samples`` shipped trajectories that a server can hold, scaled down."""
    small = scaled(demo_workload(), turns_over=TURNS_OVER, tokens_over=TOKENS_OVER, seconds_over=SECONDS_OVER)
    held = [one for one in small if one.final_context_tokens <= POOL.longest_context]
    return make_plan(held[:samples], seed=seed)


class StoppedError(Exception):
    """A run without its end: the person stopped it (``interrupted``), or the message says why."""

    def __init__(self, message: str, *, interrupted: bool) -> None:
        super().__init__(message)
        self.interrupted = interrupted


def run(
    one: DemoRun,
    plan: Plan,
    servers: Sequence[Server],
    folder: Path,
    progress: Callable[[int, int], None],
) -> RecordedRun:
    """Empty the caches and run the batch. Raises StoppedError, and InputError as `conduct` does."""
    work = conduct(
        plan,
        one.settings,
        [Endpoint(server.name, server.url) for server in servers],
        tokens=TokenSource(0, *TOKEN_IDS),
        folder=folder / one.name,
        traces=[],
        flush_cache=True,
        progress=progress,
    )
    conducted: Conducted = asyncio.run(work)
    ending = conducted.ending
    if ending.status != "completed":
        raise StoppedError(ending.reason or ending.status, interrupted=ending.status == "interrupted")
    return read_recorded(folder / one.name, name=one.name)
