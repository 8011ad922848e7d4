"""All metrics of one endpoint picker, put together when they are scraped."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from coresched.gateway.collector import fleet_families
from coresched.metrics.families import counters
from coresched_envoy.picker import Picker
from coresched_envoy.processing import Services

PREFIX = "coresched_epp"


class PickerCollector:
    """`collect` reads counters that are kept anyway; it must run on the event loop of the picker."""

    def __init__(self, picker: Picker, services: Services) -> None:
        self._picker = picker
        self._services = services
        self._process = ProcessCollector(registry=None)

    def collect(self) -> Iterator[Metric]:
        yield from fleet_families(PREFIX, self._picker.fleet)
        yield from self._requests()
        yield from self._access_log()
        yield from self._process.collect()

    def _requests(self) -> Iterator[Metric]:
        picker = self._picker
        refused = CounterMetricFamily(
            f"{PREFIX}_refused_requests",
            "Requests that the picker refused.",
            labels=("status", "code"),
        )
        for (status, code), number in picker.refused.items():
            refused.add_metric((str(status), code), number)
        yield refused
        for name, about, value in (
            ("unlabelled_requests", "Requests without a label header.", picker.unlabelled),
            ("moved_requests", "Requests that another endpoint than the first one served.", picker.moved),
            (
                "unknown_endpoints",
                "Endpoints in subset hints that are no workers.",
                picker.unknown_endpoints,
            ),
        ):
            yield CounterMetricFamily(f"{PREFIX}_{name}", about, value=value)

    def _access_log(self) -> Iterator[Metric]:
        flights, services = self._picker.flights, self._services
        for name, about, value in (
            ("open_requests", "Streams of external processing that are open.", services.open_streams),
            ("access_logs", "Streams of Envoy's access log that are open.", services.open_logs),
            (
                "silent_connections",
                "Connections of Envoy's that are taken for ones without an access log.",
                flights.silent_connections,
            ),
        ):
            yield GaugeMetricFamily(f"{PREFIX}_{name}", about, value=value)
        yield counters(
            f"{PREFIX}_ended_requests",
            "Requests whose count ended: by their line in the access log, by the end of their stream where "
            "Envoy has no such log, or because the line did not come in time.",
            "by",
            {"line": flights.lines, "stream": flights.by_stream, "time": flights.without_line},
        )
        yield counters(
            f"{PREFIX}_other_lines",
            "Lines of Envoy's log that ended nothing: of a request whose count had ended before (late), of "
            "none of this picker's requests (unknown).",
            "kind",
            {"late": flights.late_lines, "unknown": flights.other_lines},
        )
