"""Explains the failure of a connection, in a sentence with the cause and the remedy.

The error of a wrong address explains little: a TLS port closes the connection, a web server
responds in HTTP, a firewall does not respond. The tables here derive the cause from the error and
from how far the connection had come.
"""

from __future__ import annotations

import enum
import socket
import ssl
from collections.abc import Callable
from typing import Final, NamedTuple

from kafka_async.client.wire.framing import FrameSizeError
from kafka_async.config.spelling import if_objects, spell
from kafka_async.errors import (
    AuthenticationError,
    IllegalSaslStateError,
    KafkaError,
    ProtocolError,
    SaslAuthenticationError,
    SslAuthenticationError,
)


class ConnectionStage(enum.Enum):
    """Stages of a connection."""

    IDLE = "not tried"
    CONNECTING = "connecting"
    HANDSHAKE = "waiting for the first response"
    AUTHENTICATION = "authenticating"
    OPEN = "open"


class Diagnosis(NamedTuple):
    """The cause of a failed connection and what to do about it.

    Attributes:
        text: One sentence for error messages and logs.
        permanent: True if retries fail until the configuration or the cluster changes.
        refused: True if no process listens at the address, or its name is unknown.
        error: The class of the error to raise, if it is not an error of the connection.
    """

    text: str
    permanent: bool = False
    refused: bool = False
    error: type[AuthenticationError] | None = None


class ConnectionFacts(NamedTuple):
    """Facts of a connection and its broker at the time of a failure.

    Attributes:
        protocol: The option security_protocol.
        known: The broker has responded before, so the address must be right.
        hang_ups: Connections in a row, this one included, that the broker has closed without
            responding to a request that brokers handle immediately.
        tls_version: The negotiated version of TLS, such as "TLSv1.3"; None before.
        certificate: True if the client has a certificate, None if that is unknown.
        first_request: The first request after the handshake is in flight.
        joined: The client has received metadata of the cluster, so its protocol must be right.
    """

    protocol: str = "PLAINTEXT"
    known: bool = False
    hang_ups: int = 0
    tls_version: str | None = None
    certificate: bool | None = False
    first_request: bool = False
    joined: bool = False

    @property
    def tls(self) -> bool:
        """True if the connection uses TLS."""
        return self.protocol.endswith("SSL")

    @property
    def sasl(self) -> bool:
        """True if the connection authenticates by SASL."""
        return self.protocol.startswith("SASL_")

    @property
    def certain(self) -> bool:
        """True if the broker has closed too many connections for a restart to be the cause."""
        return self.hang_ups >= MAX_HANG_UPS and not self.joined

    def with_tls(self, tls: bool) -> str:
        """Return the remedy: how to use TLS, or how not to use it."""
        name = ("SASL_SSL" if tls else "SASL_PLAINTEXT") if self.sasl else "SSL"
        if not tls and not self.sasl:
            return f"leave {spell('security_protocol')} out"
        other = ("SASL_SSL",) if tls and not self.sasl else ()
        return f"set {spell('security_protocol', name, *other)}"

    def with_sasl(self) -> str:
        """Return the remedy: how to authenticate by SASL."""
        name = "SASL_SSL" if self.tls else "SASL_PLAINTEXT"
        return f"set {spell('security_protocol', name)} and {spell('sasl_mechanism')}"


MAX_HANG_UPS: Final = 3
"""Connections in a row that are closed without a response before that counts as permanent.

A broker that is restarting closes one; then it refuses connections.
"""

