"""How a client connects: what is refused, in words that name the parameter, before anything is sent."""

from pathlib import Path

import pytest
from certificates import CLIENT, Authority

from coresched.client import credentials
from coresched.client.credentials import blocking_channel, channel
from coresched.errors import InputError

TOKEN = "a-token-of-a-tenant"


@pytest.fixture(autouse=True)
def without_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(credentials.TOKEN_VARIABLE, raising=False)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path)


LOCAL = [
    "localhost:1",
    "LOCALHOST:1",
    "127.0.0.1:1",
    "127.9.9.9:1",
    "[::1]:1",
    "unix:s",
    "unix:///tmp/s",
    "unix-abstract:s",
    "dns:///localhost:1",
    "dns:localhost:1",
    "ipv4:127.0.0.1:1",
    "ipv6:[::1]:1",
]
REMOTE = [
    "10.0.0.1:1",
    "example.org:1",
    "localhost.example.org:1",
    "0.0.0.0:1",
    "[fe80::1]:1",
    "dns:///example.org:1",
    "dns://8.8.8.8/localhost:1",
    "ipv4:127.0.0.1:1,10.0.0.1:1",
    "xds:///localhost",
]


@pytest.mark.parametrize("target", LOCAL)
def test_a_token_goes_in_the_clear_to_this_machine(target: str) -> None:
    blocking_channel(target, token=TOKEN).close()


@pytest.mark.parametrize("target", REMOTE)
@pytest.mark.parametrize("from_environment", [False, True])
def test_and_to_no_other(target: str, from_environment: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if from_environment:
        monkeypatch.setenv("CORESCHED_TOKEN", TOKEN)
    name, given = ("CORESCHED_TOKEN", None) if from_environment else ("token", TOKEN)
    for connect in (channel, blocking_channel):
        with pytest.raises(InputError, match=rf"^{name} must not travel in the clear to target") as refused:
            connect(target, token=given)
        assert TOKEN not in str(refused.value)
    monkeypatch.setenv("CORESCHED_TOKEN", "")
    blocking_channel(target).close()


async def test_with_tls_it_goes_anywhere(authority: Authority) -> None:
    certificate, key = authority.issue("client", usage=CLIENT)
    ca = authority.folder / "ca.pem"
    for options in ({"ca": str(ca)}, {"certificate": certificate, "key": key}):
        blocking_channel("example.org:1", token=TOKEN, **options).close()  # type: ignore[arg-type]
        await channel("example.org:1", token=TOKEN, **options).close()  # type: ignore[arg-type]


@pytest.mark.parametrize("token", ["", "two words", "line\nbreak", "é"])
def test_a_token_that_cannot_be_sent_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(InputError, match=r"^token must be of visible ASCII characters") as refused:
        channel("localhost:1", token=token)
    assert not token or token not in str(refused.value)


def test_files_that_cannot_be_used_are_named(authority: Authority) -> None:
    folder = authority.folder
    certificate, key = authority.issue("client", usage=CLIENT)
    _, other_key = authority.issue("other", usage=CLIENT)
    server, server_key = authority.issue("server")
    old, old_key = authority.issue("old", usage=CLIENT, days=(-9, -1))
    for options, said in (
        ({"ca": folder / "none"}, r"^ca '.*none' cannot be read: No such file"),
        ({"ca": key}, "^ca .* must be the certificates of a CA in PEM"),
        ({"certificate": certificate}, "^certificate must be given with key; add it"),
        ({"key": key}, "^key must be given with certificate; add it"),
        ({"certificate": key, "key": key}, "^certificate .* must be a certificate in PEM"),
        ({"certificate": certificate, "key": certificate}, "^key .* must be a private key in PEM"),
        ({"certificate": certificate, "key": other_key}, "^key .* must be the key of certificate"),
        ({"certificate": server, "key": server_key}, "^certificate .* not be accepted: .*purpose"),
        ({"certificate": old, "key": old_key}, "^certificate .* not be accepted: certificate has expired"),
    ):
        with pytest.raises(InputError, match=said):
            channel("localhost:1", **options)  # type: ignore[arg-type]
