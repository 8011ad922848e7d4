"""Plans on numbers small enough to follow, and the words of their refusals."""

import itertools
from pathlib import Path

import msgspec
import pytest
from simulated import trajectory

import coresched
from coresched.capacity.plan import Plan
from coresched.capacity.sglang import SglangFlags, solve_pools
from coresched.capacity.sizes import memory_bytes, size_text
from coresched.capacity.summary import Quantity, WorkloadSummary
from coresched.errors import InputError
from coresched.trajectory.generator import generate
from coresched.trajectory.schema import Trajectory
from coresched.trajectory.writer import write_trajectories

MODEL = "Ling-3.0-flash"  # at tp 4: 8,064 B a KV token, 18,995,200 B a state slot, S = 5 under extra_buffer
KV, SLOT, S = 8_064, 18_995_200, 5


def same(count: int, tokens: int, turns: int = 1) -> list[Trajectory]:
    """Trajectories that end with ``tokens`` and run all the time."""
    chain = [(1, 0.0, 0)] * (turns - 1) + [(1, None, 0)]
    return [trajectory(f"t{number}", chain, prompt=tokens - turns) for number in range(count)]


def test_equal_trajectories_fill_the_memory_to_the_byte() -> None:
    # One trajectory of 10,000 tokens: KV 80,640,000 B and 5 slots of 18,995,200 B. With 5 % on contexts, ten
    # need 105,000 tokens, 50 slots (more than ten cannot run), and the padding slot.
    needed = 105_000 * KV + (50 + 1) * SLOT
    fits = coresched.plan(MODEL, same(40, 10_000), pool_memory=needed, tp=4)
    assert fits.concurrency == 10
    assert fits.pools.state_slots == 50
    assert fits.pools.kv_tokens == 105_000
    assert coresched.plan(MODEL, same(40, 10_000), pool_memory=needed - 1, tp=4).concurrency == 9


def test_a_model_whose_states_have_no_extra_buffer_runs_without_overlap() -> None:
    made = coresched.plan("LFM2-2.6B", same(40, 10_000), pool_memory="2GiB")
    assert "--disable-overlap-schedule" in made.engine_flags
    strategy = made.engine_flags.index("--mamba-radix-cache-strategy")
    assert made.engine_flags[strategy + 1] == "no_buffer"
    with pytest.raises(InputError, match="page_size is 64; SGLang serves Lfm2ForCausalLM with page_size 1"):
        coresched.plan("LFM2-2.6B", same(40, 10_000), pool_memory="2GiB", page_size=64)


def test_memory_for_images_is_not_the_pools() -> None:
    whole = {"gpu_memory": "96GiB", "weights": "60GiB"}
    texts, images = (
        coresched.plan(model, same(40, 10_000), **whole) for model in ("Qwen3.8-2.4T-A95B", "Qwen3.5-27B")
    )
    assert texts.pool_bytes - images.pool_bytes == 100 << 20
    assert any("100 MiB" in line for line in images.assumptions), images.assumptions
    given = coresched.plan("Qwen3.5-27B", same(40, 10_000), pool_memory="20GiB")
    assert given.pool_bytes == 20 << 30


def test_flags_make_the_engine_build_the_planned_pools() -> None:
    plan = coresched.plan(MODEL, list(generate("swe", 60, 1)), pool_memory="6GiB", tp=4)
    flags = dict(itertools.pairwise(plan.engine_flags))
    assert flags["--mamba-max-states-per-path"] == "1"
    built = solve_pools(
        SglangFlags(
            context_length=int(flags["--context-length"]),
            max_mamba_cache_size=int(flags["--max-mamba-cache-size"]),
            max_running_requests=int(flags["--max-running-requests"]),
        ),
        plan.pool_bytes,
        KV,
        SLOT,
    )
    assert built.state_slots == plan.pools.state_slots
    assert built.kv_tokens == plan.pools.kv_tokens
    assert built.max_running_requests == plan.pools.max_running_requests
    assert plan.limit in ("kv", "state")


