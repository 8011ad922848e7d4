"""Runs in Ray's environment: what a deployment behind the router does, as a JSON object."""

import asyncio
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx
import ray
from ray import serve
from ray.exceptions import RayActorError, TaskCancelledError
from ray.serve.exceptions import RequestCancelledError
from ray.serve.schema import ServeDeploySchema

from bench.ray_serve.cluster import local_ray, own_stdout, router_of
from bench.ray_serve.held import LOAD_BOUNDED, FanOut, await_replicas, held_deployment, new_gate, wait_until

KEY = "x-smg-routing-key"


class Scenarios:
    """Most on one deployment of three replicas, `plain`."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.gate = new_gate()
        options = {"load_bound": 1.25, "label_argument": "trajectory"}
        self.plain = serve.run(
            held_deployment(LOAD_BOUNDED, **options).bind(self.gate), name="plain", route_prefix="/plain"
        )
        await_replicas(self.plain)

    def held(self, count: int) -> None:
        wait_until(lambda: ray.get(self.gate.held.remote()) == count)

    def let_go(self) -> None:
        ray.get(self.gate.open.remote())
        self.held(0)
        ray.get(self.gate.shut.remote())

    def in_flight(self, handle: Any) -> int:
        return sum(router_of(handle)._ring.in_flight().values())

    def at_rest(self, handle: Any) -> dict[str, Any]:
        """What the router still counts, once its requests have ended."""
        router = router_of(handle)
        wait_until(lambda: not router._ring.in_flight() and not router._attempts._assigned, 10)
        return {"in_flight": self.in_flight(handle), "waiting": len(router._attempts._waiting)}

    def through_handle(self, labels: list[str]) -> list[int]:
        """Ranks that held requests of these labels went to, in order of sending."""
        calls = [self.plain.hold.options(session_id=label).remote() for label in labels]
        self.held(len(labels))
        self.let_go()
        return [call.result() for call in calls]

    def through_http(self, labels: list[str], header: str) -> list[int]:
        time.sleep(0.5)  # the proxy is told of an end a little later than who asked

        async def run() -> list[int]:
            async with httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=None)) as client:
                sent = []
                for count, label in enumerate(labels, 1):  # one after another, so that the order is known
                    ask = client.get(f"{self.url}/plain/hold", headers={header: label})
                    sent.append(asyncio.create_task(ask))
                    while await self.gate.held.remote() < count:
                        await asyncio.sleep(0.005)
                await asyncio.to_thread(self.let_go)
                return [int((await each).text) for each in sent]

        return asyncio.run(run())

    def splits(self) -> dict[str, Any]:
        ordered = random.Random(3)
        zipf = [f"z{ordered.choices(range(20), [1 / (k + 1) for k in range(20)])[0]}" for _ in range(60)]
        labels = {"hot": ["hot"] * 30, "zipf": zipf, "uniform": [f"u{i}" for i in range(60)]}
        found: dict[str, Any] = {}
        for name, these in labels.items():
            found[name] = {"labels": these, "ranks": self.through_handle(these)}
            self.at_rest(self.plain)
        found["http key"] = {"labels": labels["hot"], "ranks": self.through_http(labels["hot"], KEY)}
        found["http session"] = {
            "labels": zipf[:30],
            "ranks": self.through_http(zipf[:30], "x-session-id"),
        }
        calls = [self.plain.hold.remote(trajectory="hot") for _ in range(30)]
        self.held(30)
        self.let_go()
        found["argument"] = {"labels": labels["hot"], "ranks": [call.result() for call in calls]}
        return found

    def streams(self) -> dict[str, Any]:
        """Of a handle: open, read to the end, and cancelled. Of HTTP: left by the client."""
        handle = self.plain.options(stream=True)
        calls = [handle.stream.options(session_id="hot", stream=True).remote() for _ in range(6)]
        firsts = [next(call) for call in calls]
        self.held(6)
        counted = self.in_flight(self.plain)
        for call in calls[:3]:
            call.cancel()
        self.held(3)
        wait_until(lambda: self.in_flight(self.plain) == 3, 10)
        ray.get(self.gate.open.remote())
        lasts = [list(call) for call in calls[3:]]
        ray.get(self.gate.shut.remote())
        found = {"counted": counted, "same": lasts == [[first] for first in firsts[3:]]}
        found["at rest"] = self.at_rest(self.plain)

        async def leave() -> None:
            async with httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=None)) as client:
                streams = []  # one that is forgotten closes its connection
                for _ in range(10):
                    request = client.build_request("GET", f"{self.url}/plain/stream", headers={KEY: "hot"})
                    answer = await client.send(request, stream=True)
                    streams.append(answer.aiter_lines())
                    await streams[-1].__anext__()
                held = [
                    asyncio.create_task(client.get(f"{self.url}/plain/hold", headers={KEY: "hot"}))
                    for _ in range(10)
                ]
                await asyncio.to_thread(self.held, 20)
                for each in held:
                    each.cancel()

        asyncio.run(leave())
        self.held(0)
        found["after leaving"] = {"labels": ["hot"] * 30, "ranks": self.through_http(["hot"] * 30, KEY)}
        return found

    def narrow(self) -> dict[str, Any]:
        """Replicas that refuse a third request: requests wait, are cancelled, or go elsewhere."""
        handle = serve.run(
            held_deployment(LOAD_BOUNDED, most_ongoing=2).bind(self.gate), name="narrow", route_prefix=None
        )
        calls = [handle.hold.options(session_id="hot").remote() for _ in range(6)]
        self.held(6)
        waiting = [handle.hold.options(session_id="hot").remote() for _ in range(5)]
        time.sleep(0.3)
        counted = self.in_flight(handle)
        for call in waiting[:3]:
            call.cancel()
        self.let_go()
        ray.get(self.gate.open.remote())
        answered = len([call.result() for call in calls + waiting[3:]])
        found = {"counted": counted, "answered": answered, "at rest": self.at_rest(handle)}
        chance = random.Random(5)
        ended: Counter[str] = Counter()

        def one(number: int) -> None:
            call = handle.sleep.options(session_id=f"s{number % 7}").remote(chance.random() / 20)
            if chance.random() < 0.4:
                time.sleep(chance.random() / 10)
                call.cancel()
            try:
                call.result()
                ended["answered"] += 1
            except (RequestCancelledError, TaskCancelledError):
                ended["cancelled"] += 1

        in_threads(one, 150, 15)
        ray.get(self.gate.shut.remote())
        return {**found, "at random": dict(ended), "at rest after": self.at_rest(handle)}

    def reservations(self) -> dict[str, Any]:
        async def run() -> list[Any]:
            handle = self.plain.now.options(session_id="hot")
            async with handle.choose_replica() as dropped:
                counted = self.in_flight(self.plain)
            await asyncio.sleep(0.2)
            async with handle.choose_replica() as used:
                await handle.dispatch(used)
            del dropped, used
            return [counted]

        return {"counted": asyncio.run(run())[0], "at rest": self.at_rest(self.plain)}

    def fan_out(self) -> list[int]:
        """Calls of one handle within one request share its internal id."""
        ingress = serve.deployment(ray_actor_options={"num_cpus": 0})(FanOut)
        serve.run(ingress.bind("plain"), name="fan", route_prefix="/fan")
        ranks: list[int] = httpx.get(f"{self.url}/fan", timeout=20).json()
        return ranks

    def configuration_files(self) -> dict[str, str]:
        """What a request gets by a good configuration and by a bad one, which nothing checks earlier."""
        config = {"applications": [configured("good", load_bound=2), configured("bad", load_bound=0.5)]}
        serve.context._get_global_client().deploy_apps(ServeDeploySchema.model_validate(config))
        found = {}
        for name in ("good", "bad"):
            wait_until(lambda name=name: serve.status().applications[name].status == "RUNNING")
            try:
                found[name] = serve.get_app_handle(name).remote().result(timeout_s=10)
            except Exception as error:
                found[name] = str(error)
        return found

    def scaled(self) -> dict[str, Any]:
        """To two replicas, after which Serve closes a gap in the ranks in its own time, and back to three."""
        router = router_of(self.plain)
        found: dict[str, Any] = {}
        for count in (2, 3):
            deployment = held_deployment(LOAD_BOUNDED, label_argument="trajectory")
            deployment = deployment.options(num_replicas=count)
            serve.run(deployment.bind(self.gate), name="plain", route_prefix="/plain")
            wait_until(lambda count=count: slots_of(router) == list(range(count)), 40)
            ranks = ray.get(ranks_of(router))
            found[f"to {count}"] = {each: ranks[each].rank for each in ranks} == {
                each.unique_id: slot for each, slot in router._ring.slots.items()
            }
        return found

    def without_ranks(self) -> dict[str, Any]:
        """A controller that gives no ranks: slots are chosen here, until it does."""
        router = router_of(self.plain)
        wait_until(lambda: slots_of(router) == [0, 1, 2] and router._following.done(), 40)
        names = type(router)._follow_ranks.__globals__
        asked, by_rank = names["replica_ranks"], dict(router._slots)

        async def none(deployment: Any) -> dict[str, int]:
            raise TimeoutError

        async def anew() -> None:
            router._slots = {}
            router.update_replicas(list(router._replicas.values()))

        names["replica_ranks"] = none
        asyncio.run_coroutine_threadsafe(anew(), router._event_loop).result()
        wait_until(lambda: slots_of(router) == [0, 1, 2])
        here = [each.unique_id for each in router._ring.slots]
        names["replica_ranks"] = asked
        wait_until(lambda: router._following.done(), 20)
        again = {each.unique_id: slot for each, slot in router._ring.slots.items()}
        return {"here": here == sorted(here), "again": again == {each: by_rank[each] for each in again}}

    def killed(self) -> dict[str, Any]:
        """One of three replicas is killed; who fails, whose home moves, and what it is in the end."""
        router = router_of(self.plain)
        labels = [f"u{i}" for i in range(60)]

        def homes() -> list[int]:
            return [router._slots[router._ring.home(label).unique_id] for label in labels]

        def ask(failures: list[str]) -> None:
            for label in labels:
                try:
                    self.plain.now.options(session_id=label).remote().result(timeout_s=20)
                    httpx.get(f"{self.url}/plain/now", headers={KEY: label}, timeout=20).raise_for_status()
                except Exception as error:
                    failures.append(repr(error))

        before, slots, failures = homes(), dict(router._slots), []
        self.at_rest(self.plain)
        victim = router._ring.home("hot")
        slot = router._slots[victim.unique_id]
        ray.kill(router._replicas[victim]._actor_handle)
        self.plain.now.options(session_id="hot").remote().result(timeout_s=20)
        during = homes()
        ask(failures)
        wait_until(lambda: len(router._ring.slots) == 3, 40)
        ask(failures)
        found = {"slot": slot, "before": before, "during": during, "after": homes(), "failures": failures}
        found["others"] = all(
            slots[each] == router._slots[each] for each in slots if each != victim.unique_id
        )
        found["at rest"] = self.at_rest(self.plain)
        found["in flight"] = self.killed_with_requests(router)
        return found

    def killed_with_requests(self, router: Any) -> dict[str, Any]:
        """What is in flight on a killed replica fails, as Serve has it, and is counted no more."""
        calls = [self.plain.hold.options(session_id="hot").remote() for _ in range(30)]
        self.held(30)
        victim = router._ring.home("hot")
        on_it = router._ring.in_flight()[victim]
        ray.kill(router._replicas[victim]._actor_handle)
        wait_until(lambda: self.in_flight(self.plain) == 30 - on_it)
        ray.get(self.gate.open.remote())
        failed = 0
        for call in calls:
            try:
                call.result()
            except RayActorError:
                failed += 1
        ray.get(self.gate.shut.remote())
        return {"on it": on_it, "failed": failed, "at rest": self.at_rest(self.plain)}


def slots_of(router: Any) -> list[int]:
    return sorted(router._ring.slots.values())


def ranks_of(router: Any) -> Any:
    """What Serve's controller says, to come."""
    controller = serve.context._get_global_client()._controller
    return controller._get_replica_ranks_mapping.remote(router._deployment_id)


def configured(name: str, **options: Any) -> dict[str, Any]:
    router = {"request_router_class": LOAD_BOUNDED, "request_router_kwargs": options}
    return {
        "name": name,
        "route_prefix": f"/{name}",
        "import_path": "integration.ray_cluster.serve_application:application",
        "deployments": [{"name": "Now", "request_router_config": router}],
    }


def in_threads(work: Callable[[int], None], count: int, width: int) -> None:
    numbers = iter(range(count))
    lock = threading.Lock()

    def run() -> None:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            work(number)

    threads = [threading.Thread(target=run) for _ in range(width)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> None:
    lines = own_stdout()
    with local_ray() as port:
        scenarios = Scenarios(port)
        found = {}
        for name in (
            "splits",
            "streams",
            "reservations",
            "narrow",
            "fan_out",
            "configuration_files",
            "killed",
            "without_ranks",
            "scaled",
        ):
            began = time.monotonic()
            found[name] = getattr(scenarios, name)()
            found[f"{name} seconds"] = round(time.monotonic() - began, 1)
    print(json.dumps(found), file=lines)


if __name__ == "__main__":
    main()
