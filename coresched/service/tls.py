"""TLS of the server from files, which are read again while it serves when certificates are renewed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import grpc

from coresched.pem import authorities, key_pair


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
        self._read = self._used = _configuration(files)
        self.credentials = grpc.dynamic_ssl_server_credentials(
            self._used,
            cast(Any, self._renewed),  # the types do not know that None is an answer
            require_client_authentication=files.client_ca is not None,
        )

    def reload(self) -> None:
        """Read the files again.

        Raises InputError, as `coresched.pem` does, for files that cannot be used; what was read before then
        stays in use.
        """
        self._read = _configuration(self._files)

    def _renewed(self) -> grpc.ServerCertificateConfiguration | None:
        # Called by gRPC before each handshake, one at a time, on a thread of its own; None is "as before".
        read = self._read
        if read is self._used:
            return None
        self._used = read
        return read


def _configuration(files: TlsFiles) -> grpc.ServerCertificateConfiguration:
    pair = key_pair(files.certificate, files.key, fields=("--tls-certificate", "--tls-key"), of_server=True)
    client_ca = authorities(files.client_ca, "--tls-client-ca") if files.client_ca is not None else None
    return grpc.ssl_server_certificate_configuration([pair], client_ca)
