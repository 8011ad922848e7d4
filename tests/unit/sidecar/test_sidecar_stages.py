"""Stages as the sidecar sees them: who waits for the slot, who has it, and when it goes back."""

import asyncio

import pytest
from sidecar_ends import Ends, ends, leave, until

from coresched.sidecar.terms import Terms

NEVER = {"stage_idle_s": 3600, "idle_s": 3600, "end_after_s": 3600}


async def holder(bench: Ends, label: str = "first") -> asyncio.Task[int]:
    """A trajectory that has the only slot, with a call under way that ends with the event "held"."""
    await bench.ask(label, ("hold", {"wait": "held"}))
    call = bench.call("hold", {"wait": "held"})
    await until(lambda: len(bench.tools.seen) == 1)
    return call


async def test_a_reply_with_tool_calls_is_handed_out_when_the_slot_is_there() -> None:
    async with ends() as bench:
        call = await holder(bench)
        reply = bench.ask("second", ("look", {"at": 1}))
        await until(lambda: bench.state("second") == "queued")
        assert not reply.done()
        assert bench.llm_server.in_flight == 0
        bench.opened["held"].set()
        assert await call == 200
        assert (await reply)["tool_calls"]
        assert bench.state("second") == "environment"
        assert await bench.call("look", {"at": 1.0}) == 200
        assert bench.executed() == [("hold", "first"), ("look", "second")]


async def test_a_reply_without_tool_calls_waits_for_nothing() -> None:
    async with ends() as bench:
        await holder(bench)
        assert (await bench.ask("second"))["content"] == "so"


async def test_all_calls_of_a_message_share_the_slot_until_the_last_is_answered() -> None:
    async with ends() as bench:
        await bench.ask("first", ("a", {"wait": "a"}), ("b", {}), ("c", {}))
        other = bench.ask("second", ("look", {}))
        together = [bench.call("a", {"wait": "a"}), bench.call("b")]
        await until(lambda: len(bench.tools.seen) == 2)
        bench.opened["a"].set()
        assert await asyncio.gather(*together) == [200, 200]
        assert bench.state("second") == "queued"
        assert await bench.call("c") == 200
        await other
        assert [label for _, label in bench.executed()] == ["first"] * 3
        assert bench.counts.held_replies == 2


async def test_a_stream_goes_on_up_to_its_tool_calls() -> None:
    async with ends() as bench:
        call = await holder(bench)
        body = {"messages": [{"role": "user", "content": '[["look", {"at": 1}]]'}], "stream": True}
        headers = {"Authorization": "Bearer second"}
        async with bench.session.post(
            bench.url + "/v1/chat/completions", json=body, headers=headers
        ) as response:
            first = await response.content.readuntil(b"\n\n")
            assert b'"content": "so"' in first
            await until(lambda: bench.state("second") == "queued")
            bench.opened["held"].set()
            rest = await response.content.read()
        assert await call == 200
        assert rest.count(b"data: ") == 4
        assert rest.endswith(b"data: [DONE]\n\n")
        assert await bench.call("look", {"at": 1}) == 200
        assert bench.executed()[-1] == ("look", "second")


async def test_held_calls_wait_themselves() -> None:
    async with ends(hold="call") as bench:
        first = await holder(bench)
        await bench.ask("second", ("look", {}))
        second = bench.call("look")
        await until(lambda: bench.state("second") == "queued")
        assert len(bench.tools.seen) == 1
        bench.opened["held"].set()
        assert await asyncio.gather(first, second) == [200, 200]


async def test_a_client_that_leaves_its_held_reply_leaves_the_queue() -> None:
    async with ends() as bench:
        await holder(bench)
        reply = bench.ask("second", ("look", {}))
        await until(lambda: bench.state("second") == "queued")
        await leave(reply)
        await until(lambda: bench.state("second") == "admitted")
        assert bench.counts.dropped_replies == 1
        third = bench.ask("third", ("look", {}))
        bench.opened["held"].set()
        await third
        assert await bench.call("look") == 200
        assert bench.executed()[-1] == ("look", "third")


async def test_a_call_whose_client_leaves_the_queue_is_never_executed() -> None:
    async with ends(hold="call") as bench:
        first = await holder(bench)
        await bench.ask("second", ("look", {}))
        call = bench.call("look")
        await until(lambda: bench.state("second") == "queued")
        await leave(call)
        await until(lambda: bench.state("second") == "admitted")
        bench.opened["held"].set()
        assert await first == 200
        assert (bench.counts.dropped_calls, len(bench.tools.seen)) == (1, 1)
        assert await bench.call("look") == 200  # and it may still be made
        assert bench.counts.again == 0


