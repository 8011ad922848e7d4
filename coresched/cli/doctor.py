"""`coresched doctor`: what is installed, and what a running engine really has."""

import argparse
import dataclasses
import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from coresched.capacity.fields import one_line
from coresched.capacity.footprint import resolve_architecture
from coresched.capacity.observed import Finding, ObservedPools, examine, observe_engine, observe_log
from coresched.capacity.observed.pools import GIB
from coresched.capacity.observed.priced import Priced, price
from coresched.cli.installed import Part, installed_parts
from coresched.cli.parser import CommandParser, add_command, count, number
from coresched.cli.terminal import stdout_console
from coresched.errors import InputError

_STYLES = {"off": "bold red", "note": "yellow", "ok": "green"}


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "doctor",
        summary="what is installed, and what a running engine really has",
        description="Without options: what is installed. With an engine's address or boot log: its\n"
        "pools against what its flags and model give by coresched's arithmetic, and a\n"
        "line for each thing that is off or notable. Exit code 0 when nothing is off, 1\n"
        "when something is, 2 for bad input.",
        example="coresched doctor --engine http://127.0.0.1:30000 --concurrency 48",
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--engine", metavar="URL", help="a running SGLang or vLLM server")
    source.add_argument("--log", type=Path, metavar="FILE", help="its boot log; the last boot in it counts")
    parser.add_argument(
        "--model",
        metavar="CONFIG|NAME",
        help="the model's config.json, its folder, or a catalogue name (default: what the engine reports)",
    )
    parser.add_argument(
        "--tp", type=count, metavar="N", help="tensor-parallel ranks, where the engine does not report them"
    )
    parser.add_argument(
        "--concurrency", type=count, metavar="C", help="trajectories that are to run at once on this engine"
    )
    parser.add_argument(
        "--timeout-s",
        type=number(above=0),
        default=5.0,
        metavar="S",
        help="for all answers of the engine together (default %(default)g)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.engine is None and args.log is None:
        for option in ("model", "tp", "concurrency"):
            if getattr(args, option) is not None:
                raise InputError(f"--{option} needs an engine to compare with; add --engine or --log")
        return _installed(as_json=args.json)
    if args.model is not None:
        resolve_architecture(args.model)  # a wrong model is said before the engine is asked
    observed = observe_log(args.log) if args.engine is None else observe_engine(args.engine, args.timeout_s)
    priced, unpriced = _price(observed, args.model, args.tp)
    findings = (*examine(observed, priced, args.concurrency), *unpriced)
    off = sum(finding.status == "off" for finding in findings)
    if args.json:
        print(json.dumps(_as_json(observed, priced, findings), indent=2))
    else:
        _print(stdout_console(), observed, priced, findings, off)
    return 1 if off else 0


def _price(
    observed: ObservedPools, model: str | None, tp: int | None
) -> tuple[Priced | None, tuple[Finding, ...]]:
    """The footprint. What the engine reports may not be priceable; what the user asks to compare must be."""
    try:
        return price(observed, model, tp), ()
    except InputError as problem:
        if model is not None or tp is not None:
            raise
        return None, (Finding("note", "footprint", f"not compared with the model: {problem}"),)


def _installed(*, as_json: bool) -> int:
    with Console(stderr=True).status("looking at what is installed ..."):
        parts = installed_parts()
    broken = any(part.broken for part in parts)
    if as_json:
        print(json.dumps({"installed": [dataclasses.asdict(part) for part in parts]}, indent=2))
    else:
        stdout_console().print(_parts_table(parts))
    return 1 if broken else 0


def _parts_table(parts: tuple[Part, ...]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for part in parts:
        style = "bold red" if part.broken else "dim" if part.version is None else ""
        table.add_row(part.name, part.version or ("broken" if part.broken else "-"), part.note, style=style)
    return table


def _print(
    console: Console, observed: ObservedPools, priced: Priced | None, findings: tuple[Finding, ...], off: int
) -> None:
    console.print(f"{observed.title} at {observed.source}", style="bold", soft_wrap=True)
    console.print(_facts(observed, priced))
    console.print()
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        table.add_row(finding.status, finding.topic, one_line(finding.text), style=_STYLES[finding.status])
    console.print(table)
    console.print()
    console.print(
        "Nothing is off." if not off else "1 thing is off." if off == 1 else f"{off} things are off."
    )


def _facts(observed: ObservedPools, priced: Priced | None) -> Table:
    """The reported numbers, each with where it is from."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim", overflow="fold")
    page = "page size, tokens" if observed.engine == "sglang" else "block size, tokens"
    names = {
        "state_slots": "state slots (K)",
        "kv_tokens": "KV tokens",
        "blocks": "blocks",
        "page_size": page,
        "max_running_requests": "max running requests",
        "max_context": "longest context, tokens",
        "kv_pool_bytes": "KV pool, GiB",
        "state_pool_bytes": "state pool, GiB",
        "pool_bytes": "pool, GiB",
    }
    if observed.ranks > 1:
        table.add_row("ranks", f"{observed.ranks:,}", "the numbers are of one")
    for name, title in names.items():
        value = getattr(observed, name)
        if value is not None:
            number = f"{value / GIB:,.2f}" if name.endswith("bytes") else f"{value:,}"
            table.add_row(title, number, observed.origins.get(name, ""))
    if priced is not None:
        model = one_line(priced.footprint.model).removesuffix("/config.json").rpartition("/")[2]
        table.add_row(
            "KV token, bytes", f"{priced.footprint.kv_bytes:,}", f"of {model}, tp {priced.footprint.tp}"
        )
        if priced.footprint.state_bytes:
            dtype = priced.footprint.state_dtype
            table.add_row("state, bytes", f"{priced.footprint.state_bytes:,}", f"of {model}, {dtype}")
    return table


def _as_json(
    observed: ObservedPools, priced: Priced | None, findings: tuple[Finding, ...]
) -> dict[str, object]:
    apart = ("engine", "version", "source", "flags", "origins")
    names = [field.name for field in dataclasses.fields(observed) if field.name not in apart]
    return {
        "engine": observed.engine,
        "version": observed.version,
        "source": observed.source,
        "observed": {name: getattr(observed, name) for name in names},
        "origins": {name: observed.origins[name] for name in names if name in observed.origins},
        "flags": dict(observed.flags),
        "footprint": None if priced is None else dataclasses.asdict(priced.footprint),
        "findings": [dataclasses.asdict(finding) for finding in findings],
    }
