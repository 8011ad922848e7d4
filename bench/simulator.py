"""`python -m bench simulator`: events a second of the compiled simulator and of its plain-Python twin."""

import argparse
from functools import partial

from bench.cases import TWIN
from bench.machine import this_machine
from bench.progress import announce, clear
from bench.results import Report, Row, as_json, print_report
from bench.spread import spread_of
from bench.timing import interleaved, timed
from coresched.cli.parser import CommandParser, add_command
from coresched.lab.simulator.engine.cluster import Cluster
from coresched.lab.simulator.memory import require_fit, split_memory
from coresched.lab.simulator.model import WorkerModel, load_worker_model
from coresched.lab.simulator.outcome import Outcome
from coresched.lab.simulator.settings import EnvironmentPolicy, Routing, RunSettings, WorkerPolicy
from coresched.lab.simulator.twin.cluster import Cluster as TwinCluster
from coresched.lab.simulator.workload import Workload, build_workload
from coresched.trajectory.generator import generate

# (worker policy, router, environment policy)
POLICIES: tuple[tuple[WorkerPolicy, Routing, EnvironmentPolicy], ...] = (
    ("fcfs", "round-robin", "fcfs"),
    ("fcfs", "cache-aware", "fcfs"),
    ("lpm", "cache-aware", "fcfs"),
    ("dfs-weight", "consistent-hash", "fcfs"),
    ("fcfs", "lbch", "fcfs"),
    ("routing-prefix", "lbch", "caas"),
)
QUICK_POLICIES: tuple[tuple[WorkerPolicy, Routing, EnvironmentPolicy], ...] = (POLICIES[1], POLICIES[-1])
SAMPLES, QUICK_SAMPLES = 240, 24
REPEATS, QUICK_REPEATS = 9, 3

ALL_EVENTS = 1 << 62

NOTES = (
    "case: worker policy, router, environment policy. n: samples (generated, swe).",
    "events/s: a second of CPU time, of the median run. IQR: interquartile range over",
    "median, of the time an event takes. ratio: the twin's median time over ours.",
)


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "simulator",
        summary="events a second of the simulator, beside its plain-Python twin",
        description="Time the event loop of the compiled simulator and of its plain-Python twin, without\n"
        "set-up, on one generated batch under several policies.",
        example="python -m bench simulator --quick",
    )
    parser.add_argument(
        "--quick", action="store_true", help="a small batch, few repeats: to see that it runs"
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    policies, samples, repeats = (
        (QUICK_POLICIES, QUICK_SAMPLES, QUICK_REPEATS) if args.quick else (POLICIES, SAMPLES, REPEATS)
    )
    machine = this_machine()
    # The model with little memory: caches fill and are evicted, which the loop must then do.
    model = load_worker_model("h20-tp4-hybrid-tight")
    workload = build_workload(generate("swe", samples, seed=7), page_tokens=model.page_tokens)
    rows = []
    for policy in policies:
        settings = settings_of(*policy)
        announce(settings.name)
        rows.append(measure(workload, settings, model, repeats))
    clear()
    report = Report(args.command_line, machine, repeats, rows)
    if args.json:
        print(as_json(report))
    else:
        print_report(report, "events/s", lambda spread: f"{1 / spread.median:,.0f}", NOTES)
    return 0


def settings_of(
    worker_policy: WorkerPolicy, routing: Routing, environment_policy: EnvironmentPolicy
) -> RunSettings:
    """Limits under which samples, environment jobs and requests all have to wait."""
    return RunSettings(
        name=f"{worker_policy}, {routing}, {environment_policy}",
        workers=2,
        sample_concurrency=160,
        environment_concurrency=32,
        state_ratio=0.28,
        label_capacity=80,
        worker_policy=worker_policy,
        routing=routing,
        environment_policy=environment_policy,
    )


def measure(workload: Workload, settings: RunSettings, model: WorkerModel, repeats: int) -> Row:
    """Whole runs in turns, each on a fresh cluster. All must count the same, or the times say nothing."""
    memory = split_memory(model, settings.state_ratio, settings.pool_policy)
    require_fit(workload, memory)
    outcomes: list[Outcome] = []

    def ours() -> float:
        cluster = Cluster(workload, settings, model, memory)
        seconds = timed(partial(cluster.advance, ALL_EVENTS))
        outcomes.append(cluster.outcome())
        return seconds / outcomes[-1].events

    def twin() -> float:
        cluster = TwinCluster(workload, settings, model, memory)
        seconds = timed(lambda: outcomes.append(cluster.run()))
        return seconds / outcomes[-1].events

    our_samples, twin_samples = interleaved([ours, twin], repeats)
    if any(outcome != outcomes[0] for outcome in outcomes):
        raise RuntimeError(f"the simulator and its twin disagree under {settings.name}")
    our_spread, twin_spread = spread_of(our_samples), spread_of(twin_samples)
    counts = {
        "events": outcomes[0].events,
        "ours_events_per_s": 1 / our_spread.median,
        "peer_events_per_s": 1 / twin_spread.median,
    }
    return Row(settings.name, workload.samples, TWIN, our_spread, twin_spread, counts)
