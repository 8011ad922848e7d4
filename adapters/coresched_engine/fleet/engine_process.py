"""One virtual engine, which does what the messages on its socket say."""

import os
import traceback
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from coresched.errors import InputError
from coresched_engine.fleet.wire import (
    Advance,
    Advanced,
    Boot,
    Channel,
    Close,
    Counts,
    Ended,
    Failed,
    Ready,
    Refused,
    Submit,
)


class FinishedRequest(Protocol):
    """One request from its submission to its end. Times are virtual seconds."""

    @property
    def request_id(self) -> str: ...
    @property
    def first_token_s(self) -> float | None: ...
    @property
    def finished_s(self) -> float: ...
    @property
    def cached_tokens(self) -> int:
        """Prompt tokens found in the cache when it was first admitted."""

    @property
    def queue_s(self) -> float:
        """Time in the waiting queue, after it was taken out of the running batch too."""

    @property
    def retractions(self) -> int: ...
    @property
    def output_ids(self) -> "array[int]": ...
    @property
    def aborted(self) -> str | None:
        """The engine's message if it did not serve the request to its end."""


class SteppedEngine(Protocol):
    """An engine whose virtual time stands still unless `advance` runs."""

    @property
    def next_event_s(self) -> float:
        """Nothing finishes before this time; inf while nothing is in flight."""

    @property
    def busy_s(self) -> float:
        """Virtual seconds of its forwards so far."""

    @property
    def prefilled_tokens(self) -> int:
        """Prompt tokens computed, those computed again included."""

    def submit(
        self, request_id: str, prompt: "array[int]", output_tokens: int, label: str, at: float
    ) -> None: ...
    def advance(self, until: float) -> Sequence[FinishedRequest]: ...
    def close(self) -> None: ...


def serve_engine(
    channel: Channel, boot: Boot, make_engine: Callable[[dict[str, Any]], tuple[SteppedEngine, Ready]]
) -> int:
    """Boot and serve until the other side closes, or is gone. Returns the process's exit code.

    Errors are told on the channel, with a traceback on standard error where they are not the user's.
    """
    os.environ.update(boot.environment)
    try:
        engine, ready = make_engine(boot.arguments)
        channel.send(ready)
        while (message := channel.receive()) is not None:
            if isinstance(message, Submit):
                prompt = array("q", message.prompt)
                engine.submit(message.request_id, prompt, message.output_tokens, message.label, message.at)
            elif isinstance(message, Advance):
                ended = [_ended(each) for each in engine.advance(message.until)]
                channel.send(Advanced(engine.next_event_s, ended))
            elif isinstance(message, Close):
                channel.send(Counts(engine.busy_s, engine.prefilled_tokens))
                engine.close()
                return 0
    except InputError as error:
        channel.send(Refused(str(error)))
        return 2
    except Exception as error:
        traceback.print_exc()
        channel.send(Failed(f"{type(error).__name__}: {error}"))
        return 1
    return 0


def _ended(finished: FinishedRequest) -> Ended:
    return Ended(
        request_id=finished.request_id,
        first_token_s=finished.first_token_s,
        finished_s=finished.finished_s,
        cached_tokens=finished.cached_tokens,
        queue_s=finished.queue_s,
        retractions=finished.retractions,
        output=finished.output_ids.tobytes(),
        aborted=finished.aborted,
    )