def test_flags_carry_what_the_plan_was_priced_for() -> None:
    deployment = {"pool_memory": "4GiB", "tp": 4, "kv_dtype": "fp8_e4m3", "state_dtype": "bfloat16"}
    flags = coresched.plan("Qwen3-Next-80B-A3B", same(40, 10_000), "sglang", **deployment).engine_flags
    pairs = set(itertools.pairwise(flags))
    assert {("--tp-size", "4"), ("--kv-cache-dtype", "fp8_e4m3"), ("--mamba-ssm-dtype", "bfloat16")} <= pairs
    flags = coresched.plan("Qwen3-Next-80B-A3B", same(40, 10_000), "vllm", **deployment).engine_flags
    pairs = set(itertools.pairwise(flags))
    assert {("--tensor-parallel-size", "4"), ("--mamba-ssm-cache-dtype", "bfloat16")} <= pairs


def test_the_range_is_estimated_like_the_plan() -> None:
    # Equal trajectories leave nothing for a resample to change.
    plan = coresched.plan(MODEL, same(60, 10_000), pool_memory="2GiB", tp=4)
    assert plan.peak_range == (plan.concurrency, plan.concurrency)
    mixed = coresched.plan(MODEL, list(generate("swe", 300, 3)), pool_memory="10GiB", tp=4)
    assert mixed.peak_range[0] <= mixed.concurrency + 3
    assert mixed.peak_range[1] >= mixed.concurrency - 3


def test_a_batch_that_fits_is_said_to_size_the_flags() -> None:
    plan = coresched.plan(MODEL, same(40, 1_000), pool_memory="40GiB", tp=4)
    assert any("all 40 trajectories of the workload fit at once" in warning for warning in plan.warnings)


def test_workers_multiply_and_the_environment_caps_only_the_unified_limit() -> None:
    plan = coresched.plan(
        MODEL, same(100, 10_000), pool_memory="2GiB", tp=4, workers=3, environment_concurrency=4
    )
    assert plan.reference_concurrency == 3 * plan.concurrency
    assert plan.unified_concurrency == 4
    assert plan.label_capacity == 2 * plan.concurrency
    assert any("would admit 4" in warning for warning in plan.warnings)


def test_a_batch_that_fits_at_once_is_not_multiplied() -> None:
    plan = coresched.plan(MODEL, same(40, 1_000), pool_memory="40GiB", tp=4, workers=4)
    assert (plan.limit, plan.concurrency, plan.reference_concurrency) == ("batch", 40, 40)
    assert plan.label_capacity == 80


def test_waiting_trajectories_hold_one_slot() -> None:
    busy = same(60, 10_000, turns=4)
    idle = [
        msgspec.structs.replace(
            each,
            turns=tuple(
                msgspec.structs.replace(
                    turn,
                    infer_s=1.0,
                    env=turn.env and msgspec.structs.replace(turn.env, duration_s=20.0),
                )
                for turn in each.turns
            ),
        )
        for each in busy
    ]
    plans = [coresched.plan(MODEL, batch, pool_memory="3GiB", tp=4) for batch in (busy, idle)]
    assert plans[0].waiting_share == 0
    assert plans[1].waiting_share == pytest.approx(60 / 64)
    assert plans[1].concurrency >= plans[0].concurrency
    assert any("counts as running" in line for line in plans[0].assumptions)
    assert not any("counts as running" in line for line in plans[1].assumptions)


def test_vllm_counts_blocks() -> None:
    # Qwen3-Next on vLLM at tp 4: blocks of 272 tokens and 3,342,336 B; a running trajectory of 2,720 tokens
    # takes 10 + 3 groups x 2 = 16 of them, ten of them 165 with 5 % on contexts, and the null block.
    plan = coresched.plan("Qwen3-Next-80B-A3B", same(40, 2_720), "vllm", pool_memory=166 * 3_342_336, tp=4)
    assert plan.concurrency == 10
    assert plan.pools.blocks == 165
    assert plan.engine_flags[plan.engine_flags.index("--max-num-seqs") + 1] == "10"
    smaller = coresched.plan("Qwen3-Next-80B-A3B", same(40, 2_720), "vllm", pool_memory=165 * 3_342_336, tp=4)
    assert smaller.concurrency == 9


