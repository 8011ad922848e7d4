"""The recipe of docs/envoy.md without code of ours, in the real Envoy."""

import re
import sys
from collections.abc import Iterator
from math import ceil
from pathlib import Path

import pytest
from envoys import RawEnvoy, Workers

from bench.gateways.placement import held, zipf_labels
from bench.gateways.processes import free_port
from bench.gateways.running import Subject, placed

PAGE = Path(__file__).parents[3] / "docs" / "envoy.md"
WORKERS = 3

pytestmark = [
    pytest.mark.envoy,
    pytest.mark.skipif(sys.platform != "linux", reason="its wheel is for Linux"),
]


def recipe(port: int, workers: list[int]) -> str:
    (text,) = [
        block
        for block in re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
        if "hash_balance_factor" in block
    ]
    text = text.replace("port_value: 8080", f"port_value: {port}")
    for number, worker in enumerate(workers, 1):
        text = text.replace(
            f"address: 10.0.0.{number}, port_value: 30000", f"address: 127.0.0.1, port_value: {worker}"
        )
    assert "10.0.0." not in text
    return text


@pytest.fixture(scope="module")
def envoy() -> Iterator[tuple[RawEnvoy, list[int]]]:
    port = free_port()
    with Workers(WORKERS) as workers, RawEnvoy(port, recipe(port, workers.ports)) as started:
        yield started, workers.ports


def bound(in_flight: int) -> int:
    """Of Envoy's source, thread_aware_lb_impl.cc; LBCH has no rounding: a worker takes one more here."""
    return max(1, ceil(ceil(in_flight * 1.25) / WORKERS))


@pytest.mark.parametrize("labels", [["hot"] * 30, zipf_labels(60, seed=1)], ids=["hot", "zipf"])
async def test_loads_are_bounded_but_for_one_request_by_rounding(
    labels: list[str], envoy: tuple[RawEnvoy, list[int]]
) -> None:
    started, workers = envoy
    async with held([started.port], workers, labels) as seen:
        pass
    before = [0] * WORKERS
    for number, loads in enumerate(seen, 1):
        (taken,) = [place for place in range(WORKERS) if loads[place] > before[place]]
        assert before[taken] <= bound(number), (number, before, loads)
        before = loads


async def test_labels_keep_their_worker(envoy: tuple[RawEnvoy, list[int]]) -> None:
    subject = Subject("Envoy", envoy[0].port)
    labels = [f"task-{number}" for number in range(100)]
    homes = await placed(subject, labels)
    assert set(homes) == set(range(WORKERS))
    assert await placed(subject, labels) == homes
