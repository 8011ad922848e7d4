"""`python -m coresched.lab.replay.tethered COMMAND ...`: a command of coresched that ends with its starter.

Its standard input is a pipe from the starter. The system closes that when the starter ends, also where it is
killed; then this process gets SIGTERM, as if the starter had stopped it.
"""

import os
import runpy
import signal
import sys
import threading


def main() -> None:
    """Run the command that the arguments name, as ``python -m coresched`` would."""
    threading.Thread(target=_wait_for_the_end, daemon=True).start()
    sys.argv[0] = "coresched"
    runpy.run_module("coresched", run_name="__main__", alter_sys=False)


def _wait_for_the_end() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
