"""Starts the measuring program in SGLang's environment, and reads what it prints."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.sglang_python import environment
from coresched.errors import InputError


class MeasuringFailedError(Exception):
    """The measuring program ended before its last row; the message is the end of what it printed."""


@dataclass(frozen=True)
class Measured:
    """What was measured: SGLang and the tree in ``engine``, and rows of samples in seconds a pass."""

    engine: dict[str, Any]
    rows: list[dict[str, Any]]


def require_program(path: str) -> str:
    """The program's path. Raises InputError if there is none."""
    found = shutil.which(path)
    if found is None:
        raise InputError(
            f"--sglang-python {path!r} is not a program; give the python of SGLang's environment"
        )
    return found


def measured(python: str, *, is_quick: bool, announce: Callable[[str], None]) -> Measured:
    """Run the measuring program to its end.

    Raises InputError if that environment lacks SGLang or coresched, and MeasuringFailedError if the program
    fails in another way.
    """
    command = [python, "-m", "bench.sglang_priority.measure", *(["--quick"] if is_quick else [])]
    engine: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment(),
        ) as process,
    ):
        assert process.stdout is not None
        try:
            for text in process.stdout:
                line = json.loads(text)
                if "error" in line:
                    raise InputError(f"--sglang-python {line['error']}")
                if "doing" in line:
                    announce(line["doing"])
                engine = line.get("engine", engine)
                rows += [line["row"]] if "row" in line else []
        except BaseException:
            process.terminate()
            raise
        if process.wait() != 0:
            raise MeasuringFailedError(_last_words(log.fileno()))
    return Measured(engine, rows)


def _last_words(log: int) -> str:
    size = os.fstat(log).st_size
    text = os.pread(log, 400, max(0, size - 400)).decode(errors="replace")
    return " ".join(text.split()) or "it printed nothing"
