"""SASL SCRAM: proves knowledge of the password without sending it (RFC 5802, RFC 7677). Pure.

Kafka uses it without channel binding and without SASLprep: user names and passwords are compared as
they are. With a delegation token, its id and HMAC replace the user name and the password, and the
extension `tokenauth=true` is sent (KIP-48).
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from hmac import compare_digest
from typing import TYPE_CHECKING, Final, NamedTuple

from kafka_async.client.security.sasl.credentials import check_username_and_password
from kafka_async.client.security.sasl.mechanism import Compute
from kafka_async.config.spelling import spell
from kafka_async.errors import SaslAuthenticationError
from kafka_async.secrets import Secret, SecretBytes

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from kafka_async.client.security.sasl.mechanism import Exchange, SaslContext
    from kafka_async.config import ClientConfig

MIN_ITERATIONS: Final = 4096
"""With fewer iterations, a broker that is not genuine could easily guess the password."""
MAX_ITERATIONS: Final = 1_000_000
"""More iterations would keep a thread busy for seconds."""
MAX_MESSAGE_SIZE: Final = 16 * 1024
"""Largest message of a broker in bytes."""
MAX_CACHED_KEYS: Final = 4
"""Number of salted passwords kept; brokers of one cluster send the same salt for a user."""

_GS2_HEADER: Final = "n,,"
_HASHES: Final[Mapping[str, str]] = {"SHA-256": "sha256", "SHA-512": "sha512"}
_ATTRIBUTE: Final = re.compile(r"([A-Za-z])=([^\0,]*)")
_NONCE: Final = re.compile(r"[\x21-\x2b\x2d-\x7e]+")
_ITERATIONS: Final = re.compile(r"[1-9][0-9]{0,9}")
_CREDENTIALS_WRONG: Final = (
    "check {sasl_username} and {sasl_password}, and that the user has credentials for {mechanism}"
)
_ERRORS: Final[Mapping[str, str]] = {
    "invalid-encoding": "the broker cannot read a message of the exchange",
    "extensions-not-supported": "the broker does not support an extension: delegation tokens need "
    "Kafka 1.1",
    "invalid-proof": _CREDENTIALS_WRONG,
    "unknown-user": _CREDENTIALS_WRONG,
    "invalid-username-encoding": "the broker cannot read {sasl_username}: check it",
    "no-resources": "the broker has no resources for the exchange: try again later",
}
"""Advice by error of RFC 5802."""


class ServerFirst(NamedTuple):
    """The broker's first message."""

    nonce: str
    salt: bytes
    iterations: int


class _CacheKey(NamedTuple):
    password: Secret
    salt: bytes
    iterations: int


