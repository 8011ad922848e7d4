"""Entry point of the `coresched` command."""

import errno
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from coresched.cli.parser import CommandParser


def build_parser() -> "CommandParser":
    # Imported here, so that Ctrl-C while they load is met by main() too.
    from coresched import __version__
    from coresched.cli import (
        advise,
        aibrix,
        batch,
        demo,
        doctor,
        epp,
        gateway,
        plan,
        replay,
        report,
        serve,
        sglang_sim,
        sidecar,
        simulate,
        top,
        trace,
        worker,
    )
    from coresched.cli.parser import CommandParser

    parser = CommandParser(
        prog="coresched",
        description="Scheduling middleware that makes a batch of LLM agent tasks finish sooner.",
    )
    parser.add_argument("--version", action="version", version=f"coresched {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in (
        demo,
        simulate,
        replay,
        report,
        plan,
        advise,
        serve,
        gateway,
        aibrix,
        epp,
        sidecar,
        top,
        batch,
        worker,
        sglang_sim,
        trace,
        doctor,
    ):
        command.add_parser(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns the exit code: 0 done, 1 something is off or the output could not be written, 2 bad input, 130
    after Ctrl-C, 143 after SIGTERM.
    """
    name = "coresched"
    # gRPC's own lines about each failed handshake are no part of what a command says; set it to see them.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        with _stopped_by_signals():
            from coresched.errors import InputError

            args, unknown = build_parser().parse_known_args(argv)
            if unknown:  # argparse would name the command's own help only for what else may be wrong
                name = f"coresched {args.command}"
                return _fail(f"{name}: unrecognized arguments: {' '.join(unknown)} (see {name} --help)", 2)
            name = f"coresched {args.command}"
            try:
                code: int = args.run(args)
                if sys.stdout is not None:
                    sys.stdout.flush()
                return code
            except InputError as error:
                return _fail(f"{name}: {error}", 2)
    except KeyboardInterrupt:
        return _fail(f"{name}: interrupted, nothing was written", 130)
    except BrokenPipeError:
        _silence_stdout()
        return 0
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EIO, errno.EDQUOT):
            raise
        _silence_stdout()
        what = "the output" if error.filename is None else repr(error.filename)
        return _fail(f"{name}: {what} cannot be written: {error.strerror}", 1)


def _fail(message: str, code: int) -> int:
    print(message, file=sys.stderr)
    return code


def _silence_stdout() -> None:
    """Keep the interpreter from flushing once more, and complaining, what its reader does not take."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP unwind like an exception, so that half-written files are removed."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    numbers = (signal.SIGTERM, signal.SIGHUP)
    try:
        before = [(number, signal.signal(number, stop)) for number in numbers]
    except ValueError:  # not the main thread, which alone may set handlers
        before = []
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
