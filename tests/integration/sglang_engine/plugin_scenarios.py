"""What SGLang's real scheduler does under the plugin's policy, in virtual time; SGLang's Python runs this.

    python plugin_scenarios.py MODEL NAME...

prints a line of JSON for each of the scenarios below that is named. MODEL is a model directory. Each has a
process of its own, a fork of one that has imported SGLang.
"""

import contextlib
import json
import logging
import os
import sys
import traceback
from typing import Any

from coresched_simdevice.virtual import engine as engine_module
from coresched_simdevice.virtual.boot import load_sglang
from coresched_simdevice.virtual.engine import VirtualEngine
from coresched_simdevice.virtual.finished import Finished

from coresched.errors import InputError

Facts = dict[str, Any]

SMALL = {
    "context_length": 16_384,
    "max_total_tokens": 200_000,
    "max_running_requests": 2,
    "max_mamba_cache_size": 32,
    "mamba_max_states_per_path": 1,
}


class Run:
    """An engine and the requests it gets; tokens of a trajectory are told apart by its number."""

    def __init__(self, model: str, policy: str = "routing-prefix", **server_args: Any) -> None:
        self.log: list[str] = []
        lines = logging.Handler()
        lines.emit = lambda record: self.log.append(record.getMessage())  # type: ignore[method-assign]
        logging.getLogger("coresched_sglang").addHandler(lines)
        logging.getLogger("coresched_sglang").setLevel(logging.INFO)
        arguments = {**SMALL, "model_path": model, "schedule_policy": policy, **server_args}
        self.engine = VirtualEngine({name: value for name, value in arguments.items() if value is not None})
        self.policy = self.engine.scheduler.policy
        self.finished: list[Finished] = []

    def prompt(self, trajectory: int, tokens: int) -> list[int]:
        return [3 + (trajectory * 7919 + place * 31) % 50_000 for place in range(tokens)]

    def submit(
        self,
        name: str,
        trajectory: int,
        tokens: int,
        label: Any = None,
        output: int = 4,
        at: float | None = None,
        priority: int | None = None,
    ) -> None:
        def generate_request(*arguments: Any) -> Any:
            message = original(*arguments)
            message.priority = priority
            return message

        original, engine_module.generate_request = engine_module.generate_request, generate_request
        try:
            self.engine.submit(name, self.prompt(trajectory, tokens), output, label, at)
        finally:
            engine_module.generate_request = original

    def finish(self) -> list[str]:
        """Let all end; the names in the order in which they were first admitted."""
        ended = self.engine.advance()
        self.finished += ended
        admitted = [one for one in ended if one.started_s is not None]
        return [one.request_id for one in sorted(admitted, key=lambda one: one.started_s or 0.0)]

    def warm(self, trajectories: int, tokens: int = 1_000) -> None:
        """A first turn of so many trajectories, labelled t0, t1 and so on."""
        for number in range(trajectories):
            self.submit(f"warm-{number:02d}", number, tokens, f"t{number}")
        self.finish()

    def facts(self, **more: Any) -> Facts:
        counts = self.policy.ordering.counts()
        return {
            "passes": counts.passes,
            "queries": counts.queries,
            "hits": counts.hits,
            "misses": counts.misses,
            "unlabelled": counts.unlabelled,
            "refused labels": counts.refused_labels,
            "labels": self.policy.ordering._policy.labels(),
            "cached": {one.request_id: one.cached_tokens for one in self.finished},
            "aborted": [one.request_id for one in self.finished if one.aborted],
            "retractions": {one.request_id: one.retractions for one in self.finished if one.retractions},
            "outputs": {one.request_id: len(one.output_ids) for one in self.finished},
            "log": self.log,
            **more,
        }


def cold_and_warm(run: Run) -> list[str]:
    """One request runs; a cold one, one without a label, and two warm ones come, in this order."""
    run.submit("running", 50, 500, "running", output=400)
    for name, trajectory, label in (
        ("cold", 60, "cold"),
        ("none", 61, None),
        ("t1-second", 1, "t1"),
        ("t0-second", 0, "t0"),
    ):
        run.submit(name, trajectory, 2_000, label, at=run.engine.now_s + 0.01)
    return run.finish()


