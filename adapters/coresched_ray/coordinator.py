"""The batch coordinator as a named Ray actor: the service of `coresched serve` in the actor's own process.

Ray says where the actor is and how to connect to it, and starts it anew; the calls of a batch are gRPC, as
Ray's own calls to an actor know nothing of request ids, sessions and waits that end with their caller.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from coresched.core.checks import check_several
from coresched.core.routers import DEFAULT_VIRTUAL_NODES, RouterName, make_router
from coresched.errors import InputError
from coresched_ray.certificate import self_signed

if TYPE_CHECKING:
    from coresched.service.server import Security
    from coresched.service.state import ServiceState

TENANT = "ray"
"""Whom all clients of the actor are, to its service."""

_logger = logging.getLogger("coresched.ray")


@dataclass(frozen=True, slots=True)
class Terms:
    """What a coordinator was started with; the same for all who find it."""

    journal: str | None
    workers: dict[str, float]
    router: RouterName
    load_bound: float
    slack: int
    virtual_nodes: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where the coordinator is now. `token` and `certificate` (PEM) are of this life of its process alone."""

    target: str
    token: str
    certificate: bytes


class Coordinator:
    """The actor. Made by `coresched_ray.start_coordinator`, asked by `coresched_ray.connect`."""

    def __init__(self, terms: Terms) -> None:
        """Returns once the service accepts calls, with what is in the journal.

        Raises InputError for terms that cannot be used, and for a journal that is damaged or in use.
        """
        import ray

        self._terms = terms
        host = ray.util.get_node_ip_address()
        security, token, certificate = _secured(host)
        state = _state(terms)
        listening: list[str] = []
        ready = threading.Event()
        failures: list[BaseException] = []

        def announce(address: str) -> None:
            listening.append(address)
            ready.set()

        def run() -> None:
            try:
                whole = asyncio.run(_serve(state, host, security, announce))
            except BaseException as failure:
                failures.append(failure)
                whole = False
            if ready.is_set() and not whole:
                # Ray starts the actor anew, and who waits here is told by the connection that breaks.
                _logger.error("the coordinator's service has ended: %s", failures or "its journal failed")
                os._exit(1)
            ready.set()

        threading.Thread(target=run, name="coresched service", daemon=True).start()
        ready.wait()
        if not listening:
            raise failures[0] if failures else InputError(f"journal {terms.journal!r} cannot be written")
        self._place = Place(listening[0], token, certificate)

    def place(self) -> Place:
        """Where the service is, and how to connect to it."""
        return self._place

    def terms(self) -> Terms:
        """What it was started with."""
        return self._terms

    def node(self) -> str:
        """Ray's id of the node that it is on."""
        import ray

        node: str = ray.get_runtime_context().get_node_id()
        return node

    def process(self) -> int:
        """The id of its process."""
        return os.getpid()


def _secured(host: str) -> tuple[Security, str, bytes]:
    """For the service, its clients' token and the certificate that they trust."""
    from coresched.service.identity import Caller
    from coresched.service.server import Security
    from coresched.service.tokens import Tokens

    if os.environ.get("GRPC_TRACE"):
        raise InputError(
            "GRPC_TRACE must be unset: with it gRPC prints the coordinator's token into Ray's logs"
        )
    tls, certificate = self_signed(host)
    token = secrets.token_hex(32)
    tokens = Tokens({sha256(token.encode()).digest(): Caller(TENANT, manages_workers=True)})
    return Security(tls, lambda: tokens), token, certificate


def _state(terms: Terms) -> ServiceState:
    from coresched.service.journal import Journal
    from coresched.service.state import ServiceState
    from coresched.service.table import RoutingTable

    table = RoutingTable(
        terms.workers,
        router=terms.router,
        load_bound=terms.load_bound,
        slack=terms.slack,
        virtual_nodes=terms.virtual_nodes,
    )
    try:
        journal = None if terms.journal is None else Journal(terms.journal)
    except InputError as error:  # in the words of `coresched serve`
        said = str(error).replace("--journal FILE", "journal").replace("--journal", "journal")
        raise InputError(said.replace("coresched serve", "coordinator or coresched serve")) from None
    return ServiceState(table, journal=journal, report=lambda line: _logger.info("%s", line))


async def _serve(state: ServiceState, host: str, security: Security, announce: Any) -> bool:
    from coresched.listen import TcpAddress
    from coresched.service.server import serve

    return await serve(
        state, TcpAddress(host, 0), grace_s=0.0, announce=announce, security=security, signals=False
    )


def checked_terms(
    journal: str | os.PathLike[str] | None,
    workers: Iterable[str] | Mapping[str, float],
    router: RouterName,
    load_bound: float,
    slack: int,
    virtual_nodes: int = DEFAULT_VIRTUAL_NODES,
) -> Terms:
    """Raises what the router raises for its options, TypeError or InputError for what is no journal."""
    from coresched.service.table import RoutingTable

    if not isinstance(workers, Mapping):
        workers = check_several(workers, "workers", "names or a mapping to weights")
    make_router(router, workers, load_bound, virtual_nodes, slack)  # before a name given twice is once there
    weights = dict(workers) if isinstance(workers, Mapping) else dict.fromkeys(workers, 1.0)
    RoutingTable(weights, router=router, load_bound=load_bound, virtual_nodes=virtual_nodes, slack=slack)
    if not (journal is None or isinstance(journal, (str, os.PathLike))):
        raise TypeError(f"journal must be the name of a file or None, got {journal!r}")
    path = None if journal is None else os.path.abspath(os.fspath(journal))
    if path is not None and (not os.path.basename(path) or "\0" in path):
        raise InputError(f"journal must be the name of a file or None, got {journal!r}")
    return Terms(path, weights, router, load_bound, slack, virtual_nodes)
