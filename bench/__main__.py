"""Entry point of `python -m bench`."""

import os
import shlex
import sys
from collections.abc import Sequence

from bench import aibrix, authority, capacity, gateway, overhead, replay, service, simulator, smg
from bench.advised import command as advised
from bench.better import command as better
from bench.chaos import parser as chaos
from bench.coalescing import command as coalescing
from bench.engine_batch import sglang_command as sglang_batch
from bench.engine_batch import vllm_command as vllm_batch
from bench.paper import command as paper
from bench.progress import clear
from bench.ray_serve import command as ray_serve
from bench.replicas import command as replicas
from bench.results_page import command as results
from bench.rivals import command as rivals
from bench.sglang_policies import command as sglang_policies
from bench.sglang_priority import command as sglang_priority
from bench.vllm_policies import command as vllm_policies
from bench.vllm_priority import command as vllm_priority
from coresched.cli.parser import CommandParser
from coresched.errors import InputError


def build_parser() -> CommandParser:
    parser = CommandParser(
        prog="python -m bench", description="What scheduling costs, measured on this machine."
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in (
        overhead,
        simulator,
        service,
        gateway,
        aibrix,
        smg,
        authority,
        capacity,
        paper,
        coalescing,
        replicas,
        rivals,
        better,
        advised,
        results,
        replay,
        chaos,
        sglang_batch,
        sglang_policies,
        sglang_priority,
        vllm_policies,
        vllm_priority,
        vllm_batch,
        ray_serve,
    ):
        command.add_parser(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one benchmark. Returns the exit code: 0 done, 2 bad arguments, 130 interrupted by Ctrl-C."""
    given = sys.argv[1:] if argv is None else argv
    args = build_parser().parse_args(given)
    args.command_line = f"python -m bench {shlex.join(given)}"
    try:
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except InputError as error:
        print(f"python -m bench: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        clear()
        print("python -m bench: interrupted, nothing was measured to its end", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader (`| head`) has what it wanted; stop the interpreter's own flush from complaining.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(main())
