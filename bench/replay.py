"""`python -m bench replay`: live replays on simulated workers beside the simulator's own runs of them."""

import argparse
import asyncio
import json
import random
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Literal

import msgspec
from rich.table import Table

from bench.chaos.servers import Server
from bench.machine import Machine, this_machine
from bench.progress import announce, clear
from bench.results import heading, print_page, today
from coresched import __version__
from coresched.cli.parser import CommandParser, add_command, count, number
from coresched.cli.terminal import stdout_console
from coresched.lab.replay.conduct import Conducted, conduct
from coresched.lab.replay.endpoint import Endpoint
from coresched.lab.replay.plan import ReplaySettings, make_plan
from coresched.lab.replay.prompts import TokenSource
from coresched.lab.simulator.model import WorkerModel, load_worker_model
from coresched.lab.simulator.run import simulate
from coresched.lab.simulator.settings import RunSettings, WorkerPolicy
from coresched.trajectory.generator import generate
from coresched.trajectory.schema import Environment, Trajectory

SAMPLES, QUICK_SAMPLES = 40, 8
TURNS, QUICK_TURNS = 12, 4
SAMPLES_PER_WORKER = 8
ENVIRONMENTS_PER_WORKER = 3
STATE_RATIO = 0.3
SHIFTED = 21
"""Simulated runs of each case."""
MEAN_SHIFT_S = 0.04
TURNAROUND_S = 0.02
PRESSURE = 20
FIRST_SEED = 5
NOTES = (
    "unified and decoupled: turns to the workers in turn, first come, first served",
    "everywhere; unified with as many samples as environment slots. live: over HTTP",
    "in real time, on workers in processes; seconds are theirs. simulated: in virtual",
    "time; median and range of 21 runs whose pauses are longer by chance, by 40 ms on",
    "average, as small shifts change what meets what. apart: live from that median.",
    "reuse: live, simulated. late: how much longer than recorded pauses were, in",
    "wall-clock ms, in the median and 99 of 100. CPU: of the replay, ms a turn.",
)


@dataclass(frozen=True)
class Case:
    """How a batch is scheduled in both; ``unified`` has as many samples as environment slots."""

    name: str
    router: Literal["lbch", "consistent-hash", "round-robin"]
    environment_policy: Literal["fcfs", "caas"]
    worker_policy: WorkerPolicy
    unified: bool = False


CASES = (
    Case("unified", "round-robin", "fcfs", "fcfs", unified=True),
    Case("decoupled", "round-robin", "fcfs", "fcfs"),
    Case("consistent hash", "consistent-hash", "fcfs", "fcfs"),
    Case("LBCH, CAAS", "lbch", "caas", "fcfs"),
    Case("LBCH, CAAS, RP", "lbch", "caas", "routing-prefix"),
)


