"""PLAIN (RFC 4616) at the broker. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.embedded.security.exchange import Authenticated, Rejected
from kafka_async.secrets import Secret

if TYPE_CHECKING:
    from kafka_async.embedded.security.credentials import Credentials
    from kafka_async.embedded.security.exchange import Exchange

_FIELDS = 3


def plain(credentials: Credentials) -> Exchange:
    """Check a user name and a password."""
    message = yield b""
    fields = [Secret(text) for text in message.reveal().decode("utf-8", "replace").split("\0", 3)]
    if len(fields) != _FIELDS:
        return Rejected(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(fields)}")
    authorization_id, username, password = fields
    if not username:
        return Rejected("Authentication failed: username not specified")
    if not password:
        return Rejected("Authentication failed: password not specified")
    if not credentials.has_password(username.reveal(), password):
        return Rejected("Authentication failed: Invalid username or password")
    if authorization_id and authorization_id != username:
        return Rejected(
            "Authentication failed: "
            "Client requested an authorization id that is different from username"
        )
    return Authenticated(username.reveal())
