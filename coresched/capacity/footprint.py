"""Bytes per KV token and per recurrent-state slot on one tensor-parallel rank, as SGLang or vLLM store them.

With h_kv KV heads of width d, b bytes an element and n layers:
GQA keeps n 2 max(1, h_kv // tp) d b a token; MLA n (kv_lora_rank + rope) b on every rank, whatever tp.
A state layer keeps heads value_dim key_dim / tp elements and conv_kernel - 1 columns of
(inner + 2 groups key_dim) / tp; Mamba2's groups are replicated up to tp where tp is larger.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from coresched.capacity.architecture import ATTENTION, BOTH, STATE, Architecture
from coresched.capacity.catalogue import catalogue_architecture, is_catalogued, unknown_model
from coresched.capacity.config import read_architecture
from coresched.capacity.engines import BYTES, TITLES, VERSIONS, Dtypes, resolve_dtypes, serves
from coresched.capacity.fields import MAX_LAYERS, require_option, shown
from coresched.capacity.sharding import attention_elements, pipeline_stages, state_elements
from coresched.capacity.vllm import DEFAULT_BLOCK_TOKENS, BlockLayout, block_layout
from coresched.errors import InputError

MAX_RANKS = 4096
MAX_DRAFT_TOKENS = 1024


@dataclass(frozen=True)
class Footprint:
    """What one KV token and one state slot cost, and how the numbers came about. Bytes are per TP rank."""

    engine: str
    engine_version: str
    """The version whose rules were applied."""
    served: bool
    """Whether that version has the model's class; if not, the numbers are what its rules would give."""
    model: str
    model_class: str
    tp: int
    pp: int
    attention_dp: int
    dcp: int
    kv_bytes: int
    """Of one token on a rank that holds it (1 in dcp ranks), on the most loaded pipeline stage."""
    state_bytes: int
    """Of one state slot, on the most loaded pipeline stage; 0 without states; with padding on vLLM."""
    attention_layers: int
    """Of the whole model, without draft layers."""
    state_layers: int
    draft_layers: int
    draft_tokens: int
    kv_layer_bytes: int
    """One token in one attention layer."""
    state_layer_bytes: int
    """One state in one layer, without padding."""
    kv_dtype: str
    conv_dtype: str
    state_dtype: str
    max_context: int | None
    layout: BlockLayout | None
    """vLLM's blocks; None for SGLang."""
    notes: tuple[str, ...]
    """What is worth knowing about the numbers, a sentence each."""


def resolve_architecture(model: str | Path) -> Architecture:
    """The architecture of a config.json, of a folder with one, or of a name in the catalogue.

    Raises InputError where it is none of them, or for what `read_architecture` refuses.
    """
    if not isinstance(model, (str, Path)) or not str(model):
        raise InputError(f"model is {shown(model)}; give a config.json or a name in the catalogue")
    path = Path(model)
    try:
        readable, folder = path.is_file() or (path / "config.json").is_file(), path.is_dir()
    except (OSError, ValueError):  # a name too long for a path, or with a null byte
        readable, folder = False, False
    if readable:
        return read_architecture(path)
    if is_catalogued(str(model)):
        return catalogue_architecture(str(model))
    if folder:
        raise InputError(f"model {shown(str(model))} is a folder without a config.json; give one with it")
    raise unknown_model(str(model))


def footprint(
    model: str | Path,
    engine: str,
    tp: int = 1,
    *,
    pp: int = 1,
    attention_dp: int = 1,
    dcp: int = 1,
    mtp: bool = False,
    draft_layers: int = 0,
    draft_tokens: int = 0,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    conv_dtype: str | None = None,
    state_dtype: str | None = None,
    block_tokens: int = DEFAULT_BLOCK_TOKENS,
    kernel_block_tokens: int = DEFAULT_BLOCK_TOKENS,
) -> Footprint:
    """The cache footprint of a model on an engine.

    ``model`` is the path of a Hugging Face config.json (or its folder), or a catalogue name; ``engine`` is
    "sglang" or "vllm". ``attention_dp`` is SGLang's attention data parallelism, by which tp is divided there.
    ``mtp`` counts the model's own prediction layers as drafts, ``draft_layers`` those of another draft of the
    same KV shape; ``draft_tokens`` widens vLLM's conv states. ``block_tokens`` is vLLM's --block-size and
    ``kernel_block_tokens`` the smallest block of its attention backend.

    Raises InputError naming the field, its value and the fix: for an unknown model, engine or class, a field
    that is missing, unusable or unknown, and a tp, pp or dcp that the engine would refuse.
    """
    if engine not in VERSIONS:
        raise InputError(f"engine is {shown(engine)}; it must be sglang or vllm")
    for name, value in (("tp", tp), ("pp", pp), ("attention_dp", attention_dp), ("dcp", dcp)):
        require_option(name, value, 1, MAX_RANKS)
    require_option("draft_layers", draft_layers, 0, MAX_LAYERS)
    require_option("draft_tokens", draft_tokens, 0, MAX_DRAFT_TOKENS)
    attention_tp = _attention_tp(engine, tp, attention_dp)
    architecture = resolve_architecture(model)
    drafts = _draft_layers(architecture, mtp, draft_layers)
    dtypes = resolve_dtypes(
        engine, architecture, dtype=dtype, kv_dtype=kv_dtype, conv_dtype=conv_dtype, state_dtype=state_dtype
    )
    kv_elements, kv_notes = attention_elements(architecture, engine, attention_tp, dcp)
    state_tp = tp if architecture.attention.kind == "none" else attention_tp
    columns = draft_tokens if engine == "vllm" else 0
    conv, ssm, state_notes = state_elements(architecture, engine, state_tp, columns)
    kv_layer = kv_elements * BYTES[dtypes.kv]
    state_layer = conv * BYTES[dtypes.conv] + ssm * BYTES[dtypes.ssm]
    attention_layers, state_layers = _layers(architecture)
    attention_stages, state_stages = _stages(architecture, engine, pp)
    layout = None
    if engine == "sglang":
        kv = max(_sglang_cell(attention_stages.count(stage), kv_layer, drafts) for stage in range(pp))
        state = _sglang_slot(state_layer, state_stages, pp)
    else:
        layout = block_layout(
            attention_stages=[*attention_stages, *[pp - 1] * drafts],
            state_stages=state_stages,
            kv_layer_bytes=kv_layer,
            state_layer_bytes=state_layer,
            mla=architecture.attention.kind == "mla",
            block_tokens=block_tokens,
            kernel_block_tokens=kernel_block_tokens,
            dcp=dcp,
            checkpoint_blocks=int(architecture.state.kind == "mamba2"),  # of vLLM's MambaMixer2
        )
        kv, state = layout.kv_bytes, layout.state_bytes
    return Footprint(
        engine=engine,
        engine_version=VERSIONS[engine],
        served=serves(engine, architecture.model_class),
        model=architecture.source,
        model_class=architecture.model_class,
        tp=tp,
        pp=pp,
        attention_dp=attention_dp,
        dcp=dcp,
        kv_bytes=kv,
        state_bytes=state,
        attention_layers=attention_layers,
        state_layers=state_layers,
        draft_layers=drafts,
        draft_tokens=draft_tokens,
        kv_layer_bytes=kv_layer,
        state_layer_bytes=state_layer,
        kv_dtype=dtypes.kv,
        conv_dtype=dtypes.conv,
        state_dtype=dtypes.ssm,
        max_context=architecture.max_context,
        layout=layout,
        notes=(*_notes(architecture, engine, dtypes, layout, dcp), *kv_notes, *state_notes),
    )


