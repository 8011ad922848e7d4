"""What vLLM loads in each of its processes: work for the one that reads the configuration."""

from __future__ import annotations

import functools
import sys
from typing import Any

from coresched_vllm.names import is_ours

_HOOKED = "_coresched_checked"


def register() -> None:
    """Have `EngineArgs.create_engine_config` refuse what cannot work with a scheduler of this adapter.

    The process that it is called in also serves what its engines' schedulers count. Nothing is different for
    other schedulers. The engines' own processes read no arguments and are left alone; the scheduler itself
    checks there, too.
    """
    arguments = sys.modules.get("vllm.engine.arg_utils")
    engine_args: Any = getattr(arguments, "EngineArgs", None)
    original = getattr(engine_args, "create_engine_config", None)
    if original is None or hasattr(original, _HOOKED):
        return

    @functools.wraps(original)
    def create_engine_config(self: Any, *args: Any, **kwargs: Any) -> Any:
        config = original(self, *args, **kwargs)
        if is_ours(config.scheduler_config.scheduler_cls):
            from coresched_vllm.arguments import check
            from coresched_vllm.metrics import serve_counts

            check(config)
            serve_counts()
        return config

    setattr(create_engine_config, _HOOKED, True)
    engine_args.create_engine_config = create_engine_config
