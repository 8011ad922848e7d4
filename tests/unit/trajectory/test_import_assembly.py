"""From recorded calls to turns: what a prompt adds, what a reply keeps, clocks, counts."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coresched.errors import InputError
from coresched.trajectory.importers.assembly import assemble
from coresched.trajectory.importers.clock import busy_seconds, gap, instant
from coresched.trajectory.importers.openai_messages import OpenAiMessages
from coresched.trajectory.importers.recording import Call, Sample, Stage
from coresched.trajectory.importers.tokens import BY_BYTES, text_of
from coresched.trajectory.importers.usage import Usage
from coresched.trajectory.schema import Trajectory


def assembled(*calls: Call) -> list[Trajectory]:
    return assemble(Sample("s", "", list(calls)), OpenAiMessages(), BY_BYTES)


def test_the_response_is_what_the_next_prompt_has_beyond_the_reply() -> None:
    (found,) = assembled(Call(100, 20), Call(150, 5))
    assert (found.turns[0].kept_tokens, found.turns[0].env.response_tokens) == (None, 30)  # type: ignore[union-attr]


def test_reasoning_is_not_kept() -> None:
    (found,) = assembled(Call(100, 20, reasoning_tokens=15), Call(150, 5))
    assert (found.turns[0].kept, found.turns[0].env.response_tokens) == (5, 45)  # type: ignore[union-attr]
    assert found.prompt_tokens() == [100, 150]


def test_a_prompt_too_short_for_the_reply_kept_less_of_it() -> None:
    (found,) = assembled(Call(100, 20), Call(112, 5))
    assert (found.turns[0].kept, found.turns[0].env.response_tokens) == (12, 0)  # type: ignore[union-attr]


def test_a_slightly_shorter_prompt_is_overstated_and_caught_up_with() -> None:
    (found,) = assembled(Call(100, 20), Call(90, 5), Call(130, 5))
    assert found.prompt_tokens() == [100, 100, 130]
    assert found.meta["prompt_overstated_tokens"] == 10


def test_a_context_begun_anew_is_a_trajectory_of_its_own() -> None:
    stage = Stage(1.5, "exact")
    first, second = assembled(Call(100, 20), Call(200, 9, stage=stage), Call(60, 5), Call(80, 5))
    assert (first.id, first.prompt_tokens()) == ("s", [100, 200])
    assert (second.id, second.prompt_tokens()) == ("s#2", [60, 80])
    assert ("part" in first.meta, second.meta["part"]) == (False, 2)
    assert [turn.env and turn.env.duration_s for turn in first.turns] == [0.0, 1.5]


def test_where_counts_are_missing_the_text_is_counted_and_the_quality_says_so() -> None:
    (found,) = assembled(
        Call(added_text_tokens=50, reply_text_tokens=8),
        Call(70, 9),
        Call(added_text_tokens=5, reply_text_tokens=4),
    )
    assert found.prompt_tokens() == [50, 70, 70 + 9 + 5]
    assert found.meta["tokens"].startswith("estimated: 2 of 3 calls: one token for 4 bytes")


def test_a_sample_without_calls_is_refused() -> None:
    with pytest.raises(InputError, match="no answered model call"):
        assembled()


@given(st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 900), st.integers(0, 900)), min_size=1))
def test_every_recorded_prompt_is_kept_or_overstated_by_what_is_said(
    rows: list[tuple[int, int, int]],
) -> None:
    calls = [Call(prompt, output, min(reasoning, output)) for prompt, output, reasoning in rows]
    parts = assembled(*calls)
    recorded = iter(rows)
    for part in parts:
        most = part.meta.get("prompt_overstated_tokens", 0)
        beyond = [modelled - next(recorded)[0] for modelled in part.prompt_tokens()]
        assert min(beyond) >= 0
        assert max(beyond) == most
    assert next(recorded, None) is None


CHAT = {"prompt_tokens": 9, "completion_tokens": 5}
ANTHROPIC = {"input_tokens": 1, "output_tokens": 5}


@pytest.mark.parametrize(
    ("usage", "prompt", "output", "reasoning"),
    [
        (CHAT, 9, 5, 0),
        ({**CHAT, "completion_tokens_details": {"reasoning_tokens": 4}}, 9, 5, 4),
        ({"input_tokens": 9, "output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 2}}, 9, 5, 2),
        ({**ANTHROPIC, "cache_read_input_tokens": 6, "cache_creation_input_tokens": 2}, 9, 5, 0),
        ({"prompt_tokens": 0, "completion_tokens": 0}, None, None, 0),
        ({"prompt_tokens": -3, "completion_tokens": 5}, None, None, 0),
        ({"prompt_tokens": 9.5, "completion_tokens": 5}, None, None, 0),
    ],
)
def test_usage_of_each_api(usage: dict[str, object], prompt: int, output: int, reasoning: int) -> None:
    call = Call()
    msgspec.convert(usage, Usage).fill(call)
    assert (call.prompt_tokens, call.output_tokens, call.reasoning_tokens) == (prompt, output, reasoning)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-01-01T00:00:00Z", 1_767_225_600.0),
        ("2026-01-01T01:00:00+01:00", 1_767_225_600.0),
        ("2026-01-01T00:00:00", 1_767_225_600.0),
        ("2026-01-01T00:00:00.5Z", 1_767_225_600.5),
        ("2026-01-01T00:00:00.250000123+00:00", 1_767_225_600.25),
        (1_767_225_600, 1_767_225_600.0),
        (0, None),
        (-1.0, None),
        ("1970-01-01T00:00:00Z", None),
        ("yesterday", None),
        (None, None),
        ("0001-01-01T00:00:00+23:59", None),
    ],
)
def test_times(text: str | float | None, seconds: float | None) -> None:
    assert instant(text) == seconds


def test_a_negative_gap_is_no_duration() -> None:
    said: list[str] = []
    assert gap(5.0, 4.0, "it", said) is None
    assert said == ["it lasts -1.000 s"]
    assert gap(None, 4.0, "it", said) is None
    assert gap(4.0, 4.0, "it", said) == 0.0
    assert len(said) == 1


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=12))
def test_busy_seconds_count_each_second_once(calls: list[tuple[int, int]]) -> None:
    seconds = {second for start, length in calls for second in range(start, start + length)}
    assert busy_seconds((start, start + length) for start, length in calls) == len(seconds)


def test_text_of_nested_parts_counts_what_a_model_reads() -> None:
    parts = [{"type": "text", "text": "ab"}, {"type": "image_url", "image_url": {"url": "data:..."}}, "c"]
    call = {"id": "call_1", "function": {"name": "f", "arguments": '{"x": 1}'}}
    assert text_of(parts).split() == ["ab", "c"]
    assert "call_1" not in text_of(call)
    assert '{"x": 1}' in text_of(call)
    assert BY_BYTES.count("é" * 8) == 4
    assert BY_BYTES.count("\ud83d") == 1  # half a character
