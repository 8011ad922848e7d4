"""Runs evals one after the other in one process of inspect's environment, and prints what became of each.

    python eval_driver.py RUNS

RUNS is JSON: a list of runs with `name`, `task`, `backend` (asyncio or trio), `gate` (options of coresched's,
or null for none) and `options` of inspect's `eval`; with `retry`, the name of a run before it, that one's log
is retried, with nothing out of order any more. The environment has LOCAL_BASE_URL, LOCAL_API_KEY and the
folder LOGS.
"""

import json
import logging
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

import coresched_inspect
import eval_tasks
from coresched_inspect.compatibility import FIT
from inspect_ai import eval, eval_retry
from inspect_ai._eval.task.run import _task_run_sample_attempt
from inspect_ai._util.entrypoints import ensure_entry_points
from inspect_ai.hooks._hooks import get_all_hooks
from inspect_ai.util._limit import _TimeLimit

from coresched.client.gate import Gate
from coresched.errors import InputError

MODEL = "openai-api/local/m"


def result_of(log, gate, seconds):
    samples = {}
    for sample in log.samples or []:
        samples[sample.id] = {
            "scores": {name: score.value for name, score in (sample.scores or {}).items()},
            "error": sample.error and sample.error.message,
            "limit": sample.limit and sample.limit.type,
            "total_s": sample.total_time,
            "working_s": sample.working_time,
            "waits": sample.store.get("coresched"),
            "events": [e.data for e in sample.events if e.event == "info" and e.source == "coresched"],
            "headers": [e.config.extra_headers for e in sample.events if e.event == "model"],
        }
    report = gate and gate.report()
    return {
        "status": log.status,
        "samples": samples,
        "seconds": seconds,
        "totals": report and asdict(report.totals),
        "states": report and {name: times.state for name, times in report.samples.items()},
        "turns": report and {name: times.turns for name, times in report.samples.items()},
    }


class Warnings(logging.Handler):
    """What coresched warns of."""

    def __init__(self):
        super().__init__()
        self.said = []
        logging.getLogger("coresched_inspect").addHandler(self)

    def emit(self, record):
        self.said.append(record.getMessage())


def untouched():
    """Whether inspect is as it came, its entry points being loaded."""
    ensure_entry_points()
    replaced = hasattr(_task_run_sample_attempt, "__wrapped__")
    return "coresched_inspect.plugin" in sys.modules and not get_all_hooks() and not replaced


def refusal():
    """What is said of an inspect that lacks a place."""
    place = _TimeLimit._refresh_deadline
    del _TimeLimit._refresh_deadline
    try:
        FIT.check()
    except InputError as error:
        return str(error)
    finally:
        _TimeLimit._refresh_deadline = place


def main(runs):
    logs, results, warnings = {}, {"untouched": untouched(), "refusal": refusal()}, Warnings()
    for run in runs:
        os.environ["INSPECT_ASYNC_BACKEND"] = run["backend"]
        tool_log = Path(os.environ["LOGS"], f"{run['name']}.tools")
        os.environ["TOOL_LOG"] = str(tool_log)
        gate = Gate(**run["gate"]) if run["gate"] else None
        if gate is not None:
            coresched_inspect.enable(gate)
        else:
            coresched_inspect.disable()
        options = {"display": "none", "log_dir": os.environ["LOGS"], **run["options"]}
        began = time.monotonic()
        if "retry" in run:
            Path(f"{tool_log}.fail.healed").touch()
            (log,) = eval_retry(logs[run["retry"]], **options)
        else:
            task = getattr(eval_tasks, run["task"])()
            (log,) = eval(task, model=MODEL, **options)
        logs[run["name"]] = log
        if gate is not None:
            gate.close()
        results[run["name"]] = result_of(log, gate, time.monotonic() - began)
    results["warnings"] = warnings.said
    print(json.dumps(results))


main(json.loads(sys.argv[1]))
