"""Where a server listens: the text of `--listen`, checked so that each mistake has an error of its own."""

from __future__ import annotations

import errno
import os
import socket
import stat
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from coresched.errors import InputError

_LONGEST_SOCKET_PATH = 107  # of sockaddr_un on Linux, in bytes


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """A numeric host and a port; port 0 is any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def loopback(self) -> bool:
        return ip_address(self.host.partition("%")[0]).is_loopback


@dataclass(frozen=True, slots=True)
class UnixAddress:
    path: str

    def __str__(self) -> str:
        return f"unix:{self.path}"


def listen_address(text: str, flag: str = "--listen") -> TcpAddress | UnixAddress:
    """The free address that HOST:PORT, [IPV6]:PORT or unix:PATH names.

    Raises InputError, naming the flag, if it is neither, does not exist on this machine or is in use.
    """
    if text.startswith("unix:"):
        return _unix_address(text, flag)
    return _tcp_address(text, flag)


def _tcp_address(text: str, flag: str) -> TcpAddress:
    host, colon, digits = text.rpartition(":")
    if not colon or not host or (":" in host and not (host.startswith("[") and host.endswith("]"))):
        raise InputError(
            f"{flag} must be HOST:PORT, [IPV6]:PORT or unix:PATH, such as 127.0.0.1:50071, got {text!r}"
        )
    if not (digits.isascii() and digits.isdigit() and int(digits) <= 65535):
        raise InputError(f"{flag} must end with a port from 0 to 65535, got {text!r}")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(digits), type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise InputError(f"{flag} must name a host that can be resolved, got {text!r}") from None
    family, kind, protocol, _, address = found[0]
    # Servers report a failure to bind in words of their own (gRPC: always the same); so bind once before.
    try:
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise InputError(f"{flag} {text} cannot be used: {error.strerror}") from None
    return TcpAddress(str(address[0]), int(digits))


def _unix_address(text: str, flag: str) -> UnixAddress:
    path = text.removeprefix("unix:")
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise InputError(f"{flag} must have a path in UTF-8, got {text!r}") from None
    if not path or "\0" in path:
        raise InputError(f"{flag} must have a path after unix:, got {text!r}")
    if size > _LONGEST_SOCKET_PATH:
        raise InputError(
            f"{flag} must have a path of at most {_LONGEST_SOCKET_PATH} bytes, got {size}: {text!r}"
        )
    folder = Path(path).absolute().parent
    try:
        there = folder.is_dir()
    except OSError as error:
        raise InputError(f"{flag} {text} cannot be used: {error.strerror}: {str(folder)!r}") from None
    if not there:
        raise InputError(f"{flag} {text}: there is no directory {str(folder)!r}; create it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{flag} {text} cannot be used: {os.strerror(errno.EACCES)}: {str(folder)!r}")
    try:
        mode = Path(path).stat().st_mode
    except FileNotFoundError:
        return UnixAddress(path)
    except OSError as error:
        raise InputError(f"{flag} {text} cannot be used: {error.strerror}") from None
    if not stat.S_ISSOCK(mode):
        raise InputError(f"{flag} {text}: the file exists and is no socket; choose another path")
    # A server that binds would take the path away from one that is still there.
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return UnixAddress(path)  # left behind by a server that was killed; it is replaced
        except OSError as error:
            raise InputError(f"{flag} {text} cannot be used: {error.strerror}") from None
    raise InputError(f"{flag} {text} cannot be used: Address already in use")


def two_addresses(listen: TcpAddress | UnixAddress, metrics: TcpAddress | UnixAddress | None) -> None:
    """Raises InputError if a server shall listen twice on one address; port 0 is another one each time."""
    if listen == metrics and not (isinstance(listen, TcpAddress) and listen.port == 0):
        raise InputError(f"--metrics must be another address than --listen, got {metrics} for both")
