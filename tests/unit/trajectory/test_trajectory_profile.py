import math
import statistics
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from trajectory_strategies import batches

from coresched.errors import InputError
from coresched.trajectory.generator import generate
from coresched.trajectory.profile import Distribution, profile
from coresched.trajectory.reader import load_trajectories
from coresched.trajectory.schema import Environment, Trajectory, Turn


def check(found: Distribution | None, values: list[float]) -> None:
    if found is None:
        assert not values
        return
    assert found.count == len(values)
    assert found.total == pytest.approx(sum(values))
    assert found.mean == pytest.approx(sum(values) / len(values))
    for percent, value in ((50, found.p50), (90, found.p90), (99, found.p99), (100, found.max)):
        assert value in values
        assert sum(v <= value for v in values) * 100 >= percent * len(values)
        assert sum(v < value for v in values) * 100 < percent * len(values)


def first_time_tokens(batch: list[Trajectory]) -> int:
    """Counts, token by token position, what a prefix cache without limit has not seen: the plain twin."""
    cached: set[tuple[object, ...]] = set()
    new = 0
    for trajectory in batch:
        # A token is named by what made it; a prompt is the list of its tokens in runs (name, length).
        shared = ("shared", trajectory.group)
        prompt: list[tuple[object, int]] = [(shared, trajectory.shared_prefix_tokens)]
        prompt.append(
            ((trajectory.id, "task"), trajectory.initial_prompt_tokens - trajectory.shared_prefix_tokens)
        )
        for n, turn in enumerate(trajectory.turns):
            path: tuple[object, ...] = ()
            for name, length in prompt:
                for position in range(length):
                    path = (hash(path), name, position)
                    if path not in cached:
                        cached.add(path)
                        new += 1
            whole = turn.kept == turn.output_tokens
            reply = ((trajectory.id, n, "reply" if whole else "kept"), turn.kept)
            if whole:
                for position in range(turn.kept):
                    path = (hash(path), reply[0], position)
                    cached.add(path)
            prompt.append(reply)
            if turn.env is not None:
                prompt.append(((trajectory.id, n, "response"), turn.env.response_tokens))
    return new


def test_the_minimum_new_prefill_is_what_an_unlimited_prefix_cache_misses() -> None:
    batch = [
        Trajectory(
            id=f"t{n}",
            initial_prompt_tokens=20 + n,
            shared_prefix_tokens=shared,
            group=group,
            turns=(
                Turn(5, env=Environment(response_tokens=3)),
                Turn(6, kept_tokens=kept, env=Environment(response_tokens=2)),
                Turn(7, kept_tokens=1, env=Environment(response_tokens=50)),
            ),
        )
        for n, (shared, group, kept) in enumerate(
            [(10, None, None), (12, None, 2), (9, None, 6), (15, "g", 0), (15, "g", None), (0, "h", 3)]
        )
    ]
    found = profile(batch)
    assert found.minimum_new_prefill_tokens == first_time_tokens(batch)
    tokens = sum(sum(trajectory.prompt_tokens()) for trajectory in batch)
    assert found.perfect_cache_reuse == 1 - first_time_tokens(batch) / tokens


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(batch=batches)
def test_every_number_is_the_plain_one(batch: list[Trajectory]) -> None:
    found = profile(iter(batch))
    turns = [turn for trajectory in batch for turn in trajectory.turns]
    stages = [turn.env for turn in turns if turn.env is not None]
    assert (found.trajectories, found.turns, found.environment_stages) == (
        len(batch),
        len(turns),
        len(stages),
    )
    assert found.environment_calls == sum(env.n_calls for env in stages)
    assert Counter(found.duration_quality) == Counter(env.quality for env in stages)
    check(found.turns_per_trajectory, [len(trajectory.turns) for trajectory in batch])
    check(found.initial_prompt_tokens, [trajectory.initial_prompt_tokens for trajectory in batch])
    check(found.final_context_tokens, [trajectory.final_context_tokens for trajectory in batch])
    check(found.prompt_tokens, [tokens for trajectory in batch for tokens in trajectory.prompt_tokens()])
    check(found.output_tokens, [turn.output_tokens for turn in turns])
    check(found.response_tokens, [env.response_tokens for env in stages])
    check(found.environment_s, [env.duration_s for env in stages if env.duration_s is not None])
    check(found.inference_s, [turn.infer_s for turn in turns if turn.infer_s is not None])
    assert 0 <= found.perfect_cache_reuse <= 1
    assert sum(found.turns_histogram.counts) == len(batch)


def test_the_share_is_of_trajectories_that_state_all_their_seconds() -> None:
    def task(id: str, infer_s: float | None, duration_s: float | None) -> Trajectory:
        turns = (Turn(1, infer_s=infer_s, env=Environment(duration_s)), Turn(1, infer_s=infer_s))
        return Trajectory(id=id, initial_prompt_tokens=1, turns=turns)

    whole = [task("a", 1.0, 6.0), task("b", 2.0, 2.0)]
    assert profile(whole).environment_share == 8 / 14
    assert profile([*whole, task("c", None, 5.0), task("d", 7.0, None)]).environment_share == 8 / 14
    assert profile([task("c", None, 5.0)]).environment_share is None


def test_an_empty_prompt_has_nothing_to_reuse() -> None:
    found = profile([Trajectory(id="a", initial_prompt_tokens=0, turns=(Turn(1),))])
    assert (found.perfect_cache_reuse, found.response_tokens, found.environment_histogram) == (
        0.0,
        None,
        None,
    )


def test_there_must_be_trajectories() -> None:
    with pytest.raises(InputError, match="there are no trajectories to profile"):
        profile([])


def test_percentiles_of_a_larger_trace_against_the_standard_library() -> None:
    batch = list(generate("swe", 300, 1))
    outputs = [turn.output_tokens for trajectory in batch for turn in trajectory.turns]
    found = profile(batch).output_tokens
    cuts = statistics.quantiles(outputs, n=100)
    for percent, value in ((50, found.p50), (90, found.p90), (99, found.p99)):
        assert value == pytest.approx(cuts[percent - 1], rel=0.01)
    assert math.isclose(found.mean, statistics.fmean(outputs))


def test_the_recorded_swe_trace_has_its_published_numbers(recorded_traces: list[Path]) -> None:
    (path,) = (path for path in recorded_traces if path.stem == "swebench_gemini3pro_mini")
    found = profile(load_trajectories(path))
    assert (found.turns_per_trajectory.p50, found.turns_per_trajectory.p90) == (36, 66)
    assert (found.output_tokens.p90, found.response_tokens and found.response_tokens.p50) == (681, 87)
    assert found.environment_s is not None
    assert (found.environment_s.p50, found.environment_s.p90, found.environment_s.max) == (1.17, 5.98, 105.82)
    assert found.environment_share == pytest.approx(0.41, abs=0.005)
