"""The stack whole, without each part, and each part alone, on held-out seeds; and which parts are kept."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bench.better.parts import ALL, LABELS, PARTS, changing, with_labels, with_parts
from bench.rivals.cases import Case
from bench.rivals.runs import Result, Wanted, against, run_all
from coresched.lab.advice.judgement import Interval, saving
from coresched.lab.advice.trials import JUDGED_FROM
from coresched.lab.simulator.settings import RunSettings

HURTS: Final = 0.005
"""A part is not kept if it surely costs more than this share of the makespan anywhere."""

METHOD, STACK, KEPT = "paper's method", "all parts", "kept parts"


@dataclass(frozen=True)
class Trial:
    """One variant on one case."""

    case: Case
    variant: str
    parts: frozenset[str]
    runs: Sequence[Result]
    longer: Interval
    """Than the paper's method, as a share, seed by seed."""
    part: str | None = None
    """Which one is left out, where one is."""
    brings: Interval | None = None
    """What that part saves beside all others: 1 - with / without."""


@dataclass(frozen=True)
class Verdict:
    """Whether a part is kept, and the cases that say so."""

    part: str
    kept: bool
    helps: tuple[str, ...]
    """Cases where it surely saves something beside the other parts."""
    costs: tuple[str, ...]
    """Where it surely costs more than HURTS."""


def variants(case: Case) -> dict[str, tuple[frozenset[str], RunSettings]]:
    """By name, the parts in it and its settings."""
    found = {METHOD: (frozenset[str](), case.settings), STACK: (ALL, with_parts(case, ALL))}
    for part in (part for part in PARTS if part in changing(case)):
        rest = ALL - {part}
        found[without(part)] = (rest, with_parts(case, rest))
        if part != "guard":
            found[f"only {part}"] = (frozenset({part}), with_parts(case, {part}))
    found[LABELS] = (frozenset(), with_labels(case))
    return found


def wanted(cases: Sequence[Case]) -> list[Wanted]:
    return [(case, settings) for case in cases for _, settings in variants(case).values()]


def without(part: str) -> str:
    return f"without {part}"


def try_all(
    cases: Sequence[Case], seeds: int, done: Callable[[int, int], None]
) -> tuple[list[Trial], list[Verdict]]:
    """Every variant on ``seeds`` seeds that no choice of a part has seen, and the verdicts.

    Where a part is not kept, what is left runs as one more variant.
    """
    held_out = range(JUDGED_FROM, JUDGED_FROM + seeds)
    results = run_all(wanted(cases), held_out, done)
    trials = [
        trial
        for case in cases
        for trial in _tried(case, {name: results[case, one] for name, (_, one) in variants(case).items()})
    ]
    verdicts = [judged(part, trials) for part in PARTS]
    kept = frozenset(verdict.part for verdict in verdicts if verdict.kept)
    if kept == ALL:
        return trials, verdicts
    more = run_all([(case, with_parts(case, kept)) for case in cases], held_out, done)
    for case in cases:
        runs = more[case, with_parts(case, kept)]
        reference = results[case, case.settings]
        trials.append(Trial(case, KEPT, kept, runs, against(runs, reference)))
    return trials, verdicts


def judged(part: str, trials: Sequence[Trial]) -> Verdict:
    """Kept if it surely helps somewhere and surely costs more than HURTS nowhere."""
    found = {trial.case.name: trial.brings for trial in trials if trial.part == part and trial.brings}
    helps = tuple(name for name, share in found.items() if share.low > 0)
    costs = tuple(name for name, share in found.items() if share.high < -HURTS)
    return Verdict(part, bool(helps) and not costs, helps, costs)


def _tried(case: Case, runs: Mapping[str, Sequence[Result]]) -> list[Trial]:
    whole, reference = runs[STACK], runs[METHOD]
    left_out = {without(part): part for part in PARTS}
    return [
        Trial(
            case,
            name,
            parts,
            runs[name],
            against(runs[name], reference),
            left_out.get(name),
            saving(_makespans(whole), _makespans(runs[name])) if name in left_out else None,
        )
        for name, (parts, _) in variants(case).items()
    ]


def _makespans(runs: Sequence[Result]) -> list[float]:
    return [run.makespan_s for run in runs]
