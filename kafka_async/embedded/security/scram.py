"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802) at the broker, with delegation tokens. Pure."""

from __future__ import annotations

import base64
import hmac
import re
import secrets
from typing import TYPE_CHECKING, Final, NamedTuple

from kafka_async.embedded.security.credentials import MIN_ITERATIONS
from kafka_async.embedded.security.exchange import Authenticated, Rejected

if TYPE_CHECKING:
    from kafka_async.embedded.security.credentials import (
        Credentials,
        ScramCredential,
        ScramMechanism,
    )
    from kafka_async.embedded.security.delegation_tokens import DelegationTokens
    from kafka_async.embedded.security.exchange import Exchange

NONCE_BYTES: Final = 24

# Kafka's grammar: user names, extensions and nonces only have ASCII characters.
SASL_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_VALUE: Final = r"[\x01-\x2b\x2d-\x7f]+"
_PRINTABLE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_EXTENSIONS: Final = rf"(?:,[A-Za-z]+={_VALUE})*"
_BASE64: Final = (
    r"(?:[A-Za-z0-9/+]{4})*(?:[A-Za-z0-9/+]{3}=|[A-Za-z0-9/+]{2}==)?"  # padding is required
)
_CLIENT_FIRST: Final = re.compile(
    rf"n,(?:a=(?P<authorization_id>{SASL_NAME}))?,"
    rf"(?P<bare>(?:m={_VALUE},)?n=(?P<name>{SASL_NAME}),r=(?P<nonce>{_PRINTABLE})"
    rf"(?P<extensions>{_EXTENSIONS}))"
)
_CLIENT_FINAL: Final = re.compile(
    rf"(?P<bare>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),"
    rf"p=(?P<proof>{_BASE64})"
)


class _Account(NamedTuple):
    """The principal and credential behind a SCRAM user name."""

    credential: ScramCredential
    name: str
    expires_at_ms: int | None
    by_token: bool


def scram(
    mechanism: ScramMechanism, credentials: Credentials, tokens: DelegationTokens
) -> Exchange:
    """Check a client's proof of a password, or of the HMAC of a delegation token.

    As in Kafka, an unknown user fails with the same error as a wrong password.
    """
    message = yield b""
    first = _CLIENT_FIRST.fullmatch(message.reveal().decode("utf-8", "replace"))
    if first is None:
        return Rejected()
    username = unescape(first["name"])
    account = _account(mechanism, username, first["extensions"], credentials, tokens)
    if account is None:
        return Rejected()
    authorization_id = first["authorization_id"]
    if authorization_id is not None and authorization_id != username:
        return Rejected(
            "Authentication failed: "
            "Client requested an authorization id that is different from username"
        )
    credential = account.credential
    if credential.iterations < MIN_ITERATIONS:
        return Rejected()
    nonce = first["nonce"] + secrets.token_urlsafe(NONCE_BYTES)
    salt = base64.b64encode(credential.salt).decode()
    server_first = f"r={nonce},s={salt},i={credential.iterations}"
    message = yield server_first.encode()
    final = _CLIENT_FINAL.fullmatch(message.reveal().decode("utf-8", "replace"))
    if final is None or final["nonce"] != nonce:
        return Rejected()
    signed = f"{first['bare']},{server_first},{final['bare']}".encode()
    if not _proves(mechanism, credential, signed, base64.b64decode(final["proof"])):
        return Rejected()
    signature = base64.b64encode(mechanism.hmac(credential.server_key, signed))
    return Authenticated(account.name, b"v=" + signature, account.expires_at_ms, account.by_token)


def unescape(name: str) -> str:
    """Return the unescaped SASL name."""
    return name.replace("=2C", ",").replace("=3D", "=")


def _account(
    mechanism: ScramMechanism,
    username: str,
    extensions: str,
    credentials: Credentials,
    tokens: DelegationTokens,
) -> _Account | None:
    pairs = dict(pair.split("=", 1) for pair in extensions.split(",")[1:])
    if pairs.get("tokenauth", "").lower() == "true":
        token = tokens.by_id(username)
        if token is None:
            return None
        return _Account(
            token.credentials[mechanism], token.owner.partition(":")[2], token.expiry_ms, True
        )
    credential = credentials.scram(username, mechanism)
    return None if credential is None else _Account(credential, username, None, False)


def _proves(
    mechanism: ScramMechanism, credential: ScramCredential, signed: bytes, proof: bytes
) -> bool:
    """Return True if a proof was made with the credential's client key."""
    signature = mechanism.hmac(credential.stored_key, signed)
    if len(proof) != len(signature):
        return False
    client_key = bytes(left ^ right for left, right in zip(proof, signature, strict=True))
    return hmac.compare_digest(mechanism.hash(client_key), credential.stored_key)