def test_a_waiting_trajectory_holds_two_states_in_vllm_without_the_retention() -> None:
    one, two = (
        coresched.plan(
            "Qwen3-Next-80B-A3B",
            same(40, 2_720),
            "vllm",
            pool_memory=166 * 3_342_336,
            tp=4,
            one_state_per_trajectory=retained,
        )
        for retained in (True, False)
    )
    assert two.cost.idle_state_bytes == 2 * one.cost.idle_state_bytes
    assert two.cost.running_state_bytes == one.cost.running_state_bytes
    assert "coresched_vllm.RoutingPrefix" in one.engine_flags
    assert "coresched_vllm.RoutingPrefix" not in two.engine_flags
    assert one.engine_environment == {}
    assert two.engine_environment == {"CORESCHED_ONE_STATE_PER_TRAJECTORY": "0"}


def test_vllm_warns_of_prefixes_shorter_than_a_block() -> None:
    plan = coresched.plan("Qwen3-Next-80B-A3B", same(40, 200, turns=3), "vllm", pool_memory="1GiB", tp=4)
    assert any("shorter than a block of 272 tokens" in warning for warning in plan.warnings)


def test_dense_models_have_no_state_pool() -> None:
    plan = coresched.plan("Llama-3.1-8B", same(40, 10_000), pool_memory="20GiB")
    assert plan.footprint.state_bytes == 0
    assert plan.pools.state_slots == 0
    assert plan.ratio == 0
    # 20 GiB hold 163,840 tokens of 131,072 B: 16 trajectories of 10,000.
    assert [(each.ratio, each.concurrency) for each in plan.alternatives] == [(0.0, 16), (0.0, 16)]
    for estimator in ("paper", "kappa"):
        for engine in ("sglang", "vllm"):
            other = coresched.plan(
                "Llama-3.1-8B", same(40, 10_000), engine, pool_memory="20GiB", estimator=estimator
            )
            assert other.concurrency == 16
    assert not any("mamba" in flag for flag in plan.engine_flags)


def test_paper_and_kappa_estimators_follow_their_equations() -> None:
    batch = same(400, 10_000)
    memory = 200 * (10_000 * KV + S * SLOT) + 1_000
    plan = coresched.plan(MODEL, batch, pool_memory=memory, tp=4, estimator="paper")
    assert plan.ratio == pytest.approx(S * SLOT / (10_000 * KV))
    assert plan.concurrency == 200
    kappa = coresched.plan(MODEL, batch, pool_memory=memory, tp=4, estimator="kappa")
    assert kappa.kappa == pytest.approx(1)
    assert kappa.concurrency == 200
    assert any("expect caches to be lost" in warning for warning in plan.warnings)


def test_default_ratio_and_state_dtype_are_warned_about() -> None:
    plan = coresched.plan(MODEL, list(generate("swe", 100, 1)), pool_memory="10GiB", tp=4)
    assert any("default ratio 0.9 starves KV" in warning for warning in plan.warnings)
    assert any(
        "in bfloat16 they take 9,820,160 instead of 18,995,200" in warning for warning in plan.warnings
    )


def test_workloads_come_as_paths_trajectories_or_a_summary(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    write_trajectories(path, same(40, 10_000))
    summary = WorkloadSummary(
        turns="1/1",
        prompt="9999",
        output="1/1",
        response="1/1",
        samples=40,
    )
    plans = [
        coresched.plan(MODEL, workload, pool_memory="2GiB", tp=4)
        for workload in (path, str(path), [path], same(40, 10_000), summary)
    ]
    assert len({plan.concurrency for plan in plans}) == 1


def test_memory_is_explicit() -> None:
    plan = coresched.plan(MODEL, same(40, 10_000), gpu_memory="96GiB", weights="31GiB", tp=4)
    assert plan.pool_bytes == int(0.9 * 96 * 2**30) - 31 * 2**30
    assert any("0.9 x 96 GiB - 31 GiB = 55.4 GiB" in line for line in plan.assumptions)


def refused(**options: object) -> str:
    fields: dict[str, object] = {"model": MODEL, "workload": same(3, 100), "pool_memory": "2GiB", "tp": 4}
    with pytest.raises(InputError) as caught:
        coresched.plan(**(fields | options))  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_refusals_name_the_field_the_value_and_the_fix() -> None:
    assert "pool_memory is not given" in refused(pool_memory=None)
    assert "gpu_memory is given beside pool_memory" in refused(gpu_memory="96GiB")
    assert "memory_fraction is given beside pool_memory" in refused(memory_fraction=0.5)
    assert "weights is not given" in refused(pool_memory=None, gpu_memory="96GiB")
    assert "one_state_per_trajectory is off; it is vLLM's" in refused(one_state_per_trajectory=False)
    assert "page_size is 16; vLLM's" in refused(engine="vllm", page_size=16)
    assert "page_size is 48; the engine starts only where mamba_track_interval, 256," in refused(page_size=48)
    assert "leaves nothing for the pools" in refused(pool_memory=None, gpu_memory="40GiB", weights="39GiB")
    assert "memory_fraction is 1.5" in refused(
        pool_memory=None, gpu_memory="40GiB", weights="9GiB", memory_fraction=1.5
    )
    assert "pool_memory is '2 gigs'" in refused(pool_memory="2 gigs")
    assert "the largest trajectory alone needs about" in refused(pool_memory="50MiB")
    assert "estimator is 'best'" in refused(estimator="best")
    assert "margin is nan" in refused(margin=float("nan"))
    assert "workers is 0" in refused(workers=0)
    assert "environment_concurrency is True" in refused(environment_concurrency=True)
    assert "no trajectory" in refused(workload=[])
    assert "workload must be" in refused(workload=[3])
    assert 'engine is "tgi"' in refused(engine="tgi")


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("96GiB", 96 * 2**30),
        ("70.65 GB", 70_650_000_000),
        (7 * 10**10, 7 * 10**10),
        ("1048576", 2**20),
        (" 1.5MiB ", 3 * 2**19),
        ("2TB", 2 * 10**12),
    ],
)
def test_sizes(text: str | int, amount: int) -> None:
    assert memory_bytes(text, "size") == amount


