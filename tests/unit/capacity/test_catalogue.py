"""The shipped catalogue: complete, sourced, and honest about what is unknown."""

import re
from pathlib import Path

import pytest
from unit.capacity.model_configs import CONFIGS, write_config

from coresched import footprint
from coresched.capacity.catalogue import catalogue, catalogue_architecture, is_catalogued
from coresched.capacity.families import READERS
from coresched.capacity.footprint import resolve_architecture
from coresched.errors import InputError


def test_every_entry_has_a_source_and_none_names_a_place_on_this_machine() -> None:
    assert len(catalogue()) == 41
    for name, entry in catalogue().items():
        assert entry.sources, name
        for source in entry.sources:
            assert not re.search(r"/(work|home|tmp|root)/|shared/|spec/", source), name


def test_every_class_is_known_and_orders_agree_with_the_counts() -> None:
    for name, entry in catalogue().items():
        assert entry.model_class is None or entry.model_class in READERS, name
        if entry.order is not None:
            assert sum(letter in "AB" for letter in entry.order) == entry.attention_layers, name
            assert sum(letter in "SB" for letter in entry.order) == entry.state_layers, name


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in CONFIGS
        if is_catalogued(name) and name not in ("LFM2-8B-A1B", "MiniMax-M1", "Llama-3.1-8B")
    ],
)
def test_a_config_file_says_the_same_as_the_catalogue(name: str, tmp_path: Path) -> None:
    read = resolve_architecture(write_config(tmp_path, CONFIGS[name]))
    known = catalogue_architecture(name)
    assert read.model_class == known.model_class
    assert read.state == known.state
    assert (read.attention_layers, read.state_layers, read.order) == (
        known.attention_layers,
        known.state_layers,
        known.order,
    )
    for engine in ("sglang", "vllm"):
        of_file, of_name = footprint(tmp_path, engine, 4), footprint(name, engine, 4)
        assert (of_file.kv_bytes, of_file.state_bytes) == (of_name.kv_bytes, of_name.state_bytes)


def test_names_are_found_in_any_case_and_by_their_aliases() -> None:
    assert footprint("qwen3-next-80b-a3b", "sglang", 4).model == "Qwen3-Next-80B-A3B"
    assert footprint("MiniMax-Text-01", "vllm", 4).model == "MiniMax-M1"


def test_an_unknown_name_is_answered_with_the_nearest_ones() -> None:
    with pytest.raises(InputError, match=r'model "Qwen3-Nxt-80B" is neither .*Qwen3-Next-80B-A3B'):
        footprint("Qwen3-Nxt-80B", "vllm")


def test_only_catalogued_names_have_an_architecture() -> None:
    with pytest.raises(InputError, match='model "Qwen9" is neither'):
        catalogue_architecture("Qwen9")


@pytest.mark.parametrize(
    ("name", "dimension"),
    [
        ("Ling-3.1-flash", "kv_lora_rank"),
        ("Granite-4.0-H-Small", "number of KV heads"),
        ("LFM2-8B-A1B", "number of attention layers"),
        ("Nemotron-H-56B", "number of attention layers"),
        ("Jamba2", "number of KV heads"),
        ("Hunyuan-T1", "model class"),
    ],
)
def test_unknown_dimensions_are_named(name: str, dimension: str) -> None:
    with pytest.raises(
        InputError, match=f"^{re.escape(name)}: the {dimension} is unknown|^{re.escape(name)}: {dimension} is"
    ):
        footprint(name, "sglang", 1)


def test_an_unknown_layer_order_refuses_pipelines_only() -> None:
    assert footprint("Nemotron-3-Nano-4B", "sglang", 1).kv_bytes == 16384
    with pytest.raises(InputError, match="order of its layers is unknown, so pp 2"):
        footprint("Nemotron-3-Nano-4B", "sglang", 1, pp=2)


def test_unknown_prediction_layers_refuse_mtp() -> None:
    with pytest.raises(InputError, match="number of MTP layers is unknown"):
        footprint("Qwen3.5-4B", "sglang", 1, mtp=True)
    with pytest.raises(InputError, match="it has no MTP layers; pass draft_layers"):
        footprint("Ling-3.0-tiny", "sglang", 1, mtp=True)


def test_a_state_dtype_that_nobody_published_is_noted() -> None:
    note = "whether the checkpoint sets a state dtype is unknown: float32 is the default without one"
    assert note in footprint("Nemotron-H-8B", "sglang", 4).notes
    assert note not in footprint("Nemotron-H-8B", "sglang", 4, state_dtype="bfloat16").notes
    assert note not in footprint("Granite-4.0-H-Micro", "sglang", 4).notes
