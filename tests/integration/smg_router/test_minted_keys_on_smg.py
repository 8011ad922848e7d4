"""A stock smg chooses as LBCH does where requests carry minted keys; every figure from smg 1.13.0 itself."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import httpx
import openai
import pytest
from coresched_smg import MintedKeys, SmgRouter, SyncTransport, Transport
from served import served
from smg_processes import HeldWorker, got, held_workers, listed, smg_before, until

import coresched
from bench.gateways import exchange
from coresched.core import LoadBoundedRouter
from coresched.errors import InputError

pytestmark = pytest.mark.smg

REFRESH_S = 0.2
ZIPF = [1 / rank for rank in range(1, 61)]
LABELS = {
    "hot": ["hot"] * 30,
    "zipf": [f"t{rank}" for rank in random.Random(7).choices(range(60), ZIPF, k=60)],
    "uniform": [f"t{number}" for number in range(60)],
}


@dataclass
class Fleet:
    workers: list[HeldWorker]
    smg: SmgRouter

    @property
    def urls(self) -> list[str]:
        return [worker.url for worker in self.workers]


@pytest.fixture(scope="module", params=[2, 3, 5])
def fleet(request: pytest.FixtureRequest) -> Iterator[Fleet]:
    with (
        held_workers(request.param) as workers,
        smg_before([worker.url for worker in workers]) as url,
        SmgRouter(url, refresh_s=REFRESH_S) as smg,
    ):
        yield Fleet(workers, smg)


def body(tokens: int, *, stream: bool = False) -> bytes:
    return exchange.body(tokens, stream=stream)


async def post(client: httpx.AsyncClient, label: str, content: bytes) -> httpx.Response:
    with coresched.label(label):
        headers = {"content-type": "application/json"}
        return await client.post(f"http://smg{exchange.CHAT}", content=content, headers=headers)


async def held_choices(
    smg: SmgRouter, workers: Sequence[HeldWorker], labels: Sequence[str], *, stream: bool = False
) -> list[str]:
    """The worker that served each request, all of which were in flight at once, sent in this order."""
    async with httpx.AsyncClient(transport=Transport(smg), timeout=60) as client:
        sent = []
        for number, label in enumerate(labels, 1):
            sent.append(asyncio.ensure_future(post(client, label, body(exchange.HELD, stream=stream))))
            while sum(smg.router.loads().values()) < number:  # it has been chosen
                await asyncio.sleep(0)
        loads = smg.router.loads()
        for worker in workers:  # nothing is anywhere else than where it is counted
            assert await asyncio.to_thread(worker.held, loads[worker.url]) == loads[worker.url]
        for worker in workers:
            worker.release()
        answers = await asyncio.gather(*sent)
    assert [answer.status_code for answer in answers] == [200] * len(labels)
    if stream:
        assert all(answer.text.endswith("data: [DONE]\n\n") for answer in answers)
    assert set(smg.router.loads().values()) == {0}
    return [answer.headers["x-smg-routed-worker-id"] for answer in answers]


def lbch(urls: Sequence[str], labels: Sequence[str], exclude: Sequence[str] = ()) -> list[str]:
    router = LoadBoundedRouter(urls)
    return [router.route(label, exclude) for label in labels]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "sse"])
@pytest.mark.parametrize("shape", LABELS)
async def test_every_held_request_is_where_lbch_puts_it(fleet: Fleet, shape: str, stream: bool) -> None:
    labels = LABELS[shape]
    assert await held_choices(fleet.smg, fleet.workers, labels, stream=stream) == lbch(fleet.urls, labels)
    assert fleet.smg.elsewhere() == {}


def test_the_ring_is_that_of_the_released_program(fleet: Fleet) -> None:
    keys = MintedKeys(fleet.urls)
    with httpx.Client(base_url=fleet.smg.url) as client:
        for number in range(200):
            sent = {"x-smg-routing-key": f"key-{number}", "content-type": "application/json"}
            answer = client.post(exchange.CHAT, content=body(1), headers=sent)
            assert answer.headers["x-smg-routed-worker-id"] == keys.home(f"key-{number}")


def test_the_turn_of_a_batch_goes_to_its_worker_with_the_openai_client(fleet: Fleet) -> None:
    from coresched import sync

    transport = SyncTransport(fleet.smg)
    client = openai.OpenAI(
        api_key="none", base_url="http://smg/v1", http_client=httpx.Client(transport=transport)
    )
    with sync.Batch(sample_concurrency=9, environment_concurrency=1, workers=fleet.smg.workers()) as batch:
        for number in range(9):
            with batch.sample(f"task-{number}") as sample, sample.inference() as turn:
                raw = client.chat.completions.with_raw_response.create(
                    model=exchange.MODEL, max_tokens=1, messages=[{"role": "user", "content": "a"}]
                )
                assert raw.headers["x-smg-routed-worker-id"] == turn.worker
                headers = {**turn.headers, **fleet.smg.headers(turn.worker or "", turn.label)}
                headers["content-type"] = "application/json"
                answer = httpx.post(f"{fleet.smg.url}{exchange.CHAT}", content=body(1), headers=headers)
                assert answer.headers["x-smg-routed-worker-id"] == turn.worker
    assert set(fleet.smg.router.loads().values()) == {0}


async def test_the_turn_of_a_batch_at_a_service_goes_to_its_worker(fleet: Fleet) -> None:
    workers = [f"--worker={url}" for url in fleet.smg.workers()]
    with served(*workers) as (address, _):
        batch = coresched.connect(address, batch="a", sample_concurrency=60, environment_concurrency=1)
        async with batch, httpx.AsyncClient(transport=Transport(fleet.smg)) as client:

            async def run(label: str) -> tuple[str | None, str]:
                async with batch.sample(label) as sample, sample.inference() as turn:
                    headers = {"content-type": "application/json"}
                    url = f"http://smg{exchange.CHAT}"
                    answer = await client.post(url, content=body(20), headers=headers)
                    return turn.worker, answer.headers["x-smg-routed-worker-id"]

            pairs = await asyncio.gather(*(run(label) for label in LABELS["uniform"][:20]))
    assert all(chosen == served_by for chosen, served_by in pairs)
    assert set(fleet.smg.router.loads().values()) == {0}


async def test_a_worker_killed_and_started_again_loses_nothing() -> None:
    labels = LABELS["zipf"]
    with held_workers(3) as workers, smg_before([worker.url for worker in workers]) as url:
        urls, victim = [worker.url for worker in workers], workers[1]
        with SmgRouter(url, refresh_s=REFRESH_S) as smg:
            assert await held_choices(smg, workers, labels) == lbch(urls, labels)
            victim.kill()
            async with httpx.AsyncClient(transport=Transport(smg), timeout=60) as client:
                answers = await asyncio.gather(*(post(client, label, body(1)) for label in LABELS["uniform"]))
            assert {answer.status_code for answer in answers} == {200}
            assert victim.url not in {answer.extensions["coresched_worker"] for answer in answers}
            assert sum(smg.elsewhere().values()) > 0
            assert set(smg.router.loads().values()) == {0}
            until(lambda: victim.url not in listed(url), "smg did not notice that a worker is dead")
            smg.refresh()
            assert smg.out() == {victim.url}
            others = [worker for worker in workers if worker is not victim]
            assert await held_choices(smg, others, labels) == lbch(urls, labels, [victim.url])
            victim.start()
            until(lambda: smg.out() == set(), "the worker did not come back")
            moved = smg.elsewhere()
            assert await held_choices(smg, workers, labels) == lbch(urls, labels)
            assert smg.elsewhere() == moved


async def test_requests_held_on_a_killed_worker_end_elsewhere_and_are_counted_there() -> None:
    labels = LABELS["uniform"]
    with held_workers(3) as workers, smg_before([worker.url for worker in workers]) as url:
        victim, *others = workers
        with SmgRouter(url, refresh_s=REFRESH_S) as smg:
            async with httpx.AsyncClient(transport=Transport(smg), timeout=60) as client:
                sent = [asyncio.ensure_future(post(client, label, body(exchange.HELD))) for label in labels]
                await asyncio.to_thread(until, lambda: sum(w.held() for w in workers) == 60, "not all came")
                lost = victim.held()
                victim.kill()
                await asyncio.to_thread(until, lambda: sum(w.held() for w in others) == 60, "lost some")
                for worker in others:
                    worker.release()
                answers = await asyncio.gather(*sent)
            assert {answer.status_code for answer in answers} == {200}
            moved = {served: n for (chosen, served), n in smg.elsewhere().items() if chosen == victim.url}
            assert lost > 0
            assert sum(moved.values()) == lost
            assert set(smg.router.loads().values()) == {0}


async def test_keys_are_minted_anew_when_a_worker_joins_and_when_it_leaves() -> None:
    labels = LABELS["zipf"]
    with held_workers(3) as workers:
        urls = [worker.url for worker in workers]
        with smg_before(urls[:2]) as url, SmgRouter(url, refresh_s=REFRESH_S) as smg:
            assert await held_choices(smg, workers[:2], labels) == lbch(urls[:2], labels)
            got(f"{url}/workers", "POST", {"url": urls[2]})
            until(lambda: set(smg.workers()) == set(urls), "the new worker did not join")
            assert await held_choices(smg, workers, labels) == lbch(urls, labels)
            got(f"{url}/workers/{listed(url)[urls[0]]}", "DELETE")
            until(lambda: set(smg.workers()) == set(urls[1:]), "the worker did not leave")
            assert await held_choices(smg, workers[1:], labels) == lbch(urls[1:], labels)
            assert set(smg.router.loads()) == set(urls[1:])


async def test_a_newcomer_that_takes_a_key_is_found_by_the_answer() -> None:
    with held_workers(3) as workers:
        urls = [worker.url for worker in workers]
        with smg_before(urls[:2]) as url, SmgRouter(url, refresh_s=3600) as smg:
            got(f"{url}/workers", "POST", {"url": urls[2]})
            until(lambda: urls[2] in listed(url), "smg did not add the worker")
            ring, home = MintedKeys(urls), LoadBoundedRouter(urls[:2]).home
            labels = [f"t{number}" for number in range(100)]
            taken = next(t for t in labels if ring.home(smg.keys.key(home(t), t)) == urls[2])
            async with httpx.AsyncClient(transport=Transport(smg)) as client:
                answer = await post(client, taken, body(1))
                assert answer.extensions["coresched_worker"] == home(taken)  # where it was counted
                assert answer.headers["x-coresched-worker"] == urls[2]
                assert smg.elsewhere() == {(home(taken), urls[2]): 1}
                assert smg.out() == set()
                await asyncio.to_thread(until, lambda: urls[2] in smg.workers(), "it was not found")
            assert await held_choices(smg, workers, LABELS["zipf"]) == lbch(urls, LABELS["zipf"])


async def test_without_a_connection_to_smg_nothing_is_tried_twice_and_nothing_stays_counted(
    fleet: Fleet,
) -> None:
    tried: list[httpx.Request] = []

    def refuse(request: httpx.Request) -> httpx.Response:
        tried.append(request)
        raise httpx.ConnectError("refused")

    message = f"no connection to smg ({fleet.smg.url}): refused"
    refusing = Transport(fleet.smg, inner=lambda: httpx.MockTransport(refuse))
    async with httpx.AsyncClient(transport=refusing) as client:
        with pytest.raises(httpx.ConnectError, match=re.escape(message)):
            await post(client, "a", body(1))
    blocking = SyncTransport(fleet.smg, inner=lambda: httpx.MockTransport(refuse))
    raises = pytest.raises(httpx.ConnectError, match=re.escape(message))
    with httpx.Client(transport=blocking) as waiting, coresched.label("a"), raises:
        waiting.get("http://smg/v1/models")
    assert [str(request.url) for request in tried] == [
        f"{fleet.smg.url}/v1/chat/completions",
        f"{fleet.smg.url}/v1/models",
    ]
    assert set(fleet.smg.router.loads().values()) == {0}


@pytest.mark.parametrize(
    ("policy", "options"),
    [
        ("round_robin", ()),
        ("prefix_hash", ()),
        ("cache_aware", ()),
    ],
)
def test_an_smg_that_chooses_otherwise_is_refused(policy: str, options: Sequence[str]) -> None:
    with held_workers(3) as workers, smg_before([w.url for w in workers], *options, policy=policy) as url:
        with pytest.raises(InputError, match=r"sent a key minted for worker .*--policy consistent_hashing"):
            SmgRouter(url)
        with pytest.raises(InputError, match="lists no worker for the model 'other', only for"):
            SmgRouter(url, model="other")


def test_where_no_smg_is_listening_that_is_said() -> None:
    with pytest.raises(InputError, match=r"url must be that of a running smg, got 'http://127.0.0.1:9'"):
        SmgRouter("http://127.0.0.1:9")
    with pytest.raises(ValueError, match="without /v1 at its end"):
        SmgRouter("http://127.0.0.1:9/v1")


async def test_sticky_sessions_change_nothing() -> None:
    with held_workers(3) as workers:
        urls = [worker.url for worker in workers]
        with smg_before(urls, "--sticky-sessions") as url, SmgRouter(url, refresh_s=REFRESH_S) as smg:
            for labels in LABELS.values():
                assert await held_choices(smg, workers, labels) == lbch(urls, labels)
