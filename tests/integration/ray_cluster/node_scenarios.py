"""A coordinator in a Ray cluster of two nodes on this machine; run in Ray's Python.

It writes FOLDER/results.json:

    python node_scenarios.py FOLDER
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import ray
from coresched_ray.coordinators import connect_blocking, start_coordinator
from ray.cluster_utils import Cluster

FOLDER = Path(sys.argv[1])
SPACE = "nodes"
OPTIONS: dict[str, Any] = {"batch": "b", "sample_concurrency": 1, "namespace": SPACE, "grace_s": 60.0}


@ray.remote(num_cpus=0, resources={"second": 0.01})
def start_there(name: str, shared: bool) -> str:
    """From the second node, so that a journal that is not shared is of that one."""
    start_coordinator(
        name,
        journal=FOLDER / f"{name}.sqlite3",
        journal_shared=shared,
        workers=["w0"],
        detached=True,
        namespace=SPACE,
    )
    node: str = ray.get_runtime_context().get_node_id()
    return node


def node_of(name: str) -> str:
    node: str = ray.get(ray.get_actor(name, namespace=SPACE).node.remote())
    return node


def stays() -> dict[str, Any]:
    """With a journal of the second node, its process is killed."""
    second = ray.get(start_there.remote("stays", False))
    before = node_of("stays")
    with connect_blocking("stays", **OPTIONS) as batch:
        with batch.sample("a"):
            os.kill(ray.get(ray.get_actor("stays", namespace=SPACE).process.remote()), signal.SIGKILL)
        with batch.sample("b"):
            pass
    return {
        "at home": before == second == node_of("stays"),
        "finished": batch.report().totals.finished,
    }


def moves(cluster: Any, node: Any) -> dict[str, Any]:
    """With a journal that both nodes have, the second node goes."""
    for number in range(20):  # Ray chooses where it begins
        name = f"moves-{number}"
        second = ray.get(start_there.remote(name, True))
        if (before := node_of(name)) == second:
            break
    with connect_blocking(name, **OPTIONS) as batch:
        with batch.sample("a") as sample:
            cluster.remove_node(node, allow_graceful=False)
            until = time.monotonic() + 60
            while (after := node_of(name)) == second and time.monotonic() < until:
                time.sleep(0.2)
            with sample.inference() as turn:
                worker = turn.worker
        with batch.sample("b"):
            pass
    return {
        "moved": before == second != after == ray.get_runtime_context().get_node_id(),
        "worker": worker,
        "finished": batch.report().totals.finished,
    }


def main() -> None:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    node = cluster.add_node(num_cpus=1, resources={"second": 1})
    try:
        ray.init(address=cluster.address, log_to_driver=False)
        results = {"stays": stays(), "moves": moves(cluster, node)}
        (FOLDER / "results.json").write_text(json.dumps(results))
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()
