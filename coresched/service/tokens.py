"""The tokens file: which token speaks for which tenant. No message ever contains what the file holds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from typing import Any

import msgspec

from coresched.errors import InputError
from coresched.service.identity import Caller

LARGEST_FILE_BYTES = 1 << 20
MOST_ENTRIES = 1000
TENANT_BYTES = 128
SHORTEST_TOKEN = 16
LONGEST_TOKEN = 1024

_FIELDS = ("tenant", "token", "token_sha256", "manages_workers")
_NEW_TOKEN = "make one with `openssl rand -hex 32`"


class Tokens:
    """The callers by the SHA-256 digest of their tokens; the tokens themselves are not kept."""

    def __init__(self, callers: Mapping[bytes, Caller]) -> None:
        self._callers = {digest: (digest, caller) for digest, caller in callers.items()}

    def caller(self, token: str) -> Caller | None:
        """Whom the token speaks for, or None. How long it takes tells nothing about any token."""
        digest = _digest(token)
        # Where the dictionary looks depends on the digest alone, which nobody can steer towards another's.
        known, caller = self._callers.get(digest, (bytes(32), None))
        return caller if compare_digest(known, digest) else None


def read_tokens(path: Path) -> Tokens:
    """The tokens of a JSON file, a list of objects with these fields:

    ``tenant``: a name, 1 to 128 bytes. ``token``: 16 to 1024 visible ASCII characters; or, in its place,
    ``token_sha256``: 64 hexadecimal digits. ``manages_workers``: true or false (default). A tenant may have
    several tokens, a token one tenant.

    Raises InputError naming the file, the entry (the first is 1), the field and the fix.
    """
    where = f"--tokens {str(path)!r}"
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no such path"
        raise InputError(f"{where} cannot be read: {reason}; give the tokens file") from None
    if len(data) > LARGEST_FILE_BYTES:
        raise InputError(f"{where} must have at most {LARGEST_FILE_BYTES} bytes; give the tokens file")
    try:
        entries = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # The decoder's own message can quote the file.
        raise InputError(f"{where} must be JSON in UTF-8; check it with `python -m json.tool`") from None
    if not isinstance(entries, list):
        raise InputError(f'{where} must be a list of objects, such as [{{"tenant": ..., "token": ...}}]')
    if not 1 <= len(entries) <= MOST_ENTRIES:
        raise InputError(f"{where} must have 1 to {MOST_ENTRIES} entries, it has {len(entries)}")
    callers: dict[bytes, Caller] = {}
    numbers: dict[bytes, int] = {}
    for number, entry in enumerate(entries, 1):
        digest, caller = _entry(entry, f"{where}: entry {number}")
        if digest in callers:
            raise InputError(
                f"{where}: entry {number}: token must be new, it is that of entry {numbers[digest]}; "
                f"{_NEW_TOKEN}"
            )
        callers[digest] = caller
        numbers[digest] = number
    return Tokens(callers)


def _entry(entry: Any, where: str) -> tuple[bytes, Caller]:
    if not isinstance(entry, dict):
        raise InputError(f"{where} must be an object with tenant and token")
    for name in entry:
        if name not in _FIELDS:
            # Shown only if it is all but one of the names: a misplaced token could stand here.
            near = get_close_matches(name, _FIELDS, 1, 0.8)
            if near:
                raise InputError(f"{where} has the unknown field {name!r}; call it {near[0]}")
            raise InputError(f"{where} has an unknown field; the fields are {', '.join(_FIELDS)}")
    tenant = entry.get("tenant")
    if (
        not isinstance(tenant, str)
        or not 1 <= len(tenant.encode()) <= TENANT_BYTES
        or not tenant.isprintable()
    ):
        raise InputError(f"{where}: tenant must be a name of 1 to {TENANT_BYTES} printable bytes of UTF-8")
    manages_workers = entry.get("manages_workers", False)
    if not isinstance(manages_workers, bool):
        raise InputError(f"{where}: manages_workers must be true or false; correct it or leave it out")
    if ("token" in entry) == ("token_sha256" in entry):
        raise InputError(f"{where} must have one of token and token_sha256; {_NEW_TOKEN}")
    digest = _sha256_field(entry, where) if "token_sha256" in entry else _token_field(entry, where)
    return digest, Caller(tenant, manages_workers)


def _token_field(entry: Mapping[str, Any], where: str) -> bytes:
    token = entry["token"]
    if not isinstance(token, str):
        raise InputError(f"{where}: token must be a text; {_NEW_TOKEN}")
    if not SHORTEST_TOKEN <= len(token) <= LONGEST_TOKEN:
        raise InputError(
            f"{where}: token must have {SHORTEST_TOKEN} to {LONGEST_TOKEN} characters, it has {len(token)}; "
            f"{_NEW_TOKEN}"
        )
    if not re.fullmatch("[!-~]+", token):
        raise InputError(f"{where}: token must be of visible ASCII characters without spaces; {_NEW_TOKEN}")
    return _digest(token)


def _sha256_field(entry: Mapping[str, Any], where: str) -> bytes:
    text = entry["token_sha256"]
    if not isinstance(text, str) or not re.fullmatch("[0-9a-fA-F]{64}", text):
        raise InputError(
            f"{where}: token_sha256 must be 64 hexadecimal digits; "
            'make it with `printf %s "$TOKEN" | sha256sum`'
        )
    return bytes.fromhex(text)


def _digest(token: str) -> bytes:
    return sha256(token.encode(errors="surrogatepass")).digest()
