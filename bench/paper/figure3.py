"""The published grid of makespans over (r, C_S), and which of its cells each estimator calls good.

Figure 3 of arXiv:2611.16661 has 86 cells in three workloads. A measured cell is good when its makespan is
within 10 % of the best one at this or a lower C_S of its workload; a timed-out cell never is.

The figure's memory is not printed. Assumed is what fits the published token counts best: 70.65e9 bytes for
the two pools of a GPU, fp32 states (18,995,200 bytes a slot at TP 4), 3 slots a request. A KV token is 8,064
bytes.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from math import ceil
from typing import Final

from coresched.capacity.balance import PoolBalance
from coresched.capacity.demand import Footing
from coresched.capacity.estimate import DEFAULT_MARGIN, worst_demand
from coresched.capacity.profile import WorkloadProfile, profile_of
from coresched.trajectory.schema import Trajectory

MEMORY_BYTES: Final = 70.65e9
KV_BYTES: Final = 8_064
STATE_BYTES: Final = 18_995_200
SLOTS_PER_REQUEST: Final = 3

WORKLOADS: Final = ("SWE", "BFCL", "WideSearch")

TOLERANCE: Final = 0.10
"""How much slower than the best a good cell may be."""

TOKENS: Final = Footing(
    kv_units=lambda tokens: tokens,
    shared_units=lambda tokens: tokens,
    running_units=SLOTS_PER_REQUEST,
    idle_units=1,
)


@dataclass(frozen=True)
class Cell:
    """One published run. ``makespan_min`` is None where it timed out after six hours."""

    ratio: float
    concurrency: int
    makespan_min: float | None


@dataclass(frozen=True)
class Score:
    """How many of a workload's cells an estimator puts on the side on which they were measured.

    ``false_good`` are those it calls good and that are not, the costly mistake; ``false_bad`` the reverse.
    """

    right: int
    cells: int
    false_good: tuple[Cell, ...]
    false_bad: tuple[Cell, ...]


def published_grid(workload: str) -> list[Cell]:
    """The cells of "SWE", "BFCL" or "WideSearch"."""
    text = (resources.files(__package__) / "figure3.json").read_text()
    grid = json.loads(text)["workloads"][workload]
    return [
        Cell(float(ratio), concurrency, makespan)
        for ratio, makespans in grid["makespans_by_ratio"].items()
        for concurrency, makespan in zip(grid["concurrencies"], makespans, strict=True)
    ]


def measured_good(cells: list[Cell]) -> frozenset[Cell]:
    """Cells within TOLERANCE of the best makespan at this or a lower C_S."""
    good = set()
    for cell in cells:
        best = min(
            other.makespan_min
            for other in cells
            if other.concurrency <= cell.concurrency and other.makespan_min is not None
        )
        if cell.makespan_min is not None and cell.makespan_min <= best * (1 + TOLERANCE):
            good.add(cell)
    return frozenset(good)


def peak_tokens(profile: WorkloadProfile, cells: list[Cell]) -> dict[int, int]:
    """KV tokens of the replayed peak, without margin, for each C_S of the cells."""
    return {
        concurrency: worst_demand(profile, concurrency, TOKENS, margin=0).kv_units
        for concurrency in {cell.concurrency for cell in cells}
    }


def good_by_peak(tokens: dict[int, int], cells: list[Cell], margin: float) -> frozenset[Cell]:
    """Cells whose pools hold the replayed peak of their C_S, ``tokens`` raised by ``margin``.

    The replays have no environment waits, so every admitted trajectory counts as running, with S slots.
    """
    return frozenset(cell for cell in cells if _holds(cell, ceil(tokens[cell.concurrency] * (1 + margin))))


def _holds(cell: Cell, tokens: int) -> bool:
    """The engine's pools at this ratio: one slot is padding, KV gets what the slots leave."""
    budget = MEMORY_BYTES * cell.ratio / (1 + cell.ratio)
    slots = int((budget - STATE_BYTES) // STATE_BYTES)
    held = int(MEMORY_BYTES - (slots + 1) * STATE_BYTES) // KV_BYTES
    return SLOTS_PER_REQUEST * cell.concurrency <= slots and tokens <= held


def good_by_balance(profile: WorkloadProfile, cells: list[Cell], kappa: float) -> frozenset[Cell]:
    """Cells with C_S <= C(r) of the continuous model, for an active context of ``kappa`` L_kv."""
    balance = PoolBalance(
        MEMORY_BYTES / KV_BYTES,
        kappa * profile.mean_final_tokens,
        SLOTS_PER_REQUEST * STATE_BYTES / KV_BYTES,
    )
    return frozenset(cell for cell in cells if cell.concurrency <= balance.capacity(cell.ratio))


def score(cells: list[Cell], predicted: frozenset[Cell]) -> Score:
    """Compare a prediction with what was measured."""
    good = measured_good(cells)
    return Score(
        right=sum((cell in good) == (cell in predicted) for cell in cells),
        cells=len(cells),
        false_good=tuple(cell for cell in cells if cell in predicted and cell not in good),
        false_bad=tuple(cell for cell in cells if cell in good and cell not in predicted),
    )


@dataclass(frozen=True)
class Classified:
    """One estimator's score on one workload, planned on the batch of one seed."""

    workload: str
    seed: int
    estimator: str
    score: Score


def classified(workload: str, seed: int, trajectories: Sequence[Trajectory]) -> list[Classified]:
    """The published cells of ``workload`` by every estimator; ``trajectories`` are a batch of its kind."""
    cells, profile = published_grid(workload), profile_of(trajectories)
    tokens = peak_tokens(profile, cells)
    predictions = {
        f"peak, {DEFAULT_MARGIN:.0%} margin": good_by_peak(tokens, cells, DEFAULT_MARGIN),
        "peak, no margin": good_by_peak(tokens, cells, 0.0),
        "kappa": good_by_balance(profile, cells, profile.kappa),
        "requests": good_by_balance(profile, cells, profile.mean_request_tokens / profile.mean_final_tokens),
        "paper": good_by_balance(profile, cells, 1.0),
    }
    return [Classified(workload, seed, name, score(cells, good)) for name, good in predictions.items()]
