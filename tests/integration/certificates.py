"""Certificates of brokers and clients for tests, by authorities that exist for one run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509 import load_pem_x509_certificate


class Certificate(NamedTuple):
    """Holds a certificate chain and its key (PKCS #8) as PEM text."""

    chain: str
    key: str

    @property
    def pem(self) -> str:
        """Key and chain in one text."""
        return self.key + self.chain

    @property
    def subject(self) -> str:
        """Distinguished name in Java's form, which principals have: it escapes every "#"."""
        subject = load_pem_x509_certificate(self.chain.encode()).subject
        return subject.rfc4514_string().replace("#", "\\#")

    def encrypted_key(self, password: str) -> str:
        """Return the key encrypted with a password."""
        key = load_pem_private_key(self.key.encode(), None)
        encryption = BestAvailableEncryption(password.encode())
        return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()


class Authority:
    """Issues certificates; `pem` is its own certificate."""

    def __init__(self) -> None:
        self._authority = trustme.CA()
        self.pem = self._authority.cert_pem.bytes().decode()

    def issue(
        self, host: str = "127.0.0.1", *, name: str | None = None, expired: bool = False
    ) -> Certificate:
        """Issue a certificate for a host or, with a common name, for a client."""
        now = datetime.now(UTC)
        leaf = self._authority.issue_cert(
            host,
            common_name=name,
            not_before=now - timedelta(days=9),
            not_after=now + timedelta(days=-2 if expired else 30),
        )
        chain = "".join(pem.bytes().decode() for pem in leaf.cert_chain_pems)
        key = load_pem_private_key(leaf.private_key_pem.bytes(), None)
        text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        return Certificate(chain, text)


class Certificates:
    """Holds the authorities and certificates of a test session, and their files.

    Attributes:
        directory: The directory of the files.
        authority: The authority that brokers and clients trust.
        other: An authority that only `wrong_ca_client` and `other_cafile` belong to.
        broker: The brokers' certificate, valid for 127.0.0.1 and not for localhost.
        expired_broker: A broker's certificate that has expired.
        client: The certificate of the client "tls-client".
        expired_client: A client's certificate that has expired.
        wrong_ca_client: A client's certificate by the other authority.
        cafile: The file of the authority's certificate.
        other_cafile: The file of the other authority's certificate.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority, self.other = Authority(), Authority()
        self.broker = self.authority.issue()
        self.expired_broker = self.authority.issue(expired=True)
        self.client = self.authority.issue("client.test", name="tls-client")
        self.expired_client = self.authority.issue("client.test", name="tls-client", expired=True)
        self.wrong_ca_client = self.other.issue("client.test", name="tls-client")
        self.cafile = self.write("ca.pem", self.authority.pem)
        self.other_cafile = self.write("other-ca.pem", self.other.pem)

    def write(self, name: str, text: str) -> str:
        """Write a file and return its path."""
        path = self.directory / name
        path.write_text(text)
        return str(path)
