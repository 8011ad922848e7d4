"""`--listen`: what it names, and one sentence for each way to get it wrong."""

import errno
import socket
from pathlib import Path

import pytest

from coresched.errors import InputError
from coresched.listen import TcpAddress, UnixAddress, listen_address, two_addresses


def test_hosts_become_numeric_and_ports_stay() -> None:
    assert listen_address("127.0.0.1:0") == TcpAddress("127.0.0.1", 0)
    assert listen_address("localhost:0").loopback  # type: ignore[union-attr]
    assert str(TcpAddress("::1", 7)) == "[::1]:7"
    assert str(TcpAddress("10.0.0.1", 7)) == "10.0.0.1:7"
    assert not TcpAddress("0.0.0.0", 7).loopback
    assert TcpAddress("::1", 7).loopback
    assert not TcpAddress("fe80::1%eth0", 7).loopback


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must be HOST:PORT"),
        ("50071", "must be HOST:PORT"),
        (":50071", "must be HOST:PORT"),
        ("::1:50071", r"\[IPV6\]:PORT"),
        ("unix-abstract:x", "port from 0 to 65535"),
        ("127.0.0.1:", "port from 0 to 65535"),
        ("127.0.0.1:65536", "port from 0 to 65535"),
        ("127.0.0.1:-1", "port from 0 to 65535"),
        ("127.0.0.1:٣", "port from 0 to 65535"),
        ("a..b:1", "host that can be resolved"),
        ("unix:", "path after unix:"),
        ("unix:a\0b", "path after unix:"),
        ("unix:" + "x" * 108, "at most 107 bytes"),
        ("unix:\udcff", "path in UTF-8"),
        ("unix:missing/s", "create it first"),
        ("unix:.", "is no socket"),
    ],
)
def test_a_bad_address_is_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as refused:
        listen_address(text)
    assert str(refused.value).startswith("--listen ")
    assert "\n" not in str(refused.value)


def test_a_folder_that_may_not_be_looked_into_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(path: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_dir", forbidden)
    with pytest.raises(InputError, match=r"unix:/a/s cannot be used: Permission denied: '/a'"):
        listen_address("unix:/a/s")


def test_a_port_in_use_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"127.0.0.1:{port} cannot be used: Address already in use"):
            listen_address(f"127.0.0.1:{port}")


def test_a_socket_in_use_is_refused_and_one_left_behind_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a test's own folder can be too long for a socket's path
    assert listen_address("unix:s") == UnixAddress("s")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s")
        server.listen()
        with pytest.raises(InputError, match="unix:s cannot be used: Address already in use"):
            listen_address("unix:s")
    assert listen_address("unix:s") == UnixAddress("s")
    assert str(UnixAddress("s")) == "unix:s"


@pytest.mark.parametrize("address", [TcpAddress("127.0.0.1", 7), UnixAddress("s")])
def test_two_servers_are_not_at_one_address(address: TcpAddress | UnixAddress) -> None:
    with pytest.raises(InputError, match="--metrics must be another address than --listen"):
        two_addresses(address, address)
    two_addresses(address, None)
    two_addresses(address, TcpAddress("127.0.0.1", 8))
    two_addresses(TcpAddress("127.0.0.1", 0), TcpAddress("127.0.0.1", 0))
