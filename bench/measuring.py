"""Starts a measuring program in an engine's environment, and reads what it prints: a JSON object a line.

The lines are ``engine`` (what is measured on), then ``doing`` (what comes next) and ``row`` in turns. A line
``error`` says why there is no more.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from coresched.errors import InputError


class MeasuringFailedError(Exception):
    """The measuring program ended before its last row; the message is the end of what it printed."""


@dataclass(frozen=True)
class Measured:
    """What was measured: on what in ``engine``, and rows of samples in seconds a pass."""

    engine: dict[str, Any]
    rows: list[dict[str, Any]]


@dataclass(frozen=True)
class Program:
    """``module``, run by the interpreter that the option ``flag`` names, with these variables."""

    module: str
    flag: str
    engine: str
    environment: Callable[[], Mapping[str, str]]

    def require(self, path: str) -> str:
        """The interpreter's path. Raises InputError if there is none."""
        found = shutil.which(path)
        if found is None:
            raise InputError(
                f"{self.flag} {path!r} is not a program; give the python of {self.engine}'s environment"
            )
        return found

    def measured(self, python: str, *, is_quick: bool, announce: Callable[[str], None]) -> Measured:
        """Run it to its end.

        Raises InputError if that environment lacks the engine or coresched, and MeasuringFailedError if the
        program fails in another way.
        """
        command = [python, "-m", self.module, *(["--quick"] if is_quick else [])]
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
                env=self.environment(),
            ) as process,
        ):
            assert process.stdout is not None
            try:
                for text in process.stdout:
                    line = json.loads(text)
                    if "error" in line:
                        raise InputError(f"{self.flag} {line['error']}")
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
