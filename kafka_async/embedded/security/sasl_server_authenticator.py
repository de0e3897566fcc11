"""The state machine that authenticates a connection with SASL at a broker. Pure.

It follows Kafka's SaslServerAuthenticator and KafkaChannel: `admit` chooses the action for each
request from the table `_ACTIONS`; SaslHandshake and SaslAuthenticate then call `handshake` and
`authenticate`. A session ends when the credentials expire, or after `connections.max.reauth.ms`
(KIP-368). Before that, the client may authenticate again on the same connection.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.security.exchange import Rejected
from kafka_async.embedded.security.principals import ANONYMOUS, split_principal, user_principal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafka_async.embedded.security.exchange import Authenticated, Exchange, StartExchange
    from kafka_async.secrets import SecretBytes

MIN_REAUTHENTICATION_INTERVAL_SECONDS: Final = 1.0
SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 17, 18, 36
AUTHENTICATE_MIN_HANDSHAKE_VERSION: Final = 1
"""From this version on, SaslAuthenticate follows SaslHandshake instead of bare messages."""


class SaslState(Enum):
    """States of a connection."""

    INITIAL_REQUEST = auto()
    HANDSHAKE_OR_VERSIONS_REQUEST = auto()
    HANDSHAKE_REQUEST = auto()
    AUTHENTICATE = auto()
    COMPLETE = auto()
    FAILED = auto()
    REAUTH_BAD_MECHANISM = auto()


class RequestKind(Enum):
    """Kinds of requests; INVALID has a malformed header."""

    VERSIONS = auto()
    HANDSHAKE = auto()
    AUTHENTICATE = auto()
    OTHER = auto()
    INVALID = auto()


class Action(Enum):
    """A broker's actions for a request."""

    AUTHENTICATE = auto()
    """Handle it as part of the authentication."""
    SERVE = auto()
    """Handle it as on a listener without SASL."""
    FAIL = auto()
    """Close the connection, after the delay for failed authentications."""
    FAIL_WITH_RESPONSE = auto()
    """Respond with ILLEGAL_SASL_STATE after the delay, then close the connection."""
    CLOSE = auto()
    """Close the connection at once."""


_VERSIONS, _HANDSHAKE, _TOKEN = (
    RequestKind.VERSIONS,
    RequestKind.HANDSHAKE,
    RequestKind.AUTHENTICATE,
)
_OTHER, _INVALID = RequestKind.OTHER, RequestKind.INVALID

_ACTIONS: Final[dict[SaslState, dict[RequestKind, Action]]] = {
    SaslState.INITIAL_REQUEST: {
        _VERSIONS: Action.AUTHENTICATE,
        _HANDSHAKE: Action.AUTHENTICATE,
        _TOKEN: Action.FAIL,
        _OTHER: Action.FAIL,
        _INVALID: Action.FAIL,
    },
    SaslState.HANDSHAKE_OR_VERSIONS_REQUEST: {
        _VERSIONS: Action.AUTHENTICATE,
        _HANDSHAKE: Action.AUTHENTICATE,
        _TOKEN: Action.FAIL,
        _OTHER: Action.FAIL,
        _INVALID: Action.CLOSE,
    },
    SaslState.HANDSHAKE_REQUEST: {
        _VERSIONS: Action.CLOSE,
        _HANDSHAKE: Action.AUTHENTICATE,
        _TOKEN: Action.FAIL,
        _OTHER: Action.FAIL,
        _INVALID: Action.CLOSE,
    },
    SaslState.AUTHENTICATE: {
        _VERSIONS: Action.FAIL_WITH_RESPONSE,
        _HANDSHAKE: Action.FAIL_WITH_RESPONSE,
        _TOKEN: Action.AUTHENTICATE,
        _OTHER: Action.FAIL_WITH_RESPONSE,
        _INVALID: Action.CLOSE,
    },
    SaslState.COMPLETE: {
        _VERSIONS: Action.SERVE,
        _HANDSHAKE: Action.SERVE,
        _TOKEN: Action.SERVE,
        _OTHER: Action.SERVE,
        _INVALID: Action.CLOSE,
    },
    SaslState.REAUTH_BAD_MECHANISM: dict.fromkeys(RequestKind, Action.FAIL),
    SaslState.FAILED: dict.fromkeys(RequestKind, Action.CLOSE),
}
"""Action for a request, by the state of the connection and the kind of the request."""

_KINDS: Final = {
    API_VERSIONS: RequestKind.VERSIONS,
    SASL_HANDSHAKE: RequestKind.HANDSHAKE,
    SASL_AUTHENTICATE: RequestKind.AUTHENTICATE,
    None: RequestKind.INVALID,
}


class AuthenticationResult(NamedTuple):
    """Holds the fields of a response to SaslAuthenticate."""

    error_code: ErrorCode
    error_message: str
    message: bytes
    session_lifetime_ms: int = 0


