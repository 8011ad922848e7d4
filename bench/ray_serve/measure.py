"""Runs in Ray's environment and prints what was measured, a JSON object a line; see `bench/measuring.py`.

`python -m bench.ray_serve.measure [--quick]`. Each router stands before three replicas of its own
deployment, one after another in one Ray.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import platform
import random
import sys
import time
from collections import Counter
from operator import eq
from typing import IO, Any

from coresched_ray.replica_ring import slot_name

from bench.ray_serve import names
from bench.ray_serve.cluster import local_ray, own_stdout
from coresched.core.ring import LoadBoundedRouter

LOAD_BOUND = 1.25
HOT_REQUESTS, OTHER_REQUESTS = 30, 60
TURNS = 4
CALLS, QUICK_CALLS = 1000, 60


def main() -> int:
    lines = own_stdout()
    try:
        import ray
    except ImportError as error:
        put(lines, error=f"{sys.executable!r} must have ray[serve]: {error}")
        return 1
    calls = QUICK_CALLS if "--quick" in sys.argv[1:] else CALLS
    python = f"{platform.python_implementation()} {platform.python_version()}"
    put(lines, doing="Ray Serve")
    with local_ray():
        put(lines, engine={"ray": ray.__version__, "python": python, "calls": calls})
        for router in names.ROUTERS:
            put(lines, doing=f"{router}, three replicas")
            for row in rows_of(router, calls):
                put(lines, row={"router": router, **row})
    return 0


def labels_of(case: str) -> list[str]:
    """In the order of the requests: one label, twenty of which few are frequent, or all different."""
    if case == names.HOT:
        return ["hot"] * HOT_REQUESTS
    if case == names.UNIFORM:
        return [f"u{i}" for i in range(OTHER_REQUESTS)]
    weights = [1 / (place + 1) for place in range(20)]
    drawn = random.Random(3).choices(range(20), weights, k=OTHER_REQUESTS)
    return [f"z{place}" for place in drawn]


def rows_of(router: str, calls: int) -> list[dict[str, Any]]:
    from ray import serve

    from bench.ray_serve.held import await_replicas, new_gate

    gate = new_gate()
    name = router.replace(",", "").replace(
        " ", "-"
    )  # of its own: a process keeps the first router of a deployment's name
    handle = serve.run(deployment_behind(router).bind(gate), name=name, route_prefix=None)
    await_replicas(handle)
    core = core_of(router)
    rows: list[dict[str, Any]] = [held(handle, gate, case, core) for case in names.CASES]
    rows.append({"case": "turns", **turns(handle)})
    rows.append({"case": "call", "samples_s": timed(handle, calls)})
    serve.delete(name)
    return rows


def deployment_behind(router: str) -> Any:
    from bench.ray_serve.held import CONSISTENT_HASHING, LOAD_BOUNDED, held_deployment

    if router == names.POWER_OF_TWO:
        return held_deployment(None)
    if router == names.CONSISTENT_HASH:
        return held_deployment(CONSISTENT_HASHING)
    if router == names.LBCH_SLACK:
        return held_deployment(LOAD_BOUNDED, load_bound=LOAD_BOUND, router=names.LBCH, slack=1)
    return held_deployment(LOAD_BOUNDED, load_bound=LOAD_BOUND, router=router)


def held(handle: Any, gate: Any, case: str, core: LoadBoundedRouter | None) -> dict[str, Any]:
    """Requests that are all in flight together: how many each replica got, and how many stayed together.

    `together` counts the requests on the replica that got most of their label's.
    """
    import ray

    from bench.ray_serve.held import REPLICAS, wait_until

    labels = labels_of(case)
    sent = [handle.hold.options(session_id=label).remote() for label in labels]
    wait_until(lambda: ray.get(gate.held.remote()) == len(labels))
    ray.get(gate.open.remote())
    ranks = [call.result() for call in sent]
    ray.get(gate.shut.remote())
    time.sleep(0.3)  # until the router is told of all ends
    by_label = Counter(zip(labels, ranks, strict=True))
    together = sum(
        max(count for (of, _), count in by_label.items() if of == label) for label in dict.fromkeys(labels)
    )
    row: dict[str, Any] = {"case": case, "split": [ranks.count(rank) for rank in range(REPLICAS)]}
    row["together"] = together / len(labels)
    if core is not None:
        chosen = [core.route(label) for label in labels]
        row["as_in_process"] = sum(map(eq, chosen, map(slot_name, ranks)))
        for slot in chosen:
            core.release(slot)
    return row


def core_of(router: str) -> LoadBoundedRouter | None:
    """What this process follows LBCH in Serve with; the other's choice between equals has a history."""
    from bench.ray_serve.held import REPLICAS

    slack = {names.LBCH: 0, names.LBCH_SLACK: 1}.get(router)
    if slack is None:
        return None
    return LoadBoundedRouter(map(slot_name, range(REPLICAS)), LOAD_BOUND, slack=slack)


def turns(handle: Any) -> dict[str, Any]:
    """Sixty trajectories at once, each of turns of 20 to 60 ms and pauses of 0 to 40 ms between them.

    `kept`: the share of later turns that the replica of the turn before served.
    """
    chance = random.Random(7)
    plans = [[(chance.uniform(0.02, 0.06), chance.uniform(0, 0.04)) for _ in range(TURNS)] for _ in range(60)]

    async def trajectory(label: str, plan: list[tuple[float, float]]) -> list[int]:
        ranks = []
        for seconds, pause in plan:
            ranks.append(await handle.sleep.options(session_id=label).remote(seconds))
            await asyncio.sleep(pause)
        return ranks

    async def run() -> list[list[int]]:
        return await asyncio.gather(*(trajectory(f"t{i}", plan) for i, plan in enumerate(plans)))

    ranks = asyncio.run(run())
    kept = sum(one == other for each in ranks for one, other in itertools.pairwise(each))
    counts = Counter(rank for each in ranks for rank in each)
    return {"kept": kept / (len(ranks) * (TURNS - 1)), "split": [counts[rank] for rank in sorted(counts)]}


def timed(handle: Any, calls: int) -> list[float]:
    """Seconds of each of these calls, one after another."""
    samples = []
    for number in range(calls):
        began = time.perf_counter()
        handle.now.options(session_id=f"s{number % 20}").remote().result()
        samples.append(time.perf_counter() - began)
    return samples


def put(lines: IO[str], **fields: object) -> None:
    lines.write(json.dumps(fields) + "\n")
    lines.flush()


if __name__ == "__main__":
    sys.exit(main())
