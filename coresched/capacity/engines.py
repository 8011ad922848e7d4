"""What SGLang 0.5.23 and vLLM 0.32.0 do with a model class: whether they serve it, and the dtypes they store.

A class that an engine does not serve is still priced by the engine's rules, and the footprint says so.
"""

from dataclasses import dataclass
from typing import Literal

from coresched.capacity.architecture import Architecture
from coresched.capacity.fields import shown
from coresched.errors import InputError

Engine = Literal["sglang", "vllm"]

VERSIONS: dict[str, str] = {"sglang": "0.5.23", "vllm": "0.32.0"}
TITLES: dict[str, str] = {"sglang": "SGLang", "vllm": "vLLM"}

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "fp8_e4m3": 1, "fp8_e5m2": 1, "fp8": 1}

KV_DTYPES: dict[str, dict[str, str]] = {
    "sglang": {"bf16": "bfloat16", "bfloat16": "bfloat16", "fp8_e4m3": "fp8_e4m3", "fp8_e5m2": "fp8_e5m2"},
    "vllm": {name: name for name in ("bfloat16", "float16", "fp8", "fp8_e4m3", "fp8_e5m2")},
}
"""What --kv-cache-dtype takes, without the packed formats, whose scales are not priced."""

STATE_DTYPES = ("float32", "bfloat16", "float16")

VLLM_ONLY = {"JambaForCausalLM", "Zamba2ForCausalLM"}
UNSERVED = {"BambaForCausalLM", "MiniMaxForCausalLM", "MiniMaxText01ForCausalLM", "MiniMaxM1ForCausalLM"}
"""No model file in SGLang; removed from vLLM in 0.23.0."""

NO_EXTRA_BUFFER = {"Lfm2ForCausalLM", "Lfm2MoeForCausalLM", "Lfm2VlForConditionalGeneration"}
"""SGLang caches their states with no_buffer only: without overlap scheduling, in pages of one token."""

BAILING_V3 = {"BailingMoeV3ForCausalLM", "BailingMoeV3VLForConditionalGeneration"}
QWEN3_5 = {
    "Qwen3_5ForCausalLM",
    "Qwen3_5ForConditionalGeneration",
    "Qwen3_5MoeForCausalLM",
    "Qwen3_5MoeForConditionalGeneration",
}
PASS_SSM_DTYPE = QWEN3_5 | {
    "Qwen3NextForCausalLM",
    "NemotronHForCausalLM",
    "FalconH1ForCausalLM",
    "Lfm2ForCausalLM",
    "Lfm2VlForConditionalGeneration",
}
"""The classes whose SGLang config hands mamba_ssm_dtype on; the others keep float32."""

CONFIGURED = {"sglang": PASS_SSM_DTYPE, "vllm": QWEN3_5 | {"NemotronHForCausalLM"}}
"""The classes whose state dtype a checkpoint can set."""


@dataclass(frozen=True)
class Dtypes:
    """The dtypes of the KV cache and of the two parts of a state, and notes on the choice."""

    kv: str
    conv: str
    ssm: str
    notes: tuple[str, ...]


def serves(engine: str, model_class: str) -> bool:
    """Whether the engine, in the version above, has a model of this class."""
    return model_class not in UNSERVED and (engine == "vllm" or model_class not in VLLM_ONLY)


def _model_dtype(engine: str, architecture: Architecture, dtype: str | None) -> str:
    """--dtype, else the config's, where float32 is served in 16 bits by both engines."""
    if dtype is not None:
        return _choice("dtype", dtype, {name: name for name in STATE_DTYPES})
    if architecture.dtype is None:
        raise InputError(
            f"{architecture.source}: neither dtype nor torch_dtype is given; add one, or pass dtype, "
            "for example bfloat16"
        )
    if architecture.dtype == "float32":
        return "float16" if engine == "sglang" else "bfloat16"
    return architecture.dtype


def _choice(option: str, value: object, known: dict[str, str]) -> str:
    if not isinstance(value, str) or value not in known:
        raise InputError(f"{option} is {shown(value)}; it must be one of {', '.join(known)}")
    return known[value]


def resolve_dtypes(
    engine: str,
    architecture: Architecture,
    *,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    conv_dtype: str | None = None,
    state_dtype: str | None = None,
) -> Dtypes:
    """The engine's dtypes for this model, with --dtype, --kv-cache-dtype and the state dtypes overridden.

    SGLang keeps conv states in bfloat16 and the rest in float32, or in mamba_ssm_dtype where the config class
    passes it. vLLM keeps conv states in the model's dtype and the rest by class: KDA in float32, Qwen3.5 in
    mamba_ssm_dtype, Nemotron-H in mamba_ssm_cache_dtype or float32, the others like the conv states.
    Raises InputError for a dtype the engine does not take, or where the config leaves one open.
    """
    model = _model_dtype(engine, architecture, dtype)
    if kv_dtype is not None and kv_dtype != "auto":
        kv = _choice("kv_dtype", kv_dtype, KV_DTYPES[engine])
    elif architecture.kv_quantized:
        raise InputError(
            f"{architecture.source}: quantization_config sets a KV cache format; pass kv_dtype with what the "
            "engine uses, for example fp8_e4m3"
        )
    else:
        kv = model
    wishes = {name: name for name in STATE_DTYPES}
    conv_wish = None if conv_dtype is None else _choice("conv_dtype", conv_dtype, wishes)
    ssm_wish = None if state_dtype is None else _choice("state_dtype", state_dtype, wishes)
    if engine == "sglang":
        passed = architecture.ssm_dtype if architecture.model_class in PASS_SSM_DTYPE else None
        conv, ssm = conv_wish or "bfloat16", ssm_wish or passed or "float32"
        notes: tuple[str, ...] = ()
    else:
        conv = conv_wish or model
        ssm, notes = _vllm_ssm(architecture, conv, ssm_wish)
    if architecture.ssm_dtype_unknown and ssm_wish is None and architecture.model_class in CONFIGURED[engine]:
        notes += (f"whether the checkpoint sets a state dtype is unknown: {ssm} is the default without one",)
    return Dtypes(kv, conv, ssm, notes)


def _vllm_ssm(architecture: Architecture, conv: str, wish: str | None) -> tuple[str, tuple[str, ...]]:
    kind, name = architecture.state.kind, architecture.model_class
    if name in BAILING_V3 or kind in ("lightning", "short-conv"):
        used = "float32" if name in BAILING_V3 else conv
        if wish in (None, used):
            return used, ()
        return used, (f"vLLM ignores a state dtype for {name}: {used} is used, not {wish}",)
    if kind == "kda":
        if wish == "float16":
            raise InputError(f"state_dtype is float16; for {name} vLLM takes float32 or bfloat16")
        return wish or "float32", ()
    if wish is not None:
        return wish, ()
    if name in QWEN3_5:
        return architecture.ssm_dtype or conv, ()
    if name == "NemotronHForCausalLM":
        return architecture.ssm_cache_dtype or "float32", ()
    return conv, ()
