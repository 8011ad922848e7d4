"""The eviction policies of this folder by name."""

from collections.abc import Callable, Mapping
from typing import Final

from coresched.lab.simulator.evictions.belady import Belady
from coresched.lab.simulator.evictions.eviction import Cache, Eviction
from coresched.lab.simulator.evictions.least_frequent import LeastFrequent, SegmentedRecency
from coresched.lab.simulator.evictions.marconi import Marconi
from coresched.lab.simulator.evictions.mori import Mori
from coresched.lab.simulator.evictions.peek import Peek
from coresched.lab.simulator.evictions.saga import Saga
from coresched.lab.simulator.evictions.smallest_context import SmallestContext
from coresched.lab.simulator.model import WorkerModel
from coresched.lab.simulator.settings import RunSettings
from coresched.lab.simulator.workload import Workload

PLAIN_EVICTIONS: Final[Mapping[str, Callable[[Cache], Eviction]]] = {
    "lfu": LeastFrequent,
    "slru": SegmentedRecency,
    "smallest-context": SmallestContext,
    "marconi": Marconi,
    "peek": Peek,
    "saga": Saga,
    "mori": Mori,
    "belady": Belady,
}


def make_eviction(settings: RunSettings, workload: Workload, model: WorkerModel) -> Eviction | None:
    """The policy of one worker; None for lru, which the pools are built for."""
    if settings.eviction_policy == "lru":
        return None
    return PLAIN_EVICTIONS[settings.eviction_policy](Cache.of(workload, model))
