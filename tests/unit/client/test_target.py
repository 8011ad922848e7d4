"""Where a service is: what is taken, and what is refused before anything is sent."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import coresched
from coresched import sync
from coresched.cli.main import main
from coresched.client.credentials import blocking_channel, channel
from coresched.client.target import check_target
from coresched.errors import InputError

TAKEN = [
    "127.0.0.1:50071",
    "localhost:1",
    "scheduler.example.org:65535",
    "my_service:50071",
    "[::1]:50071",
    "[fe80::1%eth0]:50071",
    "unix:relative/socket",
    "unix:/run/coresched.sock",
    "unix:///run/coresched.sock",
    "unix-abstract:coresched",
    "dns:///scheduler:50071",
    "dns:scheduler:50071",
    "dns://10.0.0.53/scheduler:50071",
    "ipv4:10.0.0.1:50071,10.0.0.2:50071",
    "ipv6:[::1]:50071",
    "xds:///scheduler",
]

REFUSED = {
    "": "such as 127.0.0.1:50071, got ''; add the port",
    "127.0.0.1": "got '127.0.0.1'; add the port",
    "127.0.0.1:": "must end with a port from 1 to 65535, got '127.0.0.1:'",
    "127.0.0.1:0": "must end with a port from 1 to 65535",
    "127.0.0.1:106556": "must end with a port from 1 to 65535, got '127.0.0.1:106556'",
    "127.0.0.1:-1": "must end with a port from 1 to 65535",
    "127.0.0.1:http": "must end with a port from 1 to 65535",
    "127.0.0.1:\u0661": "must end with a port from 1 to 65535",
    ":50071": "which has no host",
    "http://127.0.0.1:41020": "leave out http://, the service speaks gRPC",
    "grpc://scheduler:50071": "leave out grpc://",
    "::1:50071": "an IPv6 address needs brackets",
    "[::1]": "an IPv6 address needs brackets, and a port after them",
    "[10.0.0.1]:5": "whose host is no IPv6 address",
    "300.0.0.1:5": "whose host is no IPv4 address",
    "two words:5": "whose host is none",
    "user@host:5": "whose host is none",
    "host/path:5": "whose host is none",
    "unix:": "must have a path or name after unix:",
    "dns:///scheduler": "got 'dns:///scheduler'; add the port",
    "ipv4:10.0.0.1:50071,10.0.0.2": "add the port",
}


@pytest.mark.parametrize("target", TAKEN)
def test_a_place_is_taken_as_it_is(target: str) -> None:
    assert check_target(target) == target


@pytest.mark.parametrize("target", REFUSED)
def test_anything_else_is_refused_in_a_line(target: str) -> None:
    with pytest.raises(InputError) as refused:
        check_target(target)
    assert str(refused.value).startswith("target must ")
    assert REFUSED[target] in str(refused.value)
    assert "\n" not in str(refused.value)


def connect(target: Any) -> object:
    return coresched.connect(target, batch="b", sample_concurrency=1)


def connect_blocking(target: Any) -> object:
    return sync.connect(target, batch="b", sample_concurrency=1)


async def async_channel(target: Any) -> object:
    return channel(target)


@pytest.mark.parametrize(
    "take",
    [connect, connect_blocking, blocking_channel, lambda target: asyncio.run(async_channel(target))],
    ids=["connect", "sync.connect", "blocking_channel", "channel"],
)
def test_whatever_takes_a_target_checks_it_at_once(take: Callable[[Any], object]) -> None:
    with pytest.raises(InputError, match="target must end with a port from 1 to 65535"):
        take("127.0.0.1:106556")
    with pytest.raises(TypeError, match="target must be a str, got 5 of type int"):
        take(5)


@pytest.mark.parametrize(
    ("command", "flag"),
    [
        (["top", "--once", "127.0.0.1:106556"], "TARGET"),
        (["batch", "list", "--service", "127.0.0.1:106556"], "--service"),
        (["batch", "close", "eval", "--service", "127.0.0.1:106556"], "--service"),
    ],
)
def test_commands_too(command: list[str], flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command) == 2
    said = capsys.readouterr().err
    assert f": {flag} must end with a port from 1 to 65535, got '127.0.0.1:106556'" in said
    assert said.count("\n") == 1
