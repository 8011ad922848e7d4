"""The processes of a bench end with it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from bench.pool import pool

SCRIPT = """
import os, signal, time
from bench.pool import pool

if __name__ == "__main__":
    with pool() as processes:
        print(processes.submit(os.getpid).result(), flush=True)
        for future in [processes.submit(time.sleep, 1000) for _ in range(50)]:
            future.result()
"""


def test_an_interrupt_ends_what_runs_and_what_waits(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    root = str(Path(__file__).resolve().parents[3])
    with subprocess.Popen(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": root},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()  # the processes are there
            os.killpg(process.pid, signal.SIGINT)
            _, said = process.communicate(timeout=60)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert b"KeyboardInterrupt" in said
    assert process.returncode == -signal.SIGINT


def test_results_come_back() -> None:
    with pool() as processes:
        assert list(processes.map(abs, [-1, 2])) == [1, 2]
