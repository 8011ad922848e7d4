"""Runs in Ray's environment: replicas are killed under cancelled requests; prints a JSON object."""

import json
import random
import threading
import time
from collections import Counter

import ray
from integration.ray_cluster.serve_scenarios import in_threads
from ray import serve
from ray.exceptions import RayActorError, TaskCancelledError
from ray.serve.exceptions import RequestCancelledError

from bench.ray_serve.cluster import local_ray, own_stdout, router_of
from bench.ray_serve.held import LOAD_BOUNDED, held_deployment, new_gate, wait_until

KILLS = 4


def main() -> None:
    lines = own_stdout()
    with local_ray():
        deployment = held_deployment(LOAD_BOUNDED, most_ongoing=4)
        handle = serve.run(deployment.bind(new_gate()), name="storm", route_prefix=None)
        handle.now.remote().result()
        router = router_of(handle)
        chance, ended = random.Random(1), Counter()

        def one(number: int) -> None:
            call = handle.sleep.options(session_id=f"s{number % 9}").remote(chance.random() / 20)
            if chance.random() < 0.4:
                time.sleep(chance.random() / 20)
                call.cancel()
            try:
                call.result(timeout_s=30)
                ended["answered"] += 1
            except (RequestCancelledError, TaskCancelledError):
                ended["cancelled"] += 1
            except RayActorError:
                ended["killed"] += 1

        def kill() -> None:
            for _ in range(KILLS):
                time.sleep(2.5)
                ray.kill(chance.choice(list(router._replicas.values()))._actor_handle)

        killing = threading.Thread(target=kill)
        killing.start()
        while killing.is_alive():
            in_threads(one, 400, 40)
        wait_until(lambda: not router._ring.in_flight() and len(router._ring.slots) == 3)
        found = {"ended": dict(ended), "assigned": len(router._attempts._assigned)}
        found["loads"] = sum(router._ring._router.loads().values())
    print(json.dumps(found), file=lines)


if __name__ == "__main__":
    main()
