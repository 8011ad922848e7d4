"""How commands that call a running service connect to it: their options, and what they say of mistakes."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypedDict

from coresched.errors import InputError

_CREDENTIALS = ("token", "ca", "certificate", "key")


class ConnectionOptions(TypedDict):
    """The keyword arguments of `coresched.client.credentials.channel`."""

    token: str | None
    ca: Path | None
    certificate: Path | None
    key: Path | None


def add_credential_options(parser: argparse.ArgumentParser, token: str) -> None:
    parser.add_argument(
        "--token",
        metavar="TOKEN",
        help=f"{token}; other users of the machine can read arguments, so better set CORESCHED_TOKEN",
    )
    add_tls_options(parser)


def add_tls_options(parser: "argparse._ActionsContainer") -> None:
    parser.add_argument(
        "--ca", type=Path, metavar="FILE", help="PEM file of the CA of the service's certificate; uses TLS"
    )
    parser.add_argument(
        "--certificate",
        type=Path,
        metavar="FILE",
        help="own certificate, where the service asks for one (PEM)",
    )
    parser.add_argument("--key", type=Path, metavar="FILE", help="private key of the own certificate (PEM)")


def connection_of(args: argparse.Namespace) -> ConnectionOptions:
    return {"token": args.token, "ca": args.ca, "certificate": args.certificate, "key": args.key}


def uses_tls(args: argparse.Namespace) -> bool:
    return args.ca is not None or args.certificate is not None


@contextmanager
def flags_named(target: str) -> Iterator[None]:
    """An InputError about a parameter names its flag, and `target` for the service's address."""
    try:
        yield
    except InputError as error:
        name, _, rest = str(error).partition(" ")
        if name in _CREDENTIALS:
            raise InputError(f"--{error}") from None
        if name == "target" and rest.startswith("must "):
            raise InputError(f"{target} {rest}") from None
        raise
