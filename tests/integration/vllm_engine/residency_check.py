"""Whether each pass of a step log is in routing-residency's order, by what vLLM's own pool held before it."""

from __future__ import annotations

from typing import Any


class ResidencyCheck:
    """Knows of each trajectory how far its requests were computed, and of each pass what a query would find.

    A trajectory is in the pool if a query of its waiting request finds the last block boundary of the prompt
    that was computed last; without recurrent states, if it finds half of the tokens computed.
    """

    def __init__(self, block_size: int, states: bool) -> None:
        self._block_size = block_size
        self._states = states
        self._resumed_at: dict[str, int] = {}
        self._arrived: dict[str, int] = {}
        self.first_tier = 0
        """Requests of resumable trajectories, counted in each pass."""
        self.changed = 0
        """Passes whose order is not that of arrival."""

    def check(self, step: dict[str, Any]) -> None:
        names = [name for name, _ in step["arrived"]]
        for name in names:
            self._arrived.setdefault(name, len(self._arrived))
        resumable = {name for name, label in step["arrived"] if self._is_resumable(label, step["hits"][name])}
        expected = sorted(names, key=lambda name: (name not in resumable, self._arrived[name]))
        assert step["order"] == expected
        held_back = step["held back"]
        assert not resumable.intersection(held_back), "a cached trajectory was held back"
        assert held_back == expected[len(expected) - len(held_back) :]
        if held_back and not step["running"]:
            assert len(held_back) < len(expected) or step["first"], "the engine stands still"
        assert not set(held_back).intersection(step["admitted"])
        queue = [*step["first"], *expected]
        assert step["admitted"] == queue[: len(step["admitted"])]
        assert not step["touched"]
        self.first_tier += len(resumable)
        self.changed += expected != sorted(names, key=self._arrived.__getitem__)
        for label, computed, prompt in step["computed"].values():
            self._learn(label, computed, prompt)

    def _is_resumable(self, label: str, hit: int) -> bool:
        needed = self._resumed_at.get(label, 0)
        return 0 < needed <= (hit if self._states else 2 * hit)

    def _learn(self, label: str, computed: int, prompt: int) -> None:
        size = self._block_size
        if not self._states:
            self._resumed_at[label] = computed // size * size
        elif computed >= (boundary := (prompt - 1) // size * size):
            self._resumed_at[label] = boundary
