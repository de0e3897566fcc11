"""Explains why a connection failed, in a sentence that names the cause and what to do.

The error of a wrong address says little by itself: a TLS port closes the connection, a web server
responds in HTTP, a firewall does not respond at all. The tables here derive the cause from the
error and from how far the connection had come.
"""

from __future__ import annotations

import enum
import socket
import ssl
from typing import TYPE_CHECKING, Final, NamedTuple

from kafka_async.cluster.framing import FrameSizeError
from kafka_async.errors import KafkaError, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable


class ConnectionStage(enum.Enum):
    """Stages of a connection."""

    IDLE = "not tried"
    CONNECTING = "connecting"
    HANDSHAKE = "waiting for the first response"
    OPEN = "open"


class Diagnosis(NamedTuple):
    """The cause of a failed connection and what to do about it.

    Attributes:
        text: One sentence for error messages and logs.
        permanent: True if retries fail until the configuration or the cluster changes.
        refused: True if no process listens at the address, or its name is unknown.
    """

    text: str
    permanent: bool = False
    refused: bool = False


_GREETINGS: Final[tuple[tuple[bytes, str], ...]] = (
    (b"HTTP", "it answers in HTTP: this is the port of a web server, not of a Kafka broker"),
    (b"\x15\x03", 'it answers in TLS: set security_protocol="SSL", or use the plaintext port'),
    (b"SSH-", "it answers in SSH: this is not the port of a Kafka broker"),
    (b"220 ", "it answers like a mail or file server: this is not the port of a Kafka broker"),
)


def diagnose(
    error: BaseException, stage: ConnectionStage, *, tls: bool, known: bool = False
) -> Diagnosis:
    """Return the cause of the error that ended a connection in `stage`.

    `known` says that this broker has responded before, so that the address must be right.
    """
    if known and stage is ConnectionStage.HANDSHAKE and isinstance(error, TimeoutError):
        return Diagnosis("it accepts connections but does not answer: it is frozen or overloaded")
    for error_type, stages, describe in _CAUSES:
        if isinstance(error, error_type) and stage in stages:
            found = describe(error, tls)
            if found is not None:
                return found
    text = str(error) or type(error).__name__
    return Diagnosis(text, isinstance(error, KafkaError) and not error.retriable)


def _certificate(error: BaseException, tls: bool) -> Diagnosis:
    reason = getattr(error, "verify_message", None) or str(error)
    return Diagnosis(
        f"its certificate is not accepted ({reason}): give an ssl_context that trusts its issuer",
        permanent=True,
    )


def _no_tls(error: BaseException, tls: bool) -> Diagnosis:
    reason = getattr(error, "reason", None) or str(error)
    return Diagnosis(
        f"TLS failed ({reason}): if this is a plaintext port, leave security_protocol out",
        permanent=True,
    )


def _unknown_name(error: BaseException, tls: bool) -> Diagnosis:
    reason = getattr(error, "strerror", None) or str(error)
    return Diagnosis(
        f"its name cannot be resolved ({reason}): check its spelling and the DNS", refused=True
    )


def _refused(error: BaseException, tls: bool) -> Diagnosis:
    return Diagnosis(
        "connection refused: is the broker running, and is this its port?", refused=True
    )


def _unreachable(error: BaseException, tls: bool) -> Diagnosis:
    port = ", does the port speak TLS" if tls else ""
    return Diagnosis(
        f"it does not answer at all: is the address right{port}, is a firewall in between?"
    )


def _silent(error: BaseException, tls: bool) -> Diagnosis:
    other = "" if tls else ', or a TLS port (then set security_protocol="SSL")'
    return Diagnosis(
        f"it accepts connections but does not answer: not a Kafka broker{other}, or one that hangs"
    )


def _hung_up(error: BaseException, tls: bool) -> Diagnosis:
    if tls:
        return Diagnosis(
            "it closed the connection before TLS was set up: if this is a plaintext port, "
            "leave security_protocol out"
        )
    return Diagnosis(
        "it closed the connection before answering: not a Kafka broker, or a TLS port "
        '(then set security_protocol="SSL")'
    )


def _greeting(error: BaseException, tls: bool) -> Diagnosis | None:
    assert isinstance(error, FrameSizeError)
    for start, text in _GREETINGS:
        if error.head.startswith(start):
            return Diagnosis(text, permanent=True)
    return Diagnosis(
        f"it answers with bytes that are not the Kafka protocol ({error.head[:8]!r}): is this a "
        "broker's port?",
        permanent=True,
    )


def _no_kafka(error: BaseException, tls: bool) -> Diagnosis:
    return Diagnosis(
        f"it answers with bytes that are not the Kafka protocol ({error})", permanent=True
    )


_SETTING_UP: Final = (ConnectionStage.CONNECTING, ConnectionStage.HANDSHAKE)
_CAUSES: Final[
    tuple[
        tuple[
            type[BaseException],
            tuple[ConnectionStage, ...],
            Callable[[BaseException, bool], Diagnosis | None],
        ],
        ...,
    ]
] = (
    (ssl.SSLCertVerificationError, _SETTING_UP, _certificate),
    (ssl.SSLError, _SETTING_UP, _no_tls),
    (socket.gaierror, _SETTING_UP, _unknown_name),
    (ConnectionRefusedError, _SETTING_UP, _refused),
    (FrameSizeError, (ConnectionStage.HANDSHAKE,), _greeting),
    (ProtocolError, (ConnectionStage.HANDSHAKE,), _no_kafka),
    (TimeoutError, (ConnectionStage.CONNECTING,), _unreachable),
    (TimeoutError, (ConnectionStage.HANDSHAKE,), _silent),
    (ConnectionError, _SETTING_UP, _hung_up),
)
