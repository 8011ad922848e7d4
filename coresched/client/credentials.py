"""How a client connects to `coresched serve`: in the clear or with TLS, and as which tenant."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import grpc

from coresched.client.bearer import BearerChannel, BlockingBearer
from coresched.client.target import check_target
from coresched.errors import InputError
from coresched.pem import authorities, key_pair

Options = Sequence[tuple[str, int]]

TOKEN_VARIABLE = "CORESCHED_TOKEN"

_PLAIN_WITH_TOKEN = [("grpc.enable_http_proxy", 0)]  # a proxy would be another machine that reads the token


def channel(
    target: str,
    *,
    token: str | None = None,
    ca: str | Path | bytes | None = None,
    certificate: str | Path | None = None,
    key: str | Path | None = None,
    options: Options = (),
) -> grpc.aio.Channel:
    """A grpc.aio channel to a server; it connects with its first call.

    ``target``: HOST:PORT, unix:PATH or another name of gRPC, such as dns:///HOST:PORT. ``token``: the
    tenant's token; None is that of the environment variable CORESCHED_TOKEN, if it is set and not empty.
    ``ca``: PEM file of the CA that the server's certificate must be of, or its bytes.
    ``certificate``, ``key``: PEM files of the client's own certificate, for servers that ask for one; without
    ``ca``, the CAs are gRPC's own. Any of the three makes it TLS. ``options``: further channel arguments of
    gRPC.

    Raises TypeError, or InputError naming the parameter: for a target that is no place, a file that cannot be
    used, a token that cannot be sent, and a token that would travel in the clear to another machine.
    """
    wanted = check_connection(target, token, ca, certificate, key)
    if wanted.tls:
        return grpc.aio.secure_channel(target, _tls_credentials(wanted), options)
    if wanted.token is None:
        return grpc.aio.insecure_channel(target, options)
    return BearerChannel(grpc.aio.insecure_channel(target, [*options, *_PLAIN_WITH_TOKEN]), wanted.token)


def blocking_channel(
    target: str,
    *,
    token: str | None = None,
    ca: str | Path | bytes | None = None,
    certificate: str | Path | None = None,
    key: str | Path | None = None,
    options: Options = (),
) -> grpc.Channel:
    """The same as `channel`, for threads."""
    wanted = check_connection(target, token, ca, certificate, key)
    if wanted.tls:
        return grpc.secure_channel(target, _tls_credentials(wanted), options)
    if wanted.token is None:
        return grpc.insecure_channel(target, options)
    return grpc.intercept_channel(
        grpc.insecure_channel(target, [*options, *_PLAIN_WITH_TOKEN]), BlockingBearer(wanted.token)
    )


@dataclass(frozen=True, slots=True)
class Checked:
    """What a connection is made with: the token, and the contents of the PEM files."""

    token: str | None
    tls: bool
    trusted: bytes | None = None
    private: bytes | None = None
    chain: bytes | None = None


def check_connection(
    target: str,
    token: str | None,
    ca: str | Path | bytes | None,
    certificate: str | Path | None,
    key: str | Path | None,
) -> Checked:
    """What `channel` goes by, read and checked; nothing of gRPC is made. Raises as `channel` does."""
    check_target(target)
    token, name = _token(token)
    files = {"ca": None if isinstance(ca, bytes) else ca, "certificate": certificate, "key": key}
    for field, file in files.items():
        if not (file is None or isinstance(file, str | Path)):
            raise TypeError(
                f"{field} must be the path of a PEM file, got {file!r} of type {type(file).__name__}"
            )
    if (certificate is None) != (key is None):
        given, missing = ("certificate", "key") if key is None else ("key", "certificate")
        raise InputError(f"{given} must be given with {missing}; add it")
    if ca is None and certificate is None:
        if token is not None and not _stays_here(target):
            raise InputError(
                f"{name} must not travel in the clear to target {target!r}; give ca for TLS, or a loopback "
                "or unix: target"
            )
        return Checked(token, tls=False)
    trusted = ca if isinstance(ca, bytes) or ca is None else authorities(Path(ca), "ca")
    private = chain = None
    if certificate is not None and key is not None:
        private, chain = key_pair(
            Path(certificate), Path(key), fields=("certificate", "key"), of_server=False
        )
    return Checked(token, True, trusted, private, chain)


def _tls_credentials(wanted: Checked) -> grpc.ChannelCredentials:
    """With the token in them, if there is one."""
    tls = grpc.ssl_channel_credentials(wanted.trusted, wanted.private, wanted.chain)
    if wanted.token is not None:
        tls = grpc.composite_channel_credentials(tls, grpc.access_token_call_credentials(wanted.token))
    return tls


def _token(token: str | None) -> tuple[str | None, str]:
    """The token, and what the user calls it."""
    name = "token"
    if token is None:
        token, name = os.environ.get(TOKEN_VARIABLE) or None, TOKEN_VARIABLE
    if not (token is None or isinstance(token, str)):
        raise TypeError(f"{name} must be a str, got a value of type {type(token).__name__}")
    if token is not None and not re.fullmatch("[!-~]+", token):
        raise InputError(f"{name} must be of visible ASCII characters without spaces; correct it")
    return token, name


def _stays_here(target: str) -> bool:
    """Whether gRPC reaches this target without leaving the machine, as far as its text tells."""
    if target.startswith(("unix:", "unix-abstract:")):
        return True
    host = re.sub(r"^(?:dns:(?:///?)?|ipv4:|ipv6:)", "", target)
    host = host.rpartition(":")[0].strip("[]") or host
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
