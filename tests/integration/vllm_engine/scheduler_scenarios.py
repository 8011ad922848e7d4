"""What vLLM's real scheduler does under this adapter, with made-up outputs; vLLM's Python runs this.

    python scheduler_scenarios.py NAME...

prints a line of JSON for each scenario that is named, of those below and in retention_scenarios.py. Each has
a process of its own, a fork of one that has imported vLLM.
"""

import contextlib
import json
import logging
import os
import sys
import traceback
from collections.abc import Iterator
from dataclasses import replace

import retention_scenarios
from coresched_vllm.virtual.batch import run_batch
from coresched_vllm.virtual.boot import ENVIRONMENT, Settings
from coresched_vllm.virtual.engine import Finished, VirtualEngine
from scenario_engines import (
    BATCH,
    DENSE,
    HYBRID,
    ROUTING_PREFIX,
    ROUTING_RESIDENCY,
    Facts,
    engine_of,
    facts_of,
)

from coresched.errors import InputError


def version() -> Facts:
    from coresched_vllm.compatibility import is_tested, missing, vllm_version

    return {"version": vllm_version(), "missing": missing(), "tested": is_tested(vllm_version())}


@contextlib.contextmanager
def log_lines() -> Iterator[list[str]]:
    import coresched_vllm.scheduler  # noqa: F401  # which sets the level that vLLM has

    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    for name in ("coresched_vllm", "coresched_engine"):
        logging.getLogger(name).addHandler(handler)
        logging.getLogger(name).setLevel(logging.INFO)
    yield lines
    for name in ("coresched_vllm", "coresched_engine"):
        logging.getLogger(name).removeHandler(handler)


def policies(settings: Settings, *, labelled: bool = True) -> Facts:
    from bench.vllm_policies.longest_prefix_match import LongestPrefixMatch

    facts = {}
    for name, scheduler in (("fcfs", None), ("rp", ROUTING_PREFIX), ("lpm", LongestPrefixMatch)):
        engine = engine_of(settings, scheduler)
        facts[name] = facts_of(engine, run_batch(engine, BATCH, labelled=labelled))
        if name == "rp":
            facts[name]["queries"] = engine.scheduler.ordering.counts().queries
        if name == "lpm":
            facts[name]["queries"] = engine.scheduler.queries
    return facts


def hybrid_under_pressure() -> Facts:
    return policies(HYBRID)


def dense_under_pressure() -> Facts:
    return policies(DENSE)


def without_pressure() -> Facts:
    return policies(replace(HYBRID, blocks=900))


def unlabelled() -> Facts:
    return policies(HYBRID, labelled=False)


def asynchronous() -> Facts:
    """Also the class that a user would name who does not know of the two."""
    import coresched_vllm.scheduler as schedulers

    settings = replace(HYBRID, async_scheduling=True)
    facts = {}
    for name, scheduler in (
        ("fcfs", None),
        ("rp", ROUTING_PREFIX),
        ("wrong", schedulers.RoutingPrefixScheduler),
    ):
        engine = engine_of(settings, scheduler)
        facts[name] = facts_of(engine, run_batch(engine, BATCH))
    return facts


def order() -> Facts:
    """The log of a run under pressure, with preemptions."""
    from step_log import logged

    capacity = {"coresched": {"label_capacity": 8}}
    engine = engine_of(replace(HYBRID, blocks=90, additional_config=capacity))
    steps = logged(engine)
    run_batch(engine, replace(BATCH, trajectories=10, output=96))
    return {"steps": steps, "labels": engine.scheduler.ordering.policy.labels()}


def preemption_storm() -> Facts:
    """Replies so long that the running requests push each other out."""
    storm = replace(BATCH, trajectories=12, turns=3, output=96)
    facts = {}
    for name, scheduler in (("fcfs", None), ("rp", ROUTING_PREFIX)):
        engine = engine_of(replace(HYBRID, blocks=52), scheduler)
        facts[name] = facts_of(engine, run_batch(engine, storm))
    return facts


def drain(engine: VirtualEngine) -> list[Finished]:
    finished = []
    for _ in range(500):
        finished += engine.step()
        if not engine.scheduler.has_unfinished_requests():
            return finished
    raise RuntimeError("the engine does not finish")


def prompt(trajectory: int, tokens: int) -> list[int]:
    return [3 + (trajectory * 7_919 + place * 31) % 500 for place in range(tokens)]


def aborts() -> Facts:
    """Of waiting, running and preempted requests, and of one that was never there."""
    engine = engine_of(replace(HYBRID, blocks=60, max_num_seqs=2))
    for number in range(6):
        engine.submit(f"r{number}", prompt(number, 200), 40, session_id=f"t{number}")
    for _ in range(3):
        engine.step()
    running = [request.request_id for request in engine.scheduler.running]
    engine.scheduler.reset_prefix_cache(reset_running_requests=True)
    preempted = engine.waiting()[: len(running)]
    engine.step()
    engine.abort([preempted[0], "r3", "r5", "nobody"])
    left = [finished.request_id for finished in drain(engine)]
    pool = engine.scheduler.kv_cache_manager.block_pool
    return {
        "running": running,
        "preempted": preempted,
        "finished": left,
        "waiting": engine.waiting(),
        "labels": engine.scheduler.ordering.policy.labels(),
        "free": pool.get_num_free_blocks(),
        "usable": len(pool.blocks) - 1,
    }


