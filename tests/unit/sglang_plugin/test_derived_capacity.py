"""C_A from the engine's pools."""

from types import SimpleNamespace
from typing import Any

import pytest
from coresched_sglang.pools import CEILING, derived_label_capacity


def cache(slots: Any = None, tokens: Any = None, page_size: int = 1) -> SimpleNamespace:
    return SimpleNamespace(
        req_to_token_pool=SimpleNamespace(mamba_pool=SimpleNamespace(size=slots)),
        token_to_kv_pool_allocator=SimpleNamespace(size=tokens),
        page_size=page_size,
    )


@pytest.mark.parametrize(
    ("tree_cache", "hierarchical", "value"),
    [
        (cache(slots=64, tokens=1_000_000), False, 64),
        (cache(slots=1 << 20), False, CEILING),
        (cache(tokens=4096, page_size=64), False, 64),
        (cache(tokens=10, page_size=64), False, 1),
        (cache(tokens=1 << 20), False, CEILING),
        (cache(slots=64), True, CEILING),
        (SimpleNamespace(), False, CEILING),
        (cache(slots=0, tokens="?"), False, CEILING),
    ],
)
def test_no_trajectory_that_the_pools_can_hold_lacks_a_place(
    tree_cache: Any, hierarchical: bool, value: int
) -> None:
    derived = derived_label_capacity(tree_cache, hierarchical)
    assert derived.value == value
    assert derived.source
