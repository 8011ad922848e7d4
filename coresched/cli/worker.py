"""`coresched worker`: a simulated engine worker behind an engine's HTTP endpoints."""

import argparse
import asyncio
import os
import sys
from pathlib import Path

from coresched.cli.parser import CommandParser, add_command, count, number
from coresched.cli.server_options import add_grace, add_listen
from coresched.errors import InputError
from coresched.lab.simulator.model import DEFAULT_MODEL


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "worker",
        summary="a simulated engine worker, with the endpoints of a real one",
        description="Serve a simulated model worker in real time: OpenAI's chat completions and\n"
        "completions, SGLang's /generate, /v1/models, /health, /metrics. Replies are words\n"
        "without meaning, or what a script says, tool calls too; how long they take and what the\n"
        "cache spares follow the worker model. Prints the address it listens on. Stops on SIGTERM\n"
        "or Ctrl-C: open requests may go on for the grace period; a second signal ends them at once.",
        example="coresched worker --listen 127.0.0.1:30000 --speed 20",
    )
    add_listen(parser, default="127.0.0.1:30000")
    parser.add_argument(
        "--model",
        default=DEFAULT_MODEL,
        metavar="NAME|FILE",
        help="memory and step times of the worker (default %(default)s)",
    )
    parser.add_argument(
        "--state-ratio",
        type=number(above=0),
        metavar="R",
        help="state memory over KV memory (default: the worker model's)",
    )
    parser.add_argument(
        "--schedule-policy",
        choices=["fcfs", "lpm", "dfs-weight", "routing-prefix"],
        default="fcfs",
        help="order of the waiting queue (default %(default)s)",
    )
    parser.add_argument(
        "--label-capacity",
        type=count,
        metavar="C_A",
        help="trajectory labels that routing-prefix remembers (default: the requests that the state pool "
        "can run at once)",
    )
    parser.add_argument(
        "--speed",
        type=number(above=0),
        default=1.0,
        metavar="X",
        help="every duration is divided by X (default %(default)g)",
    )
    parser.add_argument(
        "--served-model-name",
        metavar="NAME",
        help="the model's name to clients (default: the worker model's)",
    )
    parser.add_argument(
        "--script",
        type=Path,
        metavar="FILE",
        help='replies, JSON lines: {"match": text in the first user message, "replies": [{"content": ..., '
        '"tool_calls": [{"name": ..., "arguments": {...}}]}, ...]}; see docs/worker.md',
    )
    parser.add_argument(
        "--request-log",
        type=Path,
        metavar="FILE",
        help="append a JSON line for each request: time, label, path, outcome, tokens",
    )
    add_grace(parser, what="open requests")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    # Here, so that the other commands start without aiohttp.
    from coresched.lab.simulator.memory import split_memory
    from coresched.lab.simulator.model import load_worker_model
    from coresched.lab.worker.batching import WorkerSettings
    from coresched.lab.worker.engine import LiveEngine
    from coresched.lab.worker.request_log import RequestLog
    from coresched.lab.worker.script import load_script
    from coresched.lab.worker.server import serve
    from coresched.listen import TcpAddress, listen_address

    model = load_worker_model(args.model)
    memory = split_memory(model, args.state_ratio or model.default_state_ratio)
    settings = WorkerSettings(args.schedule_policy, args.label_capacity or memory.max_running)
    script = None if args.script is None else load_script(args.script)
    address = listen_address(args.listen)
    if (
        args.script
        and args.request_log
        and os.path.realpath(args.script) == os.path.realpath(args.request_log)
    ):
        raise InputError(f"--request-log {str(args.request_log)!r} is the --script; choose another name")
    request_log = None if args.request_log is None else RequestLog(args.request_log)
    if isinstance(address, TcpAddress) and not address.loopback:
        print(
            f"coresched worker: {address.host} is not loopback, and there is no authentication: "
            "whoever reaches it may use the worker",
            file=sys.stderr,
        )

    def announce(listening: str) -> None:
        print(f"coresched worker: listening on {listening}", flush=True)

    async def work() -> None:
        engine = LiveEngine(model, memory, settings, speed=args.speed)
        name = args.served_model_name or model.name
        await serve(
            engine,
            name,
            address,
            grace_s=args.grace_s,
            announce=announce,
            script=script,
            request_log=request_log,
        )

    asyncio.run(work())
    return 0
