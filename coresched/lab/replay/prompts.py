"""What each turn sends: token ids made of a seed, and the replies that came, as JSON text that only grows."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import shake_128

from coresched.trajectory.schema import Trajectory

Ids = Sequence[int]


@dataclass(frozen=True)
class TokenSource:
    """Token ids from ``low`` up to, not including, ``high``: the same for the same seed and name, everywhere.

    The ids of a longer stretch begin with those of a shorter one of the same name. Another ``variant`` is
    other ids for the same workload: what an engine has cached of one is of no use to the other.
    """

    seed: int
    low: int
    high: int
    variant: int = 0

    def ids(self, name: str, count: int) -> list[int]:
        drawn_from = f"{self.seed} {name}" if not self.variant else f"{self.seed}/{self.variant} {name}"
        drawn = shake_128(drawn_from.encode()).digest(4 * count)
        span, low = self.high - self.low, self.low
        return [low + number % span for number in struct.unpack(f"<{count}I", drawn)]


class Conversation:
    """One trajectory's prompt: the first one, then replies of this replay and recorded responses behind it.

    All trajectories of a group begin with the same ``shared_prefix_tokens`` ids. A reply of which less than
    all is kept loses its beginning, where reasoning stands; so the next prompt differs from what the engine
    has computed from there on, as it would in a harness.
    """

    def __init__(self, trajectory: Trajectory, source: TokenSource) -> None:
        self._trajectory = trajectory
        self._source = source
        self._text = bytearray()
        self.tokens = 0
        """Tokens of the prompt."""
        shared = trajectory.shared_prefix_tokens
        group = "shared" if trajectory.group is None else f"group {trajectory.group}"
        self._append(source.ids(group, shared))
        self._append(self._own("prompt", trajectory.initial_prompt_tokens - shared))

    @property
    def text(self) -> bytes:
        """The prompt's ids as JSON, without the brackets of the list."""
        return bytes(self._text)

    def answered(self, turn: int, reply: Ids) -> None:
        """Go on from ``reply``, that of turn number ``turn``, to the prompt of the next turn."""
        recorded = self._trajectory.turns[turn]
        self._append(reply[len(reply) - recorded.kept :])
        if recorded.env is not None:
            self._append(self._own(f"response {turn}", recorded.env.response_tokens))

    def _own(self, what: str, count: int) -> Ids:
        return self._source.ids(f"trajectory {self._trajectory.id}\0{what}", count)

    def _append(self, ids: Ids) -> None:
        if not ids:
            return
        if self.tokens:
            self._text += b","
        self._text += ",".join(map(str, ids)).encode()
        self.tokens += len(ids)
