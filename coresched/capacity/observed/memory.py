"""The memory of a running engine's pools, from what it reports and what an entry costs."""

from coresched.capacity.footprint import Footprint
from coresched.capacity.observed.pools import ObservedPools
from coresched.errors import InputError


def pool_memory(observed: ObservedPools, size: Footprint) -> int:
    """Bytes of both pools on one GPU.

    vLLM reports them, or else its blocks; SGLang holds its KV tokens and K + 1 state slots, so they are those
    counts times the footprint's bytes. Raises InputError when the engine is another one, or did not report
    what is needed.
    """
    if observed.engine != size.engine:
        raise InputError(f"engine is {size.engine!r}; {observed.source} is {observed.title}; make them agree")
    if size.layout is not None:
        if observed.pool_bytes is not None:
            return observed.pool_bytes
        if observed.blocks is None:
            raise _missing(observed, "blocks")
        return observed.blocks * size.layout.bytes_per_block
    if observed.kv_tokens is None:
        raise _missing(observed, "KV tokens")
    if size.state_bytes and observed.state_slots is None:
        raise _missing(observed, "state slots")
    states = (observed.state_slots + 1) * size.state_bytes if observed.state_slots is not None else 0
    return observed.kv_tokens * size.kv_bytes + states


def _missing(observed: ObservedPools, what: str) -> InputError:
    return InputError(f"{observed.source} does not tell the engine's {what}; give pool_memory instead")
