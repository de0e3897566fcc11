"""The interface of SASL mechanisms at the broker. Pure.

A mechanism is a generator that receives the client's messages, yields the broker's challenges, and
returns the result. Its first `yield` only waits for the client's first message.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from kafka_async.secrets import SecretBytes


class Authenticated(NamedTuple):
    """Holds the result of a successful exchange.

    Attributes:
        name: The authenticated user's name.
        message: The broker's last message.
        expires_at_ms: Expiry time of the credentials in milliseconds since the epoch; None for
            never.
        by_token: True if a delegation token authenticated the client.
    """

    name: str
    message: bytes = b""
    expires_at_ms: int | None = None
    by_token: bool = False


class Rejected(NamedTuple):
    """Holds the result of a failed exchange.

    Attributes:
        message: Error message for the client; None for Kafka's message without details.
    """

    message: str | None = None


Exchange: TypeAlias = Generator[bytes, "SecretBytes", Authenticated | Rejected]
StartExchange: TypeAlias = Callable[[], Exchange]
