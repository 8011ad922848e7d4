"""`python -m coresched_vllm.fleet FD`: the template of vLLM's engines, which serves the socket FD."""

import os
import sys
from typing import Any

from coresched_engine.fleet.engine_process import SteppedEngine
from coresched_engine.fleet.template import serve_template
from coresched_engine.fleet.wire import Parse, Parsed, Ready
from coresched_engine.virtual.device import read_device


def load(message: Parse) -> tuple[dict[str, Any], Parsed]:
    from coresched_vllm.virtual.platform import install_platform

    # First, for what vLLM imports next asks which platform it is on.
    install_platform(read_device(os.environ).memory_bytes)
    from coresched_vllm.fleet.arguments import load_flags

    return load_flags(message)


def make_engine(arguments: dict[str, Any]) -> tuple[SteppedEngine, Ready]:
    from coresched_vllm.fleet.engine import boot_engine

    return boot_engine(arguments)


if __name__ == "__main__":
    sys.exit(serve_template(int(sys.argv[1]), load, make_engine))