_GREETINGS: Final[tuple[tuple[bytes, str], ...]] = (
    (b"HTTP", "it answers in HTTP: this is the port of a web server, not of a Kafka broker"),
    (b"\x15\x03", "it answers in TLS: {tls}, or use the plaintext port"),
    (b"SSH-", "it answers in SSH: this is not the port of a Kafka broker"),
    (b"220 ", "it answers like a mail or file server: this is not the port of a Kafka broker"),
)
_ALERTS: Final[tuple[tuple[str, str], ...]] = (
    ("CERTIFICATE_REQUIRED", "it requires a client certificate: {certificate}"),
    ("CERTIFICATE_EXPIRED", "the client's certificate has expired: renew {own}"),
    ("CERTIFICATE_REVOKED", "it reports that the client's certificate was revoked: replace it"),
    ("UNKNOWN_CA", "it does not trust the issuer of the client's certificate: {issuer}"),
    ("BAD_CERTIFICATE", "it does not accept the client's certificate: {certificate}"),
    ("UNSUPPORTED_CERTIFICATE", "it does not accept the client's certificate: {certificate}"),
    ("CERTIFICATE_UNKNOWN", "it does not accept the client's certificate: {certificate}"),
    ("ACCESS_DENIED", "it does not accept the client's certificate: {certificate}"),
    ("HANDSHAKE_FAILURE", "it finds no common cipher, or requires a certificate: {certificate}"),
    ("DECRYPT_ERROR", "it cannot verify the client's certificate: {certificate}"),
)
"""By the name of a TLS alert that a broker sends: its meaning.

Java's brokers send CERTIFICATE_REQUIRED, or before TLS 1.3 BAD_CERTIFICATE, to a client without a
certificate, and CERTIFICATE_UNKNOWN for an untrusted one.
"""
_PROTOCOL_ALERTS: Final = ("PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL", "INSUFFICIENT_SECURITY")
_HOST_NAME_MISMATCH: Final = frozenset({62, 64})  # X509_V_ERR_HOSTNAME_ and IP_ADDRESS_MISMATCH
_CERTIFICATE_EXPIRED: Final = 10  # X509_V_ERR_CERT_HAS_EXPIRED
_CERTIFICATE_NOT_YET_VALID: Final = 9  # X509_V_ERR_CERT_NOT_YET_VALID


def diagnose(error: BaseException, stage: ConnectionStage, facts: ConnectionFacts) -> Diagnosis:
    """Return the cause of the error that ended a connection in `stage`."""
    # The address is right, so only the broker can be the cause.
    if facts.known and stage is ConnectionStage.HANDSHAKE and isinstance(error, TimeoutError):
        return Diagnosis("it accepts connections but does not answer: it is frozen or overloaded")
    # The first row that explains the error counts; a function may decline.
    for error_type, stages, describe in _CAUSES:
        if isinstance(error, error_type) and stage in stages:
            found = describe(error, facts)
            if found is not None:
                return found
    text = str(error) or type(error).__name__
    return Diagnosis(text, isinstance(error, KafkaError) and not error.retriable)


def is_hang_up(error: BaseException) -> bool:
    """Return True if the broker has closed the connection without an explanation."""
    # A KafkaConnectionError is not of the socket: a source of credentials may be unreachable.
    if isinstance(error, ConnectionRefusedError | KafkaError):
        return False
    return isinstance(error, ConnectionError | ssl.SSLEOFError | ssl.SSLZeroReturnError)


def sasl_required(protocol: str) -> str:
    """Return the message for a broker that requires SASL of a client without it."""
    return f"this listener requires SASL: {ConnectionFacts(protocol).with_sasl()}"


def _certificate(error: BaseException, facts: ConnectionFacts) -> Diagnosis:
    reason = getattr(error, "verify_message", None) or str(error)
    code = getattr(error, "verify_code", None)
    # OpenSSL's codes, since its texts differ between versions.
    if code in _HOST_NAME_MISMATCH:
        advice = (
            "connect by a name that the certificate has, or with "
            f"{spell('ssl_check_hostname', False)} to any host whose certificate the authority has "
            "issued"
        )
    elif code == _CERTIFICATE_EXPIRED:
        advice = "the broker's certificate must be renewed"
    elif code == _CERTIFICATE_NOT_YET_VALID:
        advice = "check the clocks of this host and of the broker"
    else:
        context = if_objects(f", or {spell('ssl_context')},")
        advice = f"give {spell('ssl_cafile')}{context} that trusts its issuer"
    return Diagnosis(
        f"its certificate is not accepted ({reason}): {advice}",
        permanent=True,
        error=SslAuthenticationError,
    )


