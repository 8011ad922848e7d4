"""Features of vLLM that touch the waiting queue, with RP, on whole engines with a tiny model.

    python feature_runs.py FOLDER NAME,NAME... NAME,NAME...

vLLM's Python runs this; it prints a line of JSON for each of the functions below that is named. Names between
commas share a process; FOLDER is for models. In most, trajectories a and b have had a turn, b a longer one,
and then requests of c, a and b come in this order: routing-prefix admits b, a, c; first come, first served
c, a, b.
"""

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from coresched_vllm.local.tiny_model import write_tokenizer
from coresched_vllm.virtual.boot import ENVIRONMENT

from bench.vllm_policies.tiny_models import write_tiny_model

Facts = dict[str, Any]

PROMPTS = {"a": 200, "b": 300, "c": 150, "d": 100}
LATER = 40
OUTPUT = 4


class Engine:
    """vLLM with the tiny dense model and RP. ``admitted`` are labels, in order of admission."""

    def __init__(self, folder: Path, **arguments: Any) -> None:
        from vllm.engine.arg_utils import EngineArgs
        from vllm.v1.engine.llm_engine import LLMEngine

        model = write_tiny_model("qwen3", folder)
        write_tokenizer(model)
        self.engine: Any = LLMEngine.from_engine_args(
            EngineArgs(
                **{
                    "model": str(model),
                    "dtype": "float32",
                    "enforce_eager": True,
                    "block_size": 32,
                    "max_model_len": 1_024,
                    "max_num_seqs": 1,
                    "num_gpu_blocks_override": 200,
                    "kv_cache_memory_bytes": 1 << 30,
                    "enable_prefix_caching": True,
                    "scheduler_cls": "coresched_vllm.RoutingPrefix",
                    **arguments,
                }
            )
        )
        self.scheduler: Any = self.engine.engine_core.engine_core.scheduler
        self.admitted: list[str] = []
        self.outputs: dict[str, Any] = {}
        self._seen: set[str] = set()

    def submit(self, label: str, tokens: int, lora: Any = None, **sampling: Any) -> None:
        """A request of the trajectory's first so many tokens."""
        from vllm import SamplingParams

        options = {"max_tokens": OUTPUT, "temperature": 0.0, "ignore_eos": True, **sampling}
        prompt: Any = {"prompt_token_ids": prompt_of(label, tokens)}
        name = f"{label}.{tokens}"
        self.engine.add_request(name, prompt, SamplingParams(**options), session_id=label, lora_request=lora)

    def step(self) -> None:
        for output in self.engine.step():
            if output.finished:
                self.outputs[output.request_id.split("-")[0]] = output
        for request in self.scheduler.running:
            if request.request_id not in self._seen:
                self._seen.add(request.request_id)
                self.admitted.append(request.session_id)

    def waiting(self) -> list[str]:
        return [request.session_id for request in self.scheduler.waiting]

    def drain(self) -> None:
        for _ in range(400):
            if not self.engine.has_unfinished_requests():
                return
            self.step()
        raise RuntimeError("the engine does not finish")

    def first_turns(self, labels: Iterable[str] = "ab", **options: Any) -> None:
        for label in labels:
            self.submit(label, PROMPTS[label], **options)
        self.drain()
        self.admitted.clear()

    def later_turns(self, labels: Iterable[str] = "cab", **options: Any) -> None:
        for label in labels:
            self.submit(label, PROMPTS[label] + (label != "c") * LATER, **options)

    def facts(self) -> Facts:
        cached = {name: output.num_cached_tokens for name, output in self.outputs.items()}
        replies = {
            name: [list(each.token_ids) for each in output.outputs] for name, output in self.outputs.items()
        }
        return {"admitted": self.admitted, "cached": cached, "replies": replies}


