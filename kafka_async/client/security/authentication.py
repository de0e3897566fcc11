"""The steps of an authentication by SASL (KIP-43, KIP-152).

An authentication is a generator, as the handshake is: it yields requests, functions and coroutine
functions, which `connection_authentication.py` carries out, and returns the session granted by the
broker. Pure.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from kafka_async.client.security.sasl import mechanism_for
from kafka_async.client.security.sasl.mechanism import Await, Compute, SaslContext
from kafka_async.client.wire.handshake import Step
from kafka_async.config import MECHANISMS_WITHOUT_PASSWORD
from kafka_async.config.spelling import spell
from kafka_async.errors import (
    AuthenticationError,
    IllegalSaslStateError,
    InvalidConfigurationError,
    KafkaConnectionError,
    KafkaError,
    RetriableError,
    SaslAuthenticationError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
    error_for,
)
from kafka_async.protocol.header import decode_response
from kafka_async.secrets import HIDDEN, Secret, SecretBytes
from kafka_async.types import Token

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from kafka_async.client.security.sasl.mechanism import Exchange, SaslMechanism, Tokens
    from kafka_async.client.wire.framing import Frame
    from kafka_async.client.wire.handshake import BrokerVersions
    from kafka_async.config import ClientConfig
    from kafka_async.protocol.messages.sasl_authenticate import SaslAuthenticateResponse

MAX_LIFETIME: Final = 30 * 86_400.0
"""Seconds after which a connection authenticates again, even if its session lasts longer."""
MAX_BROKER_TEXT: Final = 300
"""Characters of a broker's text that an error message contains."""

_HANDSHAKE: Final = 17
_AUTHENTICATE: Final = 36
_HANDSHAKE_VERSION: Final = 1
_SCRAM_ADVICE: Final = (
    "check {sasl_username} and {sasl_password}, and that the user has credentials for "
)
_ADVICE: Final[Mapping[str, str]] = {
    "PLAIN": "check {sasl_username} and {sasl_password}",
    "SCRAM-SHA-256": f"{_SCRAM_ADVICE}SCRAM-SHA-256",
    "SCRAM-SHA-512": f"{_SCRAM_ADVICE}SCRAM-SHA-512",
    "OAUTHBEARER": "check the token's issuer, audience, scope and expiry, and the clocks of both "
    "sides",
    "GSSAPI": "check the Kerberos ticket (klist), the service name, and the clocks of both sides",
    "delegation token": "check the token's id ({sasl_username}) and HMAC ({sasl_password}), and "
    "that it has not expired",
    "AWS_MSK_IAM": "check that the IAM policy allows kafka-cluster:Connect, and the clock",
}


class Session(NamedTuple):
    """Result of an authentication.

    Attributes:
        username: The user name that was used.
        lifetime: Seconds for which the broker accepts requests; infinite without a limit.
    """

    username: str | None = None
    lifetime: float = inf


Authentication: TypeAlias = "Generator[Step | Compute | Await, Any, Session]"


