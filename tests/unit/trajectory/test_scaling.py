"""Smaller batches."""

import pytest

from coresched.trajectory.generator import generate
from coresched.trajectory.scaling import scaled
from coresched.trajectory.schema import Environment, Trajectory, Turn


def test_turns_are_left_out_at_the_end_and_tokens_divided_in_each() -> None:
    turns = (Turn(16, 9, 3.0, Environment(2.0, 33)), Turn(1, None, None, Environment(1.0, 0)), Turn(5))
    one = Trajectory(id="a", initial_prompt_tokens=100, shared_prefix_tokens=17, turns=turns)
    (small,) = scaled([one], turns_over=2, tokens_over=8, seconds_over=4)
    assert (small.id, small.initial_prompt_tokens, small.shared_prefix_tokens) == ("a", 13, 3)
    assert small.turns == (Turn(2, 2, None, Environment(0.5, 5)), Turn(1, None, None, Environment(0.25, 0)))


@pytest.mark.parametrize("tokens_over", [1, 7, 100_000])
def test_every_trajectory_stays_one(tokens_over: int) -> None:
    batch = list(generate("swe", 20, seed=4))
    small = scaled(batch, turns_over=tokens_over, tokens_over=tokens_over)
    assert [one.id for one in small] == [one.id for one in batch]
    assert (small == batch) == (tokens_over == 1)
    assert all(turn.output_tokens >= 1 for one in small for turn in one.turns)
