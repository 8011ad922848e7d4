"""The text that says where a service is, checked so that a mistake is not taken for a silent service."""

from __future__ import annotations

import re
from ipaddress import ip_address

from coresched.errors import InputError

# Schemes of gRPC whose rest is not a host and a port.
_NAMED = re.compile(r"(?:unix|unix-abstract|vsock|xds|google-c2p):(.*)", re.DOTALL)
_HOST_SCHEME = re.compile(r"dns:(?://[^/]*/)?|ipv[46]:(?:///)?")
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_.])?")


def check_target(target: object, name: str = "target") -> str:
    """The same text: HOST:PORT, [IPV6]:PORT, unix:PATH, or another name of gRPC such as dns:///HOST:PORT.

    Raises TypeError for no text, and InputError for text that names no place; both begin with `name`. gRPC
    itself takes a port modulo 65536, one that is missing for 443, and http: for a host.
    """
    if not isinstance(target, str):
        raise TypeError(f"{name} must be a str, got {target!r} of type {type(target).__name__}")
    named = _NAMED.fullmatch(target)
    if named is not None:
        if not named[1].strip("/") or "\0" in target:
            raise InputError(
                f"{name} must have a path or name after {target.partition(':')[0]}:, got {target!r}"
            )
        return target
    scheme = _HOST_SCHEME.match(target)
    hosts = target[scheme.end() :] if scheme is not None else target
    several = hosts.split(",") if target.startswith("ipv") else [hosts]
    for one in several:
        _check_host_and_port(one, target, name)
    return target


def _check_host_and_port(text: str, target: str, name: str) -> None:
    rule = f"{name} must be HOST:PORT, [IPV6]:PORT or unix:PATH, such as 127.0.0.1:50071, got {target!r}"
    if "://" in text:
        raise InputError(f"{rule}; leave out {text.partition('://')[0]}://, the service speaks gRPC")
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        if not _is_address(host[1:-1], 6):
            raise InputError(f"{rule}, whose host is no IPv6 address")
    elif ":" in host or (not colon and ":" in text) or text.startswith("["):
        raise InputError(f"{rule}; an IPv6 address needs brackets, and a port after them")
    elif not colon:
        raise InputError(f"{rule}; add the port")
    elif not _HOST.fullmatch(host):
        raise InputError(f"{rule}, which has no host" if not host else f"{rule}, whose host is none")
    elif re.fullmatch(r"[0-9.]+", host) and not _is_address(host, 4):
        raise InputError(f"{rule}, whose host is no IPv4 address")
    if not (re.fullmatch("[0-9]{1,5}", port) and 1 <= int(port) <= 65535):
        raise InputError(f"{name} must end with a port from 1 to 65535, got {target!r}")


def _is_address(text: str, version: int) -> bool:
    try:
        return ip_address(text.partition("%")[0]).version == version
    except ValueError:
        return False