async def test_a_client_that_leaves_a_running_call_cancels_it_and_its_slot_goes_on_to_the_retry() -> None:
    async with ends() as bench:
        await bench.ask("first", ("a", {"wait": "a"}))
        call = bench.call("a", {"wait": "a"})
        await until(lambda: len(bench.tools.seen) == 1)
        await leave(call)
        await asyncio.wait_for(bench.tools.gone.wait(), 20)
        await until(lambda: bench.counts.cancelled_calls == 1)
        bench.opened["a"].set()
        assert bench.state("first") == "environment"
        assert await bench.call("a", {"wait": "a"}) == 200
        assert bench.counts.again == 1
        await until(lambda: bench.state("first") == "admitted")


async def test_a_call_that_gave_no_answer_in_time_and_its_retry_share_the_slot() -> None:
    """MCP-Atlas's timeout leaves the request open, which the sidecar cannot know."""
    async with ends() as bench:
        await bench.ask("first", ("a", {"wait": "a"}))
        attempts = [bench.call("a", {"wait": "a"}) for _ in range(2)]
        await until(lambda: len(bench.tools.seen) == 2)
        assert (bench.counts.matched, bench.counts.again) == (2, 1)
        bench.opened["a"].set()
        assert await asyncio.gather(*attempts) == [200, 200]


async def test_a_retry_after_the_stage_has_ended_gets_its_slot_again() -> None:
    async with ends() as bench:
        await bench.ask("first", ("a", {}))
        assert await bench.call("a") == 200
        await until(lambda: bench.state("first") == "admitted")
        assert await bench.call("a") == 200
        assert bench.executed() == [("a", "first")] * 2
        await bench.ask("first")
        assert await bench.call("a") == 200  # of an earlier turn
        assert bench.counts.unmatched == 1


async def test_a_failed_call_keeps_the_slot_for_its_retry() -> None:
    async with ends() as bench:
        bench.statuses.append(500)
        await bench.ask("first", ("a", {}))
        assert await bench.call("a") == 500
        assert bench.state("first") == "environment"
        assert await bench.call("a") == 200
        await until(lambda: bench.state("first") == "admitted")
        assert bench.counts.again == 1


async def test_calls_never_made_end_with_the_next_turn() -> None:
    async with ends() as bench:
        await bench.ask("first", ("a", {}), ("b", {}))
        assert await bench.call("a") == 200
        other = bench.ask("second", ("look", {}))
        await until(lambda: bench.state("second") == "queued")
        await bench.ask("first")
        await other
        assert bench.counts.abandoned_calls == 1


async def test_a_call_left_behind_keeps_the_slot_until_it_ends() -> None:
    async with ends() as bench:
        zombie = await holder(bench)
        assert (await bench.ask("first"))["content"] == "so"
        other = bench.ask("second", ("look", {}))
        await until(lambda: bench.state("second") == "queued")
        bench.opened["held"].set()
        await asyncio.gather(zombie, other)


async def test_a_call_left_behind_loses_the_slot_after_the_idle_time() -> None:
    async with ends(terms=Terms(stage_idle_s=0.05, idle_s=3600, end_after_s=3600)) as bench:
        zombie = await holder(bench)
        await bench.ask("first")
        await bench.ask("second", ("look", {}))
        assert bench.counts.left_running == 1
        bench.opened["held"].set()
        assert await zombie == 200


async def test_a_slot_without_a_call_goes_back_after_the_idle_time() -> None:
    async with ends(terms=Terms(stage_idle_s=0.05, idle_s=3600, end_after_s=3600)) as bench:
        await bench.ask("first", ("a", {}))
        await bench.ask("second", ("look", {}))
        assert bench.counts.idle_stages >= 1
        assert await bench.call("a") == 200  # late, and still its own
        assert bench.executed() == [("a", "first")]


async def test_a_call_at_its_deadline_is_refused_and_never_executed() -> None:
    async with ends(hold="call", terms=Terms(queue_deadline_s=0.05, **NEVER)) as bench:
        first = await holder(bench)
        await bench.ask("second", ("look", {}))
        async with bench.session.post(
            bench.url + "/call-tool", json={"tool_name": "look", "tool_args": {}}
        ) as response:
            assert response.status == 503
            assert int(response.headers["Retry-After"]) >= 1
            assert (await response.json())["error"]["code"] == "queue_deadline"
        bench.opened["held"].set()
        assert await first == 200
        assert len(bench.tools.seen) == 1
        assert bench.counts.expired_calls == 1
        assert await bench.call("look") == 200


async def test_a_held_reply_at_its_deadline_is_handed_out_and_keeps_its_place() -> None:
    async with ends(terms=Terms(queue_deadline_s=0.05, **NEVER)) as bench:
        first = await holder(bench)
        assert (await bench.ask("second", ("look", {})))["tool_calls"]
        assert bench.counts.expired_replies == 1
        assert bench.state("second") == "queued"
        bench.opened["held"].set()
        assert await first == 200
        await until(lambda: bench.state("second") == "environment")


