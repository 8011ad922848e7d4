"""Looks at SGLang from within, with the simulated device on; the engine's Python runs this file.

    python device_facts.py MODEL

prints, as its last line, a JSON object of what it found. MODEL is a folder with a config.json.
"""

import io
import json
import os
import sys
from contextlib import redirect_stdout
from typing import Any

import torch
from coresched_simdevice import flags
from coresched_simdevice.hooks import HOOKS, Hook, missing_hooks, unsupported
from coresched_simdevice.memory import byteless_tensors
from sglang.srt.plugins import load_plugins
from sglang.srt.server_args import ServerArgs

from coresched.cli import installed
from coresched.cli.main import main
from coresched.cli.sglang_adapters import inspect_here

SCHEDULER = "sglang.srt.managers.scheduler.Scheduler."


def doctor(**environment: str) -> dict[str, Any]:
    """`coresched doctor` in a fork, which has SGLang loaded but no plugin yet."""
    reading, writing = os.pipe()
    if child := os.fork():
        os.close(writing)
        with os.fdopen(reading) as pipe:
            told: dict[str, Any] = json.loads(pipe.read())
        os.waitpid(child, 0)
        return told
    os.environ.update(environment)
    installed.inspect_sglang = inspect_here  # in this process, not in one that loads SGLang again
    with redirect_stdout(io.StringIO()) as printed:
        code = main(["doctor", "--json"])
    with os.fdopen(writing, "w") as pipe:
        pipe.write(json.dumps({"code": code, **json.loads(printed.getvalue())}))
    os._exit(0)


def tensors() -> dict[str, Any]:
    with byteless_tensors():
        pool = torch.zeros((1 << 30, 8, 128), dtype=torch.bfloat16)
        table = torch.zeros((1 << 16, 1 << 14), dtype=torch.int32)
        small = torch.zeros(4, dtype=torch.float32)
        listed = torch.empty(size=[2, 1 << 30], dtype=torch.uint8)
    table[5, 7] = 3
    small[1] = 2
    try:
        pool[:, 0] = 1
        written = ""
    except RuntimeError as error:
        written = str(error)
    return {
        "pool": [list(pool.shape), pool.nbytes, list(listed.shape)],
        "table": [int(table[5, 7]), int(table[5].sum())],
        "small": small.tolist(),
        "written": written,
    }


def refused(model: str) -> object:
    """The exit code of a server that cannot be simulated."""
    try:
        ServerArgs(model_path=model, device="cpu", attention_backend="torch_native", pp_size=2).resolve_once()
    except SystemExit as end:
        return end.code
    return None


def look(model: str) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "unsupported": unsupported(),
        "hooks": len(HOOKS),
        "unhooked": len(missing_hooks()),
    }
    facts["left out"] = doctor(SGLANG_PLUGINS="another")
    load_plugins()
    facts["unhooked with the plugin"] = missing_hooks()
    known = set(ServerArgs(model_path="none").resolved_dict())
    facts["unknown flags"] = sorted({*flags.ONE_DEVICE, *flags.SWITCHES} - known)
    lost = [
        Hook(SCHEDULER + "no_such", "AFTER", print),
        Hook(SCHEDULER + "run_batch", "AFTER", print, ("no_such",)),
    ]
    facts["lost"] = unsupported(lost, {"sglang.srt.managers.utils.GenerationBatchResult": ("no_such",)})
    return {**facts, **tensors(), "exit code": refused(model)}


if __name__ == "__main__":
    print(json.dumps(look(sys.argv[1])))