class Scram:
    """Authenticates by SCRAM with SHA-256 or SHA-512.

    Args:
        hash_name: "SHA-256" or "SHA-512".
        new_nonce: Returns a random text without commas; replaced by tests.
    """

    needs_tls = True

    def __init__(self, hash_name: str, new_nonce: Callable[[], str] | None = None) -> None:
        self.name = f"SCRAM-{hash_name}"
        self._hash = _HASHES[hash_name]
        self._new_nonce = new_nonce or _random_nonce
        self._salted_passwords: dict[_CacheKey, SecretBytes] = {}

    def check(self, config: ClientConfig) -> None:
        """Raise InvalidConfigurationError if the user name or the password is missing."""
        check_username_and_password(self.name, config.sasl_username, config.sasl_password)

    def authenticate(self, context: SaslContext) -> Exchange:
        """Exchange two messages each way, and verify that the broker has the user's keys too."""
        check_username_and_password(self.name, context.username, context.password)
        assert context.username is not None
        assert context.password is not None
        nonce = self._new_nonce()
        first = f"n={escape(context.username)},r={nonce}"
        if context.config.sasl_delegation_token:
            first += ",tokenauth=true"
        reply: bytes = yield SecretBytes((_GS2_HEADER + first).encode())
        text = self._text(reply)
        server = self._server_first(text, nonce)
        salted = yield from self._salted_password(context.password, server)
        last = f"c={b64encode(_GS2_HEADER.encode()).decode()},r={server.nonce}"
        # Both sides sign all messages, so a change by a third party is detected.
        signed = f"{first},{text},{last}".encode()
        reply = yield SecretBytes(
            b"%b,p=%b" % (last.encode(), b64encode(self._proof(salted, signed).reveal()))
        )
        self._verify(self._text(reply), salted, signed)

    # -- the broker's messages --------------------------------------------------------------------

    def _text(self, message: bytes) -> str:
        if len(message) > MAX_MESSAGE_SIZE:
            raise self._malformed(f"its message has {len(message)} bytes")
        try:
            return message.decode("ascii")
        except UnicodeDecodeError:
            raise self._malformed("its message is not ASCII text") from None

    def _server_first(self, text: str, nonce: str) -> ServerFirst:
        attributes = self._attributes(text)
        self._check_error(attributes)
        # RFC 5802 fixes the order; extensions may only follow.
        if [name for name, _ in attributes[:3]] != ["r", "s", "i"]:
            raise self._malformed("its first message lacks the nonce, the salt or the iterations")
        joint, salt, iterations = (value for _, value in attributes[:3])
        # A nonce without the client's part may be of a replayed exchange.
        if not joint.startswith(nonce) or len(joint) == len(nonce):
            raise SaslAuthenticationError(
                f"{self.name}: the broker's nonce does not continue the client's: the broker is "
                "not genuine, or another party interferes; check the address and the network"
            )
        if not _NONCE.fullmatch(joint):
            raise self._malformed("its nonce has characters that are not printable")
        if not _ITERATIONS.fullmatch(iterations):
            raise self._malformed("its number of iterations is not a number")
        if not MIN_ITERATIONS <= int(iterations) <= MAX_ITERATIONS:
            raise SaslAuthenticationError(
                f"{self.name}: the broker asks for {iterations} iterations, and {MIN_ITERATIONS} "
                f"to {MAX_ITERATIONS} are accepted: create the user's credentials with such a "
                "number (kafka-configs.sh --alter --add-config)"
            )
        return ServerFirst(joint, self._base64(salt, "salt"), int(iterations))

    def _verify(self, text: str, salted: SecretBytes, signed: bytes) -> None:
        """Raise SaslAuthenticationError unless the broker's last message has its signature."""
        attributes = self._attributes(text)
        self._check_error(attributes)
        if attributes[0][0] != "v":
            raise self._malformed("its last message lacks the signature")
        signature = self._base64(attributes[0][1], "signature")
        # Without this check, anyone could pose as the broker.
        if not compare_digest(self._signature(salted, signed), signature):
            raise SaslAuthenticationError(
                f"{self.name}: the broker's signature is wrong: it does not know the password, so "
                f"it is not genuine; check {spell('bootstrap_servers')} and the network"
            )

    def _attributes(self, text: str) -> list[tuple[str, str]]:
        """Return the attributes of a message in order; refuse mandatory extensions."""
        attributes: list[tuple[str, str]] = []
        for part in text.split(","):
            found = _ATTRIBUTE.fullmatch(part)
            if found is None:
                raise self._malformed("its message is not a list of attributes")
            if found[1] == "m":
                raise SaslAuthenticationError(
                    f"{self.name}: the broker requires an extension that this client does not "
                    f"support: use another {spell('sasl_mechanism')}"
                )
            attributes.append((found[1], found[2]))
        return attributes

    def _check_error(self, attributes: list[tuple[str, str]]) -> None:
        name, value = attributes[0]
        if name == "e":
            advice = _ERRORS.get(value, "see the broker's log").format(
                sasl_username=spell("sasl_username"),
                sasl_password=spell("sasl_password"),
                mechanism=self.name,
            )
            raise SaslAuthenticationError(
                f"{self.name}: the broker rejects the authentication ({value[:60]!r}): {advice}"
            )

    def _base64(self, text: str, subject: str) -> bytes:
        try:
            value = b64decode(text, validate=True)
        except Base64Error:
            value = b""
        if not value:
            raise self._malformed(f"its {subject} is empty or no base64")
        return value

    def _malformed(self, problem: str) -> SaslAuthenticationError:
        return SaslAuthenticationError(
            f"{self.name}: the broker does not keep to RFC 5802: {problem}; check that "
            f"{spell('bootstrap_servers')} names Kafka brokers with {self.name}"
        )

    # -- keys -------------------------------------------------------------------------------------

    def _salted_password(
        self, password: Secret, server: ServerFirst
    ) -> Generator[Compute, SecretBytes, SecretBytes]:
        """Return the salted password, computed once per salt."""
        key = _CacheKey(password, server.salt, server.iterations)
        known = self._salted_passwords.get(key)
        if known is not None:
            return known
        arguments = (self._hash, password, server.salt, server.iterations)
        salted = yield Compute(salted_password, arguments)
        # Old passwords are useless once they have been replaced.
        kept = {
            each: value for each, value in self._salted_passwords.items() if each[0] == password
        }
        while len(kept) >= MAX_CACHED_KEYS:
            del kept[next(iter(kept))]
        self._salted_passwords = kept | {key: salted}
        return salted

    def _proof(self, salted: SecretBytes, signed: bytes) -> SecretBytes:
        """Return the client key, combined with the signature of the messages."""
        key = SecretBytes(hmac.digest(salted.reveal(), b"Client Key", self._hash))
        stored = SecretBytes(hashlib.new(self._hash, key.reveal()).digest())
        signature = hmac.digest(stored.reveal(), signed, self._hash)
        return SecretBytes(bytes(a ^ b for a, b in zip(key.reveal(), signature, strict=True)))

    def _signature(self, salted: SecretBytes, signed: bytes) -> bytes:
        """Return the signature of the messages by a broker that has the user's keys."""
        key = SecretBytes(hmac.digest(salted.reveal(), b"Server Key", self._hash))
        return hmac.digest(key.reveal(), signed, self._hash)


def salted_password(hash_name: str, password: Secret, salt: bytes, iterations: int) -> SecretBytes:
    """Return Hi(password, salt, iterations) of RFC 5802, which is PBKDF2; it takes long."""
    return SecretBytes(hashlib.pbkdf2_hmac(hash_name, password.reveal().encode(), salt, iterations))


def escape(name: str) -> str:
    """Return a user name with "," and "=" escaped, which separate attributes of a message."""
    return name.replace("=", "=3D").replace(",", "=2C")


def _random_nonce() -> str:
    return secrets.token_urlsafe(24)
