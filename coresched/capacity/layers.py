"""Layer orders: which layers hold KV, which hold a recurrent state, in the spellings the configs use.

A reader returns one letter a layer and refuses a pattern that does not cover every layer exactly once.
"""

from collections.abc import Mapping

from coresched.capacity.architecture import ATTENTION, BOTH, NEITHER, STATE
from coresched.capacity.fields import MAX_LAYERS, Fields, shown

ATTENTION_TYPES = {"attention": ATTENTION, "full_attention": ATTENTION}
LINEAR_TYPES = ATTENTION_TYPES | {"linear_attention": STATE}
MAMBA_TYPES = LINEAR_TYPES | {"mamba": STATE}
CONV_TYPES = ATTENTION_TYPES | {"conv": STATE, "short_conv": STATE}
ZAMBA_TYPES = {"mamba": STATE, "linear_attention": STATE, "hybrid": BOTH}
NEMOTRON_TYPES = MAMBA_TYPES | {"mlp": NEITHER, "moe": NEITHER}
NEMOTRON_LETTERS = {"M": STATE, "*": ATTENTION, "-": NEITHER, "E": NEITHER}


def layer_count(fields: Fields) -> int:
    """The config's num_hidden_layers."""
    return fields.count("num_hidden_layers", maximum=MAX_LAYERS)


def _full_length(fields: Fields, name: str, order: str) -> str:
    layers = layer_count(fields)
    if len(order) != layers:
        raise fields.refusal(name, f"it lists {len(order):,} layers and num_hidden_layers {layers:,}")
    return order


def typed_order(fields: Fields, name: str, letters: Mapping[str, str]) -> str:
    """From an array with one type a layer, such as layer_types or layers_block_type."""
    types = fields.texts(name)
    for place, kind in enumerate(types):
        if kind not in letters:
            fix = f"layer {place} is of unknown type {shown(kind)}; known are {', '.join(letters)}"
            raise fields.refusal(name, fix)
    return _full_length(fields, name, "".join(letters[kind] for kind in types))


def _interval(layers: int, interval: int) -> str:
    return "".join(STATE if (layer + 1) % interval else ATTENTION for layer in range(layers))


def interval_order(fields: Fields) -> str:
    """Qwen3-Next and its heirs: layer_types, full_attention_interval, or both if they say the same."""
    listed = typed_order(fields, "layer_types", LINEAR_TYPES) if fields.has("layer_types") else None
    if listed is not None and not fields.has("full_attention_interval"):
        return listed
    layers = layer_count(fields)
    spaced = _interval(layers, fields.count("full_attention_interval", maximum=MAX_LAYERS))
    if listed is not None and listed != spaced:
        raise fields.refusal("full_attention_interval", "layer_types says otherwise, keep one of them")
    return spaced


def group_order(fields: Fields) -> str:
    """Bailing: the last layer of each layer_group_size is attention; an array marks linear layers with 1."""
    layers = layer_count(fields)
    if isinstance(fields.values.get("layer_group_size"), list):
        marks = fields.counts("layer_group_size", 0, MAX_LAYERS)
        order = "".join(STATE if mark == 1 else ATTENTION for mark in marks)
        return _full_length(fields, "layer_group_size", order)
    size = fields.count("layer_group_size", maximum=MAX_LAYERS)
    if layers % size:
        raise fields.refusal("layer_group_size", f"it must divide num_hidden_layers, {layers:,}")
    return _interval(layers, size)


def listed_order(linear: Fields, layers: int) -> str:
    """Kimi: kda_layers and full_attn_layers, counted from 1, with each layer in one of them."""
    states = linear.counts("kda_layers", 1, layers)
    full = linear.counts("full_attn_layers", 1, layers)
    if sorted(states + full) != list(range(1, layers + 1)):
        fix = f"with kda_layers it must name each of the {layers:,} layers once, counted from 1"
        raise linear.refusal("full_attn_layers", fix)
    return "".join(STATE if layer + 1 in set(states) else ATTENTION for layer in range(layers))


def nemotron_order(fields: Fields) -> str:
    """Nemotron-H: layers_block_type, or the letters of hybrid_override_pattern."""
    typed = None
    if fields.has("layers_block_type"):
        typed = typed_order(fields, "layers_block_type", NEMOTRON_TYPES)
        if not fields.has("hybrid_override_pattern"):
            return typed
    name = "hybrid_override_pattern"
    pattern = fields.values.get(name)
    if not isinstance(pattern, str) or not set(pattern) <= set(NEMOTRON_LETTERS):
        raise fields.refusal(name, "give one letter a layer: M, *, - or E; or give layers_block_type")
    order = _full_length(fields, name, "".join(NEMOTRON_LETTERS[letter] for letter in pattern))
    if typed is not None and typed != order:
        raise fields.refusal(name, "layers_block_type says otherwise; keep one of them")
    return order


def index_order(fields: Fields, name: str) -> str:
    """From an array with the places of the attention layers, counted from 0; the others hold a state."""
    layers = layer_count(fields)
    places = fields.counts(name, 0, layers - 1)
    if len(set(places)) != len(places):
        raise fields.refusal(name, "a layer is named twice; name each attention layer once")
    return "".join(ATTENTION if layer in set(places) else STATE for layer in range(layers))


def period_order(fields: Fields) -> str:
    """Jamba: layer i is attention where i mod attn_layer_period = attn_layer_offset."""
    layers = layer_count(fields)
    period = fields.count("attn_layer_period", maximum=MAX_LAYERS)
    offset = fields.count("attn_layer_offset", minimum=0, maximum=period - 1)
    return "".join(ATTENTION if layer % period == offset else STATE for layer in range(layers))


def marked_order(fields: Fields) -> str:
    """MiniMax: attn_type_list with 1 for attention and 0 for lightning, or layer_types."""
    if not fields.has("attn_type_list"):
        return typed_order(fields, "layer_types", LINEAR_TYPES)
    marks = fields.counts("attn_type_list", 0, 1)
    return _full_length(fields, "attn_type_list", "".join(ATTENTION if mark else STATE for mark in marks))


def dense_order(fields: Fields, window: bool) -> str:
    """Every layer is full attention. Raises InputError for a window or layers of another type."""
    if window:
        raise fields.refusal("sliding_window", "a window is not priced; set it to null for full attention")
    if fields.has("layer_types"):
        return typed_order(fields, "layer_types", ATTENTION_TYPES)
    return ATTENTION * layer_count(fields)
