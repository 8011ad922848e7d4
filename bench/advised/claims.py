"""What is claimed of the advice, and whether the trials bear it out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bench.advised.cases import WORKLOADS
from bench.advised.trials import Trial

WORTH: Final = 0.07
"""Of the makespan, in the mean."""
WORKLOADS_WORTH: Final = 2


@dataclass(frozen=True)
class Claim:
    """One claim; ``detail`` names the cases that decide it."""

    claim: str
    holds: bool
    detail: str


def claims(trials: Sequence[Trial]) -> list[Claim]:
    """Those that can be judged from these trials."""
    paper = [trial for trial in trials if trial.case.source.name in WORKLOADS]
    recorded = [trial for trial in trials if trial.case.source.files]
    found = []
    if paper:
        found += [_never_worse("the paper's workloads", paper), _worth(paper)]
    if recorded:
        found += [_never_worse("recorded batches", recorded), _same_sign(recorded)]
    return found


def _never_worse(where: str, trials: Sequence[Trial]) -> Claim:
    """On no seed worse by more than the paper's method is from itself in another order."""
    worse = [trial for trial in trials if trial.saved.worst < -trial.noise]
    return Claim(
        f"{where}: on no seed worse than the paper's method beyond noise",
        not worse,
        "; ".join(
            f"{trial.case.name} is by {-trial.saved.worst:.1%}, noise {trial.noise:.1%}" for trial in worse
        )
        or f"in none of {len(trials)} cases",
    )


def _worth(trials: Sequence[Trial]) -> Claim:
    """Surely: the interval of the mean is above 0, and the mean at least WORTH."""
    enough = [trial for trial in trials if trial.saved.mean >= WORTH and trial.saved.mean_low > 0]
    workloads = {trial.case.source.name for trial in enough}
    return Claim(
        f"{WORTH:.0%} shorter in the mean on at least {WORKLOADS_WORTH} of the paper's workloads",
        len(workloads) >= WORKLOADS_WORTH,
        "; ".join(
            f"{trial.case.name} {trial.saved.mean:.1%} ({trial.saved.mean_low:.1%} to "
            f"{trial.saved.mean_high:.1%})"
            for trial in enough
        )
        or "on none",
    )


def _same_sign(trials: Sequence[Trial]) -> Claim:
    """What is advised saves in the mean, surely; where nothing is advised, nothing changes."""
    advised = [trial for trial in trials if not trial.leave]
    wrong = [trial.case.name for trial in advised if trial.saved.mean_low <= 0]
    left = [trial.case.name for trial in trials if trial.leave]
    detail = f"{len(advised) - len(wrong)} of {len(advised)} cases with advice; left as they are: "
    detail += ", ".join(left) or "none"
    return Claim(
        "recorded batches: what is advised surely saves in the mean",
        bool(advised) and not wrong,
        detail + (f"; not sure: {', '.join(wrong)}" if wrong else ""),
    )
