"""Gateways beside ours: how each is started."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.peers.environments import SGLANG_ROUTER, SMG, program
from coresched.errors import InputError

Command = Callable[[int, int, Sequence[str]], list[str]]
"""The command line for a port, a second one (for metrics, or another process), and the workers' URLs."""


@dataclass(frozen=True)
class Gateway:
    """`name` is what the tables call it. `beside` is started before it and listens on the second port."""

    name: str
    command: Command
    beside: Command | None = None


def coresched_gateway() -> Gateway:
    def command(port: int, _: int, workers: Sequence[str]) -> list[str]:
        return [
            *(sys.executable, "-m", "coresched", "gateway", "--listen", f"127.0.0.1:{port}"),
            *(argument for worker in workers for argument in ("--worker", worker)),
        ]

    return Gateway("coresched gateway", command)


def smg_gateways(launcher: str) -> list[Gateway]:
    """smg with strict consistent hashing, and with its bounded prefix_hash at LBCH's bound.

    With a routing key, prefix_hash hashes the key; the absolute allowance of 10 requests is set to 0.
    """

    def command(policy: str, *options: str) -> Command:
        return lambda port, metrics, workers: [
            *(launcher, "launch", "--host", "127.0.0.1", "--port", str(port), "--policy", policy, *options),
            *("--prometheus-port", str(metrics), "--log-level", "warn"),
            *("--worker-startup-check-interval", "1", "--worker-urls", *workers),
        ]

    bounded = ("--prefix-hash-load-factor", "1.25", "--prefix-hash-balance-abs-threshold", "0")
    return [
        Gateway("smg consistent_hashing", command("consistent_hashing")),
        Gateway("smg prefix_hash 1.25", command("prefix_hash", *bounded)),
    ]


# Its command line hides consistent hashing, its extension module does not.
_START_SGLANG_ROUTER = """
import sys
from sglang_router.sglang_router_rs import PolicyType, Router

port, metrics, *workers = sys.argv[1:]
Router(
    workers,
    policy=PolicyType.ConsistentHashing,
    host="127.0.0.1",
    port=int(port),
    prometheus_host="127.0.0.1",
    prometheus_port=int(metrics),
    log_level="warn",
    worker_startup_check_interval=1,
).start()
"""


def sglang_router(python: str) -> Gateway:
    def command(port: int, metrics: int, workers: Sequence[str]) -> list[str]:
        return [python, "-c", _START_SGLANG_ROUTER, str(port), str(metrics), *workers]

    return Gateway("sglang-router", command)


def found_gateways(
    smg: str | None, sglang_python: str | None, *, install: bool
) -> tuple[list[Gateway], list[str]]:
    """The peers, and the requirements of those that are not there.

    A program given by its path is taken from there, others from the environments made by an earlier
    `install`, which are made now if it is set. Raises InputError for a path that is not what it should be.
    """
    found: list[Gateway] = []
    absent: list[str] = []
    launcher = _given(smg, "--smg", "smg 1.") or program(SMG, "smg", install=install)
    if launcher is None:
        absent.append(SMG)
    else:
        found.extend(smg_gateways(launcher))
    python = _given(sglang_python, "--sglang-router-python", "Python 3.") or program(
        SGLANG_ROUTER, "python", install=install
    )
    if python is None:
        absent.append(SGLANG_ROUTER)
    else:
        found.append(sglang_router(python))
    return found, absent


def _given(path: str | None, flag: str, version: str) -> str | None:
    if path is None:
        return None
    try:
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"{flag} must be a program that runs, got {path!r}: {error}") from None
    if not said.stdout.startswith(version):
        first = (said.stdout + said.stderr).partition("\n")[0]
        raise InputError(f"{flag} must say {version}... to --version, got {path!r}, which says {first!r}")
    return path
