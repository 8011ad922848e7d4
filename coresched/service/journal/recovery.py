"""The state of the service again, from the facts of its journal."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from coresched.errors import InputError
from coresched.service.batches.facts import AnyFact
from coresched.service.journal.writer import Journal

REPORT_EVERY_S = 2.0


class Recovered(NamedTuple):
    """How many facts there were, and the time of the latest, 0 without any."""

    facts: int
    at: float


def recover(
    journal: Journal, apply: Callable[[AnyFact], object], *, report: Callable[[int], None]
) -> Recovered:
    """Apply all facts of the journal, in order.

    `report` is called with the number of facts applied, every 2 s while it takes longer than that. Raises
    InputError, and leaves the file as it was, at a fact that is damaged or not to be applied: with the
    message of `apply` if that is an InputError too.
    """
    applied = 0
    at = 0.0
    due = time.monotonic() + REPORT_EVERY_S
    for sequence, fact in journal.facts():
        try:
            apply(fact)
        except InputError:
            journal.leave()
            raise
        except Exception as error:  # whatever is raised: it does not belong here
            journal.refuse(
                f"is damaged: fact {sequence} ({type(fact).__name__}) does not follow from those before it, "
                f"{type(error).__name__}: {' '.join(str(error).split())}",
                "restore a copy of it or give another --journal FILE",
            )
        applied += 1
        at = max(at, fact.at)
        if time.monotonic() >= due:
            report(applied)
            due += REPORT_EVERY_S
    return Recovered(applied, at)
