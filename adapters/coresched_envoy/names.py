"""Names of the endpoint picker protocol, version 1, of the Gateway API Inference Extension; and our own."""

from __future__ import annotations

from typing import Final

DESTINATION: Final = "x-gateway-destination-endpoint"
"""Metadata and header of the picker's answer: IP:PORT, the best first, with commas between."""

SERVED: Final = "x-gateway-destination-endpoint-served"
"""Metadata of Envoy's: the endpoint that took the request."""

SUBSET: Final = "x-gateway-destination-endpoint-subset"
"""Metadata or header that names the endpoints that the picker has to pick from."""

LB_NAMESPACE: Final = "envoy.lb"
"""Dynamic metadata of DESTINATION and SERVED."""

HINT_NAMESPACE: Final = "envoy.lb.subset_hint"
"""Dynamic metadata of SUBSET."""

OWN_NAMESPACE: Final = "coresched"
"""Dynamic metadata of MARK. Envoy writes it into its access log as it is."""

MARK: Final = "mark"
"""What the picker gives a request, so that it knows the request's line in the access log."""
