"""What the sidecar counts, from its start."""

from __future__ import annotations

from dataclasses import dataclass, field

from coresched.metrics.histogram import STAGE_S, Histogram


@dataclass(slots=True)
class Counts:
    """Requests to the tool server's call path and LLM replies, by what became of them."""

    matched: int = 0
    """Calls that belong to a trajectory; `ambiguous`, `again` and `near` ones among them."""
    ambiguous: int = 0
    """Calls that might as well have been another trajectory's, with the same name and arguments."""
    again: int = 0
    """Calls that had been made before: retries."""
    near: int = 0
    """Calls whose arguments the harness changed."""
    unmatched: int = 0
    """Calls that no assistant message asked for."""
    dropped_calls: int = 0
    """Calls whose client left, made them again or went on while they waited; never executed."""
    expired_calls: int = 0
    """Calls that waited longer than the queue deadline; answered with 503, never executed."""
    cancelled_calls: int = 0
    """Calls whose client left while they were executed."""
    held_replies: int = 0
    """Replies with tool calls that waited for a slot before they were handed out."""
    expired_replies: int = 0
    """Of these, handed out at the queue deadline without a slot; the calls wait instead."""
    dropped_replies: int = 0
    """Of these, those whose client left meanwhile."""
    dropped_admissions: int = 0
    """Trajectories whose client left before they were admitted."""
    abandoned_calls: int = 0
    """Calls that the trajectory's next turn, or its end, found not made."""
    idle_stages: int = 0
    """Slots taken back because no call came for the stage's idle time."""
    left_running: int = 0
    """Slots taken back from calls that went on after their trajectory had gone on."""
    overlapping_turns: int = 0
    """LLM requests of a trajectory with another one under way, which is no turn of its own."""
    admission_s: Histogram = field(default_factory=lambda: Histogram(STAGE_S))
    """Waits for admission."""
    queue_s: Histogram = field(default_factory=lambda: Histogram(STAGE_S))
    """Waits for an environment slot that was granted."""

    def numbers(self) -> dict[str, int]:
        """All counts by name."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in values.items() if isinstance(value, int)}
