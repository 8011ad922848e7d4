"""`coresched batch`: the open batches of a running service, and an end for one that nobody will end."""

import argparse
import json
import sys
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

from coresched.cli.connection import add_credential_options, connection_of, flags_named, uses_tls
from coresched.cli.parser import CommandParser, add_command
from coresched.cli.terminal import stdout_console
from coresched.errors import InputError

if TYPE_CHECKING:
    from coresched.v1 import batches_pb2 as pb

_TIMEOUT_S = 10.0


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    """Adds `batch` and its subcommands."""
    parser = commands.add_parser(
        "batch",
        help="list and close the batches of a service",
        description="List the open batches of a running `coresched serve`, and close one.",
    )
    subcommands = parser.add_subparsers(dest="subcommand", metavar="SUBCOMMAND", required=True)
    listing = add_command(
        subcommands,
        "list",
        summary="the open batches",
        description="Print the open batches: how many processes are in each, how far it is, and for how\n"
        "long it is abandoned, its last process having died.",
        example="coresched batch list --service 127.0.0.1:50071",
    )
    listing.add_argument("--json", action="store_true", help="print them as one JSON list")
    closing = add_command(
        subcommands,
        "close",
        summary="end a batch for all its processes",
        description="End a batch for good: samples that have not ended are withdrawn, processes that are in\n"
        "it get a BatchClosedError, and its name is free again.",
        example="coresched batch close ckpt-7 --service 127.0.0.1:50071",
    )
    closing.add_argument("name", metavar="NAME", help="name of the batch")
    for subcommand, run in ((listing, _list), (closing, _close)):
        subcommand.add_argument(
            "--service",
            default="127.0.0.1:50071",
            metavar="TARGET",
            help="HOST:PORT or unix:PATH of the service (default %(default)s)",
        )
        add_credential_options(subcommand, "token of the tenant whose batches they are")
        subcommand.set_defaults(run=run)


def _list(args: argparse.Namespace) -> int:
    def ask(batches: Any) -> "pb.ListBatchesResponse":
        from coresched.v1 import batches_pb2 as pb

        answer: pb.ListBatchesResponse = batches.ListBatches(pb.ListBatchesRequest(), timeout=_TIMEOUT_S)
        return answer

    answer = _asked(args, ask)
    if answer is None:
        return 1
    in_use_first = sorted(answer.batches, key=lambda batch: batch.sessions == 0)
    if args.json:
        print(json.dumps([_plain(batch) for batch in in_use_first]))
    elif not in_use_first:
        print("no open batch")
    else:
        stdout_console().print(_table(in_use_first))
    return 0


def _close(args: argparse.Namespace) -> int:
    def ask(batches: Any) -> "pb.CloseBatchResponse":
        from coresched.v1 import batches_pb2 as pb

        call = pb.CloseBatchRequest(request_id=str(uuid.uuid4()), batch=args.name)
        answer: pb.CloseBatchResponse = batches.CloseBatch(call, timeout=_TIMEOUT_S)
        return answer

    answer = _asked(args, ask)
    if answer is None:
        return 1
    end = answer.progress
    print(f"batch {args.name!r} closed: {end.finished:,} of {end.samples:,} samples finished")
    return 0


def _asked(args: argparse.Namespace, ask: Callable[[Any], Any]) -> Any | None:
    """The service's answer; None, a line having said why, if it does not answer. Raises InputError."""
    # Here, so that the other commands start without gRPC.
    import grpc

    from coresched.client.credentials import blocking_channel
    from coresched.client.unanswered import told
    from coresched.v1.batches_pb2_grpc import BatchesStub

    with flags_named("--service"), blocking_channel(args.service, **connection_of(args)) as channel:
        try:
            return ask(BatchesStub(channel))  # type: ignore[no-untyped-call]
        except grpc.RpcError as error:
            why = told(args.service, error, tls=uses_tls(args)) or InputError(
                f"{error.details()}; `coresched batch list` shows the open ones"
            )
    if isinstance(why, InputError):
        raise why
    print(f"coresched batch: {why}", file=sys.stderr)
    return None


def _plain(batch: "pb.BatchProgress") -> dict[str, Any]:
    return {
        "batch": batch.batch,
        "sessions": batch.sessions,
        "samples": batch.samples,
        "finished": batch.finished,
        "withdrawn": batch.withdrawn,
        "elapsed_s": batch.elapsed_s,
        "abandoned_s": batch.abandoned_s if batch.HasField("abandoned_s") else None,
    }


def _table(batches: "list[pb.BatchProgress]") -> Table:
    from coresched.top.frame import printable_name  # loads gRPC

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    table.add_column("batch", overflow="fold")
    for name in ("processes", "samples", "ended", "elapsed"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for batch in batches:
        state = "" if batch.sessions else "kept open"
        if batch.HasField("abandoned_s"):
            state = f"abandoned for {_time(batch.abandoned_s)}"
        table.add_row(
            Text(printable_name(batch.batch, plain=False)),
            f"{batch.sessions:,}",
            f"{batch.samples:,}",
            f"{batch.finished + batch.withdrawn:,}",
            _time(batch.elapsed_s),
            state,
        )
    return table


def _time(seconds: float) -> str:
    """H:MM:SS"""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}"