def reset() -> Facts:
    """After the cache is emptied a label may be in the label set without anything of it in the cache."""
    engine = engine_of(replace(HYBRID, max_num_seqs=1))
    engine.submit("a1", prompt(1, 200), 4, session_id="a")
    drain(engine)
    engine.submit("b1", prompt(2, 200), 4, session_id="b")
    engine.submit("a2", prompt(1, 260), 4, session_id="a")
    engine.submit("a3", prompt(1, 300), 4, session_id="a")
    engine.step()
    first = [request.request_id for request in engine.scheduler.running]
    while engine.scheduler.running:
        engine.step()
    emptied = engine.scheduler.reset_prefix_cache()
    finished = {each.request_id: each.cached_tokens for each in drain(engine)}
    return {"first": first, "emptied": emptied, "cached": finished}


def labels() -> Facts:
    engine = engine_of(replace(HYBRID, max_num_seqs=1))
    engine.submit("good", prompt(1, 40), 2, session_id="é" * 256)
    engine.submit("long", prompt(2, 40), 2, session_id="k" * 513)
    engine.submit("number", prompt(3, 40), 2, session_id=7)
    engine.submit("list", prompt(4, 40), 2, extra_args={"trajectory": ["t"]})
    engine.submit("empty", prompt(5, 40), 2, session_id="")
    engine.submit("argument", prompt(6, 40), 2, extra_args={"trajectory": "t"})
    with log_lines() as lines:
        finished = [each.request_id for each in drain(engine)]
    counts = engine.scheduler.ordering.counts()
    return {
        "finished": finished,
        "labels": engine.scheduler.ordering.policy.labels(),
        "refused": counts.refused_labels,
        "unlabelled": counts.unlabelled,
        "log": lines,
    }


def start() -> Facts:
    """What the log says at a start, for capacities from each source."""
    facts = {}
    for name, settings in (
        ("asked", HYBRID),
        ("derived", replace(HYBRID, additional_config={})),
        ("small", replace(HYBRID, additional_config={"coresched": {"label_capacity": 4}})),
        ("cache off", replace(HYBRID, enable_prefix_caching=False)),
    ):
        with log_lines() as lines:
            engine = engine_of(settings)
            facts[name] = {"log": lines, "ordering": engine.scheduler.ordering is not None}
    return facts


def refusals() -> Facts:
    """In the process that reads the arguments, by the plugin that vLLM has loaded; and by the scheduler."""
    facts: Facts = {"plugin": plugin_is_loaded()}
    for name, settings in (
        ("priority", replace(HYBRID, scheduling_policy="priority")),
        ("capacity", replace(HYBRID, additional_config={"coresched": {"label_capacity": 0}})),
    ):
        try:
            engine_of(settings)
        except InputError as error:
            facts[name] = str(error)
            facts[f"{name} by"] = error_origin(error)
    with_vllm_own = replace(HYBRID, scheduling_policy="priority")
    facts["vllm's own"] = type(engine_of(with_vllm_own, None).scheduler).__name__
    return facts


def residency_start() -> Facts:
    with log_lines() as lines:
        engine_of(HYBRID, ROUTING_RESIDENCY)
    facts: Facts = {"log": lines, "by": []}
    for name, settings in (
        ("cache off", replace(HYBRID, enable_prefix_caching=False)),
        ("priority", replace(HYBRID, scheduling_policy="priority")),
        ("retention", replace(HYBRID, additional_config={"coresched": {"one_state_per_trajectory": 2}})),
    ):
        try:
            engine_of(settings, ROUTING_RESIDENCY)
        except InputError as error:
            facts[name] = str(error)
            facts["by"] += error_origin(error)
    return facts


def metrics() -> Facts:
    """What this process, which is front end and engine at once, would answer a scrape."""
    from prometheus_client import REGISTRY

    engine = engine_of(HYBRID)
    run_batch(engine, BATCH)
    counts = engine.scheduler.ordering.counts()
    samples = [sample for family in REGISTRY.collect() for sample in family.samples]
    ours = [sample for sample in samples if sample.name.startswith("coresched_")]
    return {
        "queries": [sample.value for sample in ours if sample.name == "coresched_prefix_queries_total"],
        "admitted": {
            sample.labels["label"]: sample.value
            for sample in ours
            if sample.name == "coresched_prefix_admitted_total"
        },
        "labels": sorted(set(ours[0].labels)),
        "counted": [counts.queries, counts.hits, counts.misses, counts.unlabelled],
    }


def plugin_is_loaded() -> bool:
    from vllm.engine.arg_utils import EngineArgs

    engine_of(HYBRID, None)
    return hasattr(EngineArgs.create_engine_config, "_coresched_checked")


def error_origin(error: BaseException) -> list[str]:
    names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    return [name for name in names if name in ("create_engine_config", "__init__")][-1:]


def main(names: list[str]) -> None:
    os.environ.update(ENVIRONMENT)
    outcomes = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # vLLM logs there
    import vllm.engine.arg_utils
    import vllm.v1.core.sched.async_scheduler
    import vllm.v1.structured_output  # noqa: F401

    for name in names:
        if os.fork() == 0:
            with contextlib.suppress(BrokenPipeError):
                try:
                    outcome = {**vars(retention_scenarios), **globals()}[name]()
                except BaseException:
                    outcome = {"failed": traceback.format_exc()}
                print(json.dumps([name, outcome]), file=outcomes, flush=True)
            os._exit(0)
        os.wait()


if __name__ == "__main__":
    main(sys.argv[1:])
