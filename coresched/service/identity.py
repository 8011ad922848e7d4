"""Who calls: the tenant of the call that is being served, wherever in the service it is asked."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """A tenant, and whether it may register, drain and remove workers, which all tenants share."""

    tenant: str
    manages_workers: bool


_EVERYONE = Caller("", True)

# Each call of a grpc.aio server is a task with a context of its own, streams included.
_caller: ContextVar[Caller] = ContextVar("caller", default=_EVERYONE)


def current_caller() -> Caller:
    """The caller of the call being served. Without tokens everyone is the one tenant "", who may do all."""
    return _caller.get()


def current_tenant() -> str:
    """The tenant of the call being served; the empty text where no tokens are in use."""
    return _caller.get().tenant


def act_as(caller: Caller) -> None:
    """Make this the caller for the rest of the present context: of this call's task, and no other."""
    _caller.set(caller)
