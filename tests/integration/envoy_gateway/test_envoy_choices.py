"""Where Envoy sends requests with `coresched epp` beside it: where the in-process router would."""

import sys
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest
from envoys import Envoy, Picker, Workers
from google.protobuf.struct_pb2 import Value

from bench.gateways.exchange import CHAT, body
from bench.gateways.placement import held, zipf_labels
from coresched.core import LoadBoundedRouter

WORKERS = 3
HOT = ["hot"] * 30
ZIPF = zipf_labels(60, seed=1)
UNIFORM = [f"task-{number}" for number in range(60)]

pytestmark = [
    pytest.mark.envoy,
    pytest.mark.skipif(sys.platform != "linux", reason="its wheel is for Linux"),
]

HINT = """\
          - name: envoy.filters.http.header_to_metadata
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config
              request_rules:
              - header: x-subset
                on_header_present:
                  metadata_namespace: envoy.lb.subset_hint
                  key: x-gateway-destination-endpoint-subset
                  type: PROTOBUF_VALUE
                  encode: BASE64
                remove: true
"""


def hinting(configuration: str) -> str:
    """With a filter before the picker's that takes the subset from a header, as a gateway would know it."""
    first = "          http_filters:\n"
    assert configuration.count(first) == 1
    return configuration.replace(first, first + HINT)


@dataclass(frozen=True)
class Rig:
    workers: Workers
    picker: Picker
    envoys: list[Envoy]

    @property
    def idle(self) -> dict[str, int]:
        return dict.fromkeys(self.workers.names, 0)


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with Workers(WORKERS) as workers, Picker(workers.names) as picker:
        first = Envoy(picker.address, workers.names, hinting)
        with first, Envoy(picker.address, workers.names) as second:
            yield Rig(workers, picker, [first, second])


@pytest.mark.parametrize("envoys", [1, 2])
@pytest.mark.parametrize("labels", [HOT, ZIPF, UNIFORM], ids=["hot", "zipf", "uniform"])
async def test_every_choice_is_that_of_the_in_process_router(
    labels: list[str], envoys: int, rig: Rig
) -> None:
    await rig.picker.reaches(rig.idle)
    router = LoadBoundedRouter(rig.workers.names)
    expected = []
    for label in labels:
        router.route(label)
        expected.append([router.loads()[worker] for worker in rig.workers.names])
    ports = [envoy.port for envoy in rig.envoys[:envoys]]
    async with held(ports, rig.workers.ports, labels) as seen:
        assert seen == expected
        await rig.picker.reaches(router.loads())
    await rig.picker.reaches(rig.idle)


def subset(*endpoints: str) -> str:
    value = Value()
    value.list_value.SetInParent()  # a list though it may be empty
    value.list_value.extend(endpoints)
    return b64encode(value.SerializeToString()).decode()


async def answered(rig: Rig, label: str, header: str, value: str) -> httpx.Response:
    async with httpx.AsyncClient() as client:
        url = f"http://127.0.0.1:{rig.envoys[0].port}{CHAT}"
        headers = {"x-smg-routing-key": label, header: value}
        return await client.post(url, content=body(), headers=headers)


async def test_a_subset_hint_limits_the_choice(rig: Rig) -> None:
    await rig.picker.reaches(rig.idle)
    for number, only in enumerate(rig.workers.names):
        for label in UNIFORM[:10]:
            answer = await answered(rig, label, "x-subset", subset(only, "10.9.9.9:1"))
            assert answer.headers["x-bench-worker"] == str(number)
    for none in (subset(), subset("10.9.9.9:1")):
        assert (await answered(rig, "a", "x-subset", none)).status_code == 503
    await rig.picker.reaches(rig.idle)


async def test_a_client_cannot_choose_by_the_headers_of_the_protocol(rig: Rig) -> None:
    router = LoadBoundedRouter(rig.workers.names)
    for label in UNIFORM[:10]:
        home = rig.workers.names.index(router.home(label))
        other = rig.workers.names[home - 1]
        for header in ("x-gateway-destination-endpoint", "x-gateway-destination-endpoint-subset"):
            answer = await answered(rig, label, header, other)
            assert answer.headers["x-bench-worker"] == str(home)
            await rig.picker.reaches(rig.idle)
