"""tau2's command line, its `run` and `worker` under this process's gate."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any

from coresched_harness.run import Labels, gated_run, open_gate, say, warn_below

from coresched.client.gate import Gate
from coresched.errors import InputError
from coresched_tau2.compatibility import FIT, load_command_line


def main() -> Any:
    """Run tau2's command line; what it returns."""
    try:
        tau2 = load_command_line()
    except InputError as error:
        say(f"error: {error}")
        return 2
    tau2.run_domain = partial(run_domain, tau2.run_domain)
    worker: Any = import_module("tau2.runner.worker")
    worker.run_worker_command = partial(run_worker, worker.run_worker_command)
    return tau2.main()


def run_domain(plain: Callable[[Any], Any], config: Any) -> Any:
    """tau2's `run_domain(config)`: the simulations of `tau2 run`.

    Raises SystemExit where the environment is wrong (2), or the gate fails during the run (1).
    """
    gate = open_gate("tau2")
    if gate is None:
        return plain(config)
    workers = getattr(config, "workers", 0) or 0
    with _gated(gate):
        if workers and not os.environ.get("CORESCHED_SERVICE"):
            raise InputError(
                f"--workers {workers} are processes, each of which would have the capacities for itself; "
                "share them through CORESCHED_SERVICE and CORESCHED_BATCH, or leave out --workers"
            )
        in_flight = config.max_concurrency * max(workers, 1)
        warn_below(
            gate, "--max-concurrency" if not workers else "--workers times --max-concurrency", in_flight
        )
        return plain(config)


def run_worker(plain: Callable[..., int], controller: str, slots: int, **options: Any) -> int:
    """tau2's `run_worker_command(...)`: one process of `tau2 run --workers N`."""
    gate = open_gate("tau2")
    if gate is None:
        return plain(controller, slots, **options)
    with _gated(gate):
        return plain(controller, slots, **options)


@contextmanager
def _gated(gate: Gate) -> Iterator[None]:
    labels = Labels(shared=bool(os.environ.get("CORESCHED_SERVICE")))
    with gated_run(gate, "with --auto-resume the same command goes on with what has no result yet"):
        FIT.check()
        from coresched_tau2.gated import Gated  # imports places of tau2 that were just checked

        with Gated(gate, labels).installed():
            yield
