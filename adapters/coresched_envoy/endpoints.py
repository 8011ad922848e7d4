"""The workers behind Envoy: their addresses, as Envoy has them, and where they answer health checks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from socket import AF_INET6, inet_ntop

from yarl import URL

from coresched.errors import InputError
from coresched.gateway.workers import Worker


@dataclass(slots=True, eq=False)
class Endpoint(Worker):
    """One worker. Its name, and so its place on the ring, is its IP:PORT."""

    def __post_init__(self) -> None:
        self.authority = self.name
        self.prefix = ""

    def url(self, path: str) -> URL:
        return URL(f"http://{self.name}{path}", encoded=True)


def checked_endpoint(text: str, where: str) -> str:
    """IP:PORT or [IPV6]:PORT as Envoy writes it. Raises InputError, which begins with `where`."""
    host, colon, digits = text.rpartition(":")
    try:
        number = ip_address(host.removeprefix("[").removesuffix("]"))
        bracketed = host.startswith("[") and host.endswith("]")
        if not colon or bracketed is not isinstance(number, IPv6Address):
            raise ValueError
        if not (digits.isascii() and digits.isdigit() and 0 < int(digits) <= 65535):
            raise ValueError
    except ValueError:
        raise InputError(
            f"{where} must be IP:PORT or [IPV6]:PORT, with a port from 1 to 65535, such as 10.0.0.1:30000, "
            f"got {text!r}"
        ) from None
    if isinstance(number, IPv6Address):
        if number.scope_id is not None:  # Envoy has the interface's number there, by which it is not found
            raise InputError(
                f"{where} must have no interface in its address, got {text!r}; leave out %{number.scope_id}, "
                "and give an address that is not link-local"
            )
        if number.ipv4_mapped is not None:  # Envoy's IPv6 sockets reach no IPv4
            raise InputError(
                f"{where} must not be an IPv4 address inside IPv6, got {text!r}; write it as "
                f"{number.ipv4_mapped}:{int(digits)}"
            )
        # As Envoy writes it: ::10.0.0.1, where str() has ::a00:1.
        return f"[{inet_ntop(AF_INET6, number.packed)}]:{int(digits)}"
    return f"{number}:{int(digits)}"


def checked_endpoints(given: Iterable[tuple[str, float]], where: str) -> dict[str, float]:
    """Weights by endpoint. Raises InputError for what is none, or is there twice."""
    weights: dict[str, float] = {}
    for text, weight in given:
        name = checked_endpoint(text, where)
        if name in weights:
            raise InputError(f"{where} must name each worker once, got {name!r} again")
        weights[name] = weight
    return weights
