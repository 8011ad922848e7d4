"""A process that runs the units it leases."""

from __future__ import annotations

import argparse
import json
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any


def post(url: str, body: Any) -> Any:
    with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=30) as answer:
        return json.loads(answer.read())


def run_worker_command(controller: str, slots: int = 10, worker_id: str | None = None) -> int:
    from tau2.runner import batch

    def consume() -> None:
        while True:
            leased = post(f"{controller}/lease", {})
            if leased["unit"] is None:
                return
            simulation = batch.run_unit(SimpleNamespace(**leased["config"]), *leased["unit"])
            post(f"{controller}/complete", asdict(simulation))

    with ThreadPoolExecutor(slots) as pool:
        for consumer in [pool.submit(consume) for _ in range(slots)]:
            consumer.result()
    return 0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--controller", required=True)
    parser.add_argument("--slots", type=int, default=10)
    parser.add_argument("--worker-id")
    args = parser.parse_args(argv)
    return run_worker_command(controller=args.controller, slots=args.slots, worker_id=args.worker_id)


if __name__ == "__main__":
    sys.exit(main())
