"""SGLang servers on the simulated device, and the CPU time that they take."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.chaos.servers import free_port
from bench.gateways.processes import Program
from coresched.lab.replay.endpoint import Endpoint

BOOT_S = 900.0
STOP_S = 60.0


class NoServerError(RuntimeError):
    """A server that did not start; the message is the last of what it printed."""


@dataclass(frozen=True)
class Engines:
    """Healthy servers."""

    endpoints: Sequence[Endpoint]
    programs: Sequence[Program]

    def cpu_s(self) -> float:
        """CPU seconds of all their processes since they started."""
        return sum(program.cpu_s() for program in self.programs)


@contextmanager
def engines(
    python: str,
    number: int,
    device: Sequence[str],
    flags: Sequence[str],
    environment: Mapping[str, str],
) -> Iterator[Engines]:
    """That many equal servers, booted at once. ``device`` has the options of `coresched sglang-sim`.

    Raises NoServerError.
    """
    with ExitStack() as stack:
        booting = []
        for place in range(number):
            port = free_port()
            command = [python, "-m", "coresched", "sglang-sim", *device]
            command += ["--start-timeout-s", str(BOOT_S), "--", "--port", str(port), *flags]
            log = stack.enter_context(tempfile.TemporaryFile())
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **environment},
                start_new_session=True,
            )
            program = Program(process, log)
            stack.callback(_stop, process)
            booting.append((Endpoint(f"engine-{place}", f"http://127.0.0.1:{port}"), process, program))
        for _, process, program in booting:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise NoServerError(f"coresched sglang-sim did not start: {program.last_words()}")
        yield Engines([endpoint for endpoint, _, _ in booting], [program for _, _, program in booting])


@contextmanager
def service(workers: Sequence[str]) -> Iterator[str]:
    """`coresched serve` for these workers, with a journal, and its address. Raises NoServerError."""
    command = [sys.executable, "-m", "coresched", "serve", "--listen", "127.0.0.1:0"]
    command += [f"--worker={worker}" for worker in workers]
    with tempfile.TemporaryFile() as log, tempfile.TemporaryDirectory() as folder:
        command += ["--journal", str(Path(folder) / "journal.sqlite3")]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                words = Program(process, log).last_words()
                raise NoServerError(f"coresched serve did not start: {words}")
            yield line.split()[-1].decode()
        finally:
            _stop(process)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """Ask it to end, which ends SGLang's processes too: they are in another group, and outlive a kill."""
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
