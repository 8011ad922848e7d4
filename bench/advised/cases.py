"""The batches that advice is judged on: the paper's workloads on one and two workers, and recorded ones."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from bench.rivals.cases import Case, recorded_cases, shipped_cases
from coresched.errors import InputError
from coresched.lab.advice.parts import PARTS, part_of
from coresched.lab.simulator.settings import RunSettings

WORKLOADS: Final = ("SWE", "WideSearch", "BFCL", "MCP-Atlas")
MOST_WORKERS: Final = 2
ATLAS_ENVIRONMENTS: Final = (12, 20)
"""C_E beside the published 3 and 5, with which environments are busy to the end whatever is scheduled."""


def paper_cases() -> Iterator[Case]:
    for case in shipped_cases():
        if case.source.name not in WORKLOADS or case.settings.workers > MOST_WORKERS:
            continue
        yield case
        if case.source.name == "MCP-Atlas" and case.settings.workers == MOST_WORKERS:
            for limit in ATLAS_ENVIRONMENTS:
                settings = replace(case.settings, environment_concurrency=limit)
                yield replace(case, name=f"MCP-Atlas, W {MOST_WORKERS}, C_E {limit}", settings=settings)


def cases_of(
    names: Sequence[str],
    files: Sequence[str],
    environment_concurrency: int | None,
    absent_environment_s: float | None,
) -> list[Case]:
    """Those whose name begins with one of ``names``; all without. Raises InputError where there is none."""
    known = [*paper_cases(), *recorded_cases(files, environment_concurrency, absent_environment_s)]
    found = [case for case in known if case.name.startswith(tuple(names or ("",)))]
    if not found:
        raise InputError(
            f"--case {names[0]!r} begins no case; there are {'; '.join(case.name for case in known)}"
        )
    return found


def as_it_is(settings: RunSettings) -> list[str]:
    """The NAME=VALUE by which `advise` is told what is set today."""
    return [
        f"{name.replace('_', '-')}={value}"
        for part in PARTS
        for name, value in part_of(settings, part).items()
    ]
