"""The open queues, by tenant and name."""

from __future__ import annotations

from grpc import StatusCode

from coresched.service.prefix.counts import PrefixCounts
from coresched.service.prefix.queue import WaitingQueue
from coresched.service.refusal import RefusedError, checked_label, shown

MOST_QUEUES = 1_000
"""Most open queues of one tenant."""


class WaitingQueues:
    """Each tenant's queues by name; no tenant sees those of another. For one thread."""

    def __init__(self, most: int = MOST_QUEUES) -> None:
        self._most = most
        self._by_tenant: dict[str, dict[str, WaitingQueue]] = {}
        self.counts = PrefixCounts()

    def open(self, tenant: str, name: str, label_capacity: int) -> WaitingQueue:
        """The queue of that name, which is made unless it is open.

        Refused: INVALID_ARGUMENT for queue and label_capacity, ALREADY_EXISTS for another label_capacity
        than it was opened with, RESOURCE_EXHAUSTED for one queue too many.
        """
        checked_label("queue", name)
        queues = self._by_tenant.get(tenant, {})
        found = queues.get(name)
        if found is None:
            queue = WaitingQueue(label_capacity, counts=self.counts)
            if len(queues) >= self._most:
                raise RefusedError(
                    StatusCode.RESOURCE_EXHAUSTED,
                    "queue",
                    f"queue {shown(name)} would be one more than the {self._most} that may be open; "
                    "close one first",
                )
            self._by_tenant.setdefault(tenant, queues)[name] = queue
            return queue
        if found.label_capacity != label_capacity:
            raise RefusedError(
                StatusCode.ALREADY_EXISTS,
                "label_capacity",
                f"label_capacity must be {found.label_capacity}, with which queue {shown(name)} was opened, "
                f"got {label_capacity}; close the queue first to change it",
            )
        return found

    def close(self, tenant: str, name: str) -> int:
        """Remove a queue: how many requests waited in it. Refused: NOT_FOUND, INVALID_ARGUMENT for queue."""
        waiting = len(self.find(tenant, name))
        del self._by_tenant[tenant][name]
        if not self._by_tenant[tenant]:
            del self._by_tenant[tenant]
        return waiting

    def sizes(self) -> list[int]:
        """How many requests wait in each open queue."""
        return [len(queue) for queues in self._by_tenant.values() for queue in queues.values()]

    def find(self, tenant: str, name: str) -> WaitingQueue:
        """The open queue of that name. Refused: NOT_FOUND, INVALID_ARGUMENT for queue."""
        checked_label("queue", name)
        found = self._by_tenant.get(tenant, {}).get(name)
        if found is None:
            raise RefusedError(
                StatusCode.NOT_FOUND,
                "queue",
                f"queue must be open, got {shown(name)}, which is not; open it with its label capacity",
            )
        return found
