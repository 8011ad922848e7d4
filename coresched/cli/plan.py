"""`coresched plan`: cache pools, sample concurrency and engine flags for a workload."""

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import get_args

from rich.console import Console
from rich.table import Table

from coresched.capacity.estimate import DEFAULT_MARGIN, Estimator
from coresched.capacity.footprint import footprint
from coresched.capacity.observed import ObservedPools, observe_engine, observe_log
from coresched.capacity.observed.memory import pool_memory
from coresched.capacity.plan import Plan
from coresched.capacity.planner import DEFAULT_MEMORY_FRACTION, plan
from coresched.capacity.sizes import size_text
from coresched.capacity.summary import WorkloadSummary
from coresched.cli.parser import CommandParser, add_command, count, number
from coresched.cli.terminal import stdout_console
from coresched.errors import InputError
from coresched.files import require_writable, write_whole
from coresched.lab.report.capacity import plan_page

LIMITS = {
    "kv": "KV memory",
    "state": "state memory",
    "memory": "memory",
    "batch": "nothing: the whole batch fits at once",
}


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "plan",
        summary="size the cache pools and the sample concurrency for a workload",
        description="Work out how many trajectories fit a worker's discrete cache pools at once, and the\n"
        "engine flags that make the pools so. The workload is one or more trace files, or a\n"
        "summary in numbers.",
        example="coresched plan Qwen3-Next-80B-A3B traces.jsonl --engine sglang \\\n"
        "    --tp 4 --pool-memory 40GiB",
    )
    parser.add_argument("model", help="a config.json, its folder, or a name of the catalogue")
    parser.add_argument("traces", nargs="*", type=Path, metavar="TRACE", help="trajectories of the workload")
    _add_deployment(parser)
    _add_summary(parser)
    choice = parser.add_argument_group("the estimate")
    choice.add_argument(
        "--estimator", choices=get_args(Estimator), default="peak", help="(default %(default)s)"
    )
    choice.add_argument(
        "--margin", type=number(at_least=0), default=DEFAULT_MARGIN, metavar="M", help="(default %(default)s)"
    )
    output = parser.add_argument_group("output")
    output.add_argument("--json", action="store_true", help="print the plan as JSON")
    output.add_argument(
        "--plot", type=Path, metavar="FILE.html", help="draw what each pool holds over the ratio"
    )
    parser.set_defaults(run=run)


def _add_deployment(parser: CommandParser) -> None:
    group = parser.add_argument_group("the deployment (memory and weights are of one GPU)")
    group.add_argument("--engine", choices=("sglang", "vllm"), default="sglang", help="(default %(default)s)")
    group.add_argument("--pool-memory", metavar="SIZE", help="memory of both cache pools, such as 40GiB")
    group.add_argument("--from-engine", metavar="URL", help="instead: what a running engine reports")
    group.add_argument(
        "--from-log", type=Path, metavar="FILE", help="instead: what an engine's boot log says"
    )
    group.add_argument("--gpu-memory", metavar="SIZE", help="instead: memory of the GPU, with --weights")
    group.add_argument("--weights", metavar="SIZE", help="what the weights take of it")
    group.add_argument(
        "--memory-fraction",
        type=number(above=0),
        metavar="F",
        help=f"share of the GPU for weights and pools (default {DEFAULT_MEMORY_FRACTION})",
    )
    group.add_argument("--workers", type=count, default=1, metavar="W", help="(default %(default)s)")
    for flag, words in (
        ("--tp", "tensor-parallel ranks"),
        ("--pp", "pipeline stages"),
        ("--attention-dp", "attention data-parallel ranks (SGLang)"),
        ("--dcp", "decode-context-parallel ranks"),
    ):
        group.add_argument(flag, type=count, default=1, metavar="N", help=f"{words} (default %(default)s)")
    group.add_argument(
        "--page-size", type=count, metavar="N", help="page size of SGLang's KV pool (default 1)"
    )
    group.add_argument(
        "--no-one-state-per-trajectory",
        dest="one_state_per_trajectory",
        action="store_false",
        help="vLLM runs without coresched's scheduler, so that a waiting trajectory holds two states",
    )
    group.add_argument("--mtp", action="store_true", help="the model's own prediction layers draft tokens")
    group.add_argument("--draft-tokens", type=count, metavar="N", help="draft tokens of a verification step")
    group.add_argument("--kv-dtype", metavar="DTYPE", help="instead of the engine's default")
    group.add_argument("--state-dtype", metavar="DTYPE", help="the same for recurrent states")
    group.add_argument(
        "--environment-concurrency", type=count, metavar="C_E", help="environment jobs at once"
    )


