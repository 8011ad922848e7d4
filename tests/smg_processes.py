"""A real smg before fake workers that hold what they are asked until they are told to answer."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from bench.gateways.processes import free_port, started
from bench.gateways.worker import HELD, RELEASE
from bench.peers.environments import SMG, program

PATIENCE_S = 30.0


def until(true: Callable[[], bool], what: str) -> None:
    """Wait for it. Raises TimeoutError that says what did not come."""
    ends = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > ends:
            raise TimeoutError(what)
        time.sleep(0.02)


def got(url: str, method: str = "GET", body: object = None) -> bytes:
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        url, data=content, headers={"Content-Type": "application/json"}, method=method
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        whole: bytes = answer.read()
        return whole


class HeldWorker:
    """A fake worker in a process of its own, which can be killed and started again on its port."""

    def __init__(self) -> None:
        self.port = 0
        self.start()
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.gateways.worker", "1", str(self.port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()
        self._process.communicate()

    def held(self, count: int = 0) -> int:
        """How many requests it holds, once these are at least `count`."""
        (held,) = json.loads(got(f"{self.url}{HELD}{count}"))
        return int(held)

    def release(self) -> None:
        got(f"{self.url}{RELEASE}")


@contextmanager
def held_workers(count: int) -> Iterator[list[HeldWorker]]:
    with ExitStack() as stack:
        workers = []
        for _ in range(count):
            worker = HeldWorker()
            stack.callback(worker.kill)
            workers.append(worker)
        yield workers


@contextmanager
def smg_before(urls: Sequence[str], *options: str, policy: str = "consistent_hashing") -> Iterator[str]:
    """The URL of a real smg that has all of these workers registered."""
    launcher = program(SMG, "smg", install=True)
    assert launcher is not None
    port = free_port()
    command = [launcher, "launch", "--host", "127.0.0.1", "--port", str(port), "--policy", policy]
    command += ["--prometheus-port", str(free_port()), "--log-level", "warn"]
    command += ["--worker-startup-check-interval", "1", "--health-check-interval-secs", "1"]
    command += ["--health-success-threshold", "1", "--health-failure-threshold", "1"]
    command += ["--shutdown-grace-period-secs", "1", *options]
    with started([*command, "--worker-urls", *urls]) as smg:
        url = f"http://127.0.0.1:{port}"

        def ready() -> bool:
            assert not smg.has_ended(), smg.last_words()
            return sorted(listed(url)) == sorted(urls)

        until(ready, f"smg did not register its workers: {smg.last_words()}")
        yield url


def listed(smg: str) -> dict[str, str]:
    """Ids of the healthy workers that smg lists, by URL."""
    try:
        workers = json.loads(got(f"{smg}/workers"))["workers"]
    except (urllib.error.URLError, ConnectionError):
        return {}
    return {worker["url"]: worker["id"] for worker in workers if worker["is_healthy"]}