def _alert(error: BaseException, facts: ConnectionFacts) -> Diagnosis | None:
    """Return the meaning of an alert with which the broker has refused the client."""
    reason = str(getattr(error, "reason", None) or "")
    if "ALERT" not in reason:
        return None
    own = spell("ssl_certfile")
    if facts.certificate is None:
        own = f"the certificate of {spell('ssl_context')}"
    issuer = f"check {spell('ssl_certfile')}, and the authorities that the broker trusts"
    for name, text in _ALERTS:
        if name in reason:
            meaning = text.format(certificate=_own_certificate(facts), issuer=issuer, own=own)
            return Diagnosis(meaning, permanent=True, error=SslAuthenticationError)
    return None


def _own_certificate(facts: ConnectionFacts) -> str:
    if facts.certificate is None:
        return f"check the certificate that {spell('ssl_context')} has loaded"
    if facts.certificate:
        return f"check {spell('ssl_certfile')}: its issuer, its purpose and how long it is valid"
    return f"give {spell('ssl_certfile')} and {spell('ssl_keyfile')}"


def _no_tls(error: BaseException, facts: ConnectionFacts) -> Diagnosis:
    reason = str(getattr(error, "reason", None) or error)
    if any(name in reason for name in _PROTOCOL_ALERTS):
        return Diagnosis(
            f"TLS failed ({reason}): the broker supports no version of TLS that this client "
            f"allows, see {spell('ssl_enabled_protocols')}: 1.2 and newer",
            permanent=True,
            error=SslAuthenticationError,
        )
    return Diagnosis(
        f"TLS failed ({reason}): if this is a plaintext port, {facts.with_tls(tls=False)}",
        permanent=True,
    )


def _unknown_name(error: BaseException, facts: ConnectionFacts) -> Diagnosis:
    reason = getattr(error, "strerror", None) or str(error)
    return Diagnosis(
        f"its name cannot be resolved ({reason}): check its spelling and the DNS", refused=True
    )


def _refused(error: BaseException, facts: ConnectionFacts) -> Diagnosis:
    return Diagnosis(
        "connection refused: is the broker running, and is this its port?", refused=True
    )


def _unreachable(error: BaseException, facts: ConnectionFacts) -> Diagnosis:
    port = ", does the port speak TLS" if facts.tls else ""
    return Diagnosis(
        f"it does not answer at all: is the address right{port}, is a firewall in between?"
    )


def _silent(error: BaseException, facts: ConnectionFacts) -> Diagnosis:
    other = "" if facts.tls else f", or a TLS port (then {facts.with_tls(tls=True)})"
    return Diagnosis(
        f"it accepts connections but does not answer: not a Kafka broker{other}, or one that hangs"
    )


def _hung_up_in_setup(error: BaseException, facts: ConnectionFacts) -> Diagnosis | None:
    """Return the cause of a close while TLS was set up, or of a connection that never began."""
    if not is_hang_up(error):
        return None
    if facts.tls:
        return Diagnosis(
            "it closed the connection before TLS was set up: if this is a plaintext port, "
            f"{facts.with_tls(tls=False)}",
            permanent=facts.certain and not facts.known,
        )
    return _hung_up(error, facts)


def _hung_up(error: BaseException, facts: ConnectionFacts) -> Diagnosis | None:
    """Return the cause of a close before the first response."""
    if not is_hang_up(error):
        return None
    # Without TLS the port probably expects it.
    if not facts.tls:
        return Diagnosis(
            "it closed the connection before answering: not a Kafka broker, or a TLS port "
            f"(then {facts.with_tls(tls=True)})",
            permanent=facts.certain and not facts.known,
        )
    certain = facts.certain and not facts.known
    if facts.tls_version != "TLSv1.3":
        return Diagnosis(
            "it closed the connection as soon as TLS was set up: not a Kafka broker, or a proxy "
            "whose broker is down",
            permanent=certain,
        )
    # With TLS 1.3 a broker checks the client's certificate when the client's handshake is complete,
    # and its alert is lost if the connection is reset before the client has read it.
    return Diagnosis(
        "it closed the connection as soon as TLS was set up: it probably "
        f"{'requires a' if facts.certificate is False else 'refuses the'} client certificate: "
        f"{_own_certificate(facts)}",
        permanent=certain,
        error=SslAuthenticationError if certain else None,
    )


