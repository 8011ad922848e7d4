"""Writes down what each pass of routing-residency and its guard does, and what SGLang's tree says of it."""

from collections.abc import Callable
from typing import Any

from coresched_sglang.pools import kv_tokens_needed

from coresched_simdevice.virtual.engine import VirtualEngine
from coresched_simdevice.virtual.passes import Cached, Ended, Held, Offered, Pass, ResidencyPass, Slots
from coresched_simdevice.virtual.recorder import PassRecorder


class ResidencyRecorder(PassRecorder):
    """See `PassRecorder`. What is cached is asked of the tree's read-only match, by the prompts alone."""

    def __init__(self, engine: VirtualEngine, write: Callable[[Pass], object]) -> None:
        super().__init__(engine, write)
        self._cache = self.scheduler.tree_cache
        self._tree = self._cache.tree_core
        self._guard, self._residency = self.ordering._guard, self.ordering._residency
        self._forward = 0
        self._inserted: dict[str, int] = {}
        self._ended: list[Ended] = []
        self._fields: dict[str, Any] = {}
        self._offered: list[Offered] = []
        self._held: tuple[Held, ...] | None = None
        self._live_asked = False
        self._insert, self._cache.checkpoint_into_tree = self._cache.checkpoint_into_tree, self._was_inserted
        self._live, self._guard._live = self._guard._live, self._was_asked
        # Before the first pass, in which the guard is put into SGLang's PrefillAdder.
        self._holds_back, self._guard.holds_back = self._guard.holds_back, self._was_offered

    def before(self, waiting_queue: list[Any], running_batch: Any) -> None:
        scheduler = self.scheduler
        running = [*running_batch.reqs, *filter(None, [scheduler.chunked_req])]
        self._offered, self._held, self._live_asked = [], None, False
        self._could_resume = self._can_resume()
        self._fields = {
            "forward": self._forward,
            "cached": tuple(filter(None, map(self._cached, waiting_queue))),
            "ended": tuple(self._ended),
            "running": tuple(request.routing_key for request in running),
            "places": max(0, scheduler.max_running_requests - len(running)),
        }
        self._ended.clear()

    def ordered(self) -> None:
        states = self._guard._states
        self._fields |= {
            "resident": tuple(sorted(self.ordering._policy.labels())),
            "slots": states and Slots(states.free, states.allocator.size, states.slots_per_request),
        }

    def whole(self, **common: Any) -> ResidencyPass:
        return ResidencyPass(
            **common,
            **self._fields,
            live_asked=self._live_asked,
            held=self._held,
            offered=tuple(self._offered),
            lost=tuple(sorted(self._could_resume - self._can_resume())),
        )

    def _new_batch(self, *args: Any, **kwargs: Any) -> Any:
        plan = super()._new_batch(*args, **kwargs)
        self._forward = self.scheduler.forward_ct
        return plan

    def _was_inserted(self, request: Any, *args: Any, **kwargs: Any) -> None:
        self._insert(request, *args, **kwargs)
        label = request.routing_key
        if not label:
            return
        if self._reusable(request.last_node):
            self._inserted[label] = self._length(request.last_node)
        if request.finished():
            self._ended.append(Ended(label, self._forward))

    def _was_asked(self) -> Any:
        known = self._guard._live_key
        nodes = self._live()
        self._live_asked = True
        if self._guard._live_key != known:
            held = self._residency._held
            self._held = tuple(
                Held(label, self._length(one.node), one.node in nodes) for label, one in held.items()
            )
        return nodes

    def _was_offered(self, adder: Any, request: Any) -> bool:
        room, evictable = adder.rem_total_tokens, self._cache.full_evictable_size()
        alone = not adder.running_batch.reqs and not adder.can_run_list
        held_back = self._holds_back(adder, request)
        needed = kv_tokens_needed(request)
        self._offered.append(Offered(request.rid, needed, int(room), evictable, alone, held_back))
        return bool(held_back)

    def _can_resume(self) -> set[str]:
        return {label for label, held in self._residency._held.items() if held.is_left()}

    def _cached(self, request: Any) -> Cached | None:
        from sglang.srt.mem_cache.radix_cache import RadixKey

        key = RadixKey(request.origin_input_ids + request.output_ids, request.extra_key)
        matched, deepest, whole = self._tree.match_full_device_prefix(key)
        if not matched:
            return None
        (path,) = self._tree.collect_path_info([deepest])
        if self._residency._states:
            if whole > matched:  # of the last node only a part, and its state is of its end
                path = path[:-1]
            matched = max((each.path_end for each in path if self._reusable(each.node_id)), default=0)
        return Cached(request.rid, matched, self._inserted.get(request.routing_key, 0)) if matched else None

    def _reusable(self, node: Any) -> bool:
        try:
            if not self._residency._states:
                return not self._tree.is_full_device_evicted(node)
            state = self._residency._state_component
            return self._tree.get_component_device_value(node, state) is not None
        except KeyError:  # the node is gone
            return False

    def _length(self, node: Any) -> int:
        (path,) = self._tree.collect_path_info([node])
        return int(path[-1].path_end) if path else 0
