"""Several schedulers of one sglang.Engine under the plugin's policies: what each rank does, pass by pass.

The engine's processes are forks of this one, which has imported SGLang; elsewhere it starts them anew. All
else is as it is for a user: sglang.Engine, its own schedulers, broadcasts between them, and the real clock.
"""

import asyncio
import json
import multiprocessing
import os
import tempfile
from pathlib import Path
from typing import Any

Facts = dict[str, Any]

TRAJECTORIES, TURNS = 12, 4


def tensor_parallel(model: str) -> Facts:
    """Two ranks of one model, with room for the states of fewer trajectories than there are."""
    return _run(model, tp_size=2, max_running_requests=3, max_mamba_cache_size=20)


def tensor_parallel_residency(model: str) -> Facts:
    return _run(
        model,
        schedule_policy="routing-residency",
        tp_size=2,
        max_running_requests=3,
        max_mamba_cache_size=20,
    )


def data_parallel(model: str) -> Facts:
    """Two engines behind one door; the turns of a trajectory go to one of them."""
    return _run(model, dp_size=2, max_running_requests=4, max_mamba_cache_size=64)


def attention_data_parallel(model: str) -> Facts:
    """The same, but the ranks step together, idle where they have nothing."""
    from coresched_simdevice import device

    device.refusal = lambda _: None  # it does not model how long they wait for each other
    return _run(
        model,
        tp_size=2,
        dp_size=2,
        enable_dp_attention=True,
        max_running_requests=4,
        max_mamba_cache_size=64,
    )


def _run(model: str, schedule_policy: str = "routing-prefix", **server_args: Any) -> Facts:
    from sglang.srt.entrypoints.engine import Engine

    os.environ["CORESCHED_SIMDEVICE_SPEED"] = "20"
    multiprocessing.set_start_method = lambda *_args, **_kwargs: None  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as folder:
        _record_passes(Path(folder))
        engine = Engine(
            model_path=model,
            schedule_policy=schedule_policy,
            device="cpu",
            load_format="dummy",
            attention_backend="torch_native",
            sampling_backend="pytorch",
            skip_tokenizer_init=True,
            disable_cuda_graph=True,
            context_length=16_384,
            max_total_tokens=100_000,
            mamba_max_states_per_path=1,
            log_level="warning",
            sleep_on_idle=True,
            **server_args,
        )
        try:
            replies = engine.loop.run_until_complete(_batch(engine, server_args.get("dp_size", 1)))
        finally:
            engine.shutdown()
        ranks = [
            [json.loads(line) for line in log.read_text().splitlines()]
            for log in sorted(Path(folder).iterdir())
        ]
    return {"ranks": ranks, "outputs": [reply["meta_info"]["completion_tokens"] for reply in replies]}


def _record_passes(folder: Path) -> None:
    """Each scheduler writes a line for each pass over requests: their order, who is admitted, and counts."""
    from coresched_sglang.policy import OrderedPolicy
    from sglang.srt.runtime_context import get_parallel

    original = OrderedPolicy.after_prefill

    def after_prefill(policy: Any, plan: Any, scheduler: Any) -> None:
        order = [request.routing_key for request in policy.ordering._waiting]
        original(policy, plan, scheduler)
        if order:
            counts = vars(policy.ordering.counts()) | {"seconds": None}
            batch = plan.batch_to_run
            admitted = [request.routing_key for request in batch.reqs] if batch else []
            rank = get_parallel()
            with (folder / f"{rank.dp_rank}-{rank.tp_rank}").open("a") as log:
                print(json.dumps([order, admitted, counts]), file=log)

    OrderedPolicy.after_prefill = after_prefill  # type: ignore[method-assign]


async def _batch(engine: Any, dp_size: int) -> list[Any]:
    """All trajectories at once, each turn as soon as the one before it has ended."""
    from sglang.srt.managers.io_struct import GenerateReqInput

    async def trajectory(number: int) -> list[Any]:
        prompt = [3 + (number * 7919 + place * 31) % 50_000 for place in range(1_500)]
        replies = []
        for _ in range(TURNS):
            request = GenerateReqInput(
                input_ids=prompt,
                sampling_params={"max_new_tokens": 8, "ignore_eos": True},
                routing_key=f"t{number}",
                routed_dp_rank=number % dp_size if dp_size > 1 else None,
            )
            async for reply in engine.tokenizer_manager.generate_request(request, None):
                last = reply
            replies.append(last)
            prompt = [*prompt, *last["output_ids"], *range(700, 1_000)]
        return replies

    ended = await asyncio.gather(*(trajectory(number) for number in range(TRAJECTORIES)))
    return [reply for replies in ended for reply in replies]
