"""`coresched serve` in a process of its own, for tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]


@contextmanager
def served(*options: str, listen: str = "127.0.0.1:0") -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address that the server printed, and its process, which is killed in the end if it still runs.

    Without a journal, unless the options name one.
    """
    command = [sys.executable, "-m", "coresched", "serve", "--listen", listen, "--journal", "none", *options]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}  # whatever the working directory
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("coresched serve: listening on "), process.communicate()
            yield line.split()[-1], process
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
