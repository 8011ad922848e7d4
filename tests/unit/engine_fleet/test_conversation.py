"""The tokens of a trajectory's prompts."""

from array import array

from coresched_engine.virtual.conversation import Conversation

from coresched.trajectory.schema import Environment, Trajectory, Turn


def trajectory(id: str = "a", group: str | None = None, kept: int | None = None) -> Trajectory:
    return Trajectory(
        id=id,
        group=group,
        initial_prompt_tokens=20,
        shared_prefix_tokens=8,
        turns=(
            Turn(4, kept_tokens=kept, env=Environment(1.0, response_tokens=3)),
            Turn(5, env=Environment(1.0)),
            Turn(2),
        ),
    )


def reply(count: int) -> "array[int]":
    return array("q", range(900, 900 + count))


def test_prompts_grow_as_the_trajectory_says() -> None:
    one = trajectory()
    conversation = Conversation(one, seed=1, vocabulary=500)
    lengths = []
    for turn in one.turns:
        lengths.append(len(conversation.prompt))
        before = conversation.prompt
        conversation.answered(reply(turn.output_tokens))
        assert conversation.prompt[: len(before) + turn.output_tokens] == before + reply(turn.output_tokens)
        assert len(before) == lengths[-1]
    assert lengths == one.prompt_tokens()
    assert conversation.ended
    assert all(0 <= token < 500 for token in conversation.prompt if token < 900)


def test_a_reply_loses_its_beginning_where_reasoning_is_dropped() -> None:
    conversation = Conversation(trajectory(kept=1), seed=1, vocabulary=500)
    first = conversation.prompt
    conversation.answered(reply(4))
    assert conversation.prompt[: len(first) + 1] == first + array("q", [903])
    assert len(conversation.prompt) == len(first) + 1 + 3


def test_a_group_shares_its_prefix_and_nothing_else() -> None:
    def prompt(id: str, group: str | None, seed: int = 1) -> "array[int]":
        return Conversation(trajectory(id, group), seed, vocabulary=150_000).prompt

    one, other = prompt("a", "g"), prompt("b", "g")
    assert one[:8] == other[:8]
    assert one[8:] != other[8:]
    assert prompt("a", "h")[:8] != one[:8]
    assert prompt("a", "g") == one
    assert prompt("a", "g", seed=2)[:8] != one[:8]
