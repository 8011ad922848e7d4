"""Boots SGLang's Scheduler once for each case, on the simulated device; the engine's Python runs this file.

    python boots.py CASES.json FOLDER

CASES.json is a list of objects: ``name``, ``arguments`` (words of the launch command) and ``environment``.
Each case gets FOLDER/name.log, what a server would log from its arguments to its pools. SGLang keeps settings
in globals, so a case has processes of its own, one a rank, forked from one that has imported everything.
"""

import json
import logging
import os
import sys
import traceback
from itertools import chain
from pathlib import Path
from typing import Any

AT_ONCE = 2
"""Cases at a time."""


def boot(case: dict[str, Any]) -> None:
    """What the server's launcher and the processes that it starts do, up to the event loop."""
    os.environ.update(case["environment"])
    from coresched_simdevice.launch import FLAGS
    from sglang.srt.entrypoints.engine import _server_args_for_logging
    from sglang.srt.managers.scheduler import Scheduler
    from sglang.srt.runtime_context import SpawnRanks, publish
    from sglang.srt.server_args import PortArgs, prepare_server_args

    arguments = prepare_server_args([*chain(*FLAGS.items()), "--skip-tokenizer-init", *case["arguments"]])
    arguments.resolve_once()
    arguments.check_server_args()
    logging.getLogger().info(f"server_args={_server_args_for_logging(arguments)}")
    ports = PortArgs.init_new(arguments)
    rank = next((rank for rank in range(1, arguments.tp_size) if os.fork() == 0), 0)
    publish(arguments, role="scheduler", ranks=SpawnRanks(world_rank=rank, gpu_id=rank))
    Scheduler(arguments, ports)


def fork(case: dict[str, Any], log: Path) -> int:
    child = os.fork()
    if child:
        return child
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        boot(case)
        code = 0
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main(cases: list[dict[str, Any]], folder: Path) -> None:
    from sglang.srt.plugins import load_plugins

    load_plugins()

    running = 0
    for case in cases:
        if running == AT_ONCE:
            os.wait()
            running -= 1
        fork(case, folder / f"{case['name']}.log")
        running += 1
    for _ in range(running):
        os.wait()


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