class SaslServerAuthenticator:
    """Authenticates the client of one connection.

    Args:
        mechanisms: The enabled mechanisms by name.
        max_reauth_ms: Maximum session lifetime in milliseconds; 0 for unlimited.

    Attributes:
        state: The state of the connection.
        principal: The authenticated principal, ANONYMOUS before.
        by_token: True if a delegation token authenticated the client.
    """

    def __init__(self, mechanisms: Mapping[str, StartExchange], max_reauth_ms: int) -> None:
        self.state = SaslState.INITIAL_REQUEST
        self.principal = ANONYMOUS
        self.by_token = False
        self._mechanisms = mechanisms
        self._max_reauth_ms = max_reauth_ms
        # Of the exchange in progress or the last one; a re-authentication must use the same
        # mechanism.
        self._mechanism = ""
        self._exchange: Exchange | None = None
        self._bare_messages = False
        self._reauthenticating = False
        # Times of the event loop's clock in seconds.
        self._session_expires: float | None = None
        self._reauthentication_began: float | None = None

    @property
    def mechanisms(self) -> list[str]:
        """The names of the enabled mechanisms."""
        return list(self._mechanisms)

    @property
    def complete(self) -> bool:
        """True while the client is authenticated and not re-authenticating."""
        return self.state is SaslState.COMPLETE

    @property
    def failed(self) -> bool:
        """True if the connection must be closed."""
        return self.state is SaslState.FAILED

    @property
    def expects_bare_message(self) -> bool:
        """True if the next frame is a message of the mechanism, without a request's header."""
        return self.state is SaslState.AUTHENTICATE and self._bare_messages

    def admit(self, api_key: int | None, now: float) -> Action:
        """Return the action for a request, None for a malformed header; `now` is in seconds."""
        kind = _KINDS.get(api_key, RequestKind.OTHER)
        if self.complete and kind is RequestKind.HANDSHAKE and self._may_reauthenticate(now):
            self._reauthentication_began = now
            self._reauthenticating = True
            self.state = SaslState.HANDSHAKE_REQUEST
        elif self.complete and self._session_expires is not None and now > self._session_expires:
            return Action.CLOSE
        action = _ACTIONS[self.state][kind]
        if self.state is SaslState.INITIAL_REQUEST and kind is not RequestKind.INVALID:
            self.state = SaslState.HANDSHAKE_OR_VERSIONS_REQUEST
        if action is not Action.AUTHENTICATE and action is not Action.SERVE:
            self.state = SaslState.FAILED
        return action

    def on_versions_sent(self) -> None:
        """Expect SaslHandshake, after a successful response to ApiVersions."""
        self.state = SaslState.HANDSHAKE_REQUEST

    def handshake(self, mechanism: str, version: int) -> ErrorCode:
        """Select a mechanism and return the error code of the response."""
        start = self._mechanisms.get(mechanism)
        if start is None:
            self.state = SaslState.FAILED
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM
        if self._reauthenticating and mechanism != self._mechanism:
            self.state = SaslState.REAUTH_BAD_MECHANISM  # as in Kafka, fail at the next request
            return ErrorCode.NONE
        self._mechanism = mechanism
        self._bare_messages = version < AUTHENTICATE_MIN_HANDSHAKE_VERSION
        self._exchange = start()
        next(self._exchange)
        self.state = SaslState.AUTHENTICATE
        return ErrorCode.NONE

    def authenticate(self, message: SecretBytes, now: float, now_ms: int) -> AuthenticationResult:
        """Pass a message to the mechanism; `now_ms` is milliseconds since the epoch."""
        assert self._exchange is not None, "SaslHandshake comes first"
        try:
            challenge = self._exchange.send(message)
        except StopIteration as end:
            result: Authenticated | Rejected = end.value
        else:
            return AuthenticationResult(ErrorCode.NONE, "", challenge)
        self._exchange = None
        if isinstance(result, Rejected):
            return self._fail(result.message)
        principal = user_principal(result.name)
        if self._reauthenticating and principal != self.principal:
            before, after = (".".join(split_principal(it)) for it in (self.principal, principal))
            return self._fail(
                f"Cannot change principals during re-authentication from {before}: {after}"
            )
        self.principal, self.by_token = principal, result.by_token
        self.state = SaslState.COMPLETE
        self._reauthenticating = False
        lifetime = self._session_lifetime_ms(result.expires_at_ms, now_ms)
        self._session_expires = None if lifetime is None else now + lifetime / 1000
        return AuthenticationResult(ErrorCode.NONE, "", result.message, lifetime or 0)

    def _may_reauthenticate(self, now: float) -> bool:
        """Return True if the session has an end, and the last re-authentication is not recent."""
        began = self._reauthentication_began
        return self._session_expires is not None and (
            began is None or now - began >= MIN_REAUTHENTICATION_INTERVAL_SECONDS
        )

    def _fail(self, message: str | None) -> AuthenticationResult:
        self.state = SaslState.FAILED
        if message is None:
            during = "re-authentication" if self._reauthenticating else "authentication"
            message = (
                f"Authentication failed during {during} due to invalid credentials with SASL "
                f"mechanism {self._mechanism}"
            )
        return AuthenticationResult(ErrorCode.SASL_AUTHENTICATION_FAILED, message, b"")

    def _session_lifetime_ms(self, expires_at_ms: int | None, now_ms: int) -> int | None:
        """Return the session's lifetime, or None for unlimited."""
        limits = [self._max_reauth_ms] if self._max_reauth_ms > 0 else []
        if expires_at_ms is not None:
            limits.append(max(expires_at_ms - now_ms, 0))
        return min(limits, default=None)
