"""The processes that a bench's simulated runs are spread over."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context


@contextmanager
def pool() -> Iterator[ProcessPoolExecutor]:
    """As many as there are cores. Ctrl-C ends what they run; where the block fails, nothing more is begun."""
    executor = ProcessPoolExecutor(
        os.cpu_count(),
        mp_context=get_context("forkserver"),
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_DFL),  # else each would take the next one up
    )
    try:
        yield executor
    finally:
        executor.shutdown(cancel_futures=True)
