"""Start a coordinator in a Ray cluster, find it, and join its batches."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import TimeoutError
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import coresched
from coresched import sync
from coresched.batch.history import Given
from coresched.client.lookup import Lookup
from coresched.core.checks import check_label
from coresched.core.routers import RouterName
from coresched.errors import InputError
from coresched_ray.coordinator import Coordinator, Place, Terms, checked_terms

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from coresched.client.remote import async_batch, blocking_batch
    from coresched.client.remote.options import Connection

_START_S = 120.0
"""Seconds within which Ray should have started the actor."""


_started: dict[tuple[str, str | None], list[Any]] = {}
"""Handles of this process's coordinators: Ray ends an actor that is not detached with the last of these."""


class BatchOptions(TypedDict, total=False):
    """Those of `coresched.connect` that are the batch's, or this process's in it."""

    batch: str
    sample_concurrency: int
    environment_concurrency: int | None
    environment_policy: Literal["fcfs", "caas"]
    band_s: float
    bucket_s: float
    grace_s: float
    keep_open: bool
    record: str | os.PathLike[str] | None
    resident_concurrency: int | None
    admission_policy: Literal["submission", "longest-expected-first"]
    history: Given | None


def start_coordinator(
    name: str,
    *,
    journal: str | os.PathLike[str] | None,
    journal_shared: bool = False,
    workers: Iterable[str] | Mapping[str, float] = (),
    load_bound: float = 1.25,
    slack: int = 0,
    router: RouterName = "lbch",
    detached: bool = False,
    namespace: str | None = None,
) -> None:
    """Have a coordinator of this name in the Ray cluster: a new one, or that which is there with these terms.

    It returns once the coordinator accepts calls. `journal` is the file from which it goes on when Ray starts
    it anew; None keeps nothing, so that all batches are lost then. The file is of the node that calls this,
    and the coordinator stays there, unless it is `journal_shared`: on a file system where all nodes have it
    under that path. Then, as without a journal, Ray starts it on any node.
    `workers`, `load_bound`, `slack` and `router` are those of `coresched.Batch`. The coordinator ends with
    the process that starts it or by `stop_coordinator`; `detached`, only by the latter. `namespace` is Ray's,
    where the name counts; None is this job's.

    Raises TypeError or ValueError for a bad option, InputError for a journal that cannot be used, for a
    coordinator of that name with other terms, and for another actor of that name; ConnectionError if Ray is
    not connected or has no node for it.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    check_label(name, "name")
    _check_connected()
    terms = checked_terms(journal, workers, router, load_bound, slack)
    options: dict[str, Any] = {}
    if terms.journal is not None and not journal_shared:
        here = ray.get_runtime_context().get_node_id()
        options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(here, soft=False)
    actor = (
        ray.remote(Coordinator)
        .options(
            name=name,
            namespace=namespace,
            get_if_exists=True,
            lifetime="detached" if detached else None,
            max_restarts=-1,
            max_task_retries=-1,
            num_cpus=0,
            **options,
        )
        .remote(terms)
    )
    _check_coordinator(actor, name)
    handles = _started.setdefault((name, namespace), [])
    handles.append(actor)  # beside those before: of one that was only found, the first counts
    there: Terms
    try:
        there = ray.get(actor.terms.remote(), timeout=_START_S)
    except ray.exceptions.GetTimeoutError:
        raise ConnectionError(f"coordinator {name!r} has not started within {_START_S:g} s") from None
    except ray.exceptions.RayActorError as error:
        handles.remove(actor)
        if isinstance(error, ray.exceptions.ActorDiedError):
            ray.kill(actor)  # or Ray takes its name for this dead one when it is started again at once
        raise InputError(f"coordinator {name!r} cannot start: {_cause(error)}") from None
    for field in fields(Terms):
        asked, has = getattr(terms, field.name), getattr(there, field.name)
        if asked != has:
            raise InputError(
                f"{field.name} must be {has!r}, as of the coordinator {name!r} that is there, got {asked!r}; "
                "give the same, stop that one, or choose another name"
            )


def stop_coordinator(name: str, *, namespace: str | None = None) -> None:
    """End the coordinator for good; its journal stays, and one that is started with it goes on.

    Raises InputError if there is none, ConnectionError if Ray is not connected.
    """
    import ray

    ray.kill(_actor(name, namespace))
    _started.pop((name, namespace), None)


def connect(
    name: str, *, namespace: str | None = None, **options: Unpack[BatchOptions]
) -> async_batch.RemoteBatch:
    """`coresched.connect` to a batch of the coordinator of that name: `async with connect(...) as batch`.

    `grace_s` has to be long enough for Ray to start the coordinator anew, some seconds.

    Raises as `coresched.connect` does, InputError if there is no such coordinator, ConnectionError if Ray is
    not connected.
    """
    _refuse_routing(options)
    return coresched.connect(coordinator(name, namespace=namespace), **options)


def connect_blocking(
    name: str, *, namespace: str | None = None, **options: Unpack[BatchOptions]
) -> blocking_batch.RemoteBatch:
    """The same as `connect`, for threads: `with connect_blocking(...) as batch`."""
    _refuse_routing(options)
    return sync.connect(coordinator(name, namespace=namespace), **options)


def coordinator(name: str, *, namespace: str | None = None) -> Lookup:
    """For `service` of a `coresched.client.gate.Gate`. Raises as `connect` does."""
    check_label(name, "name")
    _actor(name, namespace)
    return _Coordinator(name, namespace)


class _Coordinator(Lookup):
    """By its name each time: one that was stopped and started anew with the same journal is as good."""

    def __init__(self, name: str, namespace: str | None) -> None:
        self._name = name
        self._namespace = namespace

    def __str__(self) -> str:
        return f"coordinator {self._name!r}"

    def find(self, within_s: float) -> Connection:
        import ray

        from coresched.client.remote.options import Connection

        place: Place
        try:
            # Not ray.get, of which Ray warns in asyncio actors, although this is a thread of its own.
            place = _actor(self._name, self._namespace).place.remote().future().result(within_s)
        except TimeoutError:
            raise ConnectionError(f"Ray has not started its actor within {within_s:.3g} s") from None
        except ray.exceptions.RayError as error:
            raise ConnectionError(_cause(error)) from None
        except InputError as error:
            raise ConnectionError(str(error)) from None
        return Connection(target=place.target, token=place.token, ca=place.certificate)


def _refuse_routing(options: Mapping[str, object]) -> None:
    for name in ("workers", "load_bound", "slack", "router"):
        if name in options:
            raise TypeError(
                f"{name} must be given to the coordinator, by start_coordinator({name}=...), not to connect; "
                "leave it out"
            )


def _check_connected() -> None:
    import ray

    if not ray.is_initialized():
        raise ConnectionError("this process is not connected to Ray; call ray.init(address=...) first")


def _check_coordinator(actor: Any, name: str) -> None:
    if not (hasattr(actor, "place") and hasattr(actor, "terms")):
        raise InputError(f"the actor {name!r} is no coordinator; give another name")


def _actor(name: str, namespace: str | None) -> Any:
    """Raises InputError if there is none, ConnectionError if Ray is not connected."""
    import ray

    _check_connected()  # or Ray would join some cluster, or start one, for whoever asks after ray.shutdown()
    try:
        actor = ray.get_actor(name, namespace=namespace)
    except ValueError:
        pass
    else:
        _check_coordinator(actor, name)
        return actor
    here = namespace or ray.get_runtime_context().namespace
    others = [
        actor["namespace"]
        for actor in ray.util.list_named_actors(all_namespaces=True)
        if actor["name"] == name
    ]
    fix = f"start it with coresched_ray.start_coordinator({name!r}, ...)"
    if others:
        fix = f"give namespace={others[0]!r}, where there is one of that name"
    raise InputError(f"there is no coordinator {name!r} in Ray's namespace {here!r}; {fix}")


def _cause(error: Exception) -> str:
    """The line that says what went wrong; the others are of Ray's own calls."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    last = lines[-1] if lines else type(error).__name__
    return last.removeprefix(f"{InputError.__module__}.{InputError.__qualname__}: ")
