"""`python -m bench vllm-policies`: reuse, recomputation and cost of each order of vLLM's waiting queue."""

import argparse
import sys
from itertools import groupby

from bench.machine import this_machine
from bench.progress import announce, clear
from bench.vllm_policies.policies import POLICIES, QUICK_POLICIES, Policy
from bench.vllm_policies.processes import Run, RunFailedError, carry_out
from bench.vllm_policies.results import Results, as_json, print_report
from bench.vllm_policies.setups import MODELS, SETUPS, TINY_SETUPS, SetUp, TinySetUp, smaller
from bench.vllm_policies.tiny_models import TINY_MODELS
from bench.vllm_python import vllm_version
from coresched.cli.parser import CommandParser, add_command


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "vllm-policies",
        summary="orders of the waiting queue inside vLLM's real scheduler, and with tiny models",
        description="Run batches of multi-turn trajectories on vLLM's own scheduler and block pool, once\n"
        "for each order of its waiting queue: vLLM's own, longest prefix first, and ours. Large set-ups\n"
        "have made-up outputs; the tiny ones are whole engines with a model of random weights, on the CPU.",
        example="python -m bench vllm-policies --vllm-python .venv-vllm/bin/python",
    )
    parser.add_argument(
        "--vllm-python",
        metavar="PATH",
        required=True,
        help="the Python of an environment that has vllm and coresched",
    )
    parser.add_argument("--quick", action="store_true", help="small batches, one model, three orders")
    parser.add_argument(
        "--setup",
        choices=[setup.name for setup in (*SETUPS, *TINY_SETUPS)],
        action="append",
        help="only this set-up; may be given several times",
    )
    parser.add_argument("--model", choices=[*MODELS, *TINY_MODELS], help="only this model")
    parser.add_argument(
        "--policy",
        choices=list(dict.fromkeys(policy.name for policy in POLICIES)),
        action="append",
        help="only this order; may be given several times",
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of lengths and tokens")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    version, schedulers = vllm_version(args.vllm_python)
    groups = groups_of(args, available(QUICK_POLICIES if args.quick else POLICIES, schedulers))
    count = sum(map(len, groups))
    machine = this_machine()
    results: Results = {}
    announce(f"0 of {count} runs")
    try:
        for done, result in carry_out(args.vllm_python, groups):
            results[done] = result
            announce(f"{len(results)} of {count} runs")
    except RunFailedError as error:
        clear()
        print(f"python -m bench vllm-policies: {error}", file=sys.stderr)
        return 1
    clear()
    show = as_json if args.json else print_report
    show(args.command_line, machine, version, results)
    return 0


def available(policies: tuple[Policy, ...], schedulers: tuple[str, ...]) -> list[Policy]:
    """Those that the adapter in vLLM's environment has."""
    ours = "coresched_vllm."
    has_retention = f"{ours}RoutingResidency" in schedulers
    return [
        policy
        for policy in policies
        if policy.scheduler_cls is None
        or not policy.scheduler_cls.startswith(ours)
        or (policy.scheduler_cls in schedulers and (has_retention or not policy.all_states))
    ]


def groups_of(args: argparse.Namespace, policies: list[Policy]) -> list[list[Run]]:
    """The runs that are asked for, grouped as they share a process: whole engines by their model."""
    large: list[SetUp] = [smaller(setup) for setup in SETUPS[:1]] if args.quick else list(SETUPS)
    every: list[tuple[SetUp | TinySetUp, str]] = [
        (setup, model) for setup in large for model in (MODELS[:1] if args.quick else MODELS)
    ]
    every += [(setup, model) for model in TINY_MODELS for setup in TINY_SETUPS]
    runs = [
        Run(setup, model, policy, args.seed)
        for setup, model in every
        if args.model in (None, model) and (args.setup is None or setup.name in args.setup)
        for policy in policies
        if args.policy is None or policy.name in args.policy
    ]
    return [list(group) for _, group in groupby(runs, key=lambda each: each.model if each.is_whole else each)]
