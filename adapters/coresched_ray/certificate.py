"""A certificate for one life of the coordinator's process, so that its token never travels in the clear."""

from __future__ import annotations

import tempfile
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address
from pathlib import Path

from coresched.errors import InputError
from coresched.service.tls import ServerTls, TlsFiles

_LIFE = timedelta(days=3650)  # it ends with the process


def self_signed(host: str) -> tuple[ServerTls, bytes]:
    """TLS for a server at this numeric host, and its certificate (PEM), which is all that clients need trust.

    The private key is nowhere but in this process. Raises InputError without the package
    `cryptography`, which ray[serve] brings.
    """
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
        from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
    except ImportError:
        raise InputError("the package cryptography must be installed on the coordinator's node") from None
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "coresched coordinator")])
    now = datetime.now(timezone.utc)
    hosts = x509.SubjectAlternativeName([x509.IPAddress(ip_address(host))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))  # clocks of nodes differ
        .not_valid_after(now + _LIFE)
        .add_extension(hosts, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
        .public_bytes(Encoding.PEM)
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with tempfile.TemporaryDirectory(prefix="coresched-") as folder:  # of mode 0700
        files = TlsFiles(Path(folder, "certificate.pem"), Path(folder, "key.pem"))
        files.certificate.write_bytes(certificate)
        files.key.write_bytes(private)
        return ServerTls(files), certificate
