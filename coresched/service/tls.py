"""TLS of the server from files, checked before a port opens so that each mistake has a line of its own."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, cast

import grpc

from coresched.errors import InputError

_LARGEST_FILE_BYTES = 1 << 20
_BEGIN_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where the PEM files are; with a client CA, every client must have a certificate that it signed."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


class ServerTls:
    """The server's credentials; certificates that were read again serve the connections made from then on."""

    def __init__(self, files: TlsFiles) -> None:
        """Raises InputError as `reload` does."""
        self._files = files
        self._read = self._used = _checked(files)
        self.credentials = grpc.dynamic_ssl_server_credentials(
            self._used, cast(Any, self._renewed), require_client_authentication=files.client_ca is not None
        )

    def reload(self) -> None:
        """Read the files again.

        Raises InputError for a file that cannot be read or is no PEM, a key that is encrypted or not the
        certificate's, and a certificate that no client would accept today; the former then stay in use.
        """
        self._read = _checked(self._files)

    def _renewed(self) -> grpc.ServerCertificateConfiguration | None:
        # Called by gRPC before each handshake, one at a time, on a thread of its own; None is "as before".
        read = self._read
        if read is self._used:
            return None
        self._used = read
        return read


def _checked(files: TlsFiles) -> grpc.ServerCertificateConfiguration:
    certificate = _read("--tls-certificate", files.certificate)
    key = _read("--tls-key", files.key)
    if _BEGIN_CERTIFICATE not in certificate:
        _refuse("--tls-certificate", files.certificate, "must be a certificate in PEM")
    if b"PRIVATE KEY-----" not in key:
        _refuse("--tls-key", files.key, "must be a private key in PEM")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(files.certificate, files.key, password=_refuse_password)
    except _EncryptedKeyError:
        _refuse("--tls-key", files.key, "must not be encrypted; decrypt it with `openssl pkey`")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            _refuse(
                "--tls-key", files.key, f"must be the key of --tls-certificate {str(files.certificate)!r}"
            )
        _refuse("--tls-certificate", files.certificate, f"or --tls-key {str(files.key)!r} is damaged PEM")
    except OSError as error:
        _refuse("--tls-certificate", files.certificate, f"cannot be read: {error.strerror}")
    _check_acceptable(context, files.certificate)
    client_ca = None
    if files.client_ca is not None:
        client_ca = _read("--tls-client-ca", files.client_ca)
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=client_ca.decode("ascii"))
        except (ssl.SSLError, ValueError):
            _refuse("--tls-client-ca", files.client_ca, "must be the CA certificates of the clients in PEM")
    return grpc.ssl_server_certificate_configuration([(key, certificate)], client_ca)


def _check_acceptable(server: ssl.SSLContext, certificate: Path) -> None:
    """A handshake in memory with a client that trusts this very certificate: dates and purpose are right."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(certificate)
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
                _refuse(
                    "--tls-certificate", certificate, f"is not acceptable: {error.verify_message}; renew it"
                )


def _read(flag: str, path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST_FILE_BYTES)
    except OSError as error:
        _refuse(flag, path, f"cannot be read: {error.strerror}")


def _refuse(flag: str, path: Path, why: str) -> NoReturn:
    raise InputError(f"{flag} {str(path)!r} {why}")


class _EncryptedKeyError(Exception):
    pass


def _refuse_password() -> NoReturn:
    raise _EncryptedKeyError
