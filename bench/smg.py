"""`python -m bench smg`: LBCH through a stock smg by minted keys, beside what smg does by itself."""

import argparse
import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from itertools import accumulate
from time import process_time

from rich.console import Console
from rich.table import Table

from bench.gateways.processes import check_system, fake_workers
from bench.gateways.running import Subject, SubjectFailedError, running
from bench.machine import this_machine
from bench.peers import installed
from bench.peers.environments import SMG, program
from bench.peers.gateways import smg_gateways
from bench.progress import announce, clear
from bench.spread import Spread, spread_of
from coresched.cli.parser import CommandParser, add_command
from coresched.core import LoadBoundedRouter
from coresched.errors import InputError

WORKERS = 3
STRICT, BOUNDED, MINTED = "smg consistent_hashing", "smg prefix_hash 1.25", "smg, minted keys"
DIRECT, PLAIN, ROUTED = "httpx, no smg", "httpx, smg", "httpx, smg, minted keys"
_NEEDED = ("httpx", "uvloop", "blake3")


@dataclass(frozen=True)
class Split:
    """Where held requests lie, by worker in descending order, in each round."""

    labels: str
    subject: str
    loads: list[list[int]]
    as_lbch: str
    """How many of all requests are on the worker that LBCH chooses; empty where rings differ."""


@dataclass(frozen=True)
class Cost:
    """What a call takes one client that sends one after another; CPU a request, of the client and of smg."""

    subject: str
    p50_ms: Spread
    per_second: Spread
    client_us: Spread
    smg_us: Spread | None


def add_parser(commands: "argparse._SubParsersAction[CommandParser]") -> None:
    parser = add_command(
        commands,
        "smg",
        summary="minted routing keys through a stock smg",
        description="Held requests through smg, by its own policies and by minted keys: where they lie.\n"
        "And what a call costs an httpx client without smg, through it, and with minted keys.\n"
        "A minute or two; Linux only.",
        example="python -m bench smg --install-peers",
    )
    parser.add_argument(
        "--quick", action="store_true", help="one short round: to see that it runs, not to quote"
    )
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--install-peers", action="store_true", help="install smg if it is absent")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    try:
        check_system()
        if missing := [name for name in _NEEDED if installed(name) is None]:
            raise InputError(f"{' and '.join(missing)} must be installed; pip install 'coresched[bench,smg]'")
        launcher = program(SMG, "smg", install=args.install_peers)
        if launcher is None:
            raise InputError(f"{SMG} must be installed; --install-peers does that")
    except InputError as error:
        print(f"python -m bench smg: {error}", file=sys.stderr)
        return 2
    machine = this_machine()
    rounds, seconds = (1, 0.1) if args.quick else (10, 0.5)
    from bench.gateways.client import UnexpectedAnswerError

    try:
        splits, costs = asyncio.run(_measured(launcher, rounds, seconds))
    except (OSError, SubjectFailedError, UnexpectedAnswerError, asyncio.TimeoutError) as error:
        clear()
        print(f"python -m bench smg: {error or 'an answer took too long'}", file=sys.stderr)
        return 1
    clear()
    if args.json:
        rows = {"splits": [asdict(row) for row in splits], "costs": [asdict(row) for row in costs]}
        print(json.dumps({"command": args.command_line, "machine": asdict(machine), **rows}, indent=2))
    else:
        print(f"{args.command_line}: {machine.cpu}, {machine.cores} cores, load {machine.load}")
        _print(splits, costs, rounds)
    return 0


async def _measured(launcher: str, rounds: int, seconds: float) -> tuple[list[Split], list[Cost]]:
    splits: dict[tuple[str, str], list[list[int]]] = {}
    right: Counter[tuple[str, str]] = Counter()
    costs: dict[str, list[dict[str, float]]] = {}
    for number in range(rounds):
        announce(f"round {number + 1} of {rounds}")
        async with _both(launcher) as (ports, strict, bounded):
            for name, labels in _labels(number).items():
                for subject in (STRICT, BOUNDED, MINTED):
                    chosen, met = await _held(
                        subject, bounded if subject == BOUNDED else strict, ports, labels
                    )
                    loads = Counter(met)
                    split = sorted((loads[worker] for worker in range(len(ports))), reverse=True)
                    splits.setdefault((name, subject), []).append(split)
                    right[name, subject] += sum(a == b for a, b in zip(chosen, met, strict=True))
            for subject in (DIRECT, PLAIN, ROUTED):
                costs.setdefault(subject, []).append(await _cost(subject, strict, ports, seconds))
    return [
        Split(
            name,
            subject,
            loads,
            f"{right[name, subject]} of {sum(map(sum, loads))}" if subject == MINTED else "",
        )
        for (name, subject), loads in splits.items()
    ], [_row(*taken) for taken in costs.items()]


