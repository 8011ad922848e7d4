"""Ends a server's processes with the one that started them, where that cannot end them itself any more."""

import ctypes
import multiprocessing
import os
import signal
import sys
from typing import Final

PR_SET_PDEATHSIG: Final = 1
"""Of Linux's <sys/prctl.h>."""


def end_with(starter: int) -> None:
    """Have the kernel kill this process when the thread that started it ends; ``starter`` is its process.

    Nothing but Linux has this, and elsewhere nothing is done.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != starter:  # it ended before the kernel was told
        raise SystemExit(1)


def end_if_orphaned() -> None:
    """End a process of the server whose first process has ended.

    SGLang ties its processes to the first one too, but only after the seconds that their imports take.
    """
    first = multiprocessing.parent_process()
    if first is not None and not first.is_alive():
        raise SystemExit(1)
