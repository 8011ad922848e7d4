"""Golden bytes of both engines for catalogued models, at tensor parallelism 1, 2, 4 and 8."""

import json
from pathlib import Path
from typing import Any

import pytest

from coresched import footprint
from coresched.capacity.catalogue import catalogue, catalogue_architecture
from coresched.capacity.engines import VERSIONS
from coresched.capacity.footprint import Footprint
from coresched.capacity.sharding import state_elements
from coresched.errors import InputError

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())
SPECIFICATION = Path(__file__).resolve().parents[4] / "shared" / "spec" / "models.json"

Row = dict[str, Any]


def rows(engine: str) -> list[Any]:
    return [
        pytest.param(name, int(tp), row[engine], id=f"{name}-tp{tp}")
        for name, by_tp in GOLDEN["models"].items()
        for tp, row in by_tp.items()
        if row.get(engine)
    ]


def priced(name: str, engine: str, tp: int, **options: Any) -> Footprint:
    return footprint(model=name, engine=engine, tp=tp, **options)


def test_versions_are_the_ones_of_the_golden_numbers() -> None:
    assert GOLDEN["engine_versions"] == VERSIONS


def test_every_model_and_both_engines_are_covered() -> None:
    assert len(rows("sglang")) == 96
    assert len(rows("vllm")) == 92


@pytest.mark.parametrize(("name", "tp", "row"), rows("sglang"))
def test_sglang(name: str, tp: int, row: Row) -> None:
    if row["c_kv"] is None:
        with pytest.raises(InputError, match="number of KV heads is unknown"):
            priced(name, "sglang", tp)
        conv, ssm, _ = state_elements(catalogue_architecture(name), "sglang", tp, 0)
        layers = catalogue()[name].state_layers
        assert layers is not None
        assert (2 * conv + 4 * ssm) * layers == row["c_state"]
        assert (2 * conv + 2 * ssm) * layers == row["c_state_bf16"]
        return
    fp = priced(name, "sglang", tp)
    assert fp.kv_bytes == row["c_kv"]
    assert fp.state_bytes == row.get("c_state", 0)
    assert fp.served is row.get("supported", True)
    if "c_state" in row:
        assert fp.state_dtype == row["ssm_dtype"]
        assert priced(name, "sglang", tp, state_dtype="float32").state_bytes == row["c_state_fp32"]
        assert priced(name, "sglang", tp, state_dtype="bfloat16").state_bytes == row["c_state_bf16"]
    if "c_kv_with_mtp_draft" in row:
        assert priced(name, "sglang", tp, mtp=True).kv_bytes == row["c_kv_with_mtp_draft"]


@pytest.mark.parametrize(("name", "tp", "row"), rows("vllm"))
def test_vllm(name: str, tp: int, row: Row) -> None:
    fp = priced(name, "vllm", tp)
    layout = fp.layout
    assert layout is not None
    assert fp.kv_bytes == row["c_kv"]
    assert fp.state_bytes == row["c_state"]
    assert layout.block_tokens == row["block"]
    if "page" not in row:  # the dense rows have no states
        assert layout.state_groups == 0
        return
    assert fp.served is row["supported"]
    assert fp.state_dtype == row["ssm_dtype"]
    assert fp.state_layer_bytes * fp.state_layers == row["c_state_unpadded"]
    assert layout.page_bytes == row["page"]
    assert (layout.group_layers, layout.attention_groups, layout.state_groups) == (
        row["group"],
        row["attn_groups"],
        row["state_groups"],
    )
    assert layout.bytes_per_block == row["bytes_per_block"]
    assert layout.page_padding == pytest.approx(row["pad"], rel=1e-12)
    assert [layout.attention_padding_layers, layout.state_padding_layers] == row["layer_pad"]


def test_elements_of_one_layer() -> None:
    checked = 0
    for name, by_tp in GOLDEN["models"].items():
        for tp, row in by_tp.items():
            if "state_elems_per_layer" in row:
                conv, ssm, _ = state_elements(catalogue_architecture(name), "sglang", int(tp), 0)
                assert {"conv": conv, "ssm": ssm} == row["state_elems_per_layer"]
                checked += 1
    assert checked == 84


def test_the_golden_numbers_are_those_of_the_specification() -> None:
    if not SPECIFICATION.exists():
        pytest.skip("the specification's models.json is not beside this checkout")
    specified = json.loads(SPECIFICATION.read_text())
    for engine, version in GOLDEN["engine_versions"].items():
        assert specified["engine_versions"][engine] == version
    numbers = {
        name: {tp: row for tp, row in model.get("golden_by_tp", {}).items() if row}
        for name, model in specified["models"].items()
    }
    assert {name: by_tp for name, by_tp in numbers.items() if by_tp} == GOLDEN["models"]
