"""`coresched worker` in a process of its own, for tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

CHECKOUT = Path(__file__).parents[1]


@contextmanager
def running_worker(*options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The worker's URL and its process, which is killed in the end if it still runs."""
    command = [sys.executable, "-m", "coresched", "worker", "--listen", "127.0.0.1:0", *options]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}  # whatever the working directory
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("coresched worker: listening on "), process.communicate()
            yield f"http://{line.split()[-1]}", process
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()


def metrics(url: str) -> dict[str, float]:
    """The worker's metrics, without the prefix of their names."""
    text = httpx.get(f"{url}/metrics").raise_for_status().text
    return {
        name: float(value)
        for name, value in re.findall(r"^coresched_worker_(\w+) (\S+)$", text, flags=re.MULTILINE)
    }
