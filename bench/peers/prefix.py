"""RP in Python: an OrderedDict as the label set, and `sorted` with a key, as engines order waiting queues."""

from collections import OrderedDict
from collections.abc import Callable, Iterable


class Request:
    """A waiting request; ``hit`` is None until asked."""

    __slots__ = ("hit", "id", "label", "queued_at")

    def __init__(self, id: str, label: str | None, queued_at: float) -> None:
        self.id = id
        self.label = label
        self.queued_at = queued_at
        self.hit: int | None = None


class LabelSet:
    """The least-recently-used labels, at most ``label_capacity``."""

    def __init__(self, label_capacity: int) -> None:
        self._capacity = label_capacity
        self._labels: OrderedDict[str, None] = OrderedDict()

    def admitted(self, label: str) -> None:
        labels = self._labels
        labels[label] = None
        labels.move_to_end(label)
        if len(labels) > self._capacity:
            labels.popitem(last=False)


class SortingPolicy(LabelSet):
    """Ascending ``(0, -l, t)`` for labels in the label set and ``(1, 0, t)`` for the others."""

    def order(self, waiting: Iterable[Request], prefix_hit: Callable[[Request], int]) -> list[Request]:
        labels = self._labels

        def key(request: Request) -> tuple[int, int, float]:
            if request.label not in labels:
                return 1, 0, request.queued_at
            if request.hit is None:
                request.hit = prefix_hit(request)
            return 0, -request.hit, request.queued_at

        return sorted(waiting, key=key)
