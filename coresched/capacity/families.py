"""How each model class spells its dimensions in config.json, as its config class and both engines read them.

One reader a family; each returns the attention, the state and the layer order, or refuses a field.
"""

from collections.abc import Callable

from coresched.capacity import layers
from coresched.capacity.architecture import ATTENTION, BOTH, STATE, Attention, State
from coresched.capacity.attention import derived, fixed, given, gqa, kv_heads, mla
from coresched.capacity.fields import Fields

Parts = tuple[Attention, State, str]
STATELESS = State("none")


def _kda(heads: int, head_dim: int, conv_kernel: int) -> State:
    return State("kda", heads, head_dim, head_dim, heads * head_dim, heads, conv_kernel)


def bailing_v3(fields: Fields) -> Parts:
    """Ling 3: MLA and KDA."""
    heads, head_dim = fields.count("num_attention_heads"), fields.count("head_dim")
    state = _kda(heads, head_dim, fields.count("short_conv_kernel_size"))
    return mla(fields), state, layers.group_order(fields)


def bailing_v2_5(fields: Fields) -> Parts:
    """Ling 2.5 and 2.6: MLA and lightning attention, which keeps no conv."""
    if fields.has("short_conv_kernel_size"):
        raise fields.refusal("short_conv_kernel_size", "only BailingMoeV3 has it; correct `architectures`")
    return mla(fields), _lightning(fields), layers.group_order(fields)


def _lightning(fields: Fields) -> State:
    heads, head_dim = fields.count("num_attention_heads"), fields.count("head_dim")
    return State("lightning", heads, head_dim, head_dim, 0, 0, 1)


def kimi_linear(fields: Fields) -> Parts:
    """Kimi-Linear and Kimi-K3: MLA and KDA, with the KDA layers in linear_attn_config."""
    linear = fields.section("linear_attn_config")
    state = _kda(linear.count("num_heads"), linear.count("head_dim"), linear.count("short_conv_kernel_size"))
    return mla(fields), state, layers.listed_order(linear, layers.layer_count(fields))


def gdn(fields: Fields) -> Parts:
    """Qwen3-Next, Qwen3.5 and later: GQA and gated delta nets."""
    keys, key_dim = fields.count("linear_num_key_heads"), fields.count("linear_key_head_dim")
    values, value_dim = fields.count("linear_num_value_heads"), fields.count("linear_value_head_dim")
    kernel = fields.count("linear_conv_kernel_dim")
    if values % keys:
        raise fields.refusal("linear_num_value_heads", f"it must be a multiple of the {keys:,} key heads")
    state = State("gdn", values, value_dim, key_dim, values * value_dim, keys, kernel)
    return gqa(fields, given), state, layers.interval_order(fields)


def _mamba2(
    fields: Fields,
    inner: int,
    head_dim_field: str,
    head_dim: int | None,
    heads_field: str,
    names: dict[str, str],
) -> State:
    heads = fields.count(heads_field)
    if head_dim is None:
        if inner % heads:
            raise fields.refusal(heads_field, f"it must divide the inner width, {inner:,}")
        head_dim = inner // heads
    elif head_dim * heads != inner:
        fix = f"{heads_field} {heads:,} times it must be the inner width, {inner:,}"
        raise fields.refusal(head_dim_field, fix)
    groups = fields.count(names["groups"])
    if heads % groups:
        raise fields.refusal(names["groups"], f"it must divide {heads_field}, {heads:,}")
    kernel = fields.count(names["conv"])
    return State("mamba2", heads, head_dim, fields.count(names["state"]), inner, groups, kernel)


BAMBA_NAMES = {"groups": "mamba_n_groups", "conv": "mamba_d_conv", "state": "mamba_d_state"}


def _bamba_state(fields: Fields, inner: int) -> State:
    """Of the classes that share Bamba's names; mamba_d_head may be "auto"."""
    given = fields.values.get("mamba_d_head", "auto")
    head_dim = None if given == "auto" else fields.count("mamba_d_head")
    return _mamba2(fields, inner, "mamba_d_head", head_dim, "mamba_n_heads", BAMBA_NAMES)


def _expanded(fields: Fields, factor: str = "mamba_expand") -> int:
    return fields.product(factor, of=fields.count("hidden_size"), what="the inner width")


