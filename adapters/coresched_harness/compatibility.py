"""Whether the harness at hand has the places that its adapter enters, in the form it was written for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from coresched_engine.places import resolve

from coresched.errors import InputError


@dataclass(frozen=True)
class Fit:
    """An adapter and its harness, the package `distribution`. Nothing of the harness is imported for it.

    `missing` says what the adapter needs and the harness at hand lacks, a phrase each, and imports what it
    looks at. `install` says how to get the release that is tested.
    """

    distribution: str
    tested: str
    install: str
    missing: Callable[[], list[str]]

    def version(self) -> str | None:
        """Of the harness at hand; None where it is not installed."""
        try:
            return version(self.distribution)
        except PackageNotFoundError:
            return None

    def check(self) -> None:
        """Raises InputError for a harness that lacks something, before anything is changed in it."""
        if reasons := self.missing():
            at_hand = self.version() or "of unknown version"
            raise InputError(
                f"{self.distribution} {at_hand} cannot be gated: {'; '.join(reasons)}; "
                f"install {self.tested}, which is tested: {self.install}"
            )


def uncalled(calls: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Which functions, by their paths, do not call places by these names: to replace them has no effect."""
    for path, names in calls.items():
        code = getattr(resolve(path), "__code__", None)
        if code is None:
            yield f"{path} does not exist"
        else:
            yield from (f"{path} does not call {name}" for name in names if name not in code.co_names)