def _hung_up_on_request(error: BaseException, facts: ConnectionFacts) -> Diagnosis | None:
    """Return the cause of a close at the first request after the handshake."""
    # A SASL listener closes the connection of a client that sends requests without authentication.
    if facts.sasl or not facts.first_request or not facts.certain or not is_hang_up(error):
        return None
    return Diagnosis(
        f"it closed the connection at the first request: {sasl_required(facts.protocol)}",
        permanent=True,
        error=AuthenticationError,
    )


def _sasl_state(error: BaseException, facts: ConnectionFacts) -> Diagnosis | None:
    if facts.sasl:
        return None
    text = f"it responds with ILLEGAL_SASL_STATE: {sasl_required(facts.protocol)}"
    return Diagnosis(text, permanent=True, error=AuthenticationError)


def _greeting(error: BaseException, facts: ConnectionFacts) -> Diagnosis | None:
    assert isinstance(error, FrameSizeError)
    for start, text in _GREETINGS:
        if error.head.startswith(start):
            return Diagnosis(text.format(tls=facts.with_tls(tls=True)), permanent=True)
    return Diagnosis(
        f"it answers with bytes that are not the Kafka protocol ({error.head[:8]!r}): is this a "
        "broker's port?",
        permanent=True,
    )


def _no_kafka(error: BaseException, facts: ConnectionFacts) -> Diagnosis:
    return Diagnosis(
        f"it answers with bytes that are not the Kafka protocol ({error})", permanent=True
    )


def _unauthenticated(error: BaseException, facts: ConnectionFacts) -> Diagnosis:
    return Diagnosis("it does not answer the authentication: it is frozen or overloaded")


def _hung_up_on_credentials(error: BaseException, facts: ConnectionFacts) -> Diagnosis | None:
    if not is_hang_up(error):
        return None
    return Diagnosis(
        "it closed the connection during the authentication, without a reason: check the "
        f"credentials and {spell('sasl_mechanism')}, and the broker's log",
        permanent=facts.certain,
        error=SaslAuthenticationError if facts.certain else None,
    )


_SETTING_UP: Final = (ConnectionStage.CONNECTING, ConnectionStage.HANDSHAKE)
_STARTED: Final = (*_SETTING_UP, ConnectionStage.OPEN)
_CAUSES: Final[
    tuple[
        tuple[
            type[BaseException],
            tuple[ConnectionStage, ...],
            Callable[[BaseException, ConnectionFacts], Diagnosis | None],
        ],
        ...,
    ]
] = (
    # From the specific rows to the general ones: classes of the standard library are subclasses of
    # OSError.
    (ssl.SSLCertVerificationError, _SETTING_UP, _certificate),
    (ssl.SSLError, _STARTED, _alert),
    (OSError, (ConnectionStage.CONNECTING,), _hung_up_in_setup),
    (OSError, (ConnectionStage.HANDSHAKE,), _hung_up),
    (ssl.SSLError, _SETTING_UP, _no_tls),
    (socket.gaierror, _SETTING_UP, _unknown_name),
    (ConnectionRefusedError, _SETTING_UP, _refused),
    (FrameSizeError, (ConnectionStage.HANDSHAKE,), _greeting),
    (ProtocolError, (ConnectionStage.HANDSHAKE, ConnectionStage.AUTHENTICATION), _no_kafka),
    (IllegalSaslStateError, _STARTED, _sasl_state),
    (TimeoutError, (ConnectionStage.CONNECTING,), _unreachable),
    (TimeoutError, (ConnectionStage.HANDSHAKE,), _silent),
    (OSError, (ConnectionStage.OPEN,), _hung_up_on_request),
    (TimeoutError, (ConnectionStage.AUTHENTICATION,), _unauthenticated),
    (OSError, (ConnectionStage.AUTHENTICATION,), _hung_up_on_credentials),
)
