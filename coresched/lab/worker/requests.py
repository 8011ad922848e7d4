"""One request to the worker: what was asked, and how far it is."""

import asyncio
from array import array
from dataclasses import dataclass, field

from coresched.lab.worker.replies import reply_length, reply_tokens
from coresched.lab.worker.tokens import PrefixDigests, Tokens


@dataclass(eq=False)
class LiveRequest:
    """A prompt and the reply it will get. Times are virtual seconds since the worker began."""

    prompt: "array[int]"
    digests: PrefixDigests
    label: str | None
    reply: Tokens
    streamed: bool
    cached_tokens: int = 0
    """Prompt tokens found in the cache; known when the prefill has begun."""
    produced: int = 0
    """Reply tokens so far; without streaming they are counted at the first and at the last one only."""
    queued_at: float = 0.0
    first_token_at: float = 0.0
    finished_at: float = 0.0
    progress: asyncio.Event = field(default_factory=asyncio.Event)
    """Set whenever ``produced`` has changed."""

    @property
    def done(self) -> bool:
        return self.produced == len(self.reply)

    @property
    def duration_s(self) -> float:
        return self.finished_at - self.queued_at

    @property
    def first_token_s(self) -> float:
        return self.first_token_at - self.queued_at

    def begins_with(self, checkpoint: tuple[int, bytes]) -> bool:
        """Whether the prompt begins with the tokens of this length and digest."""
        length, digest = checkpoint
        return length <= len(self.prompt) and self.digests.of(length) == digest

    def report(self, tokens: int) -> None:
        if tokens > self.produced:
            self.produced = tokens
            self.progress.set()


def make_request(
    prompt: "array[int]",
    *,
    label: str | None = None,
    output_tokens: int | None = None,
    seed: int = 0,
    message: bool = False,
    streamed: bool = False,
    reply: Tokens | None = None,
) -> LiveRequest:
    """A request for ``reply``, or for exactly ``output_tokens``, or as many as prompt and seed give."""
    digests = PrefixDigests(prompt)
    if reply is None:
        length = reply_length(digests.whole, seed) if output_tokens is None else output_tokens
        reply = reply_tokens(digests.whole, seed, length, message=message)
    return LiveRequest(prompt, digests, label, reply, streamed)


class _Zeros:
    def __getitem__(self, index: int, /) -> int:
        return 0


class LiveColumns:
    """The requests at the worker as columns; the simulator's sample and turn are the request's number.

    Nothing is said to be shared between trajectories: their common prefixes take their room once for each.
    """

    def __init__(self) -> None:
        self.requests: dict[int, LiveRequest] = {}
        self.labels: dict[int, str | None] = {}
        self.prompt_tokens: dict[int, int] = {}
        self.output_tokens: dict[int, int] = {}
        self.cached_tokens: dict[int, int] = {}
        self.group = _Zeros()
        self.shared_tokens = _Zeros()
        self.next_number = 0

    def add(self, request: LiveRequest) -> int:
        """Number the request."""
        number = self.next_number
        self.next_number += 1
        self.requests[number] = request
        self.labels[number] = request.label
        self.prompt_tokens[number] = len(request.prompt)
        self.output_tokens[number] = len(request.reply)
        self.cached_tokens[number] = len(request.prompt) + len(request.reply)
        return number

    def drop(self, number: int) -> None:
        del self.requests[number], self.labels[number], self.cached_tokens[number]
        del self.prompt_tokens[number], self.output_tokens[number]

    def __getitem__(self, number: int) -> LiveRequest:
        return self.requests[number]

    def __contains__(self, number: int) -> bool:
        return number in self.requests

    def __len__(self) -> int:
        return len(self.requests)
