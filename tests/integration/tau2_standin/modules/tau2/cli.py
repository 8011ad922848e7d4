"""`tau2 run` and `tau2 worker`."""

from __future__ import annotations

import argparse
import json
from types import SimpleNamespace
from typing import Any

from tau2.run import run_domain


def main() -> Any:
    parser = argparse.ArgumentParser(prog="tau2")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    for name in ("--agent-llm", "--user-llm", "--save-to"):
        run.add_argument(name, required=True)
    for name in ("--agent-llm-args", "--user-llm-args"):
        run.add_argument(name, type=json.loads, required=True)
    run.add_argument("--task-ids", nargs="+", required=True)
    run.add_argument("--timeout", type=float)
    for name, default in (
        ("--num-trials", 1),
        ("--max-concurrency", 3),
        ("--workers", 0),
        ("--max-retries", 0),
    ):
        run.add_argument(name, type=int, default=default)

    def run_command(args: argparse.Namespace) -> Any:
        given = vars(args)
        for side in ("agent", "user"):
            given[f"llm_{side}"] = given.pop(f"{side}_llm")
            given[f"llm_args_{side}"] = given.pop(f"{side}_llm_args")
        del given["func"]
        return run_domain(SimpleNamespace(**given))

    run.set_defaults(func=run_command)
    worker = commands.add_parser("worker")
    worker.add_argument("--controller", required=True)
    worker.add_argument("--slots", type=int, default=10)
    worker.add_argument("--worker-id")

    def worker_command(args: argparse.Namespace) -> int:
        from tau2.runner.worker import run_worker_command

        return run_worker_command(controller=args.controller, slots=args.slots, worker_id=args.worker_id)

    worker.set_defaults(func=worker_command)
    args = parser.parse_args()
    args.func(args)


if __name__ == "__main__":
    main()
