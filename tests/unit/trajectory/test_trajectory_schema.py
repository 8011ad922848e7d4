import math
from typing import Any

import pytest

from coresched.errors import InputError
from coresched.trajectory.schema import Environment, Trajectory, Turn


def trajectory(**fields: Any) -> Trajectory:
    return Trajectory(**{"id": "t", "initial_prompt_tokens": 100, "turns": (Turn(5),), **fields})


def test_a_prompt_is_the_one_before_plus_what_is_kept_plus_the_response() -> None:
    chain = trajectory(
        initial_prompt_tokens=1000,
        turns=(
            Turn(50, env=Environment(response_tokens=7)),
            Turn(60, kept_tokens=20, env=Environment(response_tokens=0)),
            Turn(70, kept_tokens=0, env=Environment(response_tokens=3)),
            Turn(80, kept_tokens=1),
        ),
    )
    assert chain.prompt_tokens() == [1000, 1057, 1077, 1080]
    assert chain.final_context_tokens == 1080 + 80  # all of the last reply is in the cache, kept or not


@pytest.mark.parametrize(
    ("env", "statement", "quality"),
    [
        (Environment(), "exact", "absent"),
        (Environment(1.0), None, "estimated"),
        (Environment(1.0), "exact", "exact"),
        (Environment(1.0), "derived from gaps", "derived"),
        (Environment(1.0), "estimated(start-to-start gap)", "estimated"),
        (Environment(1.0), "absent: gaps only", "estimated"),
        (Environment(1.0), 7, "estimated"),
        (Environment(1.0, duration_quality="derived"), "exact", "derived"),
        (Environment(duration_quality="absent"), "exact", "absent"),
    ],
)
def test_quality_is_stated_by_the_stage_then_by_the_trajectory(
    env: Environment, statement: object, quality: str
) -> None:
    meta = {} if statement is None else {"env_duration": statement}
    built = trajectory(turns=(Turn(5, 4, 0.5, env), Turn(6)), meta=meta)
    first = built.turns[0].env
    assert first is not None
    assert first.quality == quality
    assert (first.duration_s, built.turns[0].kept, built.turns[0].infer_s) == (env.duration_s, 4, 0.5)


@pytest.mark.parametrize("bad", [-1, 1_000_000_001])
@pytest.mark.parametrize("field", ["response_tokens", "n_calls"])
def test_environment_counts_out_of_range(field: str, bad: int) -> None:
    with pytest.raises(
        InputError, match=rf"^{field} is {bad}; it must be an integer >= 0 and <= 1,000,000,000$"
    ):
        Environment(**{field: bad})


@pytest.mark.parametrize("bad", [-0.001, math.nan, math.inf, -math.inf, 1.7e9])
def test_seconds_out_of_range(bad: float) -> None:
    with pytest.raises(InputError, match=r"^duration_s is .*; it must be a number of seconds from 0 to"):
        Environment(bad)
    with pytest.raises(InputError, match=r"^infer_s is .*; it must be a number of seconds from 0 to"):
        Turn(5, infer_s=bad)


def test_turn_fields_out_of_range() -> None:
    with pytest.raises(InputError, match=r"^output_tokens is 0; it must be an integer >= 1"):
        Turn(0)
    with pytest.raises(InputError, match=r"^kept_tokens is 6; .* from 0 to output_tokens \(5\)$"):
        Turn(5, kept_tokens=6)
    with pytest.raises(InputError, match=r"^kept_tokens is -1"):
        Turn(5, kept_tokens=-1)


@pytest.mark.parametrize(("duration", "quality"), [(None, "exact"), (2.0, "absent"), (2.0, "perfect")])
def test_a_quality_that_contradicts_the_duration(duration: float | None, quality: Any) -> None:
    with pytest.raises(InputError, match=f'^duration_quality is "{quality}"; it must be '):
        Environment(duration, duration_quality=quality)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"id": ""}, 'id is ""; it must be a text of 1 to 512 bytes in UTF-8'),
        ({"id": "é" * 257}, "it must be a text of 1 to 512 bytes in UTF-8"),
        ({"id": "\ud800"}, "it must be a text of 1 to 512 bytes in UTF-8"),
        ({"group": ""}, 'group is ""; it must be a text of 1 to 512 bytes in UTF-8, or absent'),
        ({"initial_prompt_tokens": -1}, "initial_prompt_tokens is -1; it must be an integer >= 0"),
        (
            {"shared_prefix_tokens": 101},
            "shared_prefix_tokens is 101; it must be an integer from 0 to initial",
        ),
        ({"shared_prefix_tokens": -1}, "shared_prefix_tokens is -1"),
        ({"turns": ()}, "turns is []; it must be an array of at least one turn"),
        (
            {"turns": (Turn(1, env=Environment()), Turn(1), Turn(1))},
            "turns[1].env is null; only the last turn (here turns[2]) may be without an environment stage",
        ),
    ],
)
def test_trajectory_fields_out_of_range(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        trajectory(**fields)
    assert message in str(refused.value)


def test_the_longest_names_are_taken() -> None:
    assert trajectory(id="é" * 256, group="x" * 512).id == "é" * 256
