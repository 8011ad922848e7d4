"""Runs a module or a file as Python does, and ends it so: threads joined, exit handlers run.

    python to_its_end.py -m MODULE ARGUMENTS... | FILE ARGUMENTS...

For programs of a fork server, which by itself does neither.
"""

import atexit
import runpy
import sys
import threading
from pathlib import Path

if __name__ == "__main__":
    try:
        if sys.argv[1] == "-m":
            sys.argv = sys.argv[2:]
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            sys.argv = sys.argv[1:]
            sys.path[0] = str(Path(sys.argv[0]).parent)
            runpy.run_path(sys.argv[0], run_name="__main__")
    except Exception as error:
        sys.excepthook(type(error), error, error.__traceback__)  # which a program may have replaced
        sys.exit(1)
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