def _add_summary(parser: CommandParser) -> None:
    group = parser.add_argument_group("the workload in numbers, instead of traces (N, or MEDIAN/P90)")
    group.add_argument("--turns", metavar="N", help="turns of a trajectory, such as 36/66")
    group.add_argument("--prompt", metavar="N", help="tokens of the first prompt")
    group.add_argument("--output", metavar="N", help="tokens generated in a turn")
    group.add_argument("--response", metavar="N", help="tokens of an environment response")
    group.add_argument("--samples", type=count, default=200, metavar="N", help="(default %(default)s)")
    group.add_argument(
        "--shared-prefix", type=int, default=0, metavar="N", help="tokens all first prompts share (default 0)"
    )


def run(args: argparse.Namespace) -> int:
    if args.plot is not None:
        model = Path(args.model)
        log = [] if args.from_log is None else [args.from_log]
        require_writable(args.plot, "--plot", [*args.traces, *log, model, model / "config.json"])
    deployment = {
        "tp": args.tp,
        "pp": args.pp,
        "attention_dp": args.attention_dp,
        "dcp": args.dcp,
        "mtp": args.mtp,
        "draft_tokens": args.draft_tokens or 0,
        "kv_dtype": args.kv_dtype,
        "state_dtype": args.state_dtype,
    }
    observed = _observed(args)
    memory = args.pool_memory
    if observed is not None:
        memory = pool_memory(observed, footprint(args.model, args.engine, **deployment))
    workload = _workload(args)
    with Console(stderr=True).status("replaying the workload ..."):
        made = plan(
            args.model,
            workload,
            args.engine,
            pool_memory=memory,
            gpu_memory=args.gpu_memory,
            weights=args.weights,
            memory_fraction=args.memory_fraction,
            workers=args.workers,
            **deployment,
            environment_concurrency=args.environment_concurrency,
            estimator=args.estimator,
            margin=args.margin,
            page_size=args.page_size,
            context_length=None if observed is None else observed.max_context,
            pools_observed=observed is not None,
            one_state_per_trajectory=args.one_state_per_trajectory,
        )
    if observed is not None:
        told = f"pools have {size_text(made.pool_bytes)} a GPU, from what {observed.source} reports"
        made = replace(made, warnings=(told, *made.warnings))
    if args.plot is not None:
        write_whole(args.plot, plan_page(made), "--plot")
    if args.json:
        print(json.dumps(asdict(made), indent=2))
    else:
        print_plan(made, stdout_console())
    return 0


def _observed(args: argparse.Namespace) -> ObservedPools | None:
    """What the engine reports that the memory is to be taken from; None where it is given in numbers."""
    if args.from_engine is None and args.from_log is None:
        return None
    ways = ("from-engine", "from-log", "pool-memory", "gpu-memory", "weights")
    given = [way for way in ways if getattr(args, way.replace("-", "_")) is not None]
    if len(given) > 1:
        raise InputError(f"--{given[0]} and --{given[1]} are both given; say where the memory is from once")
    return observe_log(args.from_log) if args.from_engine is None else observe_engine(args.from_engine)


