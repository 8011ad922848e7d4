"""The scheduler service that a replay may run its batch at, and whether it fits the replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from coresched.errors import InputError
from coresched.lab.replay.endpoint import Endpoint
from coresched.lab.replay.plan import ReplaySettings

if TYPE_CHECKING:  # which would load gRPC
    from coresched.client.remote.async_batch import RemoteBatch

ANSWER_S = 10.0


@dataclass(frozen=True)
class Service:
    """Where `coresched serve` is, under which name the batch is opened there, and how to connect."""

    target: str
    batch: str
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def connect(self, settings: ReplaySettings) -> RemoteBatch:
        """The batch, to be entered. Raises ValueError for a bad setting."""
        from coresched.client.connect import connect

        return connect(
            self.target,
            batch=self.batch,
            sample_concurrency=settings.sample_concurrency,
            environment_concurrency=settings.environment_concurrency,
            environment_policy=settings.environment_policy,
            band_s=settings.band_s / settings.speed,
            bucket_s=settings.bucket_s / settings.speed,
            ca=self.ca,
            certificate=self.certificate,
            key=self.key,
        )

    async def check(self, settings: ReplaySettings, endpoints: Sequence[Endpoint]) -> None:
        """Raises InputError if it does not answer, or routes to other workers than the endpoints."""
        workers = await self._workers()
        names = {endpoint.name for endpoint in endpoints}
        if not settings.batch_routes:
            if workers:
                raise InputError(
                    f"--router {settings.router} leaves no routing to the service, but {self.target} has the "
                    f"workers {', '.join(workers)}; start it without --worker"
                )
        elif set(workers) != names:
            raise InputError(
                f"--service {self.target} routes to the workers {', '.join(workers) or '(none)'}, but "
                f"--endpoint names {', '.join(sorted(names))}; start it with --worker for each of these"
            )

    async def _workers(self) -> list[str]:
        import grpc

        from coresched.client.credentials import channel
        from coresched.v1 import router_pb2 as pb
        from coresched.v1.router_pb2_grpc import RouterStub

        connection = channel(self.target, ca=self.ca, certificate=self.certificate, key=self.key)
        async with connection:
            stub = cast(Any, RouterStub)(connection)
            try:
                answer = await stub.ListWorkers(pb.ListWorkersRequest(), timeout=ANSWER_S)
            except grpc.aio.AioRpcError as error:
                said = (error.details() or error.code().name).splitlines()[0]
                raise InputError(f"--service {self.target} does not answer: {said}") from None
        return [worker.worker for worker in answer.workers]
