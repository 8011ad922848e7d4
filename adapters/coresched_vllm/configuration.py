"""C_A of vLLM's scheduler: as the operator asks for it, or from the engine's block pool."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coresched_engine import label_capacity
from coresched_engine.label_capacity import CEILING, LabelCapacity, Settings

from coresched.capacity.fields import shown
from coresched.errors import InputError

SECTION = "coresched"
"""The name in vLLM's `--additional-config` of a mapping with `label_capacity`, or `plan`, a path, or both."""


def asked_label_capacity(environment: Mapping[str, str], additional_config: object) -> LabelCapacity | None:
    """C_A by its variable, else by vLLM's additional config, else by the plan that either names; else None.

    See `coresched_engine.label_capacity.asked_label_capacity`.
    """
    settings = None
    section = additional_config.get(SECTION) if isinstance(additional_config, Mapping) else None
    if section is not None:
        source = f'additional_config["{SECTION}"]'
        if not isinstance(section, Mapping):
            raise InputError(
                f"{source} is {shown(section)}; it must be an object with label_capacity or plan"
            )
        settings = Settings(section, source, source, Path())
    return label_capacity.asked_label_capacity(environment, settings, "vllm")


def derived_label_capacity(blocks: int, groups: int, *, beyond_the_pool: bool) -> LabelCapacity:
    """How many trajectories can have anything in the prefix cache: what C_A must not be below.

    ``blocks`` is the size of vLLM's block pool, one of which it never hands out. A trajectory that can be
    resumed has at least one block in each of the ``groups`` of layers. Where a KV connector keeps prefixes
    ``beyond_the_pool``, it is no limit.
    """
    if beyond_the_pool:
        return LabelCapacity(CEILING, "the default with a KV connector")
    trajectories = max(1, (blocks - 1) // max(1, groups))
    source = f"the engine's {blocks:,} blocks over {groups:,} groups of layers, at most {CEILING:,}"
    return LabelCapacity(min(trajectories, CEILING), source)


def label_capacity_of(
    environment: Mapping[str, str], vllm_config: Any, kv_cache_config: Any
) -> LabelCapacity:
    """C_A of the scheduler that is made with these. Raises InputError for one that cannot be used."""
    return asked_label_capacity(environment, vllm_config.additional_config) or derived_label_capacity(
        kv_cache_config.num_blocks,
        len(kv_cache_config.kv_cache_groups),
        beyond_the_pool=vllm_config.kv_transfer_config is not None,
    )