def nemotron_h(fields: Fields) -> Parts:
    """Nemotron-H and Nemotron 3: GQA, Mamba2 and layers that hold nothing."""
    query_heads = fields.count("num_attention_heads")
    head_dim = fields.count("head_dim", "attention_head_dim")
    # The config class ignores attention_head_dim, and has 128 where head_dim is absent.
    if not fields.has("head_dim") and head_dim != 128:
        raise fields.refusal("attention_head_dim", "the engines would use 128; give head_dim as well")
    attention = Attention("gqa", query_heads, kv_heads(fields, query_heads), head_dim)
    names = {
        "groups": fields.present("n_groups", "mamba_n_groups"),
        "conv": fields.present("conv_kernel", "mamba_d_conv"),
        "state": "ssm_state_size",
    }
    width = fields.count("mamba_head_dim")
    inner = fields.count("mamba_num_heads") * width
    state = _mamba2(fields, inner, "mamba_head_dim", width, "mamba_num_heads", names)
    return attention, state, layers.nemotron_order(fields)


def granite_hybrid(fields: Fields) -> Parts:
    """Granite 4 H: GQA and Mamba2."""
    state = _bamba_state(fields, _expanded(fields))
    return gqa(fields, fixed), state, layers.typed_order(fields, "layer_types", layers.MAMBA_TYPES)


def bamba(fields: Fields) -> Parts:
    """Bamba: GQA at attn_layer_indices, Mamba2 elsewhere."""
    state = _bamba_state(fields, _expanded(fields))
    return gqa(fields, fixed), state, layers.index_order(fields, "attn_layer_indices")


def falcon_h1(fields: Fields) -> Parts:
    """Falcon-H1: GQA and Mamba2 in every layer; a null mamba_d_ssm is mamba_expand x hidden_size."""
    if "mamba_d_ssm" in fields.values and not fields.has("mamba_d_ssm"):
        inner = _expanded(fields)
    else:
        inner = fields.count("mamba_d_ssm")
    return gqa(fields, derived), _bamba_state(fields, inner), BOTH * layers.layer_count(fields)


def zamba2(fields: Fields) -> Parts:
    """Zamba2: Mamba2 in every layer, and attention over twice the hidden width in the hybrid ones."""
    hidden, query_heads = fields.count("hidden_size"), fields.count("num_attention_heads")
    head_dim = 2 * hidden // query_heads
    if 2 * hidden % query_heads or fields.optional_count("attention_head_dim") not in (None, head_dim):
        fix = f"it is 2 x hidden_size / num_attention_heads, {2 * hidden:,} / {query_heads:,}, in this class"
        raise fields.refusal("attention_head_dim", fix)
    inner = _expanded(fields)
    given = fields.optional_count("mamba_headdim")
    names = {"groups": "mamba_ngroups", "conv": "mamba_d_conv", "state": "mamba_d_state"}
    state = _mamba2(fields, inner, "mamba_headdim", given, "n_mamba_heads", names)
    attention = Attention("gqa", query_heads, kv_heads(fields, query_heads), head_dim)
    return attention, state, layers.typed_order(fields, "layers_block_type", layers.ZAMBA_TYPES)


def jamba(fields: Fields) -> Parts:
    """Jamba: GQA and Mamba1."""
    state = _mamba1(_expanded(fields), fields.count("mamba_d_state"), fields.count("mamba_d_conv"))
    return gqa(fields, fixed), state, layers.period_order(fields)


def _mamba1(inner: int, state_size: int, conv_kernel: int) -> State:
    return State("mamba1", inner, 1, state_size, inner, 0, conv_kernel)


def pure_mamba1(fields: Fields) -> Parts:
    """Mamba and Falcon-Mamba, with no attention at all; intermediate_size wins over expand."""
    inner = fields.optional_count("intermediate_size") or _expanded(fields, "expand")
    state = _mamba1(inner, fields.count("state_size"), fields.count("conv_kernel"))
    return Attention("none"), state, STATE * layers.layer_count(fields)


def pure_mamba2(fields: Fields) -> Parts:
    """Mamba2 with no attention at all."""
    names = {"groups": "n_groups", "conv": "conv_kernel", "state": "state_size"}
    inner = _expanded(fields, "expand")
    if fields.optional_count("intermediate_size") not in (None, inner):
        raise fields.refusal("intermediate_size", f"it must be expand x hidden_size, {inner:,}")
    state = _mamba2(fields, inner, "head_dim", fields.count("head_dim"), "num_heads", names)
    return Attention("none"), state, STATE * layers.layer_count(fields)


