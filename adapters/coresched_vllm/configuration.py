"""What vLLM's operator sets: C_A, else from the engine's block pool, and the retention of states."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coresched_engine import label_capacity
from coresched_engine.label_capacity import CEILING, FIELDS, LabelCapacity, Settings

from coresched.capacity.fields import shown
from coresched.errors import InputError

SECTION = "coresched"
"""The name in vLLM's `--additional-config` of a mapping with one or more of what `FIELDS` and
`ONE_STATE_PER_TRAJECTORY` name."""
ONE_STATE_PER_TRAJECTORY = "one_state_per_trajectory"
ONE_STATE_VARIABLE = "CORESCHED_ONE_STATE_PER_TRAJECTORY"
"""Prevails over the field: 1 or 0."""


def asked_label_capacity(environment: Mapping[str, str], additional_config: object) -> LabelCapacity | None:
    """C_A by its variable, else by vLLM's additional config, else by the plan that either names; else None.

    See `coresched_engine.label_capacity.asked_label_capacity`.
    """
    return label_capacity.asked_label_capacity(environment, _settings(additional_config), "vllm")


def one_state_per_trajectory(environment: Mapping[str, str], additional_config: object) -> bool:
    """Whether a trajectory's superseded states are to be evicted first: by the variable, else by the field.

    On where neither is given. What is given is checked, also where the other prevails. Raises InputError.
    """
    settings = _settings(additional_config)
    field = True if settings is None else settings.values.get(ONE_STATE_PER_TRAJECTORY, True)
    if not isinstance(field, bool):
        source = f'{ONE_STATE_PER_TRAJECTORY} in additional_config["{SECTION}"]'
        raise InputError(f"{source} is {shown(field)}; it must be true or false")
    text = environment.get(ONE_STATE_VARIABLE)
    if not text:
        return field
    if text.strip() not in ("0", "1"):
        raise InputError(f"{ONE_STATE_VARIABLE} is {shown(text)}; it must be 1 or 0")
    return text.strip() == "1"


def _settings(additional_config: object) -> Settings | None:
    section = additional_config.get(SECTION) if isinstance(additional_config, Mapping) else None
    if section is None:
        return None
    source = f'additional_config["{SECTION}"]'
    fields = (*FIELDS, ONE_STATE_PER_TRAJECTORY)
    if not isinstance(section, Mapping):
        named = f"{', '.join(fields[:-1])} or {fields[-1]}"
        raise InputError(f"{source} is {shown(section)}; it must be an object with {named}")
    return Settings(section, source, source, Path(), fields)


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
