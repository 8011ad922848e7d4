"""The Envoy configuration that `coresched epp --envoy-config` prints: one to start from, and to edit.

One listener, whose requests the endpoint picker places (external processing on the headers alone) and whose
ends the picker learns from Envoy's gRPC access log. Checked with Envoy 1.40.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, ip_address

from coresched.core.shares import LARGEST_WEIGHT
from coresched.errors import InputError
from coresched.listen import TcpAddress, UnixAddress
from coresched_envoy.endpoints import checked_endpoint
from coresched_envoy.names import DESTINATION, HINT_NAMESPACE, LB_NAMESPACE, OWN_NAMESPACE, SERVED

_WEIGHT_STEPS = 100  # Envoy's weights are whole numbers; ours are exact to a hundredth

_LARGEST_FACTOR = (1 << 32) - 1  # Envoy's field has 32 bits; so far beyond any load it is no bound either way


def envoy_configuration(
    *,
    listen: TcpAddress,
    picker: TcpAddress | UnixAddress,
    workers: Mapping[str, float],
    label_headers: Sequence[str],
    load_bound: float,
) -> str:
    """A static configuration in YAML.

    ``listen``: where Envoy listens. ``picker``: where `coresched epp` listens. ``workers``: IP:PORT to
    weight, as the picker has them. ``label_headers``: those that may hold the label, the first
    one that a request has counts. ``load_bound`` is also that of Envoy's
    own bounded ring hash, which chooses while no picker answers.

    Raises InputError for a worker that is no IP:PORT (Envoy takes the picker's endpoints as addresses), and
    if Envoy would listen where the picker or a worker does.
    """
    if not workers:
        raise InputError("--envoy-config needs --worker at least once, such as --worker 10.0.0.1:30000")
    for flag, others in (("--worker", workers), ("--listen", (str(picker),))):
        if str(listen) in others:
            raise InputError(f"--envoy-listen must be another address than {flag}, got {listen} for both")
    endpoints = "\n".join(_endpoint(name, weight) for name, weight in workers.items())
    return _TEMPLATE.format(
        listen=_address(listen),
        picker=_address(_reachable(picker)),
        endpoints=endpoints,
        shown="\n".join(f"{' ' * 18}- exact: {json.dumps(name)}" for name in label_headers),
        hashed="\n".join(
            f"{' ' * 18}- {{header: {{header_name: {json.dumps(name)}}}, terminal: true}}"
            for name in label_headers
        ),
        balance_factor=min(round(load_bound * 100), _LARGEST_FACTOR),
        retries=max(1, len(workers) - 1),
        destination=DESTINATION,
        served=SERVED,
        namespace=LB_NAMESPACE,
        hint=HINT_NAMESPACE,
        own=OWN_NAMESPACE,
    )


def address(text: str, flag: str) -> TcpAddress:
    """The numeric IP:PORT or [IPV6]:PORT of a text. Nothing is bound or resolved.

    Raises InputError, naming the flag.
    """
    host, _, port = checked_endpoint(text, flag).rpartition(":")
    return TcpAddress(host.strip("[]"), int(port))


def picker_address(text: str, flag: str = "--listen") -> TcpAddress | UnixAddress:
    """Where Envoy finds the picker that listens at this address. Raises InputError, naming the flag."""
    path = text.removeprefix("unix:")
    if path != text:
        if not path.startswith("/"):
            raise InputError(f"{flag} must have an absolute path for --envoy-config, got {text!r}")
        return UnixAddress(path)
    return address(text, flag)


def _reachable(picker: TcpAddress | UnixAddress) -> TcpAddress | UnixAddress:
    """All interfaces are no destination: then Envoy and picker share a machine."""
    if isinstance(picker, TcpAddress) and (number := ip_address(picker.host)).is_unspecified:
        return TcpAddress("127.0.0.1" if isinstance(number, IPv4Address) else "::1", picker.port)
    return picker


def _address(place: TcpAddress | UnixAddress) -> str:
    if isinstance(place, UnixAddress):
        return f"{{pipe: {{path: {json.dumps(place.path)}}}}}"
    return f"{{socket_address: {{address: {json.dumps(place.host)}, port_value: {place.port}}}}}"


def _endpoint(name: str, weight: float) -> str:
    if not 0 < weight <= LARGEST_WEIGHT:
        raise InputError(
            f"--worker {name}: the weight must be above 0, at most {LARGEST_WEIGHT}, got {weight}"
        )
    place = _address(address(name, "--worker"))
    steps = max(1, round(weight * _WEIGHT_STEPS))
    return f"        - endpoint: {{address: {place}}}\n          load_balancing_weight: {steps}"


_TEMPLATE = """\
# Envoy in front of LLM workers, with coresched's endpoint picker. Made by `coresched epp --envoy-config`.
static_resources:
  listeners:
  - name: llm
    address: {listen}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: llm
          stream_idle_timeout: 0s  # a model may think for longer than the usual 5 minutes
          access_log:
          # The picker counts a request until its line is here: the stream of external processing ends with
          # the response's headers, which a streamed answer has long before it ends.
          - name: envoy.access_loggers.http_grpc
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig
              common_config:
                log_name: coresched
                transport_api_version: V3
                buffer_size_bytes: 0  # each line at once: the picker's counts are as old as its lines
                # No grpc_stream_retry_policy: with one, lines are lost while a picker starts again.
                grpc_service: {{envoy_grpc: {{cluster_name: picker}}}}
          http_filters:
          - name: envoy.filters.http.ext_proc
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor
              grpc_service: {{envoy_grpc: {{cluster_name: picker}}}}
              # true: while no picker answers, requests go by the fallback_policy below; false: they get 503.
              failure_mode_allow: true
              status_on_error: {{code: ServiceUnavailable}}
              message_timeout: 1s
              # The picker gets the label and no Authorization; and the length of an answer, if it has one.
              forward_rules:
                allowed_headers:
                  patterns:
                  - exact: content-length
{shown}
              route_cache_action: RETAIN
              processing_mode:
                request_header_mode: SEND
                response_header_mode: SEND
                request_body_mode: NONE
                response_body_mode: NONE
                request_trailer_mode: SKIP
                response_trailer_mode: SKIP
              metadata_options:
                forwarding_namespaces: {{untyped: [{namespace}, {hint}]}}  # who served; who may
                receiving_namespaces: {{untyped: [{namespace}, {own}]}}
          - name: envoy.filters.http.router
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
          route_config:
            name: llm
            virtual_hosts:
            - name: llm
              domains: ["*"]
              request_body_buffer_limit: 67108864  # 64 MiB; a longer request is not sent again
              routes:
              - match: {{prefix: "/"}}
                route:
                  cluster: workers
                  timeout: 0s
                  idle_timeout: 0s
                  hash_policy:
{hashed}
                  # Down the picker's list. Without `reset` no request is sent again that a worker may have
                  # begun; then a worker that dies costs those that it had not answered yet.
                  retry_policy:
                    retry_on: connect-failure,refused-stream,reset
                    num_retries: {retries}
                    retry_back_off: {{base_interval: 0.005s, max_interval: 0.1s}}
                    retry_host_predicate:
                    - name: envoy.retry_host_predicates.previous_hosts
                      typed_config:
                        "@type": type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate
                    host_selection_retry_max_attempts: 5
  clusters:
  - name: workers
    type: STATIC
    connect_timeout: 5s
    load_balancing_policy:
      policies:
      - typed_extension_config:
          name: envoy.load_balancing_policies.override_host
          typed_config:
            "@type": type.googleapis.com/envoy.extensions.load_balancing_policies.override_host.v3.OverrideHost
            # The metadata and not the header of that name, which clients could send.
            override_host_sources:
            - metadata: {{key: {namespace}, path: [{{key: {destination}}}]}}
            selected_host_key: {{key: {namespace}, path: [{{key: {served}}}]}}
            # Who chooses while no picker answers: the label's place on a ring of Envoy's own, within a bound.
            fallback_policy:
              policies:
              - typed_extension_config:
                  name: envoy.load_balancing_policies.ring_hash
                  typed_config:
                    "@type": type.googleapis.com/envoy.extensions.load_balancing_policies.ring_hash.v3.RingHash
                    consistent_hashing_lb_config: {{hash_balance_factor: {balance_factor}}}
    # A worker without a connection is out for 5 s. Else, as the one with the fewest requests in flight, it would
    # draw most of them by the bound of the fallback_policy. Errors that a worker answers with put it out never.
    outlier_detection:
      split_external_local_origin_errors: true
      consecutive_local_origin_failure: 1
      interval: 1s
      base_ejection_time: 5s
      max_ejection_time: 5s
      max_ejection_percent: 100
      enforcing_consecutive_5xx: 0
      enforcing_consecutive_gateway_failure: 0
      enforcing_success_rate: 0
      enforcing_local_origin_success_rate: 0
    common_lb_config: {{healthy_panic_threshold: {{value: 0}}}}  # who is out gets nothing, however few are left
    # The defaults, 1024 requests and 3 retries at a time, are too few for a batch whose requests last minutes.
    circuit_breakers:
      thresholds:
      - {{max_connections: 1000000, max_pending_requests: 1000000, max_requests: 1000000, max_retries: 1000000}}
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{http_protocol_options: {{}}}}
        common_http_protocol_options: {{idle_timeout: 3s}}  # sooner than the 5 s of the engines' servers
    load_assignment:
      cluster_name: workers
      endpoints:
      - lb_endpoints:
{endpoints}
  - name: picker
    type: STATIC
    connect_timeout: 1s
    circuit_breakers:
      thresholds:
      - {{max_connections: 1000000, max_pending_requests: 1000000, max_requests: 1000000}}
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{http2_protocol_options: {{}}}}
    load_assignment:
      cluster_name: picker
      endpoints:
      - lb_endpoints:
        - endpoint: {{address: {picker}}}
"""  # noqa: E501
