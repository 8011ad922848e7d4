"""The three ways in which the batch is scheduled, and the workload that they share."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from coresched.capacity.plan import Plan
from coresched.capacity.planner import plan
from coresched.lab.replay.plan import ReplaySettings
from coresched.trajectory.schema import Trajectory

ENGINES = 2
LABELS_VARIABLE = "CORESCHED_LABEL_CAPACITY"


@dataclass(frozen=True)
class SetUp:
    """One row: what admits, what routes, and whether the engines run as planned."""

    name: str
    adds: str
    decoupled: bool
    """Whether samples are admitted apart from environment slots: C_S of the plan, else C_S = C_E."""
    planned: bool
    """Whether the engines have the plan's pools and routing-prefix; else SGLang's defaults and fcfs."""
    service: bool
    """Whether `coresched serve` admits and routes (LBCH, CAAS); else one process, round-robin and FCFS."""

    def settings(self, made: Plan, environment_concurrency: int, speed: float) -> ReplaySettings:
        samples = made.reference_concurrency if self.decoupled else environment_concurrency
        policy: Literal["caas", "fcfs"] = "caas" if self.service else "fcfs"
        return ReplaySettings(
            sample_concurrency=samples,
            environment_concurrency=environment_concurrency,
            environment_policy=policy,
            router="lbch" if self.service else "round-robin",
            speed=speed,
        )


SETUPS = (
    SetUp(
        "stock",
        "one limit for samples and environments (C_S = C_E), FCFS, round-robin, SGLang's default pools",
        decoupled=False,
        planned=False,
        service=False,
    ),
    SetUp(
        "decoupled",
        "samples admitted apart from environment slots, C_S of the plan; nothing else",
        decoupled=True,
        planned=False,
        service=False,
    ),
    SetUp(
        "coordinated",
        "C_S and pools of the plan, LBCH and CAAS by coresched serve, routing-prefix in SGLang",
        decoupled=True,
        planned=True,
        service=True,
    ),
)


def shortened(trajectories: Sequence[Trajectory], fraction: int) -> list[Trajectory]:
    """The first 1/``fraction`` of each trajectory's turns, rounded up: as many samples, a smaller batch."""
    return [
        msgspec.structs.replace(one, turns=one.turns[: math.ceil(len(one.turns) / fraction)])
        for one in trajectories
    ]


@dataclass(frozen=True)
class Device:
    """The simulated device of each server: memory and weights as for `coresched sglang-sim`."""

    memory: str
    weights: str
    memory_fraction: float
    context_length: int

    def plan(self, model: Path, workload: Sequence[Trajectory], environment_concurrency: int) -> Plan:
        """Raises InputError where nothing fits."""
        return plan(
            str(model),
            workload,
            "sglang",
            gpu_memory=self.memory,
            weights=self.weights,
            memory_fraction=self.memory_fraction,
            workers=ENGINES,
            environment_concurrency=environment_concurrency,
        )

    def flags(self, made: Plan | None) -> list[str]:
        """SGLang's flags: those that all set-ups share and, with a plan, its own."""
        shared = ["--mem-fraction-static", str(self.memory_fraction), "--sleep-on-idle"]
        shared += ["--log-level", "warning", "--context-length", str(self.context_length)]
        if made is None:
            return shared
        return [*made.engine_flags, *shared, "--schedule-policy", "routing-prefix"]
