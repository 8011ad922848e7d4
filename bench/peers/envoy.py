"""Envoy before the workers: alone, with its own bounded ring hash, and with coresched's endpoint picker."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from coresched_envoy.configuration import address, envoy_configuration

from bench.peers.environments import ENVOY, program
from bench.peers.gateways import Command, Gateway
from coresched.client.local import ROUTING_HEADER
from coresched.listen import TcpAddress

_TYPES = "type.googleapis.com/envoy.extensions"
_BOUND = 1.25

ROUND_ROBIN: dict[str, object] = {
    "name": "envoy.load_balancing_policies.round_robin",
    "typed_config": {"@type": f"{_TYPES}.load_balancing_policies.round_robin.v3.RoundRobin"},
}
RING_HASH: dict[str, object] = {
    "name": "envoy.load_balancing_policies.ring_hash",
    "typed_config": {
        "@type": f"{_TYPES}.load_balancing_policies.ring_hash.v3.RingHash",
        "consistent_hashing_lb_config": {"hash_balance_factor": round(_BOUND * 100)},
    },
}


def found_envoys(*, install: bool) -> tuple[list[Gateway], list[str]]:
    """As found_gateways."""
    launcher = program(ENVOY, "envoy", install=install)
    return ([], [ENVOY]) if launcher is None else (envoy_gateways(launcher), [])


def envoy_gateways(launcher: str) -> list[Gateway]:
    """Envoy in turn, Envoy with bounded loads (RING_HASH), and Envoy asking `coresched epp`."""

    def alone(policy: dict[str, object]) -> Command:
        return lambda port, _, workers: envoy_command(launcher, json.dumps(_alone(port, workers, policy)))

    return [
        Gateway("Envoy round robin", alone(ROUND_ROBIN)),
        Gateway(f"Envoy RING_HASH {_BOUND:g}", alone(RING_HASH)),
        Gateway(
            "Envoy + coresched epp",
            lambda port, second, workers: envoy_command(launcher, _asking(port, second, workers)),
            beside=_picker,
        ),
    ]


def envoy_command(launcher: str, configuration: str) -> list[str]:
    """Envoy with a configuration in YAML or JSON, several of them on one machine."""
    return [launcher, "--config-yaml", configuration, "--disable-hot-restart", "--log-level", "warn"]


def _picker(_: int, second: int, workers: Sequence[str]) -> list[str]:
    return [
        *(sys.executable, "-m", "coresched", "epp", "--listen", f"127.0.0.1:{second}"),
        *(f"--worker={_place(worker)}" for worker in workers),
    ]


def _asking(port: int, second: int, workers: Sequence[str]) -> str:
    return envoy_configuration(
        listen=TcpAddress("127.0.0.1", port),
        picker=TcpAddress("127.0.0.1", second),
        workers={_place(worker): 1.0 for worker in workers},
        label_headers=[ROUTING_HEADER],
        load_bound=_BOUND,
    )


def _place(url: str) -> str:
    return url.removeprefix("http://")


def _alone(port: int, workers: Sequence[str], policy: dict[str, object]) -> dict[str, object]:
    manager = {
        "@type": f"{_TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "llm",
        "stream_idle_timeout": "0s",
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": f"{_TYPES}.filters.http.router.v3.Router"},
            }
        ],
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "llm",
                    "domains": ["*"],
                    "routes": [
                        {
                            "match": {"prefix": "/"},
                            "route": {
                                "cluster": "workers",
                                "timeout": "0s",
                                "hash_policy": [{"header": {"header_name": ROUTING_HEADER}}],
                            },
                        }
                    ],
                }
            ]
        },
    }
    http = {"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}
    places = [address(_place(worker), "worker") for worker in workers]
    cluster = {
        "name": "workers",
        "type": "STATIC",
        "load_balancing_policy": {"policies": [{"typed_extension_config": policy}]},
        "circuit_breakers": {
            "thresholds": [{"max_connections": 65536, "max_pending_requests": 65536, "max_requests": 65536}]
        },
        "load_assignment": {
            "cluster_name": "workers",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _socket(place)}} for place in places]}],
        },
    }
    listener = {
        "name": "llm",
        "address": _socket(TcpAddress("127.0.0.1", port)),
        "filter_chains": [{"filters": [http]}],
    }
    return {"static_resources": {"listeners": [listener], "clusters": [cluster]}}


def _socket(place: TcpAddress) -> dict[str, object]:
    return {"socket_address": {"address": place.host, "port_value": place.port}}
