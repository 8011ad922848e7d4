"""Entry point of the `coresched` command."""

import os
import sys
from collections.abc import Sequence

from coresched import __version__
from coresched.cli import demo, doctor, plan, serve, simulate, trace
from coresched.cli.parser import CommandParser
from coresched.errors import InputError

COMMANDS = (demo, simulate, plan, serve, trace, doctor)


def build_parser() -> CommandParser:
    parser = CommandParser(
        prog="coresched",
        description="Scheduling middleware that makes a batch of LLM agent tasks finish sooner.",
    )
    parser.add_argument("--version", action="version", version=f"coresched {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_parser(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code: 0 done, 1 something is off, 2 bad input, 130 Ctrl-C."""
    args = build_parser().parse_args(argv)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except InputError as error:
        print(f"coresched {args.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"coresched {args.command}: interrupted, nothing was written", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader (`| head`) has what it wanted; stop the interpreter's own flush from complaining.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
