"""One model call as a harness sees it, whoever counts its request in flight."""

from __future__ import annotations

from collections.abc import Collection

from coresched.client.label import Scope, check_header_text, end_scope, open_scope
from coresched.core.checks import check_several
from coresched.recording.harness import TurnRecord

ROUTING_HEADER = (
    "x-smg-routing-key"  # the consistent-hash key of the SGLang Model Gateway; SGLang reads it too
)

SESSION_HEADER = "x-session-id"  # where vLLM looks for a label; it drops the other


def checked_exclude(exclude: Collection[str]) -> tuple[str, ...]:
    """Raises TypeError for anything but a collection of names."""
    what = "a collection of worker names"
    names = tuple(check_several(exclude, "exclude", what))
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"exclude must be {what}, got {exclude!r}")
    return names


class TurnFace:
    """A turn's label, the worker it was routed to, and the headers that carry the label."""

    def __init__(self, label: str, record: TurnRecord) -> None:
        self._record = record
        self._scope: Scope | None = None  # while the turn is open
        self.label = label
        """The trajectory label, which is the sample's id."""
        self.worker: str | None = None
        """Where to send the request; None without workers."""

    @property
    def headers(self) -> dict[str, str]:
        """The label in the headers that engines read. Raises ValueError if no HTTP header can hold it."""
        text = check_header_text(self.label, "a sample id")
        return {ROUTING_HEADER: text, SESSION_HEADER: text}

    def usage(self, *, prompt_tokens: int, cached_tokens: int | None = None, output_tokens: int) -> None:
        """The usage of the answer, for the recording of the batch, if it has one; the last one told counts.

        `prompt_tokens` is the whole prompt, cached tokens included, `output_tokens` all that was generated.
        What a recording transport or gateway saw of the same turn comes before it. Raises TypeError or
        ValueError for counts that cannot be, RuntimeError outside of the turn's block.
        """
        self._record.usage(prompt_tokens, cached_tokens, output_tokens)
        if self._scope is None:
            raise RuntimeError("a turn takes its usage while its block is open; call usage() inside it")

    def _opened(self, worker: str | None) -> None:
        self.worker = worker
        self._record.began(worker)
        self._scope = open_scope(self.label, worker)

    def _closed(self) -> bool:
        """End the scope; whether the turn was open, which is true once, so that its request ends once."""
        scope, self._scope = self._scope, None
        if scope is None:
            return False
        end_scope(scope)
        return True
