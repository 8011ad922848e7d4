"""Our pool arithmetic against the engine's own code, read from its release wheel."""

from __future__ import annotations

import base64
import hashlib
import math
import zipfile
from collections import Counter
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
from integration.sglang_oracle.cases import Case, random_case, random_demand
from integration.sglang_oracle.engine import Engine, EnginePools, EngineRefuses
from integration.sglang_oracle.session import engine_or_skip
from integration.sglang_oracle.source import MissingDefinition, compile_definitions
from integration.sglang_oracle.wheel import (
    DIRECTORY_VARIABLE,
    WheelUnavailable,
    WrongEngine,
    find_wheel,
)

from coresched.capacity import sglang_flags, sglang_pools
from coresched.capacity.sglang import (
    ENGINE_VERSION,
    SglangFlags,
    SglangPools,
    flags_for,
    slots_per_request,
    solve_pools,
)
from coresched.errors import InputError

DEFAULTS = {field: getattr(SglangFlags(), field) for field in SglangFlags.__dataclass_fields__}


@pytest.fixture(scope="module")
def engine() -> Engine:
    return engine_or_skip()


def ours(case: Case) -> SglangPools | None:
    try:
        return solve_pools(SglangFlags(**case.flags), case.memory_bytes, case.kv_bytes, case.state_bytes)
    except InputError:
        return None


def theirs(engine: Engine, case: Case) -> EnginePools | None:
    try:
        pools = engine.solve(case.flags, case.memory_bytes, case.kv_bytes, case.state_bytes)
    except EngineRefuses:
        return None
    # The engine lets a dense model start with a pool of one token, and with no request to run in it.
    return pools if pools.max_running_requests else None


def warned_limit(pools: EnginePools) -> str | None:
    """The limit that the engine's one log line names."""
    if any("capped to" in line and "mamba state" in line for line in pools.warnings):
        return "state slots"
    return "kv tokens" if any("was reduced from" in line for line in pools.warnings) else None


def assert_equal(case: Case, mine: SglangPools | None, engines: EnginePools | None) -> None:
    assert (mine is None) == (engines is None), case
    if mine is None or engines is None:
        return
    assert mine.kv_tokens == engines.kv_tokens, case
    assert mine.max_running_requests == engines.max_running_requests, case
    if case.state_bytes:
        assert mine.state_slots == engines.state_slots, case
        assert mine.slots_per_request == engines.slots_per_request, case
    if mine.requested_running_requests is None and warned_limit(engines) is None:
        assert mine.limit in ("clamp", "kv tokens"), case
    else:
        assert mine.limit == (warned_limit(engines) or "user"), case


@pytest.mark.parametrize("seed", range(4))
def test_random_configurations_solve_to_the_same_pools(engine: Engine, seed: int) -> None:
    rng = Random(seed)
    seen: Counter[str] = Counter()
    for _ in range(5_000):
        case = random_case(rng)
        mine = ours(case)
        assert_equal(case, mine, theirs(engine, case))
        seen["refused" if mine is None else mine.limit] += 1
    # Each outcome is common enough for the comparison to mean something.
    assert min(seen[kind] for kind in ("refused", "user", "clamp", "kv tokens", "state slots")) > 50, seen


def test_flags_for_a_demand_make_the_engine_fit_it(engine: Engine) -> None:
    rng = Random(11)
    fitted = 0
    for _ in range(3_000):
        case, concurrency, tokens, extra = random_demand(rng)
        sizes: dict[str, Any] = {"kv_bytes": case.kv_bytes, "state_bytes": case.state_bytes}
        try:
            fit = flags_for(
                concurrency,
                tokens,
                SglangFlags(**case.flags),
                memory_bytes=case.memory_bytes,
                extra_slots=extra,
                **sizes,
            )
        except InputError:
            continue
        fitted += 1
        pools = engine.solve(vars(fit.flags), case.memory_bytes, **sizes)
        ranks = fit.flags.attn_dp_size
        assert pools.max_running_requests == math.ceil(concurrency / ranks), case
        assert pools.kv_tokens * ranks >= tokens, case
        if case.state_bytes:
            wanted = pools.slots_per_request * math.ceil(concurrency / ranks) + math.ceil(extra / ranks)
            assert pools.state_slots == wanted, case
    assert 300 < fitted < 2_700


def test_a_pipeline_stage_pays_for_its_share_of_the_state(engine: Engine) -> None:
    rng = Random(5)
    for _ in range(500):
        layers, stages = rng.randint(8, 96), rng.randint(2, 8)
        state_layers = sorted(rng.sample(range(layers), rng.randint(1, layers)))
        whole = len(state_layers) * rng.randint(100, 3_000_000)
        largest = max(
            sum(start <= layer < end for layer in state_layers)
            for start, end in engine.stage_layers(layers, stages)
        )
        case = random_case(rng)
        stage = int(whole * (largest / len(state_layers)))
        case = Case({**case.flags, "pp_size": stages}, case.memory_bytes, case.kv_bytes, stage)
        try:
            engines = engine.solve(
                case.flags, case.memory_bytes, case.kv_bytes, whole, layers=layers, state_layers=state_layers
            )
        except EngineRefuses:
            engines = None
        assert_equal(case, ours(case), engines)


