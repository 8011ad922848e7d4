import hashlib
import itertools
from importlib.resources import files

import msgspec
import pytest

from coresched.errors import InputError
from coresched.trajectory.generator import PROFILES, generate
from coresched.trajectory.profile import TraceProfile, profile
from coresched.trajectory.workloads import demo_workload


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("swe", "34e4485fd53c1fade899732b275b74d1006a2b100fda0d31651bd03ae5d5239b"),
        ("terminal", "ad739b7aeb024593d014cec633463054d4b844adc6af9dc28aecbc9811a83313"),
        ("tool-user", "b96a99a302cc1752df879162b7f504d60e948a1c013b318085378ef66f76612e"),
    ],
)
def test_the_output_is_pinned(name: str, digest: str) -> None:
    lines = b"\n".join(msgspec.json.encode(trajectory) for trajectory in generate(name, 50, 7))
    assert hashlib.sha256(lines).hexdigest() == digest


def test_a_larger_count_only_appends_and_another_seed_differs() -> None:
    twenty = list(generate("swe", 20, 3))
    assert list(itertools.islice(generate("swe", 500, 3), 20)) == twenty
    assert [t.turns for t in generate("swe", 20, 4)] != [t.turns for t in twenty]


# Median and 90th percentile of the recordings the profiles were fitted to.
RECORDED = {
    "swe": {
        "turns_per_trajectory": (36, 66),
        "output_tokens": (89, 681),
        "response_tokens": (87, 767),
        "environment_s": (1.17, 5.98),
        "inference_s": (2.4, 7.3),
    },
    "terminal": {
        "turns_per_trajectory": (18, 36),
        "output_tokens": (None, 649),
        "response_tokens": (109, 600),
        "environment_s": (0.036, 21),
        "inference_s": (3.4, 12),
    },
    "tool-user": {
        "turns_per_trajectory": (11, 20),
        "output_tokens": (44, 135),
        "response_tokens": (32, 316),
    },
}
RECORDED_MEAN = {"swe": (1_839, 24_866), "terminal": (1_555, 13_867), "tool-user": (3_548, 5_870)}


@pytest.fixture(scope="module", params=PROFILES)
def generated(request: pytest.FixtureRequest) -> tuple[str, TraceProfile]:
    return request.param, profile(generate(request.param, 1000, 7))


def test_percentiles_are_near_the_recorded_ones(generated: tuple[str, TraceProfile]) -> None:
    name, found = generated
    for quantity, (p50, p90) in RECORDED[name].items():
        distribution = getattr(found, quantity)
        # A log-normal has no second hump, so one point in each recording is off by up to a half.
        assert p50 is None or distribution.p50 == pytest.approx(p50, rel=0.55), quantity
        assert distribution.p90 == pytest.approx(p90, rel=0.4), quantity


def test_prompt_means_are_near_the_recorded_ones(generated: tuple[str, TraceProfile]) -> None:
    name, found = generated
    initial, final = RECORDED_MEAN[name]
    assert found.initial_prompt_tokens.mean == pytest.approx(initial, rel=0.03)
    assert found.final_context_tokens.mean == pytest.approx(final, rel=0.15)


def test_the_environment_has_its_recorded_share(generated: tuple[str, TraceProfile]) -> None:
    name, found = generated
    if name == "tool-user":
        assert found.environment_s is None
        assert found.environment_share is None
        assert found.duration_quality["absent"] == found.environment_stages
    else:
        assert found.environment_share == pytest.approx(0.41, abs=0.08)
        assert found.duration_quality["estimated"] == found.environment_stages


def test_terminal_durations_have_two_humps() -> None:
    durations = [
        turn.env.duration_s
        for trajectory in generate("terminal", 500, 7)
        for turn in trajectory.turns
        if turn.env is not None and turn.env.duration_s is not None
    ]
    assert sum(s < 0.1 for s in durations) / len(durations) == pytest.approx(0.64, abs=0.02)
    assert sum(s == 30 for s in durations) / len(durations) == pytest.approx(0.09, abs=0.02)
    assert sum(durations) / len(durations) == pytest.approx(3.7, rel=0.1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sew", 1, 1), 'profile is "sew"; it must be one of swe, terminal, tool-user'),
        (("swe", 0, 1), "count is 0; it must be an integer >= 1"),
        (("swe", 1, -7), "seed is -7; it must be an integer >= 0"),
        (("swe", 1, 2**63), "seed is 9223372036854775808; it must be an integer >= 0 and <= "),
    ],
)
def test_bad_arguments_are_refused_at_the_call(arguments: tuple[str, int, int], message: str) -> None:
    with pytest.raises(InputError) as refused:
        generate(*arguments)
    assert message in str(refused.value)


def test_the_shipped_workload_is_what_the_generator_gives() -> None:
    assert demo_workload() == list(generate("swe", 600, 2))
    packed = files("coresched.trajectory.workloads").joinpath("swe-demo.jsonl.gz").read_bytes()
    assert len(packed) < 400_000
    assert packed[3:8] == bytes(5)  # no file name and no time stamp in the gzip header
