"""What goes through the sidecar, and what it answers itself."""

import asyncio
import gzip
import json
from typing import Any

import pytest
from aiohttp import web
from gateways import CHAT, exchanged
from sidecar_ends import Ends, ends, leave, until

from coresched.sidecar.terms import Terms

BODY = b'{ "messages":[ {"role":"user","content":"[]"} ],  "temperature": 0.70 }'


async def post(bench: Ends, path: str = CHAT, body: bytes = BODY, **headers: str) -> tuple[int, Any]:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    async with bench.session.post(bench.url + path, data=body, headers=given) as response:
        return response.status, await response.json()


@pytest.mark.parametrize(
    ("headers", "label", "authorization"),
    [
        ({"Authorization": "Bearer task-1"}, "task-1", []),
        ({"Authorization": "bearer  task-1 "}, "task-1", []),
        ({"x_smg_routing_key": "r", "Authorization": "Bearer real"}, "r", ["Bearer real"]),
        ({"x_session_id": "s"}, "s", []),
    ],
)
async def test_a_request_goes_on_byte_for_byte_with_its_label(
    headers: dict[str, str], label: str, authorization: list[str]
) -> None:
    async with ends() as bench:
        status, answer = await post(bench, **headers, X_Other="kept")
        assert (status, answer["choices"][0]["message"]["content"]) == (200, "so")
        (seen,) = bench.llm.seen
        assert (seen.method, seen.target, seen.body) == ("POST", CHAT, BODY)
        assert seen.header("x-smg-routing-key") == [label]
        assert seen.header("x-session-id") == [label]
        assert seen.header("authorization") == authorization
        assert seen.header("x-other") == ["kept"]


async def test_the_real_key_replaces_what_clients_send() -> None:
    async with ends(api_key="real") as bench:
        await post(bench, Authorization="Bearer task-1")
        await post(bench, x_session_id="task-2")
        assert [seen.header("authorization") for seen in bench.llm.seen] == [["Bearer real"]] * 2
        assert [seen.header("x-smg-routing-key") for seen in bench.llm.seen] == [["task-1"], ["task-2"]]


async def test_one_key_for_all_tasks_is_passed_on_where_prompts_name_them() -> None:
    async with ends(label_from="prompt") as bench:
        other = BODY.replace(b'"[]"', b'"[ ]"')
        for body in (BODY, BODY, other):
            await post(bench, body=body, Authorization="Bearer shared")
        labels = [seen.header("x-smg-routing-key")[0] for seen in bench.llm.seen]
        assert labels[0] == labels[1] != labels[2]
        assert bench.llm.seen[0].header("authorization") == ["Bearer shared"]


@pytest.mark.parametrize("key", ["x" * 497, "\x01", "ü\udcff"])
async def test_a_key_that_is_no_label_is_refused(key: str) -> None:
    async with ends() as bench:
        port = int(bench.url.rsplit(":", 1)[1])
        head = (
            f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Length: 2\r\n\r\n{{}}"
        )
        answered = await exchanged(port, head.encode("utf-8", "surrogateescape"))
        assert answered.split()[1] == b"400"
        assert not bench.llm.seen


async def test_everything_else_goes_to_the_tools_or_the_llm() -> None:
    async with ends() as bench:
        for method, path in (("POST", "/list-tools"), ("GET", "/a%20b?c=d"), ("HEAD", "/"), ("PUT", "/x/y")):
            async with bench.session.request(method, bench.url + path) as response:
                assert response.status == 200
        assert [(seen.method, seen.target) for seen in bench.tools.seen] == [
            ("POST", "/list-tools"),
            ("GET", "/a%20b?c=d"),
            ("HEAD", "/"),
            ("PUT", "/x/y"),
        ]
        assert not bench.llm.seen
        bench.llm.respond = None
        async with bench.session.get(bench.url + "/v1/models") as response:
            assert response.status == 200
        assert bench.llm.seen[0].target == "/v1/models"


