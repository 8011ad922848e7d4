"""What each scheduling pass of routing-prefix saw and did, written down from outside."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from coresched_sglang.names import ROUTING_PREFIX

from coresched.errors import InputError
from coresched_simdevice.virtual.engine import VirtualEngine


class Queued(msgspec.Struct, frozen=True, array_like=True):
    """A request in the waiting queue."""

    id: str
    label: str | None
    entry: int
    """Its number in the order in which requests first joined the queue, from 1."""


class Asked(msgspec.Struct, frozen=True, array_like=True):
    """A prefix hit that the policy asked SGLang for, in tokens."""

    id: str
    hit: int


class Pass(msgspec.Struct, frozen=True):
    """One pass over the waiting queue, and the prefill batch that SGLang made after it."""

    waiting: tuple[Queued, ...]
    """The queue before the pass."""
    labels: tuple[str, ...]
    """The label set before the pass, the label that was touched longest ago first."""
    asked: tuple[Asked, ...]
    ordered: tuple[str, ...]
    """Ids of the queue after the pass."""
    admitted: tuple[str, ...]
    """Ids that left the queue for the batch, in the batch's order."""
    continued: tuple[str, ...]
    """Ids of the batch that had been admitted before: a prefill in chunks, or running requests mixed in."""


class PassRecorder:
    """Hands every pass of an engine to ``write``. To be made before the engine runs.

    It wraps SGLang's and the adapter's objects; none of what they do depends on it. Raises InputError for
    another policy than routing-prefix.
    """

    def __init__(self, engine: VirtualEngine, write: Callable[[Pass], object]) -> None:
        scheduler = self._scheduler = engine.scheduler
        policy = scheduler.policy
        if scheduler.schedule_policy != ROUTING_PREFIX or policy.ordering is None:
            raise InputError(
                f"schedule_policy is {scheduler.schedule_policy!r}; only routing-prefix's passes are recorded"
            )
        self._write = write
        self._ordering = policy.ordering
        self._entries: dict[str, int] = {}
        self._asked: list[Asked] = []
        self._waiting: tuple[Queued, ...] = ()
        self._labels: tuple[str, ...] = ()
        self._ordered: tuple[str, ...] | None = None
        self._add, scheduler._add_request_to_queue = scheduler._add_request_to_queue, self._joined
        self._calc, policy.calc_priority = policy.calc_priority, self._ordered_pass
        self._batch, scheduler.get_new_batch_prefill = scheduler.get_new_batch_prefill, self._new_batch
        self._match, self._ordering._match = self._ordering._match, self._matched

    def _joined(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        self._entries.setdefault(request.rid, len(self._entries) + 1)
        return self._add(request, *args, **kwargs)

    def _ordered_pass(self, waiting_queue: list[Any], *args: Any, **kwargs: Any) -> Any:
        self._asked = []
        self._waiting = tuple(
            Queued(request.rid, request.routing_key, self._entries[request.rid]) for request in waiting_queue
        )
        self._labels = tuple(self._ordering._policy.labels())
        result = self._calc(waiting_queue, *args, **kwargs)
        self._ordered = tuple(request.rid for request in waiting_queue)
        return result

    def _matched(self, request: Any) -> Any:
        result = self._match(request)
        self._asked.append(Asked(request.rid, int(request.num_matched_prefix_tokens)))
        return result

    def _new_batch(self, *args: Any, **kwargs: Any) -> Any:
        self._ordered = None
        plan = self._batch(*args, **kwargs)
        if self._ordered is not None:
            batch = [] if plan.batch_to_run is None else [request.rid for request in plan.batch_to_run.reqs]
            waited = set(self._ordered) - {request.rid for request in self._scheduler.waiting_queue}
            self._write(
                Pass(
                    waiting=self._waiting,
                    labels=self._labels,
                    asked=tuple(self._asked),
                    ordered=self._ordered,
                    admitted=tuple(rid for rid in batch if rid in waited),
                    continued=tuple(rid for rid in batch if rid not in waited),
                )
            )
        return plan


@contextmanager
def recorded_passes(engine: VirtualEngine, path: str | Path) -> Iterator[None]:
    """Write the passes of an engine to a file, one JSON object a line. Raises as `PassRecorder` does."""
    with open(path, "wb") as file:
        encode = msgspec.json.Encoder().encode
        PassRecorder(engine, lambda one: file.write(encode(one) + b"\n"))
        yield


def read_passes(path: str | Path) -> Iterable[Pass]:
    """What `recorded_passes` wrote."""
    decode = msgspec.json.Decoder(Pass).decode
    with open(path, "rb") as file:
        for line in file:
            yield decode(line)
