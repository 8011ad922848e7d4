"""Runs in Ray's environment: replicas and a proxy on each of two nodes; prints a JSON object."""

import asyncio
import json
import os
import shutil
import tempfile
from typing import Any

from bench.ray_serve.cluster import QUIET, free_port, own_stdout, router_of

HEAD, WORKER = free_port(), free_port()
os.environ.update(QUIET)
os.environ["RAY_SERVE_WORKER_PROXY_HTTP_PORT"] = str(WORKER)  # of both nodes' processes; the head is exempt


def main() -> None:
    lines = own_stdout()
    import ray
    from ray import serve
    from ray.cluster_utils import Cluster

    from bench.ray_serve.held import LOAD_BOUNDED, held_deployment, new_gate, wait_until

    folder = tempfile.mkdtemp(prefix="ray-")
    cluster = Cluster()
    try:
        node = {"num_cpus": 2, "object_store_memory": 80 << 20, "include_dashboard": False}
        cluster.add_node(temp_dir=folder, **node)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        cluster.add_node(**node)
        serve.start(proxy_location="EveryNode", http_options={"host": "127.0.0.1", "port": HEAD})
        gate = new_gate()
        deployment = held_deployment(LOAD_BOUNDED, most_ongoing=200).options(
            num_replicas=4, ray_actor_options={"num_cpus": 1}
        )
        serve.run(deployment.bind(gate), name="plain", route_prefix="/plain")
        replicas = serve.get_app_handle("plain")
        assert replicas.now.remote().result() in range(4)
        wait_until(lambda: len(proxies(serve)) == 2)
        found = asyncio.run(measured(gate))
        found["nodes of replicas"] = len({each.node_id for each in router_of(replicas)._replicas.values()})
        print(json.dumps(found), file=lines)
        serve.shutdown()
    finally:
        ray.shutdown()
        cluster.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def proxies(serve: Any) -> list[Any]:
    return [each for each in serve.status().proxies.values() if each == "HEALTHY"]


async def measured(gate: Any) -> dict[str, Any]:
    """Held requests through one proxy, and half of them through each of both."""
    cases = {"hot": ["hot"] * 40, "uniform": [f"u{i}" for i in range(40)]}
    ports = {"head": [HEAD], "worker": [WORKER], "both": [HEAD, WORKER]}
    return {
        f"{case} {name}": {"labels": labels, "ranks": await ranks(gate, labels, these)}
        for case, labels in cases.items()
        for name, these in ports.items()
    }


async def ranks(gate: Any, labels: list[str], ports: list[int]) -> list[int]:
    """Where requests went that were sent one after another, the next one to the next port."""
    import httpx

    async with httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=None)) as client:
        sent = []
        for count, label in enumerate(labels, 1):
            url = f"http://127.0.0.1:{ports[(count - 1) % len(ports)]}/plain/hold"
            sent.append(asyncio.create_task(client.get(url, headers={"x-session-id": label})))
            while await gate.held.remote() < count:
                if sent[-1].done():
                    raise RuntimeError(f"{url} answered {sent[-1].result().status_code} at once")
                await asyncio.sleep(0.005)
        await gate.open.remote()
        answers = [int((await each).text) for each in sent]
        await gate.shut.remote()
        await asyncio.sleep(0.5)  # until the proxies are told of the last end
        return answers


if __name__ == "__main__":
    main()
