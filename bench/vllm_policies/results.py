"""The results of `python -m bench vllm-policies`, as JSON and as tables."""

import json
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.machine import Machine
from bench.results import encodable, heading, time_text, today
from bench.vllm_policies.processes import Run
from bench.vllm_policies.setups import SetUp, virtual_settings
from coresched import __version__
from coresched.cli.terminal import stdout_console
from coresched.lab.units import count_text, percent_text

Results = dict[Run, dict[str, Any]]

NOTES = (
    "makespan: in a time in which a step takes as long as its tokens say. wall: of",
    "whole engines, on this machine. cached: of the prompt tokens. again: tokens",
    "computed beyond once. no hit: later turns that found nothing cached. pre:",
    "preemptions. order: for ordering the queue, all passes, on this machine.",
)


def as_json(command: str, machine: Machine, version: str, results: Results) -> None:
    """Print it."""
    rows = [
        {
            "setup": run.setup.name,
            "model": run.model,
            "policy": run.policy.name,
            "label_capacity": run.policy.label_capacity,
            "all_states": run.policy.all_states,
            "whole_engine": run.is_whole,
            **result,
        }
        for run, result in results.items()
    ]
    print(
        json.dumps(
            {
                "command": command,
                "date": today(),
                "version": __version__,
                "vllm": version,
                "machine": asdict(machine),
                "rows": rows,
            },
            indent=2,
        )
    )


def print_report(command: str, machine: Machine, version: str, results: Results) -> None:
    console = stdout_console()
    for line in heading(command, machine):
        console.print(line)
    console.print(f"vllm {version}")
    for setup, model in dict.fromkeys((run.setup, run.model) for run in results):
        shown = {run: found for run, found in results.items() if (run.setup, run.model) == (setup, model)}
        console.print()
        console.print(_caption(next(iter(shown))), soft_wrap=True)
        console.print(_table(shown, console))
        if len({found["replies"] for found in shown.values()}) > 1:
            console.print("Replies differ between these orders.")
    console.print()
    for note in NOTES:
        console.print(note)


def _caption(run: Run) -> str:
    setup = run.setup
    if isinstance(setup, SetUp):
        settings = virtual_settings(run.model, setup)
        return (
            f"{setup.name}: {setup.samples} trajectories, C_S {setup.sample_concurrency}, "
            f"{setup.max_num_seqs} running, {settings['blocks']:,} blocks of {settings['block_size']:,} "
            f"tokens, {run.model}"
        )
    blocks = setup.blocks[run.model]
    return (
        f"{setup.name}: {setup.samples} trajectories, {setup.max_num_seqs} running, "
        f"{blocks} blocks, {run.model}"
    )


def _table(results: Results, console: Console) -> Table:
    is_whole = next(iter(results)).is_whole
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("policy", no_wrap=True)
    for name in ("wall" if is_whole else "makespan", "steps", "cached", "again", "no hit", "pre", "order"):
        table.add_column(name, justify="right", no_wrap=True)
    for run, result in results.items():
        later_turns = result["later_turns"]
        table.add_row(
            run.policy.title,
            f"{result['wall_s' if is_whole else 'makespan_s']:,.1f} s",
            f"{result['steps']:,}",
            percent_text(result["hit_share"]),
            count_text(result["recomputed_tokens"]),
            percent_text(result["later_turns_without_hit"] / later_turns) if later_turns else "",
            f"{result['preemptions']:,}",
            encodable(time_text(result["ordering_s"]), console) if result["ordering_s"] else "",
        )
    return table
