"""The ways in which the batch is scheduled."""

from dataclasses import dataclass
from typing import Literal

from coresched.lab.replay.plan import ReplaySettings

ENGINES = 2


@dataclass(frozen=True)
class SetUp:
    """One row: what admits, what routes, and whether the engines run as planned."""

    name: str
    adds: str
    decoupled: bool
    """Whether samples are admitted apart from environment slots: C_S of the plan, else C_S = C_E."""
    planned: bool
    """Whether the engines have the plan's pools and routing-prefix; else the engine's defaults and FCFS."""
    service: bool
    """Whether `coresched serve` admits and routes (LBCH, CAAS); else one process, round-robin and FCFS."""

    def settings(
        self,
        sample_concurrency: int,
        environment_concurrency: int,
        *,
        speed: float = 1.0,
        seconds_over: float = 1.0,
    ) -> ReplaySettings:
        """``sample_concurrency`` is C_S where it is decoupled.

        The batch's pauses are 1/``seconds_over`` of those recorded, and so are B and D_I of CAAS.
        """
        policy: Literal["caas", "fcfs"] = "caas" if self.service else "fcfs"
        return ReplaySettings(
            sample_concurrency=sample_concurrency if self.decoupled else environment_concurrency,
            environment_concurrency=environment_concurrency,
            environment_policy=policy,
            router="lbch" if self.service else "round-robin",
            band_s=30.0 / seconds_over,
            bucket_s=1.0 / seconds_over,
            speed=speed,
        )


STOCK = SetUp(
    "stock",
    "one limit for samples and environments (C_S = C_E), FCFS, round-robin, the engine as it comes",
    decoupled=False,
    planned=False,
    service=False,
)
DECOUPLED = SetUp(
    "decoupled",
    "samples admitted apart from environment slots, C_S of the plan; nothing else",
    decoupled=True,
    planned=False,
    service=False,
)
COORDINATED = SetUp(
    "coordinated",
    "C_S (and SGLang's pools) as planned, LBCH and CAAS by coresched serve, routing-prefix in the engine",
    decoupled=True,
    planned=True,
    service=True,
)