def prompt_of(label: str, tokens: int) -> list[int]:
    return [(ord(label) * 7 + place * 31 + place // 9) % 250 for place in range(tokens)]


def plain(folder: Path) -> Facts:
    engine = Engine(folder)
    engine.first_turns()
    engine.later_turns()
    engine.drain()
    return engine.facts()


def speculative_decoding(folder: Path) -> Facts:
    """By n-grams of the prompt, for which vLLM needs numba."""
    if find_spec("numba") is None:
        return {"missing": "numba"}
    speculation = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}
    engine = Engine(folder, speculative_config=speculation)
    engine.first_turns()
    engine.later_turns()
    engine.drain()
    return engine.facts()


def parallel_sampling(folder: Path) -> Facts:
    """Three replies to a prompt, each a request with its label."""
    engine = Engine(folder)
    engine.first_turns()
    engine.later_turns(n=3, temperature=1.0, seed=7)
    engine.drain()
    return engine.facts()


def structured_output(folder: Path) -> Facts:
    """The grammar of b's reply is compiled late."""
    from vllm.sampling_params import StructuredOutputsParams

    engine = Engine(folder)
    engine.first_turns()
    manager, may_compile = engine.scheduler.structured_output_manager, threading.Event()
    create = manager._create_grammar

    def late(*arguments: Any, **options: Any) -> Any:
        may_compile.wait()
        return create(*arguments, **options)

    manager._create_grammar = late
    engine.later_turns("ca")
    engine.submit(
        "b",
        PROMPTS["b"] + LATER,
        structured_outputs=StructuredOutputsParams(choice=["yes"]),
        ignore_eos=False,
    )
    engine.step()
    passed_over = engine.waiting()
    may_compile.set()
    request = next(each for each in engine.scheduler.waiting if each.session_id == "b")
    while not request.structured_output_request.is_grammar_ready:
        time.sleep(0.01)
    engine.drain()
    return {**engine.facts(), "passed over": passed_over}


def adapters(folder: Path) -> Facts:
    """One LoRA at a time. a and c have the first one, b and d the second."""
    from vllm.lora.request import LoRARequest

    first, second = (
        LoRARequest(name, number, write_adapter(folder / name)) for number, name in ((1, "x"), (2, "y"))
    )
    engine = Engine(folder, enable_lora=True, max_loras=1, max_lora_rank=8, max_num_seqs=2)
    engine.first_turns("a", lora=first)
    engine.first_turns("bd", lora=second)
    engine.submit("c", PROMPTS["c"], lora=first)
    engine.step()
    engine.submit("d", PROMPTS["d"] + LATER, lora=second)
    engine.submit("a", PROMPTS["a"] + LATER, lora=first)
    engine.submit("b", PROMPTS["b"] + LATER, lora=second)
    engine.step()
    passed_over = engine.waiting()
    engine.drain()
    return {**engine.facts(), "passed over": passed_over}


def write_adapter(folder: Path) -> str:
    """Of rank 8, on the queries of the first layer."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir()
    config = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj"], "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_{}.weight"
    weights = {name.format("A"): torch.ones(8, 64) / 64, name.format("B"): torch.ones(64, 8) / 8}
    save_file(weights, folder / "adapter_model.safetensors")
    return str(folder)


def connectors(folder: Path) -> Facts:
    """KV is written to a folder, and is loaded from there once this engine has forgotten it.

    The last in its process, which has the connectors of one engine.
    """
    example = {"kv_connector": "ExampleConnector", "kv_role": "kv_both"}
    paths = [folder / name for name in ("storage", "other")]
    each = [{**example, "kv_connector_extra_config": {"shared_storage_path": str(path)}} for path in paths]
    transfer = {
        "kv_connector": "MultiConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"connectors": each},
    }
    engine = Engine(folder, kv_transfer_config=transfer)
    engine.first_turns()
    stored = [len(list(path.iterdir())) for path in paths]
    engine.engine.reset_prefix_cache()
    engine.submit("a", PROMPTS["a"])
    engine.drain()
    loaded = engine.outputs[f"a.{PROMPTS['a']}"].num_cached_tokens
    engine.admitted.clear()
    engine.later_turns()
    engine.drain()
    return {**engine.facts(), "stored": stored, "loaded": loaded}


def main(folder: Path, groups: list[str]) -> None:
    os.environ.update(ENVIRONMENT)
    outcomes = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # vLLM logs there
    import transformers  # noqa: F401
    import vllm.v1.engine.llm_engine
    import vllm.v1.structured_output
    import vllm.v1.worker.cpu_worker  # noqa: F401

    for group in groups:
        if os.fork() == 0:
            for name in group.split(","):
                print(json.dumps([name, outcome_of(name, folder / name)]), file=outcomes, flush=True)
            os._exit(0)
        os.wait()


def outcome_of(name: str, folder: Path) -> Facts:
    folder.mkdir()
    try:
        outcome: Facts = globals()[name](folder)
    except BaseException:
        return {"failed": traceback.format_exc()}
    return outcome


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
