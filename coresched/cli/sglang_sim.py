"""`coresched sglang-sim`: the real SGLang server on a simulated device."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from coresched.cli.device_options import add_device_options, device_variables
from coresched.cli.parser import CommandParser, add_command, number
from coresched.files import require_writable

if TYPE_CHECKING:
    from coresched_simdevice.launch import Server


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "sglang-sim",
        summary="the real SGLang server, on a simulated device: no GPU, no weights",
        description="Start the installed SGLang on a device that is simulated: its memory is counted, its\n"
        "steps take time, nothing is computed. Scheduler, caches, pools and endpoints are SGLang's own, so\n"
        "they do what they will do on the GPU: see how many requests run, what is reused, who waits.\n"
        "Replies are words without meaning. A tokenizer beside config.json is used, else every byte of text\n"
        "is a token. Flags of SGLang's go behind --. Prints the address and\n"
        "the pools when the server is healthy. Stops on SIGTERM or Ctrl-C.",
        example="coresched sglang-sim --model-config config.json --memory 80GiB \\\n"
        "    --weights 50GiB -- --context-length 65536 --schedule-policy lpm",
    )
    add_device_options(parser, required=True)
    parser.add_argument(
        "--speed",
        type=number(above=0),
        default=1.0,
        metavar="X",
        help="what the device does takes 1/X of its time; the scheduler's time is real (default %(default)g)",
    )
    parser.add_argument(
        "--log", type=Path, metavar="FILE", help="where SGLang's log goes (default: to stderr)"
    )
    parser.add_argument(
        "--start-timeout-s",
        type=number(above=0),
        default=600.0,
        metavar="S",
        help="seconds that SGLang may take until it is healthy (default %(default)g)",
    )
    parser.take_flags("flags of sglang.launch_server")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    # Here, so that the other commands start without the adapter.
    from coresched_engine.virtual.device import SPEED
    from coresched_simdevice.launch import ServerEnded, serving

    if args.log is not None:
        require_writable(args.log, "--log")
    device, called = device_variables(args)
    device[SPEED], called[SPEED] = repr(args.speed), "--speed"
    healthy = False
    try:
        with serving(
            args.model_config,
            device,
            args.flags,
            called=called,
            log=args.log,
            start_timeout_s=args.start_timeout_s,
        ) as server:
            healthy = True
            print(f"coresched sglang-sim: {_summary(server)}", flush=True)
            server.wait()
    except ServerEnded as end:
        for line in end.log.last_lines():
            print(line, file=sys.stderr)
        when = "" if healthy else " before it was healthy"
        reason = end.log.reason()
        why = "" if healthy or reason is None else f": {reason}"
        print(f"coresched sglang-sim: SGLang ended with exit code {end.code}{when}{why}", file=sys.stderr)
        return end.code or 1
    except KeyboardInterrupt:
        if not healthy:
            print("coresched sglang-sim: interrupted before the server was healthy", file=sys.stderr)
            return 130
    except SystemExit:
        if not healthy:
            raise
    return 0


def _summary(server: "Server") -> str:
    """Where the server is, and its pools in the words of `coresched doctor`."""
    from coresched.capacity.observed import ObservedPools

    pools = server.pools
    if not isinstance(pools, ObservedPools):
        return f"listening on {server.url}, pools unknown: {pools}"
    counts = [
        f"{count:,} {name}"
        for count, name in (
            (pools.kv_tokens, "KV tokens"),
            (pools.state_slots, "state slots"),
            (pools.max_running_requests, "running requests at most"),
        )
        if count is not None
    ]
    return f"listening on {server.url}: {', '.join(counts)}"
