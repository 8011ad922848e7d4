"""`python -m coresched_simdevice.virtual < job.json`: prints the result of a batch as one line of JSON."""

import os
import sys

import msgspec

from coresched.errors import InputError
from coresched_simdevice.virtual.job import read_job, run_job


def main() -> int:
    """Exit code 0, or 2 for a job that cannot be run, said in one line on standard error."""
    # SGLang prints; only the result may be on standard output.
    results = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        result = run_job(read_job(sys.stdin.buffer.read()))
    except InputError as error:
        print(f"coresched_simdevice.virtual: {error}", file=sys.stderr)
        return 2
    results.write(msgspec.json.encode(result) + b"\n")
    results.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
