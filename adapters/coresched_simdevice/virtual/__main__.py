"""`python -m coresched_simdevice.virtual`: a job a line on standard input, its outcome on standard output.

An outcome is ``{"result": ...}``, a `batch.BatchResult`, or ``{"error": "..."}``. Each job has a process of
its own, a fork of this one, so that SGLang is imported once: that takes three quarters of a boot.
"""

import os
import sys
import traceback
from typing import BinaryIO

import msgspec

from coresched.errors import InputError
from coresched_simdevice.virtual.boot import load_sglang
from coresched_simdevice.virtual.job import read_job, run_job


def main() -> int:
    """Exit code 0 at the end of the jobs, or 2, with one line on standard error, where none could run."""
    # SGLang prints; only outcomes may be on standard output.
    outcomes = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        load_sglang()
    except InputError as error:
        print(f"coresched_simdevice.virtual: {error}", file=sys.stderr)
        return 2
    for line in sys.stdin.buffer:
        child = os.fork()
        if child == 0:
            _carry_out(line, outcomes)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            _say(outcomes, error=f"the job's process ended with {os.waitstatus_to_exitcode(status)}")
    return 0


def _carry_out(line: bytes, outcomes: BinaryIO) -> None:
    try:
        result = run_job(read_job(line))
    except InputError as error:
        _say(outcomes, error=str(error))
    except BaseException as error:
        traceback.print_exc()
        _say(outcomes, error=f"{type(error).__name__}: {error}")
    else:
        _say(outcomes, result=result)


def _say(outcomes: BinaryIO, **outcome: object) -> None:
    outcomes.write(msgspec.json.encode(outcome) + b"\n")


if __name__ == "__main__":
    sys.exit(main())
