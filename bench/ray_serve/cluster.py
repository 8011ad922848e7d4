"""A Ray of one's own on this machine, and what is asked of Serve's insides. Runs in Ray's environment."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_SERVE_LOG_TO_STDERR": "0",
    "RAY_DEDUP_LOGS": "1",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    # Seconds in which a replica must say how busy it is, else another is asked, and in which a proxy must be
    # ready, else it is started anew. New ones on a busy machine take longer than usual, and here it is
    # choices that are compared.
    "RAY_SERVE_QUEUE_LENGTH_RESPONSE_DEADLINE_S": "20",
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
}


def own_stdout() -> IO[str]:
    """What was stdout, which Ray's processes write to as well; they get stderr."""
    lines = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return lines


@contextmanager
def local_ray() -> Iterator[int]:
    """Ray with Serve on one node; yields the port of Serve's HTTP proxy. All of it ends with the block."""
    os.environ.update(QUIET)
    import ray
    from ray import serve

    folder = tempfile.mkdtemp(prefix="ray-")
    port = free_port()
    try:
        ray.init(
            address="local",
            num_cpus=4,
            include_dashboard=False,
            object_store_memory=80 << 20,
            log_to_driver=False,
            logging_level="ERROR",
            _temp_dir=folder,
        )
        serve.start(http_options={"host": "127.0.0.1", "port": port})
        yield port
        serve.shutdown()
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def router_of(handle: Any) -> Any:
    """The request router of this process behind a handle that was called before."""
    return handle._router._asyncio_router.request_router