def _workload(args: argparse.Namespace) -> list[Path] | WorkloadSummary:
    numbers = {name: getattr(args, name) for name in ("turns", "prompt", "output", "response")}
    given = [name for name, value in numbers.items() if value is not None]
    if args.traces and given:
        raise InputError(f"--{given[0]} is given beside traces; describe the workload one way only")
    if args.traces:
        traces: list[Path] = args.traces
        return traces
    missing = [name for name, value in numbers.items() if value is None]
    if missing:
        raise InputError(
            f"--{missing[0]} is not given; name trace files, or all of --turns --prompt --output --response"
        )
    return WorkloadSummary(**numbers, samples=args.samples, shared_prefix=args.shared_prefix)


def print_plan(made: Plan, console: Console) -> None:
    """Pools, concurrency, flags, sensitivity and warnings, a line each."""
    size, pools = made.footprint, made.pools
    console.print(
        f"{size.model} on {size.engine} {size.engine_version}, tp {size.tp}, {made.workers} worker(s)"
    )
    console.print()
    table = Table(box=None, padding=(0, 1), pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column()
    low, high = made.peak_range
    rows = [
        ("memory of the pools", f"{size_text(made.pool_bytes)} a GPU"),
        *_cost_rows(made),
        ("pools", _pools_text(made)),
        (
            "requests the engine runs",
            f"{pools.max_running_requests:,}" + (" a rank of attention DP" if size.attention_dp > 1 else ""),
        ),
        (
            "sample concurrency",
            f"{made.concurrency:,} a worker, C_I* = {made.reference_concurrency:,} in all",
        ),
        *_environment_rows(made),
        ("label capacity C_A (RP)", f"{made.label_capacity:,} a worker"),
        ("limited by", LIMITS[made.limit]),
        ("peak, contexts 10 % longer", f"{made.peak_at_longer_contexts:,} a worker"),
        ("peak, over resamples", f"{low:,} to {high:,} a worker"),
        *[
            (
                f"estimator {each.estimator} would say",
                f"{each.concurrency:,} a worker" + (f" at r = {each.ratio:.3g}" if each.ratio else ""),
            )
            for each in made.alternatives
        ],
    ]
    for name, text in rows:
        table.add_row(name, text)
    console.print(table)
    console.print()
    console.print("engine flags:")
    console.print(f"  {' '.join(made.engine_flags)}", soft_wrap=True)
    if made.engine_environment:
        console.print("engine environment:")
        variables = " ".join(f"{name}={value}" for name, value in made.engine_environment.items())
        console.print(f"  {variables}", soft_wrap=True)
    for title, lines in (("assumed", made.assumptions), ("note", made.warnings)):
        for line in lines:
            console.print(f"{title}: {line}")


def _cost_rows(made: Plan) -> list[tuple[str, str]]:
    size, cost = made.footprint, made.cost
    token = f"{size.kv_bytes:,} B"
    context = f"KV {size_text(cost.kv_bytes)} at its final {cost.mean_final_tokens:,.0f} tokens (mean)"
    if not size.state_bytes:
        return [("a KV token", f"{token} a rank"), ("a trajectory", context)]
    running, idle = size_text(cost.running_state_bytes), size_text(cost.idle_state_bytes)
    return [
        ("a KV token, a state slot", f"{token}, {size.state_bytes:,} B ({size.state_dtype}) a rank"),
        ("a trajectory", f"{context}; states {running} running, {idle} waiting"),
    ]


def _pools_text(made: Plan) -> str:
    pools = made.pools
    if not made.footprint.state_bytes:
        blocks = "" if pools.blocks is None else f"{pools.blocks:,} blocks, "
        return f"{blocks}{pools.kv_tokens:,} KV tokens"
    if pools.blocks is not None:
        blocks = f"{pools.blocks:,} blocks of {pools.block_tokens:,} tokens"
        return f"{blocks} for both (r = {made.ratio:.3g} at the peak)"
    return f"{pools.kv_tokens:,} KV tokens, {pools.state_slots:,} state slots (r = {made.ratio:.3g})"


def _environment_rows(made: Plan) -> list[tuple[str, str]]:
    if made.unified_concurrency is None:
        return []
    return [
        (
            "with one limit for both",
            f"{made.unified_concurrency:,}; apart: C_S = {made.reference_concurrency:,}, environments "
            f"capped alone",
        )
    ]
