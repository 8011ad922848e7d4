"""Certificates and keys in PEM files, checked so that each mistake has a line of its own."""

import ssl
from pathlib import Path
from typing import NoReturn

from coresched.errors import InputError

_LARGEST_BYTES = 1 << 20


def key_pair(
    certificate: Path, key: Path, *, fields: tuple[str, str], of_server: bool
) -> tuple[bytes, bytes]:
    """The PEM texts of a private key and its certificate chain.

    ``fields``: what the user calls the certificate and the key. Raises InputError naming one of them for a
    file that cannot be read or is no PEM, a key that is encrypted or of another certificate, and a
    certificate that no peer would accept today of a server (or client).
    """
    certificate_field, key_field = fields
    chain = _read(certificate, certificate_field)
    if b"-----BEGIN CERTIFICATE-----" not in chain:
        _refuse(certificate_field, certificate, "must be a certificate in PEM")
    private = _read(key, key_field)
    if b"PRIVATE KEY-----" not in private:
        _refuse(key_field, key, "must be a private key in PEM")
    ends = (ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    try:
        for end in ends:
            end.load_cert_chain(certificate, key, password=_refuse_password)
    except _EncryptedKeyError:
        _refuse(key_field, key, "must not be encrypted; decrypt it with `openssl pkey`")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            _refuse(key_field, key, f"must be the key of {certificate_field} {str(certificate)!r}")
        _refuse(certificate_field, certificate, f"or {key_field} {str(key)!r} is damaged PEM")
    except OSError as error:
        _refuse(certificate_field, certificate, f"cannot be read: {error.strerror}")
    fault = _fault_found_by_peer(*ends, certificate, of_server=of_server)
    if fault is not None:
        _refuse(certificate_field, certificate, f"would not be accepted: {fault}; get a new one")
    return private, chain


def authorities(path: Path, field: str) -> bytes:
    """The PEM text of CA certificates. Raises InputError naming ``field`` if there are none to read."""
    text = _read(path, field)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=text.decode("ascii"))
    except (ssl.SSLError, ValueError):
        _refuse(field, path, "must be the certificates of a CA in PEM")
    return text


def _fault_found_by_peer(
    client: ssl.SSLContext, server: ssl.SSLContext, certificate: Path, *, of_server: bool
) -> str | None:
    """What a peer that trusts this very certificate has against its dates or purpose.

    Found by a handshake in memory.
    """
    client.check_hostname = False
    client.verify_mode = ssl.CERT_REQUIRED if of_server else ssl.CERT_NONE
    server.verify_mode = ssl.CERT_NONE if of_server else ssl.CERT_REQUIRED
    peer = client if of_server else server
    peer.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    peer.load_verify_locations(certificate)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True))
    done = False
    while not done:
        done = True
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                done = False
            except ssl.SSLCertVerificationError as error:
                return error.verify_message
            except ssl.SSLError as error:
                return (error.reason or "unusable").lower().replace("_", " ")
    return None


def _read(path: Path, field: str) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST_BYTES)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no such path"
        _refuse(field, path, f"cannot be read: {reason}")


def _refuse(field: str, path: Path, why: str) -> NoReturn:
    raise InputError(f"{field} {str(path)!r} {why}")


class _EncryptedKeyError(Exception):
    pass


def _refuse_password() -> NoReturn:
    raise _EncryptedKeyError
