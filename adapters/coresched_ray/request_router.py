"""The request router for Ray Serve; see docs/ray.md.

Serve pickles this module by value into its processes, and with it whatever stands here at top level; the
other modules of this package are imported there.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from ray.serve.request_router import RequestRouter

from coresched_ray.attempts import Attempt, Attempts
from coresched_ray.labels import label_of
from coresched_ray.options import RouterOptions, checked_options
from coresched_ray.ranks import replica_ranks
from coresched_ray.replica_ring import ReplicaRing
from coresched_ray.slots import assign_slots, has_ranks, remembered

SINGLE_RANKS = 3
"""Replicas that are tried one by one; the shortest queue of all others comes after them."""

LONGEST_PAUSE = 5.0
"""Seconds between two questions for ranks that have a gap."""


class LoadBoundedRequestRouter(RequestRouter):  # type: ignore[misc]  # untyped where Ray is not installed
    """LBCH in front of the replicas of a deployment.

    For `RequestRouterConfig(request_router_class="coresched_ray.request_router:LoadBoundedRequestRouter",
    request_router_kwargs={...})`; the keyword arguments are those of `RouterOptions`. Each process that sends
    requests, a proxy or a holder of a handle, has a router of its own, and its loads are what that process
    has in flight.
    """

    queue_len_response_deadline_s = max(1.0, RequestRouter.queue_len_response_deadline_s)
    """Seconds. A replica that is too busy to answer Serve's 0.1 s would lose its labels each time."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._options = RouterOptions()
        self._refusal: str | None = None
        self._slots: dict[str, int] = {}
        self._following: asyncio.Task[None] | None = None
        self._was_told = False
        self._placed = asyncio.Event()
        self._use_options(self._options)

    def initialize_state(self, **kwargs: Any) -> None:
        """Take the options. What they lack is told to each request: Serve would only log it, and hang."""
        try:
            self._use_options(checked_options(kwargs))
        except (TypeError, ValueError) as error:
            self._refusal = f"{self._deployment_id} cannot be routed to: {error}"
            logging.getLogger("ray.serve").error(self._refusal)

    def _use_options(self, options: RouterOptions) -> None:
        self._options = options
        self._ring: ReplicaRing[Any] = ReplicaRing(
            options.router, options.load_bound, options.virtual_nodes, options.slack
        )
        self._attempts = Attempts(self._ring)

    # Replicas and slots

    def update_replicas(self, replicas: list[Any]) -> None:
        super().update_replicas(replicas)
        self._place()
        if len(self._ring.slots) < len(self._replicas) or self._has_gap(self._slots):
            self._follow()

    def on_replica_actor_died(self, replica_id: Any) -> None:
        super().on_replica_actor_died(replica_id)
        self._place()

    def _place(self) -> None:
        """Those whose slots are known; the others once they are."""
        known = {each: self._slots.get(each.unique_id) for each in self._replicas}
        self._ring.place({each: slot for each, slot in known.items() if slot is not None})
        if self._ring.slots:
            self._placed.set()
        else:
            self._placed.clear()

    def _unique_ids(self) -> list[str]:
        return [each.unique_id for each in self._replicas]

    def _has_gap(self, ranks: dict[str, int]) -> bool:
        """Serve closes gaps later on, and does not tell routers when it does."""
        ids = self._unique_ids()
        return {ranks.get(each) for each in ids} != set(range(len(ids)))

    def _follow(self) -> None:
        """Anew, without the pause between two questions: a replica that just came waits for its slot."""
        if self._following is not None:
            self._following.cancel()
        self._following = self._event_loop.create_task(self._follow_ranks())

    async def _follow_ranks(self) -> None:
        """Ask for ranks until each replica has one, and there is no gap."""
        pause = 0.25
        while self._replicas:
            try:
                ranks = await replica_ranks(self._deployment_id)
                why = "some have none, or the same"
            except Exception as error:
                ranks, why = {}, f"{type(error).__name__}: {error}"
            ids = self._unique_ids()
            has_all = has_ranks(ids, ranks)
            if ids and not has_all and not self._was_told:
                self._was_told = True
                logging.getLogger("ray.serve").warning(
                    "Serve's controller gives no ranks for the replicas of %s (%s); until it does, their "
                    "slots are chosen here, and other routers may choose others.",
                    self._deployment_id,
                    why,
                )
            self._slots = remembered(self._slots, assign_slots(self._slots, ids, ranks))
            self._place()
            self._was_told = self._was_told and not has_all
            if has_all and not self._has_gap(ranks):
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    # Requests

    async def choose_replicas(
        self, candidate_replicas: list[Any], pending_request: Any = None
    ) -> Iterable[list[Any]]:
        if pending_request is None:
            return [candidate_replicas]
        pending_request.routing_context.should_backoff = True
        if self._replicas and not self._ring.slots:
            await self._placed.wait()
        attempt = self._attempts.waiting(pending_request)
        if attempt is None:
            return self._uncounted(pending_request)
        if not self._attempts.charge(attempt):
            return []
        return self._ranks(attempt)

    def _ranks(self, attempt: Attempt) -> Iterator[list[Any]]:
        """The charged replica; then, as Serve finds each full, the next one, which is charged instead."""
        tried: list[Any] = []
        while attempt.replica is not None:
            tried.append(attempt.replica)
            if attempt.replica in self._replicas:
                yield [self._replicas[attempt.replica]]
            if not attempt.is_waiting:
                return
            self._attempts.uncharge(attempt)
            if len(tried) < SINGLE_RANKS:
                self._attempts.charge(attempt, tried)
        if attempt.is_waiting and (rest := [r for key, r in self._replicas.items() if key not in tried]):
            yield rest

    def _uncounted(self, request: Any) -> list[list[Any]]:
        """For who picks a replica and sends the request past Serve, which never tells when it ends."""
        label = self._label(request)
        replica = self._ring.route(label)
        if replica is None:
            return []
        self._ring.release(replica)
        return [[self._replicas[replica]]]

    def _label(self, request: Any) -> str | None:
        if self._refusal is not None:
            raise ValueError(self._refusal)
        return label_of(request, self._options)

    async def _choose_replica_for_request(self, pending_request: Any, *, is_retry: bool = False) -> Any:
        """Around all of the choice of one replica, so that what it charged ends however the choice ends."""
        attempt = self._attempts.begin(pending_request, self._label(pending_request))
        try:
            replica = await super()._choose_replica_for_request(pending_request, is_retry=is_retry)
        except BaseException:
            self._attempts.drop(attempt, pending_request)
            raise
        self._attempts.assign(attempt, pending_request, replica.replica_id, asyncio.current_task())
        weakref.finalize(
            pending_request, _end_on, self._event_loop, self._attempts.end_unsent, attempt
        ).atexit = False
        return replica

    def _get_pending_request_matching_internal_request_id(self, request_metadata: Any = None) -> Any:
        """The very request: calls of one handle within one request have one internal id between them."""
        return self._attempts.request_of(request_metadata)

    def on_send_request(self, replica_id: Any) -> None:
        super().on_send_request(replica_id)
        self._attempts.sent(replica_id, asyncio.current_task())

    def on_request_completed(self, replica_id: Any, internal_request_id: str) -> None:
        self._attempts.completed(replica_id, internal_request_id)


def _end_on(loop: asyncio.AbstractEventLoop, end: Any, attempt: Attempt) -> None:
    """Garbage may be collected on any thread."""
    if not attempt.is_sent and not loop.is_closed():
        loop.call_soon_threadsafe(end, attempt)
