"""Trajectories on vLLM with a model, under one policy after another; vLLM's Python runs this.

    python model_run.py FOLDER

prints a line of JSON for fcfs and one for routing-prefix. FOLDER is for the model.
"""

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

from coresched_vllm.virtual.boot import ENVIRONMENT
from tiny_model import write_model

TRAJECTORIES, TURNS, PROMPT, RESPONSE, OUTPUT = 8, 3, 400, 150, 6


def run(model: Path, scheduler_cls: str | None) -> dict[str, Any]:
    from vllm import SamplingParams
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    engine = LLMEngine.from_engine_args(
        EngineArgs(
            model=str(model),
            dtype="float32",
            skip_tokenizer_init=True,
            enforce_eager=True,
            max_model_len=2_048,
            max_num_seqs=2,
            max_num_batched_tokens=512,
            num_gpu_blocks_override=56,
            kv_cache_memory_bytes=64 << 20,
            enable_prefix_caching=True,
            scheduler_cls=scheduler_cls,
            additional_config={"coresched": {"label_capacity": 5}},
        )
    )
    sampling = SamplingParams(max_tokens=OUTPUT, temperature=0.0, ignore_eos=True, detokenize=False)
    sources = [random.Random(number) for number in range(TRAJECTORIES)]
    contexts = [[source.randrange(3, 300) for _ in range(PROMPT)] for source in sources]
    turns, prompt_tokens, cached_tokens, steps = [0] * TRAJECTORIES, 0, 0, 0

    def submit(number: int) -> None:
        prompt: Any = {"prompt_token_ids": contexts[number]}
        engine.add_request(f"{number}.{turns[number]}", prompt, sampling, session_id=f"trajectory-{number}")

    for number in range(TRAJECTORIES):
        submit(number)
    while engine.has_unfinished_requests():
        finished = [output for output in engine.step() if output.finished]
        steps += 1
        for output in finished:
            number = int(output.request_id.split(".")[0])
            prompt_tokens += len(output.prompt_token_ids)
            cached_tokens += output.num_cached_tokens
            contexts[number] += output.outputs[0].token_ids
            turns[number] += 1
            if turns[number] < TURNS:
                contexts[number] += [sources[number].randrange(3, 300) for _ in range(RESPONSE)]
                submit(number)
    core: Any = engine.engine_core
    return {
        "class": type(core.engine_core.scheduler).__name__,
        "contexts": contexts,
        "prompt": prompt_tokens,
        "cached": cached_tokens,
        "steps": steps,
    }


def main(folder: Path) -> None:
    os.environ.update(ENVIRONMENT)
    outcomes = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    model = write_model(folder)
    for scheduler_cls in (None, "coresched_vllm.RoutingPrefix", "coresched_vllm.RoutingResidency"):
        print(json.dumps(run(model, scheduler_cls)), file=outcomes, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
