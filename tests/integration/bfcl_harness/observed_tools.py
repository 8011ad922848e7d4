"""coresched_bfcl where each tool call is also a real process, which notes when it ran.

    python observed_tools.py LOG SECONDS COMMAND...

BFCL's tools are Python methods that take microseconds. Here each call first waits for a `sleep SECONDS`; LOG
gets a JSON line with its sample, null without a gate, and its start and end in seconds since 1970. The rest
is `python -m coresched_bfcl COMMAND...`.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from bfcl_eval.constants.executable_backend_config import CLASS_FILE_PATH_MAPPING
from coresched_bfcl.command import main

from coresched.client.gate import sample_in_scope

OBSERVED = ("GorillaFileSystem", "MathAPI", "MessageAPI", "TicketAPI", "TravelAPI", "TwitterAPI")

_in_a_call = threading.local()  # tools call each other


def observed(tool: Callable[..., Any], log: int, seconds: str) -> Callable[..., Any]:
    @functools.wraps(tool)
    def call(*arguments: Any, **options: Any) -> Any:
        if getattr(_in_a_call, "yes", False):
            return tool(*arguments, **options)
        _in_a_call.yes = True
        start = time.time()
        try:
            subprocess.run(["sleep", seconds], check=True)
            return tool(*arguments, **options)
        finally:
            _in_a_call.yes = False
            sample = sample_in_scope()
            line = {"sample": sample and sample.id, "start": start, "end": time.time()}
            os.write(log, (json.dumps(line) + "\n").encode())

    return call


if __name__ == "__main__":
    _, path, seconds, *command = sys.argv
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for name in OBSERVED:
        tools = getattr(importlib.import_module(CLASS_FILE_PATH_MAPPING[name]), name)
        for method, tool in inspect.getmembers(tools, inspect.isfunction):
            if not method.startswith("_"):
                setattr(tools, method, observed(tool, log, seconds))
    sys.argv = ["coresched_bfcl", *command]
    sys.exit(main())