def warm_first(model: str, **server_args: Any) -> Facts:
    run = Run(model, max_running_requests=1, **server_args)
    run.warm(2, tokens=1_900)
    return run.facts(order=cold_and_warm(run))


def fcfs(model: str) -> Facts:
    run = Run(model, policy="fcfs", max_running_requests=1)
    run.warm(2, tokens=1_900)
    return {"order": cold_and_warm(run), "ordering": run.policy.ordering, "log": run.log}


def without_overlap(model: str) -> Facts:
    return warm_first(model, disable_overlap_schedule=True)


def cache_off(model: str) -> Facts:
    run = Run(model, max_running_requests=1, disable_radix_cache=True)
    run.warm(2, tokens=1_900)
    return {"order": cold_and_warm(run), "ordering": run.policy.ordering, "log": run.log}


def mixed_chunks(model: str) -> Facts:
    """Prompts of several chunks, with decode steps of others in the same batch."""
    run = Run(model, max_running_requests=4, enable_mixed_chunk=True, chunked_prefill_size=512)
    for number in range(6):
        run.submit(f"first-{number}", number, 1_700, f"t{number}", output=40)
    run.finish()
    for number in range(6):
        run.submit(f"other-{number}", number, 2_900, f"t{number}", output=40)
    run.finish()
    return run.facts()


def aborts(model: str) -> Facts:
    run = Run(model, max_running_requests=1)
    run.submit("running", 1, 500, "running", output=100)
    run.submit("gone", 2, 500, "gone", at=0.001)
    run.submit("stays", 3, 500, "stays", at=0.002)
    run.engine.abort("gone", at=0.2)
    run.engine.abort("running", at=0.3)
    run.finish()
    return run.facts()


def priorities(model: str) -> Facts:
    """A request of low priority runs, and is preempted by the first of high priority."""
    run = Run(
        model,
        max_running_requests=1,
        enable_priority_scheduling=True,
        priority_scheduling_preemption_threshold=1,
    )
    run.submit("warm-00", 0, 1_900, "t0", priority=0)
    run.submit("warm-01", 1, 1_900, "t1", priority=0)
    run.finish()
    run.submit("low-running", 40, 500, "low", output=400, priority=0)
    at = run.engine.now_s + 0.5
    run.submit("low-cold", 41, 500, "low-cold", at=at, priority=0)
    run.submit("low-warm", 0, 2_000, "t0", at=at, priority=0)
    run.submit("high-cold", 42, 500, "high-cold", at=at, priority=10**12)
    run.submit("high-warm", 1, 2_000, "t1", at=at, priority=10**12)
    run.submit("default", 43, 500, "default", at=at)
    return run.facts(order=run.finish())


def flush(model: str) -> Facts:
    run = Run(model)
    run.warm(2)
    flushed = run.engine.flush_cache()
    run.submit("after", 0, 2_000, "t0")
    run.finish()
    return run.facts(flushed=flushed)


def labels(model: str) -> Facts:
    run = Run(model)
    for number, label in enumerate(["", None, "x" * 1_000_000, 17, "é" * 256, "é" * 257]):
        run.submit(f"r-{number}", number, 100, label)
    run.finish()
    return run.facts()


def unhooked(model: str) -> Facts:
    """As where SGLang logs that a hook failed, and goes on."""
    from sglang.srt.managers.scheduler import Scheduler

    Scheduler.get_new_batch_prefill = Scheduler.get_new_batch_prefill.__wrapped__
    return refused(model)


def bad_capacity(model: str) -> Facts:
    os.environ["CORESCHED_LABEL_CAPACITY"] = "many"
    return refused(model)


def refused(model: str, **server_args: Any) -> Facts:
    try:
        Run(model, **server_args)
    except (InputError, RuntimeError) as error:
        return {"refused": f"{type(error).__name__}: {error}"}
    return {"refused": None}


def main(model: str, names: list[str]) -> None:
    outcomes = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # SGLang prints
    load_sglang()
    for name in names:
        if os.fork() == 0:
            with contextlib.suppress(BrokenPipeError):
                try:
                    outcome = globals()[name](model)
                except BaseException:
                    outcome = {"failed": traceback.format_exc()}
                print(json.dumps([name, outcome]), file=outcomes, flush=True)
            os._exit(0)
        os.wait()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
