"""The interface of SASL mechanisms, of this package or of an application. Pure.

A mechanism authenticates a connection by a generator. The connection carries out what it yields,
and sends the result to the generator:

    a SecretBytes       a message to the broker; the result is the broker's message, as bytes
    a Compute           a function that takes long, run in a thread; the result is its result
    an Await            a coroutine function, such as a token provider; the result is its result

The generator returns when it has verified the broker's last message, and raises
SaslAuthenticationError if that is wrong. An error of the broker, of a function or of an awaited
call is thrown into the generator, which may raise a clearer one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from kafka_async.config import ClientConfig
    from kafka_async.secrets import Secret, SecretBytes
    from kafka_async.types import Token


class Compute(NamedTuple):
    """A function to run in a thread of the client, with its arguments."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    purpose: str = "the computation of the SASL mechanism"
    """Name of the function in error messages."""


class Await(NamedTuple):
    """A coroutine function to await, within the time for the connection's setup."""

    function: Callable[[], Awaitable[Any]]
    purpose: str
    """Name of the function in error messages, such as "sasl_token_provider"."""


Exchange: TypeAlias = Generator["SecretBytes | Compute | Await", Any, None]


class Tokens(Protocol):
    """Supplies the client's current token; see `client/security/token_source.py`."""

    purpose: str
    """Origin of tokens in error messages, such as "sasl_token_provider"."""

    async def token(self) -> Token:
        """Return a token that has not expired."""
        ...

    def reject(self, token: Token) -> None:
        """Never return this token again: the broker has rejected it."""
        ...


class SaslContext(NamedTuple):
    """The credentials and the address for one exchange.

    Attributes:
        config: The client's options.
        username: Current user name; `set_sasl_credentials` replaces it.
        password: Current password.
        host: The broker's host name, as the client connects to it.
        port: The broker's port.
        tokens: The client's tokens, or None for mechanisms without tokens.
    """

    config: ClientConfig
    username: str | None
    password: Secret | None
    host: str
    port: int
    tokens: Tokens | None = None


@runtime_checkable
class SaslMechanism(Protocol):
    """Authenticates connections; an application may pass its own as `sasl_mechanism`.

    Attributes:
        name: The mechanism's name at the broker, such as "PLAIN".
        needs_tls: True if its messages reveal credentials to readers of the network.
    """

    name: str
    needs_tls: bool

    def check(self, config: ClientConfig) -> None:
        """Raise InvalidConfigurationError if an option that the mechanism needs is missing."""
        ...

    def authenticate(self, context: SaslContext) -> Exchange:
        """Authenticate one connection."""
        ...
