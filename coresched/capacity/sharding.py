"""How a layer's cache is split over ranks, and which split the engines refuse."""

from coresched.capacity.architecture import Architecture
from coresched.capacity.engines import TITLES
from coresched.errors import InputError


def _refusal(option: str, value: int, rule: str) -> InputError:
    return InputError(f"{option} is {value}; {rule}")


def _must_divide(source: str, tp: int, total: int, what: str) -> None:
    if total % tp:
        choices = [str(ranks) for ranks in range(1, 65) if total % ranks == 0]
        raise _refusal("tp", tp, f"it must divide the {total:,} {what} of {source}; use {', '.join(choices)}")


def attention_elements(
    architecture: Architecture, engine: str, tp: int, dcp: int
) -> tuple[int, tuple[str, ...]]:
    """Elements a token keeps in one attention layer of one rank, and notes on how.

    ``tp`` is the tensor parallelism of attention. Raises InputError where it divides neither the query heads
    nor the KV heads, where KV heads cannot be replicated evenly, or where dcp does not fit.
    """
    attention, source = architecture.attention, architecture.source
    if tp % dcp:
        raise _refusal("dcp", dcp, f"it must divide the tp of attention, {tp}")
    if attention.kind == "none":
        if dcp > 1:
            raise _refusal("dcp", dcp, f"{source} has no attention to split; it must be 1")
        return 0, ()
    if attention.query_heads is not None:
        _must_divide(source, tp, attention.query_heads, "attention heads")
    if attention.kind == "mla":
        rank = architecture.known(attention.kv_lora_rank, "kv_lora_rank")
        rope = architecture.known(attention.rope_dim, "qk_rope_head_dim")
        dropped = attention.rope_dropped and engine == "sglang"
        notes = ("MLA: every rank keeps the whole latent, whatever tp",) if tp > 1 else ()
        return rank + (0 if dropped else rope), notes
    heads = architecture.known(attention.kv_heads, "the number of KV heads")
    width = architecture.known(attention.head_dim, "the head dimension")
    shards = _kv_shards(source, engine, tp, dcp, heads, attention.query_heads)
    if shards <= heads:
        _must_divide(source, shards, heads, "KV heads")
    elif shards % heads:
        raise _refusal("tp", tp, f"it must divide the {heads:,} KV heads of {source}, or be a multiple")
    notes = () if shards <= heads else (f"KV heads replicated: tp {tp} > {heads} heads",)
    if attention.query_heads is None and tp > 1:
        notes = (*notes, f"the number of query heads is unknown: not checked that tp {tp} divides it")
    return 2 * max(1, heads // shards) * width, notes


def _kv_shards(source: str, engine: str, tp: int, dcp: int, heads: int, query_heads: int | None) -> int:
    """Into how many shares the KV heads are cut: ranks of one DCP group keep the same heads."""
    if dcp == 1:
        return tp
    if engine == "sglang":
        return tp // dcp
    if tp <= heads or dcp > tp // heads:
        rule = f"vLLM takes up to tp / KV heads of {source}, {tp} / {heads:,}, and 1 if they are not more"
        raise _refusal("dcp", dcp, rule)
    if query_heads is not None and query_heads // heads % dcp:
        raise _refusal(
            "dcp", dcp, f"it must divide the {query_heads // heads:,} queries a KV head of {source}"
        )
    return tp


def state_elements(
    architecture: Architecture, engine: str, tp: int, draft_tokens: int
) -> tuple[int, int, tuple[str, ...]]:
    """Conv and recurrent elements of one state in one layer of one rank, and notes.

    ``draft_tokens`` are conv columns more, in the kinds that take them. Raises InputError where tp does not
    divide.
    """
    state, source, known = architecture.state, architecture.source, architecture.known
    if state.kind == "none":
        return 0, 0, ()
    inner = known(state.inner, "the inner width of its state layers")
    kernel = known(state.conv_kernel, "the conv kernel")
    if state.kind == "short-conv":
        _must_divide(source, tp, inner, "conv channels")
        return inner // tp * (kernel - 1), 0, ()
    heads = known(state.heads, "the number of state heads")
    value_dim = known(state.value_dim, "the state's head dimension")
    key_dim = known(state.key_dim, "the state size")
    groups = known(state.groups, "the number of state groups")
    _must_divide(source, tp, heads, "channels" if state.kind == "mamba1" else "state heads")
    notes: tuple[str, ...] = ()
    if state.kind == "gdn":
        _must_divide(source, tp, groups, "key heads")
    elif state.kind == "mamba2" and groups % tp:
        if groups > tp or tp % groups:
            rule = f"it must divide the {groups:,} Mamba groups of {source}, or be a multiple of them"
            raise _refusal("tp", tp, rule)
        notes = (f"Mamba groups replicated: tp {tp} > {groups} groups",)
        if groups > 1:
            notes += (f"{TITLES[engine]} refuses tp {tp} with {groups} Mamba groups when it loads the model",)
        groups = tp
    columns = kernel - 1 + (draft_tokens if state.kind in ("kda", "gdn", "mamba2") else 0)
    channels = inner + 2 * groups * key_dim  # tp divides it, for it divides the heads and the groups
    return channels // tp * columns, heads // tp * value_dim * key_dim, notes


def pipeline_stages(engine: str, layers: int, pp: int) -> list[int]:
    """The stage of each layer as the engine deals them out by default.

    SGLang gives the layers left over to the last stages, vLLM to the stages before the last. Raises
    InputError for more stages than layers.
    """
    if pp > layers:
        raise _refusal("pp", pp, f"there are only {layers} layers to deal out")
    sizes = [layers // pp] * pp
    for place in range(1, layers % pp + 1):
        sizes[-place if engine == "sglang" else -place - 1] += 1
    return [stage for stage, size in enumerate(sizes) for _ in range(size)]
