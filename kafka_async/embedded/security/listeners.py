"""Listeners of brokers: their security protocol, TLS context and SASL mechanisms."""

from __future__ import annotations

import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from kafka_async.embedded.security.credentials import ScramMechanism
from kafka_async.embedded.security.oauthbearer import UnsecuredTokens, oauthbearer
from kafka_async.embedded.security.plain import plain
from kafka_async.embedded.security.principal_mapping import PrincipalMapping
from kafka_async.embedded.security.scram import scram
from kafka_async.errors import InvalidConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_async.embedded.security.credentials import Credentials
    from kafka_async.embedded.security.delegation_tokens import DelegationTokens
    from kafka_async.embedded.security.exchange import StartExchange
    from kafka_async.embedded.security.oauthbearer import ValidateToken

SecurityProtocol: TypeAlias = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
ClientAuth: TypeAlias = Literal["none", "requested", "required"]

DEFAULT_LISTENER: Final = "PLAINTEXT"
SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_VERIFY_MODES: Final[Mapping[str, ssl.VerifyMode]] = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_SCRAM: Final = {mechanism.sasl_name: mechanism for mechanism in ScramMechanism}
PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (PLAIN, *_SCRAM, OAUTHBEARER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Configures a listener; each broker opens it on a separate port.

    Attributes:
        security_protocol: "PLAINTEXT", "SSL", "SASL_PLAINTEXT" or "SASL_SSL".
        ssl_context: Server-side context with the broker's certificate; required for TLS. With
            `client_auth`, it also contains the authorities of client certificates.
        client_auth: Kafka's `ssl.client.auth` for the connections of this listener. Other
            listeners may use the same context: its `verify_mode` differs only while a connection is
            accepted. Default: the `verify_mode` of the context.
        sasl_mechanisms: Enabled mechanisms. Default: PLAIN and both SCRAM mechanisms.
        oauthbearer: Checks the tokens of OAUTHBEARER: rules for unsecured tokens, or a function
            that takes a token, returns the principal's name and the expiry time (seconds since the
            epoch, or None), and raises if the token is not valid. The function must not block.
        connections_max_reauth_ms: Maximum session lifetime in milliseconds, after which the client
            has to authenticate again (KIP-368); 0 for unlimited. Default: the setting of this name.

        ssl_principal_mapping_rules: Kafka's rules that map the subject of a client certificate to a
            principal name (KIP-371), such as `RULE:^CN=(.*?),.*$/$1/L, DEFAULT`. If the subject
            matches no rule or is longer than 1,024 characters, the connection is closed. Default:
            the name is the subject.

    Raises:
        InvalidConfigurationError: A protocol, a mechanism or a rule is not valid, or TLS has no
            context.
    """

    security_protocol: SecurityProtocol
    ssl_context: ssl.SSLContext | None = None
    client_auth: ClientAuth | None = None
    sasl_mechanisms: Sequence[str] = (PLAIN, *_SCRAM)
    oauthbearer: UnsecuredTokens | ValidateToken = field(default_factory=UnsecuredTokens)
    connections_max_reauth_ms: int | None = None
    ssl_principal_mapping_rules: str | None = None

    def __post_init__(self) -> None:
        if self.security_protocol not in SECURITY_PROTOCOLS:
            raise InvalidConfigurationError(
                f"{self.security_protocol!r} is not a security protocol: use one of "
                f"{', '.join(SECURITY_PROTOCOLS)}"
            )
        if self.uses_tls != (self.ssl_context is not None):
            raise InvalidConfigurationError(
                f"a listener with {self.security_protocol} needs an ssl_context: pass "
                "Listener(security_protocol=..., ssl_context=...) with the broker's certificate"
                if self.uses_tls
                else f"{self.security_protocol} has no TLS: remove ssl_context"
            )
        if self.client_auth is not None and self.client_auth not in _VERIFY_MODES:
            raise InvalidConfigurationError(
                f"client_auth is {self.client_auth!r}: use one of {', '.join(_VERIFY_MODES)}"
            )
        if self.ssl_principal_mapping_rules is not None:
            if not self.uses_tls:
                raise InvalidConfigurationError(
                    f"{self.security_protocol} has no TLS: remove ssl_principal_mapping_rules"
                )
            self.principal_mapping()
        if self.uses_sasl and not self.sasl_mechanisms:
            raise InvalidConfigurationError("a listener with SASL needs sasl_mechanisms")
        for mechanism in self.sasl_mechanisms:
            if mechanism not in MECHANISMS:
                raise InvalidConfigurationError(
                    f"the embedded cluster has no mechanism {mechanism!r}: use some of "
                    f"{', '.join(MECHANISMS)}"
                )

    @property
    def uses_tls(self) -> bool:
        """True if connections are encrypted."""
        return self.security_protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        """True if clients authenticate with SASL."""
        return self.security_protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    @property
    def verify_mode(self) -> ssl.VerifyMode | None:
        """The `verify_mode` of connections; None for the context's mode."""
        return None if self.client_auth is None else _VERIFY_MODES[self.client_auth]

    def principal_mapping(self) -> PrincipalMapping | None:
        """Return the mapping of certificates to principals, or None without rules."""
        rules = self.ssl_principal_mapping_rules
        return None if rules is None else PrincipalMapping(rules)


Listeners: TypeAlias = "SecurityProtocol | Mapping[str, Listener | SecurityProtocol]"


def listeners_by_name(listeners: Listeners | None) -> dict[str, Listener]:
    """Return the listeners by name; the listener of `bootstrap_servers` is first.

    Raises:
        InvalidConfigurationError: A listener is not valid, or there is no listener.
    """
    if listeners is None:
        listeners = DEFAULT_LISTENER
    if isinstance(listeners, str):
        listeners = {listeners: listeners}
    if not listeners:
        raise InvalidConfigurationError("listeners is empty: pass at least one")
    return {
        name: one if isinstance(one, Listener) else Listener(security_protocol=one)
        for name, one in listeners.items()
    }


def exchanges_of(
    listener: Listener,
    credentials: Credentials,
    tokens: DelegationTokens,
    now_ms: Callable[[], int],
) -> dict[str, StartExchange]:
    """Return functions that start an exchange, by mechanism of the listener."""
    starts: dict[str, StartExchange] = {
        PLAIN: lambda: plain(credentials),
        OAUTHBEARER: lambda: oauthbearer(listener.oauthbearer, now_ms),
    }
    for name, mechanism in _SCRAM.items():
        starts[name] = _scram_start(mechanism, credentials, tokens)
    return {name: starts[name] for name in listener.sasl_mechanisms}


def _scram_start(
    mechanism: ScramMechanism, credentials: Credentials, tokens: DelegationTokens
) -> StartExchange:
    return lambda: scram(mechanism, credentials, tokens)
