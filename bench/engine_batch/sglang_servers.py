"""SGLang servers on a simulated device."""

import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.chaos.servers import free_port
from bench.engine_batch.engines import Engines, NoServerError, stop
from bench.engine_batch.setups import ENGINES
from bench.gateways.processes import Program
from coresched.capacity.plan import Plan
from coresched.capacity.planner import plan
from coresched.lab.replay.endpoint import Endpoint
from coresched.trajectory.schema import Trajectory

BOOT_S = 900.0
LABELS_VARIABLE = "CORESCHED_LABEL_CAPACITY"


@dataclass(frozen=True)
class Device:
    """The simulated device of each server: memory and weights as for `coresched sglang-sim`."""

    memory: str
    weights: str
    memory_fraction: float
    context_length: int

    def plan(self, model: Path, workload: Sequence[Trajectory], environment_concurrency: int) -> Plan:
        """Raises InputError where nothing fits."""
        return plan(
            str(model),
            workload,
            "sglang",
            gpu_memory=self.memory,
            weights=self.weights,
            memory_fraction=self.memory_fraction,
            workers=ENGINES,
            environment_concurrency=environment_concurrency,
        )

    def flags(self, made: Plan | None) -> list[str]:
        """SGLang's flags: those that all set-ups share and, with a plan, its own."""
        shared = ["--mem-fraction-static", str(self.memory_fraction), "--sleep-on-idle"]
        shared += ["--log-level", "warning", "--context-length", str(self.context_length)]
        if made is None:
            return shared
        return [*made.engine_flags, *shared, "--schedule-policy", "routing-prefix"]


@dataclass(frozen=True)
class SGLang:
    """An `EngineKind`. ``options`` are those of `coresched sglang-sim` that say what the device is."""

    python: str
    version: str
    made: Plan
    device: Device
    options: Sequence[str]
    speed: float
    token_ids: tuple[int, int] = (1000, 30000)

    @property
    def title(self) -> str:
        return (
            f"SGLang {self.version}, two servers on a simulated device {self.speed:g}x as fast as it is; "
            "stock has its default pools"
        )

    @property
    def sample_concurrency(self) -> int:
        return self.made.reference_concurrency

    @property
    def label_capacity(self) -> int:
        return self.made.label_capacity

    @property
    def facts(self) -> Mapping[str, Any]:
        return {
            "sglang": self.version,
            "plan": {
                "flags": list(self.made.engine_flags),
                "reference_concurrency": self.made.reference_concurrency,
                "label_capacity": self.made.label_capacity,
            },
        }

    @contextmanager
    def booted(self, *, planned: bool) -> Iterator[Engines]:
        flags = self.device.flags(self.made if planned else None)
        environment = dict(os.environ)
        if planned:
            environment |= {**self.made.engine_environment, LABELS_VARIABLE: str(self.made.label_capacity)}
        with ExitStack() as stack:
            booting = []
            for place in range(ENGINES):
                port = free_port()
                command = [self.python, "-m", "coresched", "sglang-sim", *self.options]
                command += ["--start-timeout-s", str(BOOT_S), "--", "--port", str(port), *flags]
                log = stack.enter_context(tempfile.TemporaryFile())
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=environment,
                    start_new_session=True,
                )
                program = Program(process, log)
                stack.callback(stop, process)
                booting.append((Endpoint(f"engine-{place}", f"http://127.0.0.1:{port}"), process, program))
            for _, process, program in booting:
                assert process.stdout is not None
                if not process.stdout.readline():
                    raise NoServerError(f"coresched sglang-sim did not start: {program.last_words()}")
            yield Engines([endpoint for endpoint, _, _ in booting], [program for _, _, program in booting])
