"""What a VirtualEngine does, case by case, for SGLang's interpreter: prints what was seen as JSON.

Usage: PYTHON virtual_engine_cases.py MODEL_DIRECTORY. Each case has an engine and a process of its own.
"""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from math import inf
from typing import Any

from coresched_simdevice.virtual.boot import load_sglang
from coresched_simdevice.virtual.engine import StuckError, VirtualEngine
from coresched_simdevice.virtual.finished import Finished

from coresched.errors import InputError

Seen = dict[str, Any]


def engine(charge_scheduler: bool = False, **server_args: object) -> VirtualEngine:
    return VirtualEngine(
        {
            "model_path": sys.argv[1],
            "context_length": 4_096,
            "max_total_tokens": 40_000,
            "max_mamba_cache_size": 16,
            "max_running_requests": 2,
            "schedule_policy": "fcfs",
            **server_args,
        },
        charge_scheduler=charge_scheduler,
    )


def record(finished: Finished) -> Seen:
    return {**asdict(finished), "output_ids": list(finished.output_ids)}


def prompt(start: int, count: int) -> range:
    return range(start, start + count)


def some_requests(one: VirtualEngine) -> None:
    for number in range(6):
        one.submit(f"r{number}", prompt(1000 * number, 300 + 100 * number), 5 + number, "label", 0.1 * number)


def alone() -> Seen:
    one = engine()
    one.submit("r", prompt(0, 1000), 10, at=0.5)
    return {"finished": [record(each) for each in one.advance()], "now": one.now_s, "steps": one.steps}


def whole(**arguments: Any) -> Seen:
    one = engine(**arguments)
    some_requests(one)
    return {"finished": [record(each) for each in one.advance()], "now": one.now_s}


def slices() -> Seen:
    one = engine()
    some_requests(one)
    finished, stops = [], []
    while one.in_flight:
        finished += one.advance(one.now_s + 0.01)
        stops.append(one.now_s)
    return {"finished": [record(each) for each in finished], "stops": stops, "busy": one.busy_s}


def by_events() -> Seen:
    """As a driver of several engines would: always to the next event; what finishes is seen at once."""
    one = engine()
    some_requests(one)
    finished, late = [], []
    while one.in_flight:
        event = one.next_event_s
        for each in one.advance(event, stop_at_finish=True):
            finished.append(record(each))
            late.append(one.now_s - each.finished_s)
    return {"finished": finished, "late": late, "idle": one.next_event_s == inf}


def idle() -> Seen:
    one = engine()
    nothing, at_first = one.advance(), one.now_s
    one.advance(3.0)
    one.submit("r", prompt(0, 100), 2)
    one.submit("later", prompt(0, 100), 2, at=8.0)
    (first,) = one.advance(5.0)
    return {
        "nothing": nothing,
        "at_first": at_first,
        "first": record(first),
        "now": one.now_s,
        "next": one.next_event_s,
        "second": [record(each) for each in one.advance()],
    }


def aborts() -> Seen:
    one = engine()
    for name in ("running", "also", "waiting", "stays"):
        one.submit(name, prompt(0, 400), 50)
    one.abort("waiting", at=0.4)
    one.abort("running", at=0.5)
    return {"finished": [record(each) for each in one.advance()], "in_flight": one.in_flight}


def flushes() -> Seen:
    one = engine()

    def cached(name: str) -> int:
        one.submit(name, prompt(0, 1000), 2)
        (finished,) = one.advance()
        return finished.cached_tokens

    counts = [cached("first"), cached("second")]
    flushed = one.flush_cache()
    counts.append(cached("third"))
    one.submit("fourth", prompt(0, 1000), 2)
    refused = one.flush_cache()
    return {
        "cached": counts,
        "flushed": flushed,
        "refused": refused,
        "fourth": [record(each) for each in one.advance()],
    }


def refusals() -> Seen:
    one = engine()
    one.submit("r1", prompt(0, 100), 2)
    one.submit("r10", prompt(0, 100), 2)
    one.advance(0.01)
    attempts: dict[str, Callable[[], object]] = {
        "id": lambda: one.submit("r1", prompt(0, 100), 2),
        "prompt": lambda: one.submit("r2", [], 2),
        "output": lambda: one.submit("r2", prompt(0, 100), 0),
        "long": lambda: one.submit("r2", prompt(0, 4_000), 100),
        "at": lambda: one.submit("r2", prompt(0, 100), 2, at=0.001),
        "until": lambda: one.advance(0.001),
        "unknown": lambda: one.abort("r3"),
        "prefix": lambda: one.abort("r1"),
        "second": engine,
    }
    seen: Seen = {}
    for name, attempt in attempts.items():
        try:
            attempt()
        except InputError as error:
            seen[name] = str(error)
    return {**seen, "ends_still": len(one.advance())}


