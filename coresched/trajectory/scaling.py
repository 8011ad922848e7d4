"""A smaller batch made of a recorded one, for machines that serve less."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from coresched.trajectory.schema import Trajectory, Turn


def scaled(
    trajectories: Iterable[Trajectory], *, turns_over: int = 1, tokens_over: int = 1, seconds_over: float = 1
) -> list[Trajectory]:
    """As many trajectories: of each the first 1/``turns_over`` of its turns, each 1/``tokens_over`` as long.

    Both are rounded up, so that a count above 0 stays above 0. Environment stages take 1/``seconds_over`` of
    their time; recorded times of inference, which are another machine's, are left out where tokens are.
    """
    return [
        msgspec.structs.replace(
            one,
            turns=tuple(
                _turn(turn, tokens_over, seconds_over)
                for turn in one.turns[: math.ceil(len(one.turns) / turns_over)]
            ),
            initial_prompt_tokens=_over(one.initial_prompt_tokens, tokens_over),
            shared_prefix_tokens=_over(one.shared_prefix_tokens, tokens_over),
        )
        for one in trajectories
    ]


def _turn(turn: Turn, tokens_over: int, seconds_over: float) -> Turn:
    env = turn.env
    if env is not None:
        env = msgspec.structs.replace(
            env,
            response_tokens=_over(env.response_tokens, tokens_over),
            duration_s=None if env.duration_s is None else env.duration_s / seconds_over,
        )
    kept = None if turn.kept_tokens is None else _over(turn.kept_tokens, tokens_over)
    infer_s = turn.infer_s if tokens_over == 1 else None
    return Turn(_over(turn.output_tokens, tokens_over), kept, infer_s, env)


def _over(tokens: int, tokens_over: int) -> int:
    return -(-tokens // tokens_over)
