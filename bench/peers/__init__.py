"""Peers of the compiled core: well-made Python for the same job.

They leave out what the job itself does not need: argument checks, weights, refusing a job that waits already.
"""

from importlib import import_module
from types import ModuleType

INSTALLABLE = ("uhashring", "sortedcontainers")
"""Packages of the `bench` extra; a peer whose package is not installed is left out."""


def installed(package: str) -> ModuleType | None:
    """The package, or None if it is not installed."""
    try:
        return import_module(package)
    except ModuleNotFoundError:
        return None


def absent() -> list[str]:
    """The packages of the `bench` extra that are not installed."""
    return [package for package in INSTALLABLE if installed(package) is None]
