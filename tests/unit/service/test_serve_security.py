"""The flags of tokens and TLS: one line and exit code 2 for each mistake, before a port opens."""

import json
from pathlib import Path

import pytest
from certificates import CLIENT, Authority
from served import served

from coresched.cli.main import main

TOKEN = "a-token-of-tenant-a"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    authority = Authority.create(tmp_path)
    authority.issue("server")
    authority.issue("other")
    authority.issue("client", usage=CLIENT)
    authority.issue("old", days=(-9, -1))
    authority.issue("early", days=(1, 9))
    authority.issue("locked", password=b"a password")
    (tmp_path / "tokens.json").write_text(json.dumps([{"tenant": "a", "token": TOKEN}]))
    (tmp_path / "short.json").write_text(json.dumps([{"tenant": "a", "token": TOKEN[:9]}]))
    pem = (tmp_path / "server.pem").read_text().splitlines()
    (tmp_path / "damaged.pem").write_text("\n".join([pem[0], pem[1][:-8] + "AAAAAAAA", *pem[2:], ""]))
    return tmp_path


def pair(certificate: str, key: str) -> list[str]:
    return ["--tls-certificate", certificate, "--tls-key", key]


MISTAKES: list[tuple[list[str], str]] = [
    (["--tokens", "none.json"], "--tokens 'none.json' cannot be read: No such file or directory"),
    (
        ["--tokens", "short.json"],
        "--tokens 'short.json': entry 1: token must have 16 to 1024 characters, it has 9",
    ),
    (["--tls-certificate", "server.pem"], "--tls-certificate must be given with --tls-key; add it"),
    (["--tls-key", "server.key"], "--tls-key must be given with --tls-certificate; add it"),
    (["--tls-client-ca", "ca.pem"], "--tls-client-ca must be given with --tls-certificate; add it"),
    (
        pair("none.pem", "server.key"),
        "--tls-certificate 'none.pem' cannot be read: No such file or directory",
    ),
    (pair(".", "server.key"), "--tls-certificate '.' cannot be read: Is a directory"),
    (pair("server.pem", "none.key"), "--tls-key 'none.key' cannot be read: No such file or directory"),
    (pair("server.key", "server.key"), "--tls-certificate 'server.key' must be a certificate in PEM"),
    (pair("server.pem", "server.pem"), "--tls-key 'server.pem' must be a private key in PEM"),
    (
        pair("server.pem", "other.key"),
        "--tls-key 'other.key' must be the key of --tls-certificate 'server.pem'",
    ),
    (pair("damaged.pem", "server.key"), "--tls-certificate 'damaged.pem'"),
    (pair("locked.pem", "locked.key"), "--tls-key 'locked.key' must not be encrypted"),
    (
        pair("old.pem", "old.key"),
        "--tls-certificate 'old.pem' would not be accepted: certificate has expired",
    ),
    (
        pair("early.pem", "early.key"),
        "--tls-certificate 'early.pem' would not be accepted: certificate is not yet",
    ),
    (pair("client.pem", "client.key"), "--tls-certificate 'client.pem' would not be accepted: "),
    (
        [*pair("server.pem", "server.key"), "--tls-client-ca", "server.key"],
        "--tls-client-ca 'server.key' must be the certificates of a CA in PEM",
    ),
    (
        [*pair("server.pem", "server.key"), "--tls-client-ca", "none.pem"],
        "--tls-client-ca 'none.pem' cannot be read",
    ),
    (
        ["--listen", "0.0.0.0:0", "--tokens", "tokens.json"],
        "--tokens would be sent in the clear to --listen 0.0.0.0:0, which is not loopback; add --tls",
    ),
    (
        [*pair("server.pem", "server.key"), "--listen", "unix:s"],
        "--tls-certificate is for TCP, got --listen unix:s",
    ),
]


@pytest.mark.parametrize(("options", "said"), MISTAKES, ids=[said[:60] for _, said in MISTAKES])
def test_a_mistake_is_one_line_and_exit_code_2(
    folder: Path, options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    listen = [] if "--listen" in options else ["--listen", "127.0.0.1:0"]
    assert main(["serve", *listen, *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"coresched serve: {said}")
    assert err.count("\n") == 1
    assert TOKEN[:9] not in err


def test_tokens_are_not_served_while_grpc_traces_metadata(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GRPC_TRACE", "http")
    assert main(["serve", "--listen", "127.0.0.1:0", "--tokens", "tokens.json"]) == 2
    assert "--tokens needs GRPC_TRACE unset" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        ([], True),
        (pair("server.pem", "server.key"), True),
        ([*pair("server.pem", "server.key"), "--tls-client-ca", "ca.pem"], False),
        ([*pair("server.pem", "server.key"), "--tokens", "tokens.json"], False),
    ],
)
def test_beyond_loopback_whoever_may_do_everything_is_pointed_out(
    folder: Path, options: list[str], warned: bool
) -> None:
    with served(*options, listen="0.0.0.0:0") as (_, process):
        process.terminate()
        said = "0.0.0.0 is not loopback, and there is no authentication"
        assert (said in process.communicate(timeout=20)[1]) is warned
