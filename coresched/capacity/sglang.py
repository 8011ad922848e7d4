"""SGLang 0.5.23's pool arithmetic, exact to the slot and the token, from flags to pools and back."""

from typing import Final

from coresched.capacity.sglang_flags import HeldSlots, SglangFlags, Strategy, held_slots, slots_per_request
from coresched.capacity.sglang_pools import Limit, SglangPools, solve_pools
from coresched.capacity.sglang_sizing import DoesNotFit, SglangFit, flags_for, ratio_of

ENGINE_VERSION: Final = "0.5.23"
"""The release whose code the tests hold this arithmetic to; others may size their pools differently."""

__all__ = [
    "ENGINE_VERSION",
    "DoesNotFit",
    "HeldSlots",
    "Limit",
    "SglangFit",
    "SglangFlags",
    "SglangPools",
    "Strategy",
    "flags_for",
    "held_slots",
    "ratio_of",
    "slots_per_request",
    "solve_pools",
]
