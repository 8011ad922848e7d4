"""What a replay will do, checked against the traces before anything is sent."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from coresched.client.label import check_header_text
from coresched.errors import InputError
from coresched.lab.simulator.workload import NO_ENVIRONMENT, build_workload
from coresched.trajectory.schema import Trajectory

RouterName = Literal["lbch", "consistent-hash", "round-robin", "gateway"]
ROUTERS: Final[tuple[RouterName, ...]] = get_args(RouterName)
"""The first two are those of the batch; the last is a `coresched gateway` in front of the endpoints."""


@dataclass(frozen=True)
class ReplaySettings:
    """How the batch is scheduled and how long its endpoints are waited for.

    ``sample_concurrency`` is C_S, ``environment_concurrency`` C_E (None: no cap), ``load_bound`` alpha of
    LBCH; ``band_s`` and ``bucket_s`` are B and D_I of CAAS. The endpoints' clocks run ``speed`` times as fast
    as the wall clock: environment stages and B and D_I are divided by it, measured times multiplied. Without
    ``labelled`` no request carries its trajectory's label, as those of a harness that knows none. The last
    two are seconds of the wall clock: how long a turn is tried again, and how long one request may take.
    """

    sample_concurrency: int
    environment_concurrency: int | None = None
    environment_policy: Literal["fcfs", "caas"] = "caas"
    router: RouterName = "lbch"
    load_bound: float = 1.25
    band_s: float = 30.0
    bucket_s: float = 1.0
    speed: float = 1.0
    labelled: bool = True
    patience_s: float = 60.0
    request_timeout_s: float = 3600.0

    @property
    def batch_routes(self) -> bool:
        """Whether the batch chooses the endpoint of a turn."""
        return self.router in ("lbch", "consistent-hash")


@dataclass(frozen=True)
class PlannedSample:
    """One trajectory of the batch."""

    label: str
    trajectory: Trajectory
    environment_s: Sequence[float | None]
    """Duration of the stage after each turn; None where there is no stage."""


@dataclass(frozen=True)
class Plan:
    """The batch in submission order."""

    samples: Sequence[PlannedSample]

    @property
    def turns(self) -> int:
        return sum(len(sample.trajectory.turns) for sample in self.samples)


def make_plan(
    trajectories: Sequence[Trajectory],
    *,
    seed: int = 0,
    absent_environment_s: float | None = None,
) -> Plan:
    """Order, labels and durations are those of a simulated run with the same seed.

    Raises InputError as `build_workload` does, and for an id that no header can hold.
    """
    columns = build_workload(
        trajectories, page_tokens=1, seed=seed, absent_environment_s=absent_environment_s
    )
    by_id = {trajectory.id: trajectory for trajectory in trajectories}
    samples = []
    for number, label in enumerate(columns.labels):
        trajectory = by_id[label.removeprefix(f"{seed}:") if seed else label]
        try:
            check_header_text(label, f"trajectory {trajectory.id!r}: id")
        except ValueError as error:
            raise InputError(f"{error}; rename it") from None
        durations = columns.environment_s[columns.first_turn[number] : columns.first_turn[number + 1]]
        samples.append(
            PlannedSample(label, trajectory, [None if s == NO_ENVIRONMENT else s for s in durations])
        )
    return Plan(samples)


def require_context(plan: Plan, longest: int) -> None:
    """Refuse a trajectory that outgrows the longest context served. Raises InputError naming the turn."""
    for sample in plan.samples:
        trajectory = sample.trajectory
        for number, (prompt, turn) in enumerate(
            zip(trajectory.prompt_tokens(), trajectory.turns, strict=True)
        ):
            if prompt + turn.output_tokens > longest:
                raise InputError(
                    f"trajectory {trajectory.id!r}: turns[{number}] needs a context of "
                    f"{prompt + turn.output_tokens} tokens, but an endpoint serves at most {longest}; serve "
                    "longer ones, or leave the trajectory out"
                )
