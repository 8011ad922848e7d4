"""Which policies there are to compare, kind by kind, and beside what."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from bench.rivals.cases import Case, plain
from coresched.lab.policies import POLICIES
from coresched.lab.simulator.settings import RunSettings

KINDS: Final = tuple(dict.fromkeys(policy.kind for policy in POLICIES))
PAPER, PLAIN = "paper's method", "plain defaults"
BESIDE_PLAIN: Final = ("eviction", "pool", "admission")
"""Kinds that are also varied against plain defaults: what RP spares the caches, they must cope with."""


@dataclass(frozen=True)
class Comparison:
    """One kind of policy on one case, all else being as in the base."""

    case: Case
    kind: str
    base: str
    reference: str
    """The base's own policy of this kind."""
    settings: dict[str, RunSettings]
    """By the policy's name."""


def setting_of(kind: str) -> str:
    """The field of `RunSettings` that a kind's names are for."""
    names = {field.name for field in fields(RunSettings)}
    return next(
        name for name in (kind, f"{kind}_policy", f"{kind.removesuffix('s')}_policy") if name in names
    )


def comparisons(
    cases: Sequence[Case], kinds: Sequence[str] = KINDS, only: Sequence[str] | None = None
) -> Iterator[Comparison]:
    """Every kind on every case where it can matter; with ``only``, these policies beside the reference."""
    for kind in kinds:
        setting = setting_of(kind)
        names = [policy.name for policy in POLICIES if policy.kind == kind]
        for base in (PAPER, PLAIN) if setting.removesuffix("_policy") in BESIDE_PLAIN else (PAPER,):
            for case in cases:
                settings = case.settings if base == PAPER else plain(case.settings)
                if not _matters(kind, settings):
                    continue
                reference = getattr(settings, setting)
                chosen = [name for name in names if only is None or name in only or name == reference]
                if len(chosen) > 1:
                    yield Comparison(
                        case,
                        kind,
                        base,
                        reference,
                        {name: _with(settings, setting, name) for name in chosen},
                    )


def _with(settings: RunSettings, setting: str, name: str) -> RunSettings:
    changed: dict[str, Any] = {setting: name}
    return replace(settings, **changed)


def _matters(kind: str, settings: RunSettings) -> bool:
    if kind == "routing":
        return settings.workers > 1
    if kind == "environment":
        return settings.environment_concurrency is not None
    return True