async def test_a_tool_answers_as_it_does() -> None:
    packed = gzip.compress(b"[1]")

    async def answer(request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        headers = {"Content-Encoding": "gzip", "Content-Type": "application/json", "X-Kept": "1"}
        return web.Response(status=418, body=packed, headers=headers)

    async with ends() as bench:
        bench.tools.respond = answer
        async with bench.session.post(bench.url + "/call-tool", json={"tool_name": "a"}) as response:
            assert (response.status, await response.json()) == (418, [1])
            assert response.headers["X-Kept"] == "1"


async def test_json_rpc_of_mcp_is_a_tool_call_where_its_method_says_so() -> None:
    async with ends(tool_path="/mcp") as bench:
        await bench.ask("first", ("look", {"at": 1}))
        for method, params in (("tools/list", {}), ("tools/call", {"name": "look", "arguments": {"at": 1}})):
            rpc = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            await post(bench, "/mcp", json.dumps(rpc).encode())
        assert (bench.counts.matched, bench.counts.unmatched) == (1, 0)
        assert [seen.header("x-smg-routing-key") for seen in bench.tools.seen] == [[], ["first"]]


async def test_a_dead_llm_and_dead_tools_are_answered_with_503_and_met_again() -> None:
    async with ends() as bench:
        await bench.llm.kill()
        await bench.tools.kill()
        for path, body in ((CHAT, BODY), ("/call-tool", b'{"tool_name": "a"}'), ("/list-tools", b"")):
            status, answer = await post(bench, path, body, Authorization="Bearer t")
            assert (status, answer["error"]["code"]) == (503, "no_healthy_worker")
        await bench.llm.start()
        assert (await post(bench, Authorization="Bearer t"))[0] == 200


async def test_an_llm_that_drops_a_request_is_answered_with_502() -> None:
    async def drop(request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with ends() as bench:
        reply, bench.llm.respond = bench.llm.respond, drop
        status, answer = await post(bench, Authorization="Bearer t")
        assert (status, answer["error"]["code"]) == (502, "worker_failed")
        bench.llm.respond = reply
        assert (await post(bench, Authorization="Bearer t"))[0] == 200
        await until(lambda: bench.state("t") == "admitted")
        times = bench.sidecar.trajectories.batch.report().samples["t"]
        assert times.turns == 1
        assert times.failed_inference_s > 0


@pytest.mark.parametrize("stream", [False, True])
async def test_half_an_answer_is_not_taken_for_a_whole_one(stream: bool) -> None:
    async def half(request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream" if stream else "text/plain"})
        await answer.prepare(request)
        await answer.write(b'data: {"choices": []}\n\n')
        assert request.transport is not None
        request.transport.abort()
        return answer

    async with ends() as bench:
        bench.llm.respond = half
        port = int(bench.url.rsplit(":", 1)[1])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}" % CHAT.encode())
        answered = (
            await asyncio.wait_for(reader.read(), 20) if stream else await reader.readuntil(b"\r\n\r\n")
        )
        assert answered.startswith(b"HTTP/1.1 200 " if stream else b"HTTP/1.1 502 ")
        assert not answered.endswith(b"0\r\n\r\n")
        writer.close()


async def test_a_stream_that_only_has_an_error_is_passed_on() -> None:
    event = b'data: {"error": {"message": "no"}}\n\n'

    async def failed(request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        return web.Response(body=event, content_type="text/event-stream")

    async with ends() as bench:
        bench.llm.respond = failed
        async with bench.session.post(bench.url + CHAT, data=BODY) as response:
            assert await response.read() == event


async def test_a_third_trajectory_waits_for_admission_and_leaves_with_its_client() -> None:
    async with ends(sample_concurrency=2) as bench:
        await asyncio.gather(bench.ask("one"), bench.ask("two"))
        waiting = bench.ask("three")
        await until(lambda: bench.state("three") == "waiting")
        await leave(waiting)
        await until(lambda: bench.state("three") == "ended")
        assert bench.counts.dropped_admissions == 1
        again = bench.ask("three")
        await until(lambda: bench.state("three") == "waiting")
        async with bench.session.delete(bench.url + "/coresched/trajectories/one") as response:
            assert response.status == 204
        assert (await again)["content"] == "so"
        assert [one.sample.id for one in bench.sidecar.trajectories.lives if one.label == "three"] == [
            "three",
            "three#2",
        ]
        assert {header for seen in bench.llm.seen for header in seen.header("x-smg-routing-key")} == {
            "one",
            "two",
            "three",
        }


async def test_a_trajectory_that_is_ended_while_it_waits_is_told_so() -> None:
    async with ends(sample_concurrency=1) as bench:
        await bench.ask("one")
        waiting = asyncio.ensure_future(post(bench, Authorization="Bearer two"))
        await until(lambda: bench.state("two") == "waiting")
        await bench.session.delete(bench.url + "/coresched/trajectories/two")
        status, answer = await waiting
        assert (status, answer["error"]["code"]) == (409, "trajectory_ended")


async def test_a_trajectory_ends_after_a_reply_without_tool_calls_and_after_silence() -> None:
    terms = Terms(stage_idle_s=0.02, idle_s=0.1, end_after_s=0.05)
    async with ends(sample_concurrency=1, terms=terms) as bench:
        await bench.ask("done")
        await bench.ask("silent", ("look", {}))
        await bench.ask("last")
        await until(lambda: bench.state("last") == "ended")
        report = bench.sidecar.trajectories.batch.report().samples
        assert {name: times.state for name, times in report.items()} == {
            "done": "finished",
            "silent": "withdrawn",
            "last": "finished",
        }


@pytest.mark.parametrize(
    ("status", "state"), [(400, "ended"), (404, "ended"), (429, "admitted"), (503, "admitted")]
)
async def test_a_trajectory_ends_after_a_refusal_that_does_not_pass(status: int, state: str) -> None:
    terms = Terms(stage_idle_s=0.02, idle_s=3600, end_after_s=0.05)
    async with ends(terms=terms) as bench:
        answer = bench.llm.respond

        async def refuse(request: web.BaseRequest, body: bytes) -> web.StreamResponse:
            return web.json_response({"error": {}}, status=status)

        await bench.ask("task")  # what a reply before it said does not count any more
        bench.llm.respond = refuse
        assert (await post(bench, Authorization="Bearer task"))[0] == status
        await asyncio.sleep(0.1)
        assert bench.state("task") == state
        bench.llm.respond = answer
        await bench.ask("task")
        await until(lambda: bench.state("task") == "ended")
        report = bench.sidecar.trajectories.batch.report().samples
        again = {"task": "withdrawn", "task#2": "finished"} if state == "ended" else {"task": "finished"}
        assert {name: times.state for name, times in report.items()} == again


async def test_whoever_had_the_last_reply_is_finished_when_the_sidecar_stops() -> None:
    async with ends() as bench:
        await bench.ask("done")
        await bench.ask("in the middle", ("look", {}))
        batch = bench.sidecar.trajectories.batch
    assert {name: times.state for name, times in batch.report().samples.items()} == {
        "done": "finished",
        "in the middle": "withdrawn",
    }


async def test_two_requests_of_one_label_at_once_pass_and_are_counted() -> None:
    async with ends(label_from="key") as bench:
        bench.llm.gate.clear()
        both = [bench.ask("same"), bench.ask("same")]
        await until(lambda: len(bench.llm.seen) == 2)
        bench.llm.gate.set()
        await asyncio.gather(*both)
        assert bench.counts.overlapping_turns == 1


async def test_the_status_says_who_waits_and_for_how_long() -> None:
    async with ends() as bench:
        await bench.ask("first", ("a", {}))
        held = bench.ask("second", ("b", {}))
        await until(lambda: bench.state("second") == "queued")
        async with bench.session.get(bench.url + "/coresched/status") as response:
            shown = await response.json()
        assert shown["trajectories_by_state"]["queued"] == 1
        assert shown["calls_outstanding"] == 2
        first, second = shown["trajectories"]
        assert (first["label"], first["state"], second["state"]) == ("first", "environment", "queued")
        assert second["waiting_s"] > 0
        assert second["calls_pending"] == [{"name": "b", "progress": "outstanding"}]
        assert await bench.call("a") == 200
        await held


async def test_what_is_not_served_and_what_is_too_large_are_refused() -> None:
    async with ends(max_body_bytes=100) as bench:
        assert (await post(bench, body=b" " * 101))[1]["error"]["code"] == "body_too_large"
        assert (await post(bench, "/coresched/nothing"))[0] == 404
        async with bench.session.delete(bench.url + "/coresched/trajectories/nobody") as response:
            assert response.status == 404
