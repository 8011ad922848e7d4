"""The live worker against the simulator: the same batch on both, and pools that hold whoever leaves."""

import dataclasses
from array import array
from collections.abc import Callable
from dataclasses import replace as replaced
from typing import Any

import msgspec
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from simulated import batches, models, prepare, runs, small_model

from coresched.errors import InputError
from coresched.lab.simulator.memory import SLOT_UNITS, split_memory
from coresched.lab.simulator.model import WorkerModel
from coresched.lab.simulator.settings import RunSettings
from coresched.lab.simulator.twin.cluster import Cluster as TwinCluster
from coresched.lab.simulator.twin.pools import CachePools
from coresched.lab.simulator.workload import Workload
from coresched.lab.worker.batching import LIVE_POLICIES, LivePolicy, LiveWorker, WorkerSettings
from coresched.lab.worker.requests import LiveRequest, make_request
from coresched.trajectory.schema import Trajectory


class WorkerOfTokens:
    """A live worker in a simulated cluster: makes the prompts whose lengths the workload gives."""

    def __init__(
        self,
        workload: Workload,
        settings: RunSettings,
        model: WorkerModel,
        pools: CachePools,
        wake_at: Callable[[float, int], None],
        started: Callable[[int, float], None],
        finished: Callable[[int, float], None],
    ) -> None:
        self.workload = workload
        self.sample_of: dict[LiveRequest, int] = {}
        self.live = LiveWorker(
            settings,
            model,
            pools.memory,
            wake_at=lambda t: wake_at(t, self.live.version),
            started=lambda request, t: started(self.sample_of[request], t),
            finished=lambda request, t: finished(self.sample_of.pop(request), t),
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self.live, name)

    def enqueue(self, sample: int, turn: int, t: float) -> None:
        prompt: array[int] = array("q")
        for earlier in range(self.workload.first_turn[sample], turn + 1):
            while len(prompt) < self.workload.prompt_tokens[earlier]:
                prompt.append(sample * 1_000_000 + len(prompt))
            request = make_request(
                prompt[:],
                label=self.workload.labels[sample],
                output_tokens=self.workload.output_tokens[earlier],
            )
            prompt.extend(request.reply)
        self.sample_of[request] = sample
        # Ends of the same step are reported in the order of samples, so number the requests in that order.
        self.live.columns.next_number = turn
        self.live.submit(request, t)


class LiveCluster(TwinCluster):
    worker_class = WorkerOfTokens


@given(batches(), runs(), models(), st.sampled_from(LIVE_POLICIES))
@hypothesis_settings(max_examples=300, deadline=None)
def test_a_batch_of_real_prompts_goes_as_simulated(
    trajectories: list[Trajectory], run: RunSettings, model: WorkerModel, policy: LivePolicy
) -> None:
    run = dataclasses.replace(run, worker_policy=policy, release_finished=False)
    replace = msgspec.structs.replace
    run = replaced(run, eviction_policy="lru", pool_policy="static")  # the live worker has no others
    whole = [
        replace(
            trajectory,
            group=None,
            shared_prefix_tokens=0,
            turns=tuple(replace(turn, kept_tokens=None) for turn in trajectory.turns),
        )
        for trajectory in trajectories
    ]
    try:
        # A few trajectories fill a third of the pools, so that they evict one another.
        prepared = prepare(whole, run, replace(model, pool_tokens=model.pool_tokens // 3))
    except InputError:
        assume(False)
    assert LiveCluster(*prepared).run() == TwinCluster(*prepared).run()


def require_whole(worker: LiveWorker) -> None:
    """Recount the pools from scratch."""
    pools, memory = worker.pools, worker.memory
    running = pools.tokens.keys() - pools.idle.keys()
    assert running == worker.columns.requests.keys() - {int(queued.id) for queued in worker.waiting.requests}
    assert pools.used_pages == sum(pools.own_pages(0, tokens) for tokens in pools.tokens.values())
    assert pools.used_pages <= memory.pages
    slots = len(pools.idle) * SLOT_UNITS + len(running) * memory.running_slot_units
    assert pools.used_slot_units == slots <= memory.slot_units
    finals = [worker.columns.cached_tokens[number] for number in running]
    assert pools.committed_pages == sum(pools.own_pages(0, tokens) for tokens in finals)
    assert pools.entries.keys() == pools.idle.keys()
    assert set(pools.entry_of_label.values()) <= pools.entries.keys()
    assert set(pools.unlabelled.values()) <= pools.entries.keys()
    assert worker.context_tokens == sum(pools.tokens[number] for _, number in worker.running)


arrivals = st.lists(
    st.tuples(
        st.floats(0.0, 3.0),  # seconds after the one before
        st.sampled_from([None, None, "a", "b", "c"]),  # label
        st.integers(1, 900),  # prompt tokens
        st.integers(1, 80),  # reply tokens
        st.one_of(st.none(), st.floats(0.0, 4.0)),  # how long its client stays
    ),
    min_size=1,
    max_size=25,
)


@given(arrivals, st.sampled_from(LIVE_POLICIES), st.booleans())
@hypothesis_settings(max_examples=300, deadline=None)
def test_whoever_leaves_frees_what_it_held_and_the_others_are_answered(
    arrivals: list[tuple[float, str | None, int, int, float | None]], policy: LivePolicy, overlap: bool
) -> None:
    model = small_model(pool_tokens=4_000, overlap_schedule=overlap, max_running_requests=4)
    wakes: list[float] = []
    started: list[LiveRequest] = []
    finished: list[LiveRequest] = []

    def wake_at(t: float) -> None:
        wakes[:] = [t]

    worker = LiveWorker(
        WorkerSettings(policy, 2),
        model,
        split_memory(model, 1.0),
        wake_at,
        lambda request, t: started.append(request),
        lambda request, t: finished.append(request),
    )
    events: list[tuple[float, int, LiveRequest | None]] = []
    t = 0.0
    staying: set[LiveRequest] = set()
    for number, (gap, label, prompt, reply, stay) in enumerate(arrivals):
        t += gap
        request = make_request(array("q", range(prompt)), label=label, output_tokens=reply)
        events.append((t, number, request))
        if stay is None:
            staying.add(request)
        else:
            events.append((t + stay, number, None))
    events.sort(key=lambda event: event[:2])
    while events or wakes:
        if wakes and (not events or wakes[0] <= events[0][0]):
            worker.wake(wakes.pop())
        else:
            t, number, arriving = events.pop(0)
            if arriving is not None:
                worker.columns.next_number = number
                worker.submit(arriving, t)
            else:
                worker.abort(number, t)
                assert all(int(queued.id) != number for queued in worker.waiting.requests)
        require_whole(worker)
    assert staying <= set(finished) <= set(started)
    assert (len(worker.columns), worker.waiting.turn_of, worker.aborted) == (0, {}, set())
    assert worker.pools.committed_pages == 0
