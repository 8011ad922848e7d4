"""W engines of one set of an engine's own flags, as the deployment that lockstep runs are made on."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from msgspec.structs import replace

from coresched.errors import InputError
from coresched.lab.simulator.model import StepTimes, WorkerModel
from coresched.lab.simulator.settings import RunSettings
from coresched.lab.simulator.workload import Workload
from coresched.trajectory.schema import Trajectory
from coresched_engine.fleet.processes import Engine, Template
from coresched_engine.fleet.wire import Parsed, Ready
from coresched_engine.fleet.workers import EngineWorkers

LABEL_CAPACITY = "CORESCHED_LABEL_CAPACITY"
STATELESS_SLOTS = 1000
"""State slots of a running request where the model has no states: their cost is then next to nothing."""


class EngineDeployment(ABC):
    """A `Deployment` of an engine's own schedulers on simulated devices.

    A run sets what `arguments` says, and C_A; all else is the flags'.
    """

    longer: ClassVar[str]
    """The options that allow longer requests."""

    def __init__(
        self, processes: Template, parsed: Parsed, ready: Ready, times: StepTimes, name: str
    ) -> None:
        self._template = processes
        self._parsed = parsed
        self._ready = ready
        self._model = worker_model(ready, times, name)

    @property
    def model(self) -> WorkerModel:
        """What the flags make of the device, as a worker model of the simulator's."""
        return self._model

    @property
    def bounds_model(self) -> WorkerModel:
        """The same without what not every step, or not every running request, has to pay."""
        return least_costly(self._model, mixed=self._parsed.mixed, shared_pool=self._ready.shared_pool)

    @property
    def policy(self) -> str:
        """What orders the waiting queue by the flags, or by the engine's default."""
        return self._parsed.policy

    @property
    def split_pools(self) -> bool:
        """Whether KV and recurrent states have a pool each, so that there are two to balance."""
        return self._ready.state_slots is not None and not self._ready.shared_pool

    @property
    def unbalanced(self) -> str | None:
        """Why there are no two pools to balance; None where there are."""
        if self.split_pools:
            return None
        if self._ready.state_slots is None:
            return "this model has no recurrent states"
        return f"{self._template.engine} keeps KV and states in one pool"

    @contextmanager
    def workers(
        self, batch: Sequence[Trajectory], workload: Workload, settings: RunSettings
    ) -> Iterator[EngineWorkers]:
        """See `Deployment.workers`. Raises ProcessEndedError where an engine ends by itself."""
        if settings.worker_policy not in self._parsed.policies:
            raise InputError(
                f"worker_policy is {settings.worker_policy!r}; this {self._template.engine} "
                f"({self._parsed.version}) has {', '.join(self._parsed.policies)}; coresched doctor says why "
                "one of ours is missing"
            )
        with booted(
            self._template,
            settings.workers,
            self.arguments(settings),
            {LABEL_CAPACITY: str(settings.label_capacity)},
        ) as (engines, ready):
            yield EngineWorkers(engines, ready, batch, workload, settings.seed, longer=self.longer)

    @abstractmethod
    def arguments(self, settings: RunSettings) -> dict[str, Any]:
        """Fields of the engine's arguments that a run has beside, or instead of, the flags'."""


@contextmanager
def booted(
    processes: Template, count: int, arguments: Mapping[str, object], environment: Mapping[str, str]
) -> Iterator[tuple[list[Engine], Ready]]:
    """Engines that have booted, and what each of them has."""
    engines: list[Engine] = []
    try:
        for number in range(count):
            engines.append(processes.boot(f"worker {number} ({processes.engine})", arguments, environment))
        ready = [engine.receive(Ready) for engine in engines]
        yield engines, ready[0]
    except BaseException:
        # The template may be in the middle of an answer, so it is not asked whether they have ended.
        for engine in engines:
            engine.kill()
        raise
    for engine in engines:
        engine.end()


def worker_model(ready: Ready, times: StepTimes, name: str) -> WorkerModel:
    """The pools of an engine in the terms of the simulator's worker."""
    pool_tokens = ready.kv_tokens
    if ready.state_slots is None:
        per_request, slot_tokens = STATELESS_SLOTS, 1 / STATELESS_SLOTS
        slots = ready.max_running_requests * STATELESS_SLOTS
    else:
        per_request, slots = ready.slots_per_request, ready.state_slots
        slot_tokens = ready.state_slot_tokens
    if not ready.shared_pool:
        pool_tokens += round(slots * slot_tokens)
    return WorkerModel(
        name=name,
        description="the pools of an engine, as it reports them",
        pool_tokens=pool_tokens,
        request_state_tokens=max(1, round(per_request * slot_tokens)),
        slots_per_request=per_request,
        running_request_slots=float(per_request),
        default_state_ratio=slots * slot_tokens / ready.kv_tokens,
        page_tokens=ready.page_size,
        prefill_chunk_tokens=ready.prefill_chunk_tokens,
        max_running_requests=ready.max_running_requests,
        overlap_schedule=ready.overlap,
        times=times,
    )


def least_costly(model: WorkerModel, *, mixed: bool, shared_pool: bool) -> WorkerModel:
    """The model for lower bounds.

    ``mixed`` steps, of prefill and decode, are charged one fixed cost for both. Out of a ``shared_pool`` a
    request has the states that it needs, one at least, and not what is reserved for it elsewhere.
    """
    if mixed:
        model = replace(model, times=replace(model.times, prefill_batch_s=0.0))
    if shared_pool:
        state_tokens = model.request_state_tokens // model.slots_per_request
        model = replace(
            model,
            slots_per_request=1,
            running_request_slots=1.0,
            request_state_tokens=max(1, state_tokens),
        )
    return model
