"""All metrics of one gateway, put together when they are scraped."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from coresched.gateway.members import Members
from coresched.gateway.traffic import Traffic
from coresched.metrics.families import counters, histogram_family, imbalance_families


class GatewayCollector:
    """`collect` reads counters that are kept anyway; it must run on the event loop of the gateway."""

    def __init__(self, fleet: Members, traffic: Traffic) -> None:
        self._fleet = fleet
        self._traffic = traffic
        self._process = ProcessCollector(registry=None)

    def collect(self) -> Iterator[Metric]:
        yield from fleet_families("coresched_gateway", self._fleet)
        yield from _traffic_families(self._traffic)
        yield from self._process.collect()


def fleet_families(prefix: str, fleet: Members) -> Iterator[Metric]:
    """What any server has to show of the fleet it routes to; `prefix` begins the names."""
    number = GaugeMetricFamily(f"{prefix}_workers", "Workers by where they stand.", labels=("state",))
    number.add_metric(("healthy",), fleet.healthy())
    number.add_metric(("out",), len(fleet.workers) - fleet.healthy())
    yield number
    in_flight = _gauge(f"{prefix}_worker_in_flight", "L(w), inference requests in flight.")
    healthy = _gauge(f"{prefix}_worker_healthy", "1 for a worker that gets requests, 0 for one that is out.")
    routed = _counter(f"{prefix}_worker_routed", "Requests routed there, retries included.")
    spilled = _counter(
        f"{prefix}_worker_spilled", "Requests that had the worker as home and went to another."
    )
    retries = _counter(
        f"{prefix}_worker_retries", "Requests routed there that had found no connection to another worker."
    )
    failures = _counter(
        f"{prefix}_worker_failures", "Requests that found no connection, were dropped or broke off."
    )
    for worker in fleet.workers:
        of = (worker.name,)
        in_flight.add_metric(of, worker.in_flight)
        healthy.add_metric(of, worker.healthy)
        routed.add_metric(of, worker.requests)
        spilled.add_metric(of, worker.spilled)
        retries.add_metric(of, worker.retries)
        failures.add_metric(of, worker.failures)
    yield from (in_flight, healthy, routed, retries, failures)
    if fleet.knows_homes:
        yield spilled
    imbalance = fleet.imbalance()
    yield from imbalance_families(prefix, "healthy", imbalance.present, imbalance.over_s, imbalance.busy_s)
    yield histogram_family(
        f"{prefix}_route_decision_seconds", "Choice of a worker, checks included.", fleet.decision_s
    )


def _traffic_families(traffic: Traffic) -> Iterator[Metric]:
    yield histogram_family(
        "coresched_gateway_first_byte_seconds",
        "Arrival of an inference request to the first piece of its answer's body.",
        traffic.first_byte_s,
    )
    yield histogram_family(
        "coresched_gateway_request_seconds",
        "Arrival of an inference request to the end of its answer, if it came to its end.",
        traffic.request_s,
    )
    # Classes that no worker should use are there only once one did.
    classes = {f"{n}xx": count for n, count in enumerate(traffic.answers) if count or 2 <= n <= 5}
    yield counters(
        "coresched_gateway_answers",
        "Answers of workers to inference requests that began.",
        "status",
        classes,
    )
    refused = CounterMetricFamily(
        "coresched_gateway_refused_requests",
        "Requests that the gateway answered with an error of its own.",
        labels=("status", "code"),
    )
    for (status, code), count in traffic.refused.items():
        refused.add_metric((str(status), code), count)
    yield refused


def _gauge(name: str, about: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, about, labels=("worker",))


def _counter(name: str, about: str) -> CounterMetricFamily:
    return CounterMetricFamily(name, about, labels=("worker",))
