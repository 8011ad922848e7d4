"""How long things may stand still, and the errors of what waits in vain."""

from __future__ import annotations

from dataclasses import dataclass

MAY_BE_MADE_AGAIN = (408, 425, 429)
"""Refusals, beside 5xx, that pass by themselves."""


@dataclass(frozen=True, slots=True)
class Terms:
    """In seconds; None for no limit."""

    queue_deadline_s: float | None = None
    """A call or a held reply waits no longer for a slot."""
    stage_idle_s: float = 60.0
    """A slot without a call in it goes back after so long."""
    idle_s: float = 300.0
    """A trajectory without any request ends."""
    end_after_s: float = 1.0
    """A trajectory ends so long after a reply without tool calls, or after the LLM refused a request in a way
    that does not pass by itself, unless it goes on."""


class QueueDeadlineError(Exception):
    """A call waited for a slot until its deadline."""


class CallGivenUpError(Exception):
    """The harness made the call again, or went on without it, while it waited."""


class TrajectoryEndedError(Exception):
    """The trajectory was ended from outside while a request of it waited."""
