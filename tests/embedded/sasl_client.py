"""A SASL client in the tests' own words, for one raw connection."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import TYPE_CHECKING, Any

from kafka_async.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from kafka_async.protocol.messages.sasl_handshake import SaslHandshakeRequest

if TYPE_CHECKING:
    from tests.raw_connection import RawConnection

CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"


async def authenticate(
    connection: RawConnection, mechanism: str, message: bytes, version: int = 2
) -> SaslAuthenticateResponse:
    """Send SaslHandshake and the mechanism's first message."""
    handshake = await connection.call(SaslHandshakeRequest(mechanism=mechanism), 1)
    assert handshake.error_code == 0
    return await send(connection, message, version)


async def send(
    connection: RawConnection, message: bytes, version: int = 2
) -> SaslAuthenticateResponse:
    """Send a message of the mechanism."""
    return await connection.call(SaslAuthenticateRequest(auth_bytes=message), version)


def plain_message(name: str, password: str, authorization_id: str = "") -> bytes:
    return "\0".join((authorization_id, name, password)).encode()


async def log_in(
    connection: RawConnection, name: str = "alice", password: str = "alice-secret"
) -> SaslAuthenticateResponse:
    """Authenticate with PLAIN."""
    return await authenticate(connection, "PLAIN", plain_message(name, password))


async def scram(
    connection: RawConnection,
    mechanism: str,
    name: str,
    password: str,
    *,
    extensions: str = "",
    header: str = "n,,",
) -> SaslAuthenticateResponse:
    """Authenticate with SCRAM; return the last response, and check the broker's signature."""
    digest = "sha256" if mechanism.endswith("256") else "sha512"
    first = f"n={name},r={CLIENT_NONCE}{extensions}"
    response = await authenticate(connection, mechanism, (header + first).encode())
    if response.error_code:
        return response
    challenge = response.auth_bytes.decode()
    fields = dict(part.split("=", 1) for part in challenge.split(","))
    assert fields["r"].startswith(CLIENT_NONCE)
    salt, iterations = base64.b64decode(fields["s"]), int(fields["i"])
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", digest)
    bare = f"c={base64.b64encode(header.encode()).decode()},r={fields['r']}"
    signed = f"{first},{challenge},{bare}".encode()
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), signed, digest)
    proof = bytes(left ^ right for left, right in zip(client_key, signature, strict=True))
    response = await send(connection, f"{bare},p={base64.b64encode(proof).decode()}".encode())
    if not response.error_code:
        server_key = hmac.digest(salted, b"Server Key", digest)
        expected = base64.b64encode(hmac.digest(server_key, signed, digest))
        assert response.auth_bytes == b"v=" + expected
    return response


def unsecured_token(header: Any = None, **claims: Any) -> str:
    """Return a token without a signature."""
    parts = [{"alg": "none"} if header is None else header, claims]
    texts = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode() for part in parts]
    return ".".join([*(text.rstrip("=") for text in texts), ""])


def bearer_message(token: str, authorization_id: str = "", extensions: str = "") -> bytes:
    name = f"a={authorization_id}" if authorization_id else ""
    return f"n,{name},\x01auth=Bearer {token}\x01{extensions}\x01".encode()
