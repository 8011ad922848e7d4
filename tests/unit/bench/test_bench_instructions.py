import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest

from bench import instructions
from bench.cases import Case
from bench.floor import compiler
from bench.instructions import instructions_an_operation, of_row, require_callgrind
from coresched.errors import InputError

PROGRAM = """
from bench.cases import Case
from bench.instructions import _count
numbers = list(range(1000))
def few(operations):
    for _ in range(operations):
        sum(numbers[:100])
def many(operations):
    for _ in range(operations):
        sum(numbers)
_count([Case("sum", 1000, few, {"longer": many, "python-twin": many})])
"""


def test_without_valgrind_the_user_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instructions, "which", lambda _name: None)
    with pytest.raises(InputError, match="callgrind not found; install valgrind"):
        require_callgrind()


def test_a_row_has_the_counts_of_its_subjects_and_no_others() -> None:
    counts = {("rp", "coresched"): 10.0, ("rp", "python-sort"): 90.0}
    case = Case("rp", 1000, lambda _: None, {})
    assert of_row(counts, case, "python-sort") == {"ours_instructions": 10.0, "peer_instructions": 90.0}
    assert of_row(counts, case, "python-twin") == {"ours_instructions": 10.0}
    assert of_row({}, case, "python-sort") == {}


@pytest.mark.skipif(
    which("valgrind") is None or compiler() is None or not Path("/usr/include/valgrind/callgrind.h").exists(),
    reason="needs valgrind with its headers, and a C++ compiler",
)
def test_ten_times_the_work_takes_ten_times_the_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    real = subprocess.run

    def run(command: list[str], **options: object) -> object:
        if command[0] == "valgrind":
            assert command[-3:] == [sys.executable, "-m", "bench.instructions"]
            command = [*command[:-2], "-c", PROGRAM]
        return real(command, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(instructions.subprocess, "run", run)
    counts = instructions_an_operation()
    assert set(counts) == {("sum", "coresched"), ("sum", "longer")}
    assert 6 < counts["sum", "longer"] / counts["sum", "coresched"] < 10
