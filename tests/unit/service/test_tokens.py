"""The tokens file: who a token speaks for, and one line, without the secret, for each mistake in it."""

import json
from hashlib import sha256
from pathlib import Path

import pytest

from coresched.errors import InputError
from coresched.service.identity import Caller
from coresched.service.tokens import LARGEST_FILE_BYTES, read_tokens

SECRET = "s3cret-" + "0123456789" * 3
OTHER = "0ther-" + "9876543210" * 3


def written(tmp_path: Path, content: object) -> Path:
    path = tmp_path / "tokens.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_token_speaks_for_its_tenant_given_as_it_is_or_as_its_digest(tmp_path: Path) -> None:
    tokens = read_tokens(
        written(
            tmp_path,
            [
                {"tenant": "évals", "token": SECRET},
                {"tenant": "évals", "token": SECRET[::-1], "manages_workers": True},
                {"tenant": "t" * 128, "token_sha256": sha256(OTHER.encode()).hexdigest().upper()},
            ],
        )
    )
    assert tokens.caller(SECRET) == Caller("évals", False)
    assert tokens.caller(SECRET[::-1]) == Caller("évals", True)
    assert tokens.caller(OTHER) == Caller("t" * 128, False)
    for unknown in ("", SECRET[:-1], SECRET + "x", sha256(OTHER.encode()).hexdigest(), "é", "\ud800"):
        assert tokens.caller(unknown) is None


GOOD = {"tenant": "a", "token": OTHER}
MISTAKES: list[tuple[object, str]] = [
    ("", "must be JSON"),
    ('[{"tenant": "a", "token": ' + SECRET, "must be JSON"),
    ('[{"tenant": "a", "token": "' + SECRET + '\\ud800"}]', "must be JSON"),
    ("[" * 100_000, "must be JSON"),
    ({"a": SECRET}, "must be a list of objects"),
    ([], "must have 1 to 1000 entries, it has 0"),
    ([GOOD] * 1001, "must have 1 to 1000 entries, it has 1001"),
    ([GOOD, SECRET], "entry 2 must be an object"),
    ([{**GOOD, SECRET: "a"}], "entry 1 has an unknown field; the fields are tenant, token"),
    ([{**GOOD, "manage_workers": True}], "unknown field 'manage_workers'; call it manages_workers"),
    ([{"token": SECRET}], "entry 1: tenant must be a name of 1 to 128"),
    ([{"tenant": "", "token": SECRET}], "entry 1: tenant must be"),
    ([{"tenant": "é" * 65, "token": SECRET}], "entry 1: tenant must be"),
    ([{"tenant": "a\nb", "token": SECRET}], "entry 1: tenant must be"),
    ([{"tenant": 5, "token": SECRET}], "entry 1: tenant must be"),
    ([{"tenant": "a"}], "entry 1 must have one of token and token_sha256"),
    ([{**GOOD, "token_sha256": "0" * 64}], "entry 1 must have one of token and token_sha256"),
    ([{"tenant": "a", "token": SECRET[:15]}], "token must have 16 to 1024 characters, it has 15"),
    ([{"tenant": "a", "token": SECRET * 40}], "token must have 16 to 1024 characters"),
    ([{"tenant": "a", "token": SECRET + " x"}], "visible ASCII"),
    ([{"tenant": "a", "token": SECRET + "é"}], "visible ASCII"),
    ([{"tenant": "a", "token": [SECRET]}], "entry 1: token must be a text"),
    ([{"tenant": "a", "token_sha256": SECRET}], "token_sha256 must be 64 hexadecimal digits"),
    ([{"tenant": "a", "token_sha256": 1}], "token_sha256 must be 64 hexadecimal digits"),
    ([{**GOOD, "manages_workers": SECRET}], "manages_workers must be true or false"),
    (
        [GOOD, {"tenant": "b", "token": SECRET}, {**GOOD, "tenant": "c"}],
        "entry 3: token must be new.* entry 1",
    ),
    (
        [GOOD, {"tenant": "a", "token_sha256": sha256(OTHER.encode()).hexdigest()}],
        "entry 2: token must be new",
    ),
    (" " * (LARGEST_FILE_BYTES + 1), "must have at most 1048576 bytes"),
]


@pytest.mark.parametrize(("content", "said"), MISTAKES, ids=[said[:40] for _, said in MISTAKES])
def test_a_mistake_is_one_line_that_names_the_place_and_never_the_secret(
    tmp_path: Path, content: object, said: str
) -> None:
    path = written(tmp_path, content)
    with pytest.raises(InputError, match=said) as refused:
        read_tokens(path)
    message = str(refused.value)
    assert message.startswith(f"--tokens {str(path)!r}")
    assert "\n" not in message
    assert SECRET[:15] not in message
    assert OTHER not in message


@pytest.mark.parametrize(
    ("name", "why"), [("missing", "No such file"), (".", "directory"), ("\0", "no such path")]
)
def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(InputError, match=rf"--tokens .* cannot be read: .*{why}"):
        read_tokens(tmp_path / name)
