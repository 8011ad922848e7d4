"""Writes down from outside what each scheduling pass of a policy does, and all of routing-prefix's."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from coresched_simdevice.virtual.engine import VirtualEngine
from coresched_simdevice.virtual.passes import Asked, Pass, PrefixPass, Queued


class PassRecorder(ABC):
    """Hands every pass of an engine to ``write``. To be made before the engine runs.

    It wraps SGLang's and the adapter's objects; none of what they do depends on it.
    """

    def __init__(self, engine: VirtualEngine, write: Callable[[Pass], object]) -> None:
        scheduler = self.scheduler = engine.scheduler
        policy = scheduler.policy
        self._write = write
        self.ordering = policy.ordering
        self._entries: dict[str, int] = {}
        self._waiting: tuple[Queued, ...] = ()
        self._ordered: tuple[str, ...] | None = None
        self._add, scheduler._add_request_to_queue = scheduler._add_request_to_queue, self._joined
        self._calc, policy.calc_priority = policy.calc_priority, self._ordered_pass
        self._batch, scheduler.get_new_batch_prefill = scheduler.get_new_batch_prefill, self._new_batch

    @abstractmethod
    def before(self, waiting_queue: list[Any], running_batch: Any) -> None:
        """The policy is about to order the queue."""

    def ordered(self) -> None:  # noqa: B027  the policy's own matter
        """The policy has ordered it, and SGLang is about to fill a batch."""

    @abstractmethod
    def whole(self, **common: Any) -> Pass:
        """The pass, of which ``common`` are the fields of `Pass`."""

    def _joined(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        self._entries.setdefault(request.rid, len(self._entries) + 1)
        return self._add(request, *args, **kwargs)

    def _ordered_pass(self, waiting_queue: list[Any], running_batch: Any, *args: Any, **kwargs: Any) -> Any:
        self._waiting = tuple(
            Queued(request.rid, request.routing_key, self._entries[request.rid]) for request in waiting_queue
        )
        self.before(waiting_queue, running_batch)
        result = self._calc(waiting_queue, running_batch, *args, **kwargs)
        self._ordered = tuple(request.rid for request in waiting_queue)
        self.ordered()
        return result

    def _new_batch(self, *args: Any, **kwargs: Any) -> Any:
        self._ordered = None
        plan = self._batch(*args, **kwargs)
        if self._ordered is not None:
            batch = [] if plan.batch_to_run is None else [request.rid for request in plan.batch_to_run.reqs]
            waited = set(self._ordered) - {request.rid for request in self.scheduler.waiting_queue}
            self._write(
                self.whole(
                    waiting=self._waiting,
                    ordered=self._ordered,
                    admitted=tuple(rid for rid in batch if rid in waited),
                    continued=tuple(rid for rid in batch if rid not in waited),
                )
            )
        return plan


class PrefixRecorder(PassRecorder):
    def __init__(self, engine: VirtualEngine, write: Callable[[Pass], object]) -> None:
        super().__init__(engine, write)
        self._asked: list[Asked] = []
        self._labels: tuple[str, ...] = ()
        self._match, self.ordering._match = self.ordering._match, self._matched

    def before(self, waiting_queue: list[Any], running_batch: Any) -> None:
        self._asked = []
        self._labels = tuple(self.ordering._policy.labels())

    def whole(self, **common: Any) -> PrefixPass:
        return PrefixPass(**common, labels=self._labels, asked=tuple(self._asked))

    def _matched(self, request: Any) -> Any:
        result = self._match(request)
        self._asked.append(Asked(request.rid, int(request.num_matched_prefix_tokens)))
        return result