class Authenticator:
    """Authenticates the connections of one client with its current credentials.

    Args:
        config: The client's options.
        mechanism: The mechanism that the options name, checked.

    Attributes:
        replacements: Number of times that the credentials were replaced. Read-only for callers.
    """

    def __init__(self, config: ClientConfig, mechanism: SaslMechanism) -> None:
        self.mechanism = mechanism
        self.replacements = 0
        self._config = config
        # By error: the value of `replacements` when its authentication began. Weak, since errors
        # may be dropped without having been raised.
        self._failures = WeakKeyDictionary[KafkaError, int]()

    @property
    def username(self) -> str | None:
        """The current user name."""
        return self._config.sasl_username

    def set_credentials(self, username: str, password: str | Secret) -> bool:
        """Use other credentials from the next authentication on; return False if they are equal.

        Raises:
            InvalidConfigurationError: The mechanism has no user name and password, or cannot send
                these.
        """
        if self.mechanism.name in MECHANISMS_WITHOUT_PASSWORD:
            raise InvalidConfigurationError(
                f"{self.mechanism.name} does not authenticate with a user name and a password: it "
                "takes new credentials from its source by itself"
            )
        before = self._config
        # A copy, so that an authentication in progress keeps its credentials.
        config = replace(before, sasl_username=username, sasl_password=password)
        self.mechanism.check(config)
        if (config.sasl_username, config.sasl_password) == (
            before.sasl_username,
            before.sasl_password,
        ):
            return False
        self._config = config
        self.replacements += 1
        return True

    def note_failure(self, error: KafkaError, replacements: int) -> None:
        """Note the error of an authentication, and the `replacements` when it began."""
        self._failures[error] = replacements

    def is_outdated(self, error: BaseException | None) -> bool:
        """Return True if an error comes from an authentication with replaced credentials."""
        if not isinstance(error, SaslAuthenticationError):
            return False
        return self._failures.get(error, self.replacements) < self.replacements

    def authenticate(
        self, host: str, port: int, versions: BrokerVersions, tokens: Tokens | None = None
    ) -> Authentication:
        """Authenticate a connection; return its session.

        `tokens` are the client's tokens. An exception of a function is thrown into the generator; a
        request without a response closes it.

        Raises:
            AuthenticationError: The broker rejects the credentials or the mechanism, or the
                mechanism rejects the broker.
            KafkaConnectionError: The credentials cannot be obtained at present.
            UnsupportedVersionError: The broker does not support SASL by Kafka's protocol.
        """
        config, place = self._config, f"{host}:{port}"
        context = SaslContext(
            config, config.sasl_username, config.sasl_password, host, port, tokens
        )
        try:
            yield from self._handshake(versions)
            lifetime = yield from self._exchange(context, versions)
        # The error gets the broker's address, unless a function has added it.
        except SaslAuthenticationError as error:
            if place in error.message:
                raise
            failure = SaslAuthenticationError(f"{place}: {error.message}")
            raise failure from error.__cause__
        except KafkaError as error:
            if place not in error.message:
                error.message = f"{place}: {error.message}"
            raise
        return Session(context.username, lifetime)

    # -- steps ------------------------------------------------------------------------------------

    def _handshake(self, versions: BrokerVersions) -> Generator[Step, Frame, None]:
        from kafka_async.protocol.messages.sasl_handshake import (
            SaslHandshakeRequest,
            SaslHandshakeResponse,
        )

        version, name = versions.version(_HANDSHAKE), self.mechanism.name
        if version < _HANDSHAKE_VERSION:
            raise UnsupportedVersionError(
                "the broker supports SASL only as before Kafka 1.0 (SaslHandshake v0): upgrade it"
            )
        frame = yield Step(SaslHandshakeRequest(mechanism=name), version)
        # The broker lists its mechanisms in any case.
        response = decode_response(frame, SaslHandshakeResponse, version)[1]
        if response.error_code == UnsupportedSaslMechanismError.code:
            offered = ", ".join(response.mechanisms)[:MAX_BROKER_TEXT] or "none"
            option = self._config.sasl_mechanism
            wanted = spell("sasl_mechanism", name)
            if option == "AWS_MSK_IAM":
                wanted = f"{spell('sasl_mechanism', option)} ({name} to the broker)"
            raise UnsupportedSaslMechanismError(
                f"the listener does not offer {wanted}, only {offered}: set "
                f"{spell('sasl_mechanism')} to one of these, or use the address of another listener"
            )
        if response.error_code == IllegalSaslStateError.code:
            raise IllegalSaslStateError(
                "the broker expects no authentication here: its listener is PLAINTEXT or SSL; set "
                f"{spell('security_protocol')} accordingly, or use the address of a listener with "
                "SASL"
            )
        if response.error_code:
            raise error_for(response.error_code)

    def _exchange(
        self, context: SaslContext, versions: BrokerVersions
    ) -> Generator[Step | Compute | Await, Any, float]:
        """Carry out the mechanism's steps; return the lifetime of the session in seconds."""
        name, lifetime = self.mechanism.name, inf
        exchange: Exchange | None = None
        result: object = None
        failure: KafkaError | None = None
        # Everything that a broker might repeat in its error message.
        hidden = [context.password]
        # Ends when the mechanism is done, or with an error. Failures of a step are thrown into the
        # mechanism, which may explain them.
        while True:
            try:
                if exchange is None:
                    exchange = self.mechanism.authenticate(context)
                step = exchange.send(result) if failure is None else exchange.throw(failure)
            except StopIteration:
                return lifetime
            except KafkaError:
                raise
            except Exception as error:
                raise SaslAuthenticationError(
                    f"the mechanism {name} raised {type(error).__name__}"
                ) from error
            result = failure = None
            try:
                if isinstance(step, SecretBytes):
                    response = yield from self._send(step, context, hidden, versions)
                    # The lifetime in the last response counts (KIP-368).
                    lifetime, result = _lifetime(response), bytes(response.auth_bytes)
                elif isinstance(step, Compute | Await):  # pyright: ignore[reportUnnecessaryIsInstance]
                    result = yield step
                    if isinstance(result, Token):
                        hidden.append(result.value)
                else:
                    raise SaslAuthenticationError(
                        f"the mechanism {name} yielded neither SecretBytes nor Compute nor Await"
                    )
            except Exception as error:  # noqa: BLE001  # of a function of the application
                purpose = step.purpose if isinstance(step, Await) else f"the mechanism {name}"
                if isinstance(step, SecretBytes) and isinstance(error, KafkaError):
                    failure = error  # of the broker
                else:
                    failure = error_of_function(purpose, error)

    def _send(
        self,
        message: SecretBytes,
        context: SaslContext,
        hidden: Sequence[Secret | None],
        versions: BrokerVersions,
    ) -> Generator[Step, Frame, SaslAuthenticateResponse]:
        from kafka_async.protocol.messages.sasl_authenticate import (
            SaslAuthenticateRequest,
            SaslAuthenticateResponse,
        )

        version = versions.version(_AUTHENTICATE)
        frame = yield Step(SaslAuthenticateRequest(auth_bytes=message.reveal()), version)
        response = decode_response(frame, SaslAuthenticateResponse, version)[1]
        if response.error_code:
            text = _without_secrets(response.error_message or "", hidden)
            raise self._rejected(response.error_code, text, context)
        return response

    def _rejected(self, code: int, reason: str, context: SaslContext) -> KafkaError:
        """Return the error of a SaslAuthenticate response."""
        option = self._config.sasl_mechanism  # for the broker, AWS_MSK_IAM is OAUTHBEARER
        name = option if isinstance(option, str) else self.mechanism.name
        if code != SaslAuthenticationError.code:
            return error_for(code, reason or None)
        subject = "delegation token" if self._config.sasl_delegation_token else name
        advice = _ADVICE.get(subject, "check the credentials").format(
            sasl_username=spell("sasl_username"), sasl_password=spell("sasl_password")
        )
        return SaslAuthenticationError(
            f"authentication by {name} failed ({reason or 'the broker names no reason'}): "
            f"{advice}{_padding(context)}"
        )


