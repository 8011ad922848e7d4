"""What SGLang's real scheduler does under the plugin's policy, in virtual time; SGLang's Python runs this.

    python plugin_scenarios.py MODEL

prints a line of JSON, a name and an outcome, for each of the SCENARIOS. MODEL is a model directory. Each has
a process of its own, a fork of one that has imported SGLang.
"""

import gc
import json
import os
import sys
import traceback
from itertools import count
from typing import Any

import plugin_ranks
from coresched_simdevice.virtual.boot import load_sglang
from plugin_run import BEHIND, Facts, Run, cold_and_warm

from coresched.errors import InputError


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


def retracted(model: str) -> Facts:
    """More is admitted than has room to its end."""
    run = Run(model, max_running_requests=8, max_total_tokens=3_000, schedule_conservativeness=0.1)
    for number in range(8):
        run.submit(f"r-{number}", number, 300, f"t{number}", output=250, reserve_output=False)
    run.finish()
    return run.facts()


def residency(model: str) -> Facts:
    run = Run(model, policy="routing-residency", max_running_requests=1)
    run.warm(2, tokens=1_900)
    return {"order": cold_and_warm(run), "log": run.log}


def prefill_side(model: str, policy: str = "routing-prefix") -> Facts:
    """The prefill server of a disaggregated pair, whose transfers succeed and move nothing."""
    from coresched_simdevice import device
    from sglang.srt.disaggregation import prefill
    from sglang.srt.disaggregation.utils import TransferBackend

    device.refusal = lambda _: None  # it has no bytes to transfer
    os.environ["SGLANG_DISAGG_PREFILL_EARLY_SEND_CACHED_PREFIX"] = "0"  # which needs a GPU
    kv_class = prefill.get_kv_class
    prefill.get_kv_class = lambda _, kind: kv_class(TransferBackend.FAKE, kind)
    backend = {"disaggregation_mode": "prefill", "disaggregation_transfer_backend": "nixl"}
    run = Run(model, policy, chunked_prefill_size=2_048, **backend)
    rooms = count()

    def submit(*arguments: Any, at: float | None = None) -> None:
        room = {"bootstrap_host": "10.0.0.1", "bootstrap_port": 1, "bootstrap_room": next(rooms)}
        run.submit(*arguments, output=1, at=at, **room)

    for number in range(2):
        submit(f"warm-{number}", number, 1_900, f"t{number}")
    run.finish()
    submit("running", 50, 12_000, "running")
    for name, trajectory, label in BEHIND:
        submit(name, trajectory, 2_000, label, at=run.engine.now_s + 0.01)
    before = run.engine.prefilled_tokens
    return {"order": run.finish(), "prefilled": run.engine.prefilled_tokens - before}


def lora(model: str) -> Facts:
    """Two LoRA adapters, of which a batch may have one. By SGLang's own rule, but without their weights."""
    from sglang.srt.lora.lora_manager import LoRAManager

    run = Run(model, max_running_requests=2)
    manager = LoRAManager.__new__(LoRAManager)
    manager.max_loras_per_batch, manager.num_pinned_loras = 1, 0
    run.engine.scheduler.tp_worker.model_runner.lora_manager = manager
    run.engine.scheduler.enable_lora = True
    run.submit("warm-0", 0, 1_900, "t0", lora_id="one")
    run.finish()
    run.submit("warm-1", 1, 1_900, "t1", lora_id="other")
    run.finish()
    run.submit("running", 50, 500, "running", output=60, lora_id="one")
    for (name, trajectory, label), adapter in zip(BEHIND, ("one", "one", "other", "one"), strict=True):
        run.submit(name, trajectory, 2_000, label, at=run.engine.now_s + 0.01, lora_id=adapter)
    return run.facts(order=run.finish())


def prefill_side_residency(model: str) -> Facts:
    return prefill_side(model, "routing-residency")


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


def refused(model: str) -> Facts:
    try:
        Run(model)
    except (InputError, RuntimeError) as error:
        return {"refused": f"{type(error).__name__}: {error}"}
    return {"refused": None}


SCENARIOS = {
    scenario.__name__: scenario
    for scenario in (
        *(
            warm_first,
            without_overlap,
            residency,
            fcfs,
            cache_off,
            mixed_chunks,
            retracted,
            aborts,
            priorities,
        ),
        *(flush, labels, lora, prefill_side, prefill_side_residency, unhooked, bad_capacity),
        *(plugin_ranks.tensor_parallel, plugin_ranks.tensor_parallel_residency, plugin_ranks.data_parallel),
        *(plugin_ranks.attention_data_parallel,),
    )
}


def main(model: str) -> None:
    outcomes = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # SGLang prints
    load_sglang()
    import sglang.srt.entrypoints.engine
    import sglang.srt.models.registry  # noqa: F401  else each scenario imports them

    gc.freeze()  # what is here already is not looked at, and so not copied, by what comes
    for name, scenario in SCENARIOS.items():
        if (child := os.fork()) == 0:
            try:
                outcome = scenario(model)
            except BaseException:
                outcome = {"failed": traceback.format_exc()}
            print(json.dumps([name, outcome]), file=outcomes, flush=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            print(json.dumps([name, {"failed": f"wait status {status}"}]), file=outcomes, flush=True)
    os._exit(0)  # without taking down what was imported, which takes seconds


if __name__ == "__main__":
    main(sys.argv[1])