@dataclass(frozen=True)
class Row:
    """One case, run both ways. Seconds are the workers', what is in ms is the wall clock's and the CPU's."""

    case: str
    seed: int
    turns: int
    live_s: float
    simulated_s: float
    simulated_range_s: tuple[float, float]
    live_reuse: float
    simulated_reuse: float
    late_ms: float
    p99_late_ms: float
    cpu_ms_per_turn: float

    @property
    def apart(self) -> float:
        return self.live_s / self.simulated_s - 1


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "replay",
        summary="live replays on simulated workers beside the simulator",
        description="Replay a batch against `coresched worker` processes in real time and run the same in\n"
        "virtual time, under five ways to schedule it: how far the two are apart, and what the\n"
        "replay itself adds.",
        example="python -m bench replay --workers 4 --speed 4",
    )
    parser.add_argument("--workers", type=count, default=4, metavar="W", help="workers (default %(default)s)")
    parser.add_argument(
        "--speed",
        type=number(above=0),
        default=4.0,
        metavar="X",
        help="how much faster than real time; HTTP then weighs X times as much (default %(default)g)",
    )
    parser.add_argument(
        "--seeds", type=count, default=1, metavar="N", help="so many batches (default %(default)s)"
    )
    parser.add_argument(
        "--pressure",
        action="store_true",
        help="workers with a twentieth of the memory, which evict all the time",
    )
    parser.add_argument(
        "--quick", action="store_true", help="a small batch: to see that it runs, not to quote"
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    machine = this_machine()
    samples, turns = (QUICK_SAMPLES, QUICK_TURNS) if args.quick else (SAMPLES, TURNS)
    rows = []
    for seed in range(FIRST_SEED, FIRST_SEED + args.seeds):
        batch = [
            msgspec.structs.replace(one, turns=one.turns[:turns])
            for one in generate("swe", samples, seed=seed)
        ]
        for case in CASES:
            announce(f"seed {seed}: {case.name}")
            model = worker_model(PRESSURE if args.pressure else 1)
            rows.append(asyncio.run(measure(case, seed, batch, model, args.workers, args.speed)))
    clear()
    if args.json:
        report = {"command": args.command_line, "date": today(), "version": __version__}
        found = [asdict(row) | {"apart": row.apart} for row in rows]
        print(json.dumps(report | {"machine": asdict(machine), "rows": found}, indent=2))
    else:
        print_rows(args.command_line, machine, rows)
    return 0


def worker_model(pressure: int) -> WorkerModel:
    """The tight model with its memory over ``pressure``; a live worker adds no turnaround, a client does."""
    model = load_worker_model("h20-tp4-hybrid-tight")
    times = msgspec.structs.replace(model.times, turnaround_s=TURNAROUND_S, turnaround_token_s=0.0)
    return msgspec.structs.replace(model, pool_tokens=model.pool_tokens // pressure, times=times)


def shifted(batch: Sequence[Trajectory], number: int) -> list[Trajectory]:
    """The batch with pauses that are longer by exponentially distributed times, others for each number."""
    draw = random.Random(number)

    def longer(stage: Environment | None) -> Environment | None:
        if stage is None or stage.duration_s is None:
            return stage
        duration_s = stage.duration_s + draw.expovariate(1 / MEAN_SHIFT_S)
        return msgspec.structs.replace(stage, duration_s=duration_s)

    return [
        msgspec.structs.replace(
            one, turns=tuple(msgspec.structs.replace(turn, env=longer(turn.env)) for turn in one.turns)
        )
        for one in batch
    ]


async def measure(
    case: Case, seed: int, batch: Sequence[Trajectory], model: WorkerModel, workers: int, speed: float
) -> Row:
    environments = ENVIRONMENTS_PER_WORKER * workers
    samples = environments if case.unified else SAMPLES_PER_WORKER * workers
    settings = RunSettings(
        name=case.name,
        workers=workers,
        sample_concurrency=samples,
        environment_concurrency=environments,
        state_ratio=STATE_RATIO,
        label_capacity=SAMPLES_PER_WORKER,
        worker_policy=case.worker_policy,
        routing=case.router,
        environment_policy=case.environment_policy,
    )
    simulated = [simulate(shifted(batch, number), settings, model).metrics for number in range(SHIFTED)]
    makespans = [metrics.makespan_s for metrics in simulated]
    live = await replayed(
        case,
        batch,
        ReplaySettings(
            sample_concurrency=samples,
            environment_concurrency=environments,
            environment_policy=case.environment_policy,
            router=case.router,
            speed=speed,
        ),
        model,
        workers,
    )
    metrics, makespan_s = live.metrics, live.metrics.makespan_s
    if makespan_s is None or metrics.cache_reuse is None:
        raise RuntimeError(f"the replay did not reach its end: {live.ending.reason}")
    return Row(
        case=case.name,
        seed=seed,
        turns=metrics.turns,
        live_s=makespan_s,
        simulated_s=median(makespans),
        simulated_range_s=(min(makespans), max(makespans)),
        live_reuse=metrics.cache_reuse,
        simulated_reuse=median(metrics.cache_reuse for metrics in simulated),
        late_ms=metrics.median_environment_late_s / speed * 1000,
        p99_late_ms=metrics.p99_environment_late_s / speed * 1000,
        cpu_ms_per_turn=live.client.cpu_s / metrics.turns * 1000,
    )


async def replayed(
    case: Case, batch: Sequence[Trajectory], settings: ReplaySettings, model: WorkerModel, workers: int
) -> Conducted:
    """The live replay on new worker processes."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "model.json").write_bytes(msgspec.json.encode(model))
        options = ["--model", str(folder / "model.json"), "--speed", str(settings.speed)]
        options += ["--state-ratio", str(STATE_RATIO), "--label-capacity", str(SAMPLES_PER_WORKER)]
        options += ["--schedule-policy", case.worker_policy]
        async with AsyncExitStack() as stack:
            endpoints = []
            for place in range(workers):
                server = Server("worker", options, folder / "errors")
                stack.callback(server.kill)
                await server.start()
                # The simulator's names, so that each label has the same home.
                endpoints.append(Endpoint(f"worker-{place}", f"http://{server.address}"))
            return await conduct(
                make_plan(batch),
                settings,
                endpoints,
                tokens=TokenSource(0, 1000, 30000),
                folder=folder / "run",
                traces=[],
            )


def print_rows(command: str, machine: Machine, rows: Sequence[Row]) -> None:
    console = stdout_console()
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    table.add_column("case", no_wrap=True)
    for name in ("seed", "live\n(s)", "simulated\n(s)", "apart", "reuse", "late\n(ms)", "CPU\n(ms)"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            row.case,
            str(row.seed),
            f"{row.live_s:.0f}",
            f"{row.simulated_s:.0f} ({row.simulated_range_s[0]:.0f} to {row.simulated_range_s[1]:.0f})",
            f"{row.apart:+.1%}",
            f"{row.live_reuse:.0%}, {row.simulated_reuse:.0%}",
            f"{row.late_ms:.1f}, {row.p99_late_ms:.0f}",
            f"{row.cpu_ms_per_turn:.1f}",
        )
    print_page(console, heading(command, machine), table, notes=NOTES)
