"""Certificates of a throw-away authority, for servers on loopback."""

from __future__ import annotations

import datetime
import ssl
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_LONG_AGO = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
_FAR_AHEAD = datetime.datetime(2120, 1, 1, tzinfo=datetime.UTC)
EXPIRED = datetime.datetime(2021, 1, 1, tzinfo=datetime.UTC)


class Authority:
    """`file` holds its certificate, for whoever is to trust it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Throw-away authority")])
        certificate = (
            self._builder(self._name, self._name, self._key, _FAR_AHEAD)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_CERTIFIES, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.file = folder / "authority.pem"
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def trusting(self) -> ssl.SSLContext:
        """For a client."""
        return ssl.create_default_context(cafile=str(self.file))

    def server(self, host: str, until: datetime.datetime = _FAR_AHEAD, self_signed: bool = False) -> ssl.SSLContext:
        """For a server at a name or address."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.server_file(host, until, self_signed))
        return context

    def server_file(self, host: str, until: datetime.datetime = _FAR_AHEAD, self_signed: bool = False) -> Path:
        """Its certificate and key."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "server")])
        certificate = (
            self._builder(name, name if self_signed else self._name, key, until)
            .add_extension(x509.SubjectAlternativeName([_general_name(host)]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key((key if self_signed else self._key).public_key()),
                critical=False,
            )
            .sign(key if self_signed else self._key, hashes.SHA256())
        )
        return self._kept(certificate, key)

    def client_file(self, organisation: str, name: str, until: datetime.datetime = _FAR_AHEAD) -> Path:
        """A client's certificate and key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation),
                x509.NameAttribute(NameOID.COMMON_NAME, name),
            ]
        )
        certificate = (
            self._builder(subject, self._name, key, until)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return self._kept(certificate, key)

    def _kept(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Path:
        file = self._folder / f"{certificate.serial_number}.pem"
        file.write_bytes(
            certificate.public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return file

    @staticmethod
    def _builder(
        name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, until: datetime.datetime
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(_LONG_AGO)
            .not_valid_after(until)
        )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


_CERTIFIES = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)