def lfm2(fields: Fields) -> Parts:
    """LFM2: GQA and short convs over the hidden width."""
    hidden = fields.count("hidden_size")
    if fields.optional_count("conv_dim") not in (None, hidden):
        raise fields.refusal("conv_dim", f"SGLang would use hidden_size, {hidden:,}; make them equal")
    state = State("short-conv", 0, 0, 0, hidden, 0, fields.count("conv_L_cache"))
    if not fields.has("layer_types") and fields.has("full_attn_idxs"):
        return gqa(fields, fixed), state, layers.index_order(fields, "full_attn_idxs")
    return gqa(fields, fixed), state, layers.typed_order(fields, "layer_types", layers.CONV_TYPES)


def minimax(fields: Fields) -> Parts:
    """MiniMax Text-01 and M1: GQA and lightning attention."""
    return gqa(fields, given), _lightning(fields), layers.marked_order(fields)


def llama(fields: Fields) -> Parts:
    """Llama and Mixtral: full attention everywhere, unless a window is given."""
    return gqa(fields, derived), STATELESS, layers.dense_order(fields, fields.has("sliding_window"))


def mistral(fields: Fields) -> Parts:
    """Mistral: its class has a window of 4096 unless sliding_window is null."""
    windowed = fields.has("sliding_window") or "sliding_window" not in fields.values
    return gqa(fields, derived), STATELESS, layers.dense_order(fields, windowed)


def qwen2(fields: Fields) -> Parts:
    """Qwen2 and 2.5: full attention everywhere, unless use_sliding_window."""
    window = fields.flag("use_sliding_window")
    return gqa(fields, fixed), STATELESS, layers.dense_order(fields, window)


def qwen3(fields: Fields) -> Parts:
    """Qwen3: full attention everywhere, unless use_sliding_window."""
    window = fields.flag("use_sliding_window")
    return gqa(fields, given), STATELESS, layers.dense_order(fields, window)


def dense_mla(fields: Fields) -> Parts:
    """DeepSeek: MLA everywhere."""
    if fields.has("index_topk"):
        raise fields.refusal("index_topk", "the index cache of sparse attention is not priced")
    return mla(fields), STATELESS, ATTENTION * layers.layer_count(fields)


READERS: dict[str, Callable[[Fields], Parts]] = {
    "BailingMoeV3ForCausalLM": bailing_v3,
    "BailingMoeV3VLForConditionalGeneration": bailing_v3,
    "BailingMoeV2_5ForCausalLM": bailing_v2_5,
    "KimiLinearForCausalLM": kimi_linear,
    "KimiK3ForConditionalGeneration": kimi_linear,
    "Qwen3NextForCausalLM": gdn,
    "Qwen3_5ForCausalLM": gdn,
    "Qwen3_5ForConditionalGeneration": gdn,
    "Qwen3_5MoeForCausalLM": gdn,
    "Qwen3_5MoeForConditionalGeneration": gdn,
    "NemotronHForCausalLM": nemotron_h,
    "GraniteMoeHybridForCausalLM": granite_hybrid,
    "FalconH1ForCausalLM": falcon_h1,
    "Zamba2ForCausalLM": zamba2,
    "BambaForCausalLM": bamba,
    "JambaForCausalLM": jamba,
    "MambaForCausalLM": pure_mamba1,
    "FalconMambaForCausalLM": pure_mamba1,
    "Mamba2ForCausalLM": pure_mamba2,
    "Lfm2ForCausalLM": lfm2,
    "Lfm2MoeForCausalLM": lfm2,
    "Lfm2VlForConditionalGeneration": lfm2,
    "MiniMaxText01ForCausalLM": minimax,
    "MiniMaxM1ForCausalLM": minimax,
    "MiniMaxForCausalLM": minimax,
    "LlamaForCausalLM": llama,
    "MistralForCausalLM": mistral,
    "MixtralForCausalLM": llama,
    "Qwen2ForCausalLM": qwen2,
    "Qwen2MoeForCausalLM": qwen2,
    "Qwen3ForCausalLM": qwen3,
    "Qwen3MoeForCausalLM": qwen3,
    "DeepseekV2ForCausalLM": dense_mla,
    "DeepseekV3ForCausalLM": dense_mla,
}
