"""The endpoint over HTTP: decisions in AIBrix's form, and errors that name what is wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import Any

import aiohttp
import pytest
from coresched_aibrix.endpoint import PATH, Endpoint
from coresched_aibrix.labels import traceparent
from coresched_aibrix.picker import Picker
from coresched_aibrix.protocol import MEDIA_TYPE
from coresched_aibrix.server import running
from gateways import client
from selection_requests import pods, question, sent

from coresched.core import LoadBoundedRouter
from coresched.listen import TcpAddress

THREE = dict.fromkeys(pods(3), 0)


@asynccontextmanager
async def endpoint(
    token: str | None = None,
) -> AsyncIterator[tuple[Endpoint, aiohttp.ClientSession, str]]:
    served = Endpoint(Picker(), label_attribute="trajectory", token=token)
    async with running(served, TcpAddress("127.0.0.1", 0)) as address, client() as session:
        yield served, session, f"http://{address}{PATH}"


async def test_a_decision_is_what_aibrix_takes_for_one() -> None:
    home = LoadBoundedRouter(list(THREE)).home("t1")
    async with endpoint() as (served, session, url):
        asked = question(THREE, request_id="req-7", ports=(8001,), attributes={"trajectory": "t1"})
        async with session.post(url, **sent(asked, **{"X-Request-Id": "req-7"})) as answer:
            assert answer.status == 200
            assert answer.headers["Content-Type"] == MEDIA_TYPE
            assert await answer.json(content_type=None) == {
                "apiVersion": "routing.aibrix.ai/v1alpha1",
                "kind": "ReplicaSelectionResponse",
                "metadata": {"requestId": "req-7"},
                "status": {"decision": "Selected", "target": {"id": home, "port": 8001}},
            }
        assert served.selected == {"attribute": 1, "trace": 0, "request": 0}


async def test_turns_with_a_trace_of_their_trajectory_go_to_one_pod() -> None:
    async with endpoint() as (served, session, url):
        seen: dict[str, set[str]] = {}
        for n in range(60):
            label = f"t{n % 6}"
            asked = question(dict.fromkeys(THREE, 50), request_id=f"r{n}", mode="Authoritative")
            async with session.post(url, **sent(asked, traceparent(label))) as answer:
                status = (await answer.json(content_type=None))["status"]
            seen.setdefault(label, set()).add(status["target"]["id"])
        assert all(len(where) == 1 for where in seen.values())
        assert len(set.union(*seen.values())) > 1
        assert served.selected["trace"] == 60


async def test_without_counts_the_mode_says_who_decides() -> None:
    unknown: dict[str, int | None] = dict.fromkeys(THREE)
    async with endpoint() as (served, session, url):
        async with session.post(url, **sent(question(unknown))) as answer:
            assert answer.status == 200
            decision = (await answer.json(content_type=None))["status"]
            assert decision == {"decision": "NoDecision", "reason": "NoRunningRequests"}
        async with session.post(url, **sent(question(unknown, mode="Authoritative"))) as answer:
            assert answer.status == 503
            assert answer.content_type == "application/problem+json"
            assert (
                "AIBRIX_EXTERNAL_ROUTER_CANDIDATE_METRICS" in (await answer.json(content_type=None))["detail"]
            )
        assert (served.undecided, dict(served.refused)) == (1, {503: 1})


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("apiVersion", "routing.aibrix.ai/v2", "$.apiVersion"),
        ("kind", "Pod", "$.kind"),
        ("metadata.requestId", "", "$.metadata.requestId"),
        ("metadata.requestId", 7, "$.metadata.requestId"),
        ("spec.model", None, "$.spec.model"),
        ("spec.policyMode", "Maybe", "$.spec.policyMode"),
        ("spec.candidates", [], "$.spec.candidates"),
        ("spec.candidates.0.id", None, "$.spec.candidates[0].id"),
        ("spec.candidates.0.id", "ü" * 257, "$.spec.candidates[0].id"),
        ("spec.candidates.0.ports", [0], "$.spec.candidates[0].ports[0]"),
        ("spec.candidates.0.ports", [], "$.spec.candidates[0].ports"),
        ("spec.candidates.0.ports", list(range(1, 1026)), "$.spec.candidates[0].ports"),
        (
            "spec.candidates.0.ports",
            [80, 81, 80],
            f"ports of {pods(1)[0]!r} in spec.candidates must be different",
        ),
        ("spec.candidates.0.id", "語" * 250, "id in spec.candidates must be at most 512 bytes"),
        ("metadata.requestId", "語" * 250, "metadata.requestId must be at most 512 bytes"),
        ("spec.candidates.0.metrics.runningRequests", -1, "$.spec.candidates[0].metrics.runningRequests"),
        ("spec.candidates.0.id", pods(3)[1], "spec.candidates must name each pod once"),
        ("spec.policyContext", {"attributes": {"trajectory": "x" * 513}}, "attributes['trajectory']"),
    ],
)
async def test_what_is_wrong_is_named(path: str, value: Any, said: str) -> None:
    asked = question(THREE)
    place: Any = asked
    *folders, last = path.split(".")
    for name in folders:
        place = place[int(name) if name.isdigit() else name]
    place[last] = value
    async with endpoint() as (served, session, url), session.post(url, **sent(asked)) as answer:
        assert answer.status == 400
        problem = await answer.json(content_type=None)
        assert said in problem["detail"]
        assert "\n" not in problem["detail"]
        assert served.refused == {400: 1}


async def test_more_candidates_than_a_ring_is_made_of_at_once_are_refused() -> None:
    async with endpoint() as (served, session, url):
        async with session.post(url, **sent(question(dict.fromkeys(pods(1025), 0)))) as answer:
            assert answer.status == 400
            assert "`array` of length <= 1024 - at `$.spec.candidates`" in await answer.text()
        assert served.picker.pods == 0


async def test_what_is_no_question_is_refused() -> None:
    asked = sent(question(THREE))
    async with endpoint() as (_, session, url):
        for method, target, body, status in (
            ("POST", url, asked | {"data": b"{"}, 400),
            ("POST", url, asked | {"data": b"\xff"}, 400),
            ("POST", url, sent(question({"default/\ud800": 0})), 400),
            ("POST", url, sent(question(THREE, request_id="\ud800")), 400),
            ("POST", url, sent(question({"default/" + "\u8a9e" * 248: 0})), 400),
            ("POST", url, asked | {"data": asked["data"] + b"{}"}, 400),
            ("POST", url, asked | {"data": b" " * (2 << 20)}, 413),
            ("POST", url, asked | {"headers": {"Content-Type": "application/json"}}, 415),
            ("POST", url, sent(question(THREE), **{"X-Request-Id": "other"}), 400),
            ("GET", url, {}, 404),
            ("POST", url + "/x", deepcopy(asked), 404),
        ):
            async with session.request(method, target, **body) as answer:
                assert answer.status == status, (method, target, await answer.text())
                assert answer.content_type == "application/problem+json"
        asked["headers"]["Content-Type"] = MEDIA_TYPE.replace(";", "; ").replace("v1alpha1", '"v1alpha1"')
        async with session.post(url, **asked) as answer:
            assert answer.status == 200


async def test_the_first_refusal_of_each_status_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with endpoint("s3cret") as (_, session, url):
        for headers in ({}, {"Authorization": "Bearer s3cre"}):
            async with session.post(url, **sent(question(THREE), **headers)) as answer:
                assert answer.status == 401
        async with session.get(url + "/line%0Afeed") as answer:
            assert answer.status == 404
        asked = question(THREE) | {"kind": "a\nb"}
        async with session.post(url, **sent(asked, Authorization="Bearer s3cret")) as answer:
            assert answer.status == 400
    lines = [record.getMessage() for record in caplog.records if record.name == "coresched_aibrix.endpoint"]
    assert [line.split(": ")[1] for line in lines] == ["401", "404", "400"]
    assert "AIBRIX_EXTERNAL_ROUTER_AUTH_TOKEN_FILE" in lines[0]
    assert not any("\n" in line or "s3cre" in line for line in lines)


async def test_a_token_is_asked_for() -> None:
    async with endpoint("s3cret") as (served, session, url):
        for headers, status in (
            ({}, 401),
            ({"Authorization": "Bearer s3cre"}, 401),
            ({"Authorization": "Bearer s3cret"}, 200),
        ):
            async with session.post(url, **sent(question(THREE), **headers)) as answer:
                assert answer.status == status
        async with session.get(url.replace(PATH, "/health")) as answer:
            assert (answer.status, await answer.json()) == (200, {"pods": 3})
        assert served.refused == {401: 2}