def test_reserved_slots_for_every_strategy(engine: Engine) -> None:
    switches = product(sglang_flags.STRATEGIES, *[(False, True)] * 3, (1, 2))
    compared = 0
    for strategy, serial, skip, no_radix, stages in switches:
        changed = {
            "mamba_radix_cache_strategy": strategy,
            "disable_overlap_schedule": serial,
            "skip_decode_lock": skip,
            "disable_radix_cache": no_radix,
            "pp_size": stages,
            "context_length": 4_096,
        }
        try:
            flags = SglangFlags(**{**DEFAULTS, **changed})
        except InputError:
            continue
        pools = engine.solve(vars(flags), 1 << 36, 8_064, 1_000_000, layers=2, state_layers=[0])
        assert slots_per_request(flags) == pools.slots_per_request, flags
        compared += 1
    assert compared == 24 + 8 + 2 + 6  # radix off, extra_buffer, lazy, no_buffer


def test_constants_are_still_those_in_the_engine(engine: Engine) -> None:
    assert engine.constant("MAMBA_CACHE_SIZE_MAX_RUNNING_REQUESTS_RATIO") == 3
    assert engine.constant("MAMBA_CACHE_BASE_RATIO_DROP_ON_SKIP") == 1
    assert engine.constant("MAMBA_CACHE_V2_ADDITIONAL_RATIO_NO_BUFFER") == 1
    assert engine.launch.flags()["mamba_full_memory_ratio"].fallback == 0.9
    assert SglangFlags().mamba_full_memory_ratio == 0.9
    assert engine.launch.speculative_max_running == sglang_flags.SPECULATIVE_MAX_RUNNING
    text = engine.source()
    most, fewest = sglang_pools.MOST_ESTIMATED, sglang_pools.FEWEST_ESTIMATED
    assert text.count(f"estimated = max(min(estimated, {most}), {fewest})") == 1
    per_context = sglang_pools.REQUESTS_PER_CONTEXT
    assert text.count(f"int(token_capacity / self.model_config.context_len * {per_context})") == 1


def test_every_option_is_one_of_the_engine(engine: Engine) -> None:
    flags = SglangFlags(
        context_length=1,
        max_mamba_cache_size=64,
        max_running_requests=8,
        max_total_tokens=64,
        disable_overlap_schedule=True,
        speculative_num_draft_tokens=2,
        attn_dp_size=2,
        pp_size=2,
        dcp_size=2,
    )
    radix_off = SglangFlags(disable_radix_cache=True)
    options = {flag.option for flag in engine.launch.flags().values()}
    printed = [*flags.command_line(hybrid=True), *radix_off.command_line(hybrid=True)]
    ours = {word for word in printed if word.startswith("--")}
    assert ours <= options
    assert len(ours) == 13
    (variable,) = SglangFlags(skip_decode_lock=True).environment()
    assert f"envs.{variable}.get()" in engine.source()


def test_state_shapes_of_the_engine_give_the_bytes_of_a_slot(engine: Engine) -> None:
    # Ling-3.0-Flash at TP 4: 35 KDA layers of 32 heads of 128; conv 3 * 4096 / 4 * 3, state 8 * 128 * 128.
    kda = engine.kda_shape(tp_world_size=4, num_heads=32, head_dim=128, conv_kernel_size=4)
    assert engine.slot_bytes(kda, 35) == 35 * (9_216 * 2 + 131_072 * 4)
    assert engine.slot_bytes(kda, 35, ssm="bfloat16") == 9_820_160
    # Mamba2 whose one group is repeated on each of 4 ranks: (4096 + 2 * 4 * 64) / 4 * 3, state 16 * 64 * 64.
    mamba2 = engine.mamba2_shape(
        tp_world_size=4,
        intermediate_size=4_096,
        n_groups=1,
        num_heads=64,
        head_dim=64,
        state_size=64,
        conv_kernel=4,
    )
    assert engine.slot_bytes(mamba2, 10) == 10 * (1_152 * 3 * 2 + 65_536 * 4)
    mamba1 = engine.mamba1_shape(tp_world_size=2, intermediate_size=8_192, state_size=16, conv_kernel=4)
    assert engine.slot_bytes(mamba1, 1) == 4_096 * 3 * 2 + 4_096 * 16 * 4


def write_wheel(folder: Path, version: str, files: dict[str, bytes], recorded: dict[str, bytes]) -> None:
    info = f"sglang-{version}.dist-info"
    rows = []
    for name, data in recorded.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(data)}")
    with zipfile.ZipFile(folder / f"sglang-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n")
        archive.writestr(f"{info}/RECORD", "\n".join(rows))
        for name, data in files.items():
            archive.writestr(name, data)


def test_another_release_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_wheel(tmp_path, "0.5.24", {}, {})
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    with pytest.raises(WrongEngine, match=rf"is SGLang 0\.5\.24, but .* for {ENGINE_VERSION}"):
        find_wheel(ENGINE_VERSION)


def test_an_edited_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_wheel(tmp_path, ENGINE_VERSION, {"sglang/a.py": b"x = 2\n"}, {"sglang/a.py": b"x = 1\n"})
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    with pytest.raises(WrongEngine, match=r"sglang/a\.py .* differs"):
        find_wheel(ENGINE_VERSION).text("sglang/a.py")


def test_a_wheel_that_cannot_be_fetched_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    with pytest.raises(WheelUnavailable, match=f"could not fetch sglang {ENGINE_VERSION}: .*No matching"):
        find_wheel(ENGINE_VERSION)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("wanted", "named"),
    [
        ({"names": ["LIMIT"]}, "LIMIT"),
        ({"methods": {"Pool": ["size"]}}, "size"),
        ({"methods": {"free": ["size"]}}, "free"),
    ],
)
def test_a_definition_that_went_away_is_named(wanted: dict[str, Any], named: str) -> None:
    text = "class Pool:\n    def solve(self): ...\n\ndef free(): ...\n"
    with pytest.raises(MissingDefinition, match=named):
        compile_definitions(text, "pool.py", surroundings={}, **wanted)