def _attention_tp(engine: str, tp: int, attention_dp: int) -> int:
    if attention_dp == 1:
        return tp
    if engine == "vllm":
        raise InputError(
            f"attention_dp is {attention_dp}; vLLM's replicas have tp ranks each, so leave it at 1"
        )
    if tp % attention_dp:
        raise InputError(f"attention_dp is {attention_dp}; it must divide tp, {tp}")
    return tp // attention_dp


def _draft_layers(architecture: Architecture, mtp: bool, draft_layers: int) -> int:
    if not isinstance(mtp, bool):
        raise InputError(f"mtp is {shown(mtp)}; it must be true or false")
    if not mtp:
        return draft_layers
    if draft_layers:
        raise InputError(f"draft_layers is {draft_layers} and mtp is set; the draft is one or the other")
    layers = architecture.known(architecture.mtp_layers, "the number of MTP layers")
    if not layers:
        raise InputError(f"{architecture.source}: it has no MTP layers; pass draft_layers for another draft")
    return layers


def _layers(architecture: Architecture) -> tuple[int, int]:
    return (
        architecture.known(architecture.attention_layers, "the number of attention layers"),
        architecture.known(architecture.state_layers, "the number of state layers"),
    )


def _stages(architecture: Architecture, engine: str, pp: int) -> tuple[list[int], list[int]]:
    """The pipeline stage of each attention layer and of each state layer."""
    attention, state = _layers(architecture)
    if pp == 1:
        return [0] * attention, [0] * state
    if architecture.order is None:
        raise InputError(
            f"{architecture.source}: the order of its layers is unknown, so pp {pp} cannot be priced; "
            "give the path of the model's config.json instead of its name"
        )
    stages = pipeline_stages(engine, len(architecture.order), pp)
    placed = list(zip(stages, architecture.order, strict=True))
    return [s for s, letter in placed if letter in (ATTENTION, BOTH)], [
        s for s, letter in placed if letter in (STATE, BOTH)
    ]


def _sglang_cell(layers: int, kv_layer_bytes: int, draft_layers: int) -> int:
    """A token's bytes on one stage; SGLang prices draft layers like the stage's own, rounded down."""
    cell = layers * kv_layer_bytes
    return cell + (int(cell * draft_layers / layers) if layers else 0)


def _sglang_slot(state_layer_bytes: int, state_stages: Sequence[int], pp: int) -> int:
    """A slot's bytes; SGLang scales all layers' by the largest stage's share, and cuts the fraction off."""
    if not state_stages:
        return 0
    most = max(state_stages.count(stage) for stage in range(pp))
    return int(state_layer_bytes * len(state_stages) * (most / len(state_stages)))


def _notes(
    architecture: Architecture, engine: str, dtypes: Dtypes, layout: BlockLayout | None, dcp: int
) -> tuple[str, ...]:
    notes = list(dtypes.notes)
    if not serves(engine, architecture.model_class):
        notes.insert(
            0,
            f"{TITLES[engine]} {VERSIONS[engine]} does not serve {architecture.model_class}: "
            "the numbers are what its rules would give",
        )
    if layout is not None and layout.state_page_bytes:
        notes.append(
            f"a state fills {layout.state_page_bytes:,} of its page's {layout.page_bytes:,} bytes, "
            f"{layout.page_padding:.1%} are added"
        )
    if layout is not None and layout.attention_padding_layers + layout.state_padding_layers:
        notes.append(
            f"{layout.attention_padding_layers} attention and {layout.state_padding_layers} state layers "
            "are added to fill the groups"
        )
    if dcp > 1:
        notes.append(f"a rank holds one token in {dcp}, and every state")
    return tuple(notes)