def refused(**server_args: object) -> Seen:
    try:
        engine(**server_args)
    except InputError as error:
        return {"error": str(error)}
    return {}


def stuck() -> Seen:
    one = engine()
    from sglang.srt.managers.schedule_batch import NextBatchPlan

    one.scheduler.get_new_batch_prefill = lambda running: NextBatchPlan(None, running)
    one.submit("r", prompt(0, 100), 2)
    try:
        one.advance()
    except StuckError as error:
        return {"error": str(error)}
    return {}


def learned(one: VirtualEngine, trajectories: int) -> dict[str, list[int]]:
    """The next prompts of trajectories t0, t1 and so on that had two turns each, one after the other.

    So the gaps between turns are known, and each is live. It has one of 16 state slots; one running takes 5.
    """
    texts = {f"t{number}": list(prompt(1000 * number, 600)) for number in range(trajectories)}
    for turn in (1, 2):
        for label, text in texts.items():
            one.submit(f"{label}-{turn}", text, 30, label)
            (finished,) = one.advance()
            text += [*finished.output_ids, *prompt(20_000, 100)]
    return texts


def returning(policy: str) -> Seen:
    """While a third turn runs, two new requests come, one of them without a label, and then a third turn."""
    one = engine(schedule_policy=policy, mamba_max_states_per_path=1)
    texts, now = learned(one, 8), one.now_s
    one.submit("t0-3", texts["t0"], 60, "t0")
    one.submit("cold", prompt(30_000, 600), 30, "cold", at=now + 0.2)
    one.submit("none", prompt(31_000, 600), 30, at=now + 0.2)
    one.submit("t1-3", texts["t1"], 60, "t1", at=now + 0.5)
    finished = one.advance()
    return {
        "started": [each.request_id for each in sorted(finished, key=lambda each: each.started_s or 0.0)],
        "waited": [each.request_id for each in finished if each.queue_s > 0.1],
        "cached": {each.request_id: each.cached_tokens for each in finished},
    }


def nothing_runs(policy: str) -> Seen:
    """Three new requests come where each would evict a live trajectory."""
    one = engine(schedule_policy=policy, mamba_max_states_per_path=1)
    learned(one, 12)
    for number in range(3):
        one.submit(f"new-{number}", prompt(40_000 + 1000 * number, 600), 10, f"new-{number}")
    finished = {each.request_id: each for each in one.advance()}
    return {
        "ended": sorted(finished),
        "queue_s": [finished[f"new-{number}"].queue_s for number in range(3)],
        "second waits for the first": finished["new-1"].started_s == finished["new-0"].finished_s,
    }


def delayed() -> Seen:
    """SGLang's own delayer: while one decodes, it waits for two that can be prefilled together, or 0.5 s."""
    one = engine(
        max_running_requests=3,
        enable_prefill_delayer=True,
        prefill_delayer_queue_min_ratio=2.0,
        prefill_delayer_max_delay_ms=500.0,
        prefill_delayer_max_delay_passes=1_000,
        prefill_max_requests=2,
    )
    one.submit("decodes", prompt(0, 300), 600)
    # It lets the first of all pass.
    for name, at in {"first": 1.0, "alone": 3.0, "earlier": 6.0, "later": 6.25}.items():
        one.submit(name, prompt(round(4_000 * at), 300), 2, at=at)
    finished = {each.request_id: each for each in one.advance()}
    return {name: each.started_s for name, each in finished.items()}


CASES: dict[str, Callable[[], Seen]] = {
    "alone": alone,
    "whole": whole,
    "slices": slices,
    "by events": by_events,
    "charged": lambda: whole(charge_scheduler=True),
    "not overlapped": lambda: whole(disable_overlap_schedule=True),
    "idle": idle,
    "aborts": aborts,
    "flushes": flushes,
    "refusals": refusals,
    "unknown field": lambda: refused(no_such_field=1),
    "unknown policy": lambda: refused(schedule_policy="none such"),
    "no model": lambda: refused(model_path="/no/such/model"),
    "stuck": stuck,
    "delayed": delayed,
    "returning, fcfs": lambda: returning("fcfs"),
    "returning, routing-residency": lambda: returning("routing-residency"),
    "nothing runs, fcfs": lambda: nothing_runs("fcfs"),
    "nothing runs, routing-residency": lambda: nothing_runs("routing-residency"),
}


def in_a_fork(case: Callable[[], Seen]) -> Seen:
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.close(reading)
        with os.fdopen(writing, "w") as file:
            json.dump(case(), file)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        text = file.read()
    os.wait()
    seen: Seen = json.loads(text) if text else {"died": True}
    return seen


if __name__ == "__main__":
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    load_sglang()
    json.dump({name: in_a_fork(case) for name, case in CASES.items()}, out)
    out.close()
