"""What a replay sends: exact lengths, the same in every run, shared where the trace says so."""

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coresched.lab.replay.prompts import Conversation, TokenSource
from coresched.trajectory.schema import Environment, Trajectory, Turn

SOURCE = TokenSource(7, 100, 200)


def ids(conversation: Conversation) -> list[int]:
    found: list[int] = json.loads(b"[%b]" % conversation.text)
    assert len(found) == conversation.tokens
    return found


def prompts(trajectory: Trajectory, source: TokenSource = SOURCE) -> Iterator[list[int]]:
    """Of each turn, the engine answering with ids from 1000 up."""
    conversation, next_id = Conversation(trajectory, source), 1000
    for number, turn in enumerate(trajectory.turns):
        yield ids(conversation)
        conversation.answered(number, range(next_id, next_id + turn.output_tokens))
        next_id += turn.output_tokens


@st.composite
def small_trajectories(draw: st.DrawFn) -> Trajectory:
    few = st.integers(0, 20)
    turns = []
    for _ in range(draw(st.integers(1, 4))):
        output = draw(st.integers(1, 20))
        turns.append(
            Turn(
                output_tokens=output,
                kept_tokens=draw(st.none() | st.integers(0, output)),
                env=Environment(duration_s=0.0, response_tokens=draw(few)),
            )
        )
    initial = draw(few)
    shared = draw(st.integers(0, initial))
    return Trajectory(id="a", initial_prompt_tokens=initial, shared_prefix_tokens=shared, turns=tuple(turns))


@given(small_trajectories())
def test_every_prompt_has_the_recorded_length_and_is_the_same_again(trajectory: Trajectory) -> None:
    found = list(prompts(trajectory))
    assert [len(prompt) for prompt in found] == trajectory.prompt_tokens()
    assert list(prompts(trajectory)) == found
    assert all(100 <= token < 200 or token >= 1000 for prompt in found for token in prompt)


@pytest.fixture
def trajectory() -> Trajectory:
    first = Turn(output_tokens=5, kept_tokens=2, env=Environment(duration_s=1.0, response_tokens=3))
    second = Turn(output_tokens=4, env=Environment(duration_s=1.0))
    turns = (first, second, Turn(output_tokens=1))
    return Trajectory(id="a", initial_prompt_tokens=6, turns=turns)


def test_a_prompt_is_the_last_one_the_end_of_its_reply_and_a_response(trajectory: Trajectory) -> None:
    first, second, third = prompts(trajectory)
    assert second[:6] == first
    assert second[6:8] == [1003, 1004]  # reasoning, which is dropped, comes first
    assert len(second) == 11
    assert third == [*second, 1005, 1006, 1007, 1008]


def other(trajectory: Trajectory, **changes: object) -> Trajectory:
    fields = {"id": "b", "initial_prompt_tokens": 6, "turns": trajectory.turns}
    return Trajectory(**(fields | changes))  # type: ignore[arg-type]


def test_only_what_a_group_shares_is_shared(trajectory: Trajectory) -> None:
    def first(of: Trajectory, seed: int = 1) -> list[int]:
        return next(prompts(of, TokenSource(seed, 0, 1 << 30)))

    wide = {"initial_prompt_tokens": 40}
    a = first(other(trajectory, id="a", shared_prefix_tokens=30, **wide))
    b = first(other(trajectory, shared_prefix_tokens=20, **wide))
    assert a[:20] == b[:20]
    assert not set(a[20:]) & set(b[20:])
    grouped = first(other(trajectory, shared_prefix_tokens=20, group="shared", **wide))
    assert not set(grouped) & set(a)
    assert not set(first(other(trajectory, id="c", **wide))) & set(b)
    assert not set(first(other(trajectory, **wide), 2)) & set(first(other(trajectory, **wide)))


@given(st.integers(0, 50), st.integers(0, 50))
def test_a_longer_stretch_begins_with_a_shorter_one(some: int, more: int) -> None:
    assert SOURCE.ids("x", some + more)[:some] == SOURCE.ids("x", some)


def test_another_variant_is_other_ids() -> None:
    wide = [TokenSource(1, 0, 1 << 30, variant).ids("x", 40) for variant in range(4)]
    assert len(set.union(*map(set, wide))) == 160


def test_the_ids_are_these_on_every_machine() -> None:
    assert TokenSource(7, 1000, 30000).ids("trajectory a\0prompt", 4) == [22659, 14504, 5231, 16582]