@pytest.mark.parametrize(
    "text", ["", "-1GiB", "1e9", "GiB", "0", "0.0001B", "99999999TiB", "1 gib", True, 1.5, None]
)
def test_bad_sizes(text: object) -> None:
    with pytest.raises(InputError, match="size is"):
        memory_bytes(text, "size")  # type: ignore[arg-type]


@pytest.mark.parametrize("text", [80, "80", "0.99MiB", "1000KiB"])
def test_a_size_whose_unit_was_forgotten_is_refused_with_an_example(text: int | str) -> None:
    with pytest.raises(InputError, match=r"^size is '.*', less than 1 MiB; give the unit, such as 80GiB$"):
        memory_bytes(text, "size")


def test_size_texts() -> None:
    assert [size_text(value) for value in (12, 2048, 3 * 2**29, 2**41)] == [
        "12 B",
        "2 KiB",
        "1.5 GiB",
        "2 TiB",
    ]


def test_quantity_is_log_normal_through_its_two_points() -> None:
    quantity = Quantity.parse("36/66", "turns")
    assert quantity.at(0.5) == pytest.approx(36)
    assert quantity.at(0.9) == pytest.approx(66)
    assert Quantity.parse("40", "turns").at(0.9) == 40


@pytest.mark.parametrize("text", ["", "0", "-3", "66/36", "a", "1/2/3", "nan", "1e3"])
def test_bad_quantities(text: str) -> None:
    with pytest.raises(InputError, match="turns is"):
        Quantity.parse(text, "turns")


def test_a_summary_too_large_to_replay_is_refused() -> None:
    summary = WorkloadSummary(turns="10000", prompt="1000", output="89", response="87")
    with pytest.raises(InputError, match="turns is 10000 for 200 samples, about 2,000,000 turns in all"):
        summary.profile()


def test_summary_covers_the_distribution() -> None:
    summary = WorkloadSummary(
        turns="36/66",
        prompt="1800/2400",
        output="100/100",
        response="300/300",
    )
    chains = summary.profile().chains
    turns = sorted(len(chain.stages) for chain in chains)
    assert len(turns) == 200
    assert turns[100] == pytest.approx(36, abs=1)
    assert turns[180] == pytest.approx(66, abs=2)
    assert chains[0].stages[-1].tokens > chains[0].stages[0].tokens
    early = [len(chain.stages) for chain in chains[:100]]
    assert sum(early) / 100 == pytest.approx(sum(turns) / 200, rel=0.15)


def test_a_plan_is_plain_data() -> None:
    plan = coresched.plan(MODEL, same(3, 100), pool_memory="2GiB", tp=4)
    assert isinstance(plan, Plan)
    assert msgspec.json.decode(msgspec.json.encode(plan))["concurrency"] == 3
