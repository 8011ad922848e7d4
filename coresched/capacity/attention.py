"""The attention part of a config: heads, widths and MLA's ranks, by the rules of the model classes."""

from collections.abc import Callable

from coresched.capacity.architecture import Attention
from coresched.capacity.fields import Fields


def given(fields: Fields, query_heads: int) -> int:
    """head_dim as written; it must be there, for the class's default is not hidden_size / heads."""
    return fields.count("head_dim")


def _quotient(fields: Fields, query_heads: int) -> int:
    hidden = fields.count("hidden_size")
    if hidden % query_heads:
        raise fields.refusal("hidden_size", f"it must be a multiple of num_attention_heads, {query_heads:,}")
    return hidden // query_heads


def fixed(fields: Fields, query_heads: int) -> int:
    """hidden_size / heads, whatever head_dim says: vLLM's layer of this class does not read it."""
    head_dim = _quotient(fields, query_heads)
    if fields.optional_count("head_dim") not in (None, head_dim):
        raise fields.refusal("head_dim", f"this class uses hidden_size / heads, {head_dim:,}; make it that")
    return head_dim


def derived(fields: Fields, query_heads: int) -> int:
    """head_dim, or hidden_size / heads where it is absent or null."""
    return fields.optional_count("head_dim") or _quotient(fields, query_heads)


HeadDim = Callable[[Fields, int], int]


def kv_heads(fields: Fields, query_heads: int) -> int:
    """num_key_value_heads, where null means one a query head."""
    if "num_key_value_heads" not in fields.values:
        raise fields.refusal("num_key_value_heads", "give it; without groups it is num_attention_heads")
    heads = fields.optional_count("num_key_value_heads") or query_heads
    if query_heads % heads:
        raise fields.refusal("num_key_value_heads", f"it must divide num_attention_heads, {query_heads:,}")
    return heads


def gqa(fields: Fields, head_dim_of: HeadDim) -> Attention:
    """Grouped-query attention with equal key and value widths."""
    query_heads = fields.count("num_attention_heads")
    head_dim = head_dim_of(fields, query_heads)
    if (fields.optional_count("v_head_dim", minimum=0) or head_dim) != head_dim:
        raise fields.refusal("v_head_dim", f"values of another width than keys, {head_dim:,}, are not priced")
    return Attention("gqa", query_heads, kv_heads(fields, query_heads), head_dim)


def mla(fields: Fields) -> Attention:
    """Multi-head latent attention."""
    return Attention(
        "mla",
        query_heads=fields.count("num_attention_heads"),
        kv_lora_rank=fields.count("kv_lora_rank"),
        rope_dim=fields.count("qk_rope_head_dim", minimum=0),
        rope_dropped=fields.flag("use_mla_nope"),
    )