def _labels(seed: int) -> dict[str, list[str]]:
    weights = list(accumulate(1 / rank for rank in range(1, 61)))
    zipf = random.Random(seed).choices(range(60), cum_weights=weights, k=60)
    return {"30 hot": ["hot"] * 30, "60 Zipf": [f"task-{seed}-{rank}" for rank in zipf]}


@asynccontextmanager
async def _both(launcher: str) -> AsyncIterator[tuple[list[int], Subject, Subject]]:
    with fake_workers(WORKERS) as ports:
        async with running(smg_gateways(launcher), ports) as (strict, bounded):
            yield ports, strict, bounded


async def _held(
    subject: str, smg: Subject, ports: Sequence[int], labels: Sequence[str]
) -> tuple[list[int], list[int]]:
    """The workers that LBCH chooses for requests none of which ends, and those that hold them."""
    from coresched_smg import MintedKeys

    from bench.gateways import exchange
    from bench.gateways.client import connections, got
    from bench.gateways.worker import HELD, RELEASE

    urls = [f"http://127.0.0.1:{port}" for port in ports]
    keys, lbch = MintedKeys(urls), LoadBoundedRouter(urls)
    chosen = [lbch.route(label) for label in labels]
    sent = list(labels)
    if subject == MINTED:
        sent = [keys.key(worker, label) for worker, label in zip(chosen, labels, strict=True)]
    async with connections(smg.port, len(sent)) as opened:
        answers = []
        requests = exchange.requests(sent, exchange.HELD)
        for number, (connection, request) in enumerate(zip(opened, requests, strict=True), 1):
            answers.append(asyncio.ensure_future(connection.send(request)))
            await asyncio.wait_for(got(ports[0], f"{HELD}{number}"), 30)
        await got(ports[0], RELEASE)
        return [urls.index(url) for url in chosen], list(await asyncio.gather(*answers))


async def _cost(subject: str, smg: Subject, ports: Sequence[int], seconds: float) -> dict[str, float]:
    import httpx
    from coresched_smg import SmgRouter, Transport

    from bench.gateways.overhead import Case
    from bench.gateways.transport import load_through

    url = f"http://127.0.0.1:{smg.port}"
    asked = [f"http://127.0.0.1:{port}" for port in ports] if subject == DIRECT else [url]
    assert smg.program is not None
    with SmgRouter(url) as router:
        transport: httpx.AsyncBaseTransport = Transport(router)
        if subject != ROUTED:
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
            transport = httpx.AsyncHTTPTransport(limits=limits)
        async with httpx.AsyncClient(transport=transport, timeout=60) as client:
            case = Case("chat", 1)
            await load_through(client, asked, case, seconds / 5)
            before, smg_before = process_time(), smg.program.cpu_s()
            load = await load_through(client, asked, case, seconds)
            count = len(load.latencies)
            return {
                "p50_ms": load.percentile(0.5) * 1e3,
                "per_second": load.per_second,
                "client_us": (process_time() - before) / count * 1e6,
                "smg_us": (smg.program.cpu_s() - smg_before) / count * 1e6,
            }


def _row(subject: str, taken: Sequence[dict[str, float]]) -> Cost:
    spreads = {name: spread_of([sample[name] for sample in taken]) for name in taken[0]}
    smg_us = spreads.pop("smg_us")
    return Cost(subject, **spreads, smg_us=None if subject == DIRECT else smg_us)


def _print(splits: Sequence[Split], costs: Sequence[Cost], rounds: int) -> None:
    def table(*columns: str) -> Table:
        made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
        for name in columns:
            made.add_column(name, no_wrap=True)
        return made

    where = table("held", "subject", "splits", "max/mean", "as LBCH")
    for split in splits:
        seen = Counter("/".join(map(str, loads)) for loads in split.loads)
        worst = spread_of([loads[0] * WORKERS / sum(loads) for loads in split.loads])
        shown = ", ".join(seen) if len(seen) <= 2 else f"{len(seen)} kinds"
        where.add_row(split.labels, split.subject, shown, f"{worst.median:.2f}", split.as_lbch)
    cost = table("subject", "p50 ms", "client CPU us", "smg CPU us")
    for row in costs:
        cost.add_row(row.subject, *map(_shown, (row.p50_ms, row.client_us, row.smg_us)))
    console = Console()
    console.print(where)
    console.print(cost)
    console.print(f"{rounds} rounds, each with new workers; medians (quartiles).")


def _shown(spread: Spread | None) -> str:
    return "" if spread is None else f"{spread.median:.3g} ({spread.q1:.3g}-{spread.q3:.3g})"
