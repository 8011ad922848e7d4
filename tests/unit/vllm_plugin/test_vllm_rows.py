"""What a worker makes of the outputs of vLLM's scheduler: rows, tokens, counts."""

from types import SimpleNamespace
from typing import Any

from coresched_vllm.virtual.rows import Rows


def scheduled(
    tokens: dict[str, int],
    new: dict[str, int] | None = None,
    resumed: dict[str, tuple[int, int]] | None = None,
    preempted: set[str] | None = None,
) -> Any:
    """``new`` has what is cached of each request, ``resumed`` that and the tokens of its output."""
    new, resumed = new or {}, resumed or {}
    return SimpleNamespace(
        num_scheduled_tokens=tokens,
        preempted_req_ids=preempted,
        scheduled_new_reqs=[
            SimpleNamespace(req_id=request_id, num_computed_tokens=computed)
            for request_id, computed in new.items()
        ],
        scheduled_cached_reqs=SimpleNamespace(
            req_ids=list(resumed),
            resumed_req_ids=set(resumed),
            num_computed_tokens=[computed for computed, _ in resumed.values()],
            num_output_tokens=[outputs for _, outputs in resumed.values()],
        ),
    )


def test_a_prompt_is_computed_in_chunks_and_then_decoded() -> None:
    rows = Rows(vocabulary=1_000)
    rows.queued("a", 100, t=1.0)
    sampled, forward = rows.step(scheduled({"a": 40}, new={"a": 16}), now=3.0)
    assert sampled == {"a": []}
    assert (forward.extending, forward.admitted, forward.new_tokens) == (1, 1, 40)
    assert forward.attended == 40 * (16 + 20)
    sampled, forward = rows.step(scheduled({"a": 44}), now=4.0)
    assert (forward.extending, forward.admitted, forward.decoding) == (1, 0, 0)
    assert len(sampled["a"]) == 1
    _, forward = rows.step(scheduled({"a": 1}), now=5.0)
    assert (forward.extending, forward.decoding, forward.context_tokens) == (0, 1, 101)
    assert rows.prefilled_tokens == 84
    row = rows.ended("a")
    assert (row.waited_s, row.preemptions) == (2.0, 0)


def test_one_step_has_prefill_and_decode() -> None:
    rows = Rows(vocabulary=1_000)
    for request_id in "ab":
        rows.queued(request_id, 10, t=0.0)
    rows.step(scheduled({"a": 10}, new={"a": 0}), now=0.0)
    _, forward = rows.step(scheduled({"a": 1, "b": 10}, new={"b": 0}), now=1.0)
    assert (forward.extending, forward.decoding) == (1, 1)


def test_what_a_preempted_request_computes_again_is_counted_and_its_waiting_too() -> None:
    rows = Rows(vocabulary=1_000)
    rows.queued("a", 10, t=0.0)
    rows.step(scheduled({"a": 10}, new={"a": 0}), now=0.0)
    for step in range(3):  # 4 tokens are sampled, 13 computed
        rows.step(scheduled({"a": 1}), now=1.0 + step)
    rows.step(scheduled({}, preempted={"a"}), now=5.0)
    sampled, forward = rows.step(scheduled({"a": 6}, resumed={"a": (8, 4)}), now=7.5)
    assert len(sampled["a"]) == 1
    assert (forward.extending, forward.admitted, forward.new_tokens) == (1, 1, 6)
    assert rows.prefilled_tokens == 10 + 5  # the last of the 4 had not been computed
    _, forward = rows.step(scheduled({"a": 1}), now=8.0)
    assert (forward.decoding, forward.context_tokens) == (1, 15)
    row = rows.ended("a")
    assert (row.waited_s, row.preemptions) == (2.5, 1)


def test_outputs_are_drawn_by_request_and_place() -> None:
    def outputs(request_id: str) -> list[int]:
        rows = Rows(vocabulary=50_000)
        rows.queued(request_id, 3, t=0.0)
        found = rows.step(scheduled({request_id: 3}, new={request_id: 0}), now=0.0)[0][request_id]
        for _ in range(7):
            found += rows.step(scheduled({request_id: 1}), now=1.0)[0][request_id]
        return found

    assert outputs("a") == outputs("a") != outputs("b")
    assert len(set(outputs("a"))) > 6
