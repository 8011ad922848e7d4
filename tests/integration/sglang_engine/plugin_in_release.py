"""What the plugin does in the SGLang that is first on the path, as a line of JSON. SGLang's Python runs this.

    python plugin_in_release.py MODEL

loads SGLang's plugins as its processes do, and then uses SGLang's own argument parser and check, its
SchedulePolicy, radix cache and Req, and Scheduler.get_new_batch_prefill, of which only the batch builder is
replaced. MODEL is a model directory.
"""

import argparse
import json
import os
import sys
from array import array
from types import SimpleNamespace
from typing import Any


def parsed_policy(name: str) -> str:
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    return str(parser.parse_args(["--model", "m", "--schedule-policy", name]).schedule_policy)


def resolved(model: str, **fields: Any) -> Any:
    from sglang.srt.server_args import ServerArgs

    arguments = ServerArgs(
        model_path=model, device="cpu", attention_backend="torch_native", skip_tokenizer_init=True, **fields
    )
    if hasattr(arguments, "resolve_once"):
        arguments.resolve_once()
    return arguments


def checked(arguments: Any) -> str:
    """The policy of resolved arguments that SGLang has checked, or why it refuses them."""
    try:
        arguments.check_server_args()
    except (AssertionError, ValueError) as refusal:
        return f"{type(refusal).__name__}: {refusal}"
    return str(arguments.schedule_policy)


def diffusion(model: str) -> Any:
    """Arguments of a diffusion model, but for its configuration, without which SGLang resolves none."""
    arguments = resolved(model, schedule_policy="routing-prefix")
    assert arguments.dllm_algorithm is None
    assign = super(type(arguments), arguments).__setattr__  # past the seal of a resolved record
    assign("dllm_algorithm", "LowConfidence")
    return arguments


class Queue:
    """SGLang's policy and scheduler over a radix cache that holds two prefixes of 100 and 300 tokens."""

    def __init__(self, policy: str, by_priority: bool = False) -> None:
        import torch
        from sglang.srt.managers.schedule_policy import SchedulePolicy
        from sglang.srt.managers.scheduler import Scheduler
        from sglang.srt.mem_cache.base_prefix_cache import InsertParams
        from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey

        tree = RadixCache.create_simulated()
        for tokens in (range(100), range(1000, 1300)):
            key = RadixKey(array("q", tokens), None)
            tree.insert(InsertParams(key=key, value=torch.arange(len(tokens))))
        self.policy = SchedulePolicy(policy, tree, False, by_priority, False)
        self.scheduler = Scheduler.__new__(Scheduler)
        self.scheduler.prefill_delayer = None
        self.scheduler.policy = self.policy
        self.waiting: list[Any] = []

    def enter(self, rid: str, label: str | None, tokens: range, priority: int | None = None) -> None:
        from sglang.srt.managers.schedule_batch import Req
        from sglang.srt.sampling.sampling_params import SamplingParams

        sampling = SamplingParams(max_new_tokens=1)
        request = Req(rid, "", array("q", tokens), sampling, routing_key=label, priority=priority)
        request.time_stats.wait_queue_entry_time = 0.0
        self.waiting.append(request)

    def schedule(self, admitted: int) -> list[str]:
        """A pass that admits that many; the order that it finds."""
        self.policy.calc_priority(self.waiting, None)
        order = [request.rid for request in self.waiting]
        runs, self.waiting = self.waiting[:admitted], self.waiting[admitted:]
        batch = SimpleNamespace(reqs=runs, batch_size=lambda: len(runs)) if runs else None
        self.scheduler._get_new_batch_prefill_raw = lambda **_: (batch, None)
        self.scheduler.get_new_batch_prefill(None)
        return order


def orders(policy: str, by_priority: bool = False) -> list[list[str]]:
    """Two passes: the second with a request of each label that the first admitted, and others."""
    queue = Queue(policy, by_priority)
    queue.enter("a1", "a", range(50), 0)
    queue.enter("b1", "b", range(1000, 1100), 0)
    found = [queue.schedule(2)]
    queue.enter("c1", "c", range(5000, 5010), 3)
    queue.enter("a2", "a", range(120), 0)
    queue.enter("b2", "b", range(1000, 1400), 0)
    queue.enter("d1", None, range(100), 0)
    found.append(queue.schedule(0))
    found.append(queue.schedule(1))
    found.append([str(request.num_matched_prefix_tokens) for request in queue.waiting])
    return found


def main(model: str) -> None:
    # The only part of a pass that needs the settings of a running server; fcfs has it.
    os.environ["SGLANG_ENABLE_WAITING_PREFIX_REFRESH"] = "0"
    from sglang.srt.plugins import load_plugins

    load_plugins()
    import sglang
    from coresched_sglang.compatibility import TESTED_VERSIONS, missing, offered_policies

    facts = {
        "version": sglang.__version__,
        "missing": missing(),
        "tested": sglang.__version__ in TESTED_VERSIONS,
        "parsed": [parsed_policy(name) for name in offered_policies()],
        "checked": checked(resolved(model, schedule_policy="routing-prefix")),
        "priorities": checked(
            resolved(model, schedule_policy="routing-prefix", enable_priority_scheduling=True)
        ),
        "lpm with priorities": checked(
            resolved(model, schedule_policy="lpm", enable_priority_scheduling=True)
        ),
        "decode": checked(resolved(model, schedule_policy="routing-prefix", disaggregation_mode="decode")),
        "diffusion": checked(diffusion(model)),
        "orders": orders("routing-prefix"),
        "orders by priority": orders("routing-prefix", by_priority=True),
        "fcfs": orders("fcfs"),
    }
    print(json.dumps(facts), flush=True)
    os._exit(0)  # without taking down what was imported, which takes seconds


if __name__ == "__main__":
    main(sys.argv[1])
