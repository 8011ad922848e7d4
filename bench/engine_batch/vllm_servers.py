"""vLLM servers of a tiny model on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from coresched_vllm.local.flags import Pool
from coresched_vllm.local.servers import ServerError, serving
from coresched_vllm.local.tiny_model import TOKEN_IDS, Shape, write_model

from bench.engine_batch.engines import Engines, NoServerError
from bench.engine_batch.setups import ENGINES
from bench.gateways.processes import Program
from coresched.lab.replay.endpoint import Endpoint


@dataclass(frozen=True)
class VLLM:
    """An `EngineKind`. ``folder`` is for the model and the logs."""

    python: str
    version: str
    shape: Shape
    pool: Pool
    sample_concurrency: int
    label_capacity: int
    folder: Path
    token_ids: tuple[int, int] = TOKEN_IDS
    speed: float = 1.0

    @property
    def title(self) -> str:
        return (
            f"vLLM {self.version}, two servers of a tiny LFM2 (hidden size {self.shape.hidden_size}, "
            f"{len(self.shape.layers)} layers, float32), {self.pool.blocks} blocks each"
        )

    @property
    def facts(self) -> Mapping[str, Any]:
        return {"vllm": self.version, "model": asdict(self.shape), "pool": asdict(self.pool)} | {
            "label_capacity": self.label_capacity
        }

    @contextmanager
    def booted(self, *, planned: bool) -> Iterator[Engines]:
        folder = self.folder / ("planned" if planned else "stock")
        folder.mkdir()
        model = write_model(folder / "model", self.shape, weights=False)
        flags = self.pool.flags(self.label_capacity if planned else None)
        names = [f"engine-{place}" for place in range(ENGINES)]
        with ExitStack() as stack:
            try:
                servers = stack.enter_context(serving(self.python, model, flags, names=names, folder=folder))
            except ServerError as error:
                raise NoServerError(f"{error}: {' '.join(error.tail[-3:])}") from None
            yield Engines(
                [Endpoint(server.name, server.url) for server in servers],
                [Program(server.process, stack.enter_context(server.log.open("rb"))) for server in servers],
            )