def authenticator_for(config: ClientConfig) -> Authenticator | None:
    """Return the authenticator of a client, or None without SASL.

    Raises:
        InvalidConfigurationError: The options of SASL are wrong or incomplete.
    """
    mechanism = mechanism_for(config)
    return None if mechanism is None else Authenticator(config, mechanism)


def error_of_function(purpose: str, error: Exception) -> KafkaError:
    """Return the error for an exception of a function that a mechanism calls.

    Errors of this package keep their meaning. The text of another exception is not repeated, since
    it may contain a secret.
    """
    if isinstance(error, AuthenticationError | KafkaConnectionError):
        return error
    if isinstance(error, RetriableError):
        failure: KafkaError = KafkaConnectionError(f"{purpose}: {error.message}")
    elif isinstance(error, KafkaError):
        failure = SaslAuthenticationError(f"{purpose}: {error.message}")
    else:
        failure = SaslAuthenticationError(
            f"{purpose} raised {type(error).__name__}: see the cause of this error"
        )
    failure.__cause__ = error
    return failure


def _lifetime(response: SaslAuthenticateResponse) -> float:
    if response.session_lifetime_ms <= 0:
        return inf
    return min(response.session_lifetime_ms / 1000, MAX_LIFETIME)


def _padding(context: SaslContext) -> str:
    """Return a hint at spaces around the credentials, as files and variables often add."""
    username, password = context.username or "", context.password or Secret("")
    if username != username.strip():
        return f"; {spell('sasl_username')} begins or ends with a space or a line break"
    if len(password.reveal()) != len(password.reveal().strip()):
        return f"; {spell('sasl_password')} begins or ends with a space or a line break"
    return ""


def _without_secrets(text: str, hidden: Sequence[Secret | None]) -> str:
    """Return a broker's text: short, printable, without secrets that it might repeat."""
    for secret in hidden:
        if secret:
            text = text.replace(secret.reveal(), HIDDEN)
    # A line break would let a broker write lines of its choice into logs.
    return "".join(char if char.isprintable() else "?" for char in text[:MAX_BROKER_TEXT])
