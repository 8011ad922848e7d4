"""What both engines need to know of a model, in one form for every family.

Dimensions that no public source gives are None; whoever needs one asks through `known`.
"""

from dataclasses import dataclass
from typing import Literal

from coresched.errors import InputError

AttentionKind = Literal["mla", "gqa", "none"]
StateKind = Literal["kda", "gdn", "mamba2", "mamba1", "short-conv", "lightning", "none"]

ATTENTION, STATE, BOTH, NEITHER = "ASB-"
"""The letters of a layer order: a layer with KV, with a recurrent state, with both, with none."""


@dataclass(frozen=True)
class Attention:
    """The attention layers. MLA keeps kv_lora_rank + rope_dim elements a token, GQA two vectors a KV head."""

    kind: AttentionKind
    query_heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    kv_lora_rank: int | None = None
    rope_dim: int | None = None
    rope_dropped: bool = False
    """The checkpoint's MLA has no rope half; SGLang then stores kv_lora_rank alone."""


@dataclass(frozen=True)
class State:
    """The recurrent layers, in the terms of Mamba2, which every family fits.

    One layer's state is heads x value_dim x key_dim elements, and one conv column is inner + 2 groups key_dim
    channels, of which conv_kernel - 1 are kept. KDA has inner = heads D and groups = heads; GDN has inner =
    Hv Dv, groups = Hk; Mamba1 has one head a channel; a short conv has channels only; lightning has no conv.
    """

    kind: StateKind
    heads: int | None = None
    value_dim: int | None = None
    key_dim: int | None = None
    inner: int | None = None
    groups: int | None = None
    conv_kernel: int | None = None


@dataclass(frozen=True)
class Architecture:
    """A model as the engines' cache pools see it."""

    source: str
    """What a message calls it: the config file, or the catalogue's name."""
    model_class: str
    """The class in config.json's `architectures`."""
    attention: Attention
    state: State
    attention_layers: int | None
    state_layers: int | None
    order: str | None
    """One letter a layer (`ATTENTION` and its neighbours), or None where only the counts are known."""
    dtype: str | None
    """Of the weights; None where the config does not say."""
    ssm_dtype: str | None = None
    """The config's mamba_ssm_dtype, None where absent."""
    ssm_dtype_unknown: bool = False
    """No public source says whether the config sets one."""
    ssm_cache_dtype: str | None = None
    """The config's mamba_ssm_cache_dtype, None where absent."""
    mtp_layers: int | None = 0
    """Multi-token-prediction layers of the model, each an attention layer more when used as a draft."""
    max_context: int | None = None
    kv_quantized: bool = False
    """The checkpoint asks for a quantised KV cache, so "auto" is not the model's dtype."""

    def known(self, value: int | None, dimension: str) -> int:
        """The dimension's value. Raises InputError naming the dimension where it is unknown."""
        if value is None:
            raise InputError(
                f"{self.source}: {dimension} is unknown, no public source gives it; "
                "give the path of the model's config.json instead of its name"
            )
        return value