async def test_a_call_that_nobody_asked_for_passes_while_all_slots_are_taken() -> None:
    async with ends() as bench:
        await holder(bench)
        assert await bench.call("reset") == 200
        assert bench.counts.unmatched == 1
        assert bench.executed()[-1] == ("reset", None)
        for unread in (b"\xff", b'{"tool": "reset"}'):
            async with bench.session.post(bench.url + "/call-tool", data=unread) as response:
                assert response.status == 200
        assert bench.counts.unmatched == 3


async def test_calls_that_nobody_asked_for_share_as_many_places_as_there_are_slots() -> None:
    async with ends(terms=Terms(queue_deadline_s=0.05, **NEVER)) as bench:
        first = bench.call("reset", {"wait": "held"})
        await until(lambda: len(bench.tools.seen) == 1)
        assert await bench.call("reset") == 503
        bench.opened["held"].set()
        assert await first == 200
        assert bench.counts.expired_calls == 1


async def test_a_call_with_changed_arguments_is_taken_for_the_most_alike() -> None:
    async with ends(environment_concurrency=2) as bench:
        await bench.ask("first", ("museum", {"id": 1, "image": True}))
        await bench.ask("second", ("museum", {"id": 2, "image": True}))
        assert await bench.call("museum", {"id": 2, "image": False}) == 200
        assert bench.executed() == [("museum", "second")]
        assert bench.counts.near == 1


async def test_a_call_may_name_its_trajectory() -> None:
    async with ends(environment_concurrency=2) as bench:
        await bench.ask("first", ("a", {}))
        await bench.ask("second", ("a", {}))
        assert await bench.call("a", headers={"x-session-id": "second"}) == 200
        assert await bench.call("extra", headers={"x-session-id": "second"}) == 200
        assert bench.executed() == [("a", "second"), ("extra", "second")]
        assert (bench.counts.ambiguous, bench.counts.unmatched) == (0, 0)


async def test_the_same_call_of_two_trajectories_is_counted_as_ambiguous() -> None:
    async with ends(environment_concurrency=2) as bench:
        await bench.ask("first", ("a", {}))
        await bench.ask("second", ("a", {}))
        assert [await bench.call("a"), await bench.call("a")] == [200, 200]
        assert bench.executed() == [("a", "first"), ("a", "second")]
        assert bench.counts.ambiguous == 1


async def test_a_waiting_call_that_is_made_again_or_left_behind_is_never_executed() -> None:
    """As by a harness whose timeouts close no connection."""
    async with ends(hold="call") as bench:
        first = await holder(bench)
        await bench.ask("second", ("look", {}))
        calls = []
        for attempt in range(3):
            calls.append(bench.call("look"))
            await until(lambda number=attempt: bench.counts.matched == number + 2)
        assert await asyncio.gather(*calls[:2]) == [503, 503]
        await bench.ask("second")
        assert await calls[2] == 503
        assert bench.state("second") == "admitted"
        bench.opened["held"].set()
        assert await first == 200
        assert (len(bench.tools.seen), bench.counts.dropped_calls) == (1, 3)


async def test_a_trajectory_that_is_ended_gets_its_held_reply_and_no_slot() -> None:
    async with ends() as bench:
        await holder(bench)
        reply = bench.ask("second", ("look", {}))
        await until(lambda: bench.state("second") == "queued")
        async with bench.session.delete(bench.url + "/coresched/trajectories/second") as response:
            assert response.status == 204
        assert (await reply)["tool_calls"]
        assert bench.state("second") == "ended"


async def test_a_call_that_waits_when_its_trajectory_is_ended_is_refused() -> None:
    async with ends(hold="call") as bench:
        await holder(bench)
        await bench.ask("second", ("look", {}))
        call = bench.call("look")
        await until(lambda: bench.state("second") == "queued")
        await bench.session.delete(bench.url + "/coresched/trajectories/second")
        assert await call == 409
        assert len(bench.tools.seen) == 1


@pytest.mark.parametrize("hold", ["reply", "call"])
async def test_a_turn_of_every_request_and_a_stage_of_every_reply_are_in_the_batch(hold: str) -> None:
    async with ends(hold=hold) as bench:
        for turn in range(3):
            await bench.ask("first", ("a", {"turn": turn}))
            assert await bench.call("a", {"turn": turn}) == 200
        await bench.ask("first")
        async with bench.session.delete(bench.url + "/coresched/trajectories/first") as response:
            assert response.status == 204
        times = bench.sidecar.trajectories.batch.report().samples["first"]
        assert (times.state, times.turns, times.environment_stages) == ("finished", 4, 3)
