"""What went wrong with a connection, in a sentence that names the cause and what to do about it.

An address that is wrong in some way fails in a way that says little by itself: a TLS port closes
the connection, a web server answers "HTTP", a firewall says nothing. The tables here turn what was
seen, and how far the connection had come, into words.
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


class Stage(enum.Enum):
    """How far a connection has come."""

    IDLE = "not tried"
    CONNECTING = "connecting"
    HANDSHAKE = "waiting for its first answer"
    OPEN = "open"


class Diagnosis(NamedTuple):
    """A cause and a cure.

    `hopeless` if a retry will not help before the configuration changes; `refused` if the address
    itself is refused: no process listens there, or its name is unknown.
    """

    text: str
    hopeless: bool = False
    refused: bool = False


_GREETINGS: Final[tuple[tuple[bytes, str], ...]] = (
    (b"HTTP", "it answers in HTTP: this is the port of a web server, not of a Kafka broker"),
    (b"\x15\x03", 'it answers in TLS: set security_protocol="SSL", or use the plaintext port'),
    (b"SSH-", "it answers in SSH: this is not the port of a Kafka broker"),
    (b"220 ", "it answers like a mail or file server: this is not the port of a Kafka broker"),
)


def explain(error: BaseException, stage: Stage, *, tls: bool, known: bool = False) -> Diagnosis:
    """Return why a connection failed at `stage`, and what to do.

    `known` says that this broker has responded before: then it is a broker, at the right port.
    """
    if known and stage is Stage.HANDSHAKE and isinstance(error, TimeoutError):
        return Diagnosis("it accepts connections but does not answer: it is frozen or overloaded")
    for kind, stages, words in _CAUSES:
        if isinstance(error, kind) and stage in stages:
            found = words(error, tls)
            if found is not None:
                return found
    text = str(error) or type(error).__name__
    return Diagnosis(text, isinstance(error, KafkaError) and not error.retriable)


def _certificate(error: BaseException, tls: bool) -> Diagnosis:
    reason = getattr(error, "verify_message", None) or str(error)
    return Diagnosis(
        f"its certificate is not accepted ({reason}): give an ssl_context that trusts its issuer",
        hopeless=True,
    )


def _no_tls(error: BaseException, tls: bool) -> Diagnosis:
    reason = getattr(error, "reason", None) or str(error)
    return Diagnosis(
        f"TLS failed ({reason}): if this is a plaintext port, leave security_protocol out",
        hopeless=True,
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
    for start, words in _GREETINGS:
        if error.head.startswith(start):
            return Diagnosis(words, hopeless=True)
    return Diagnosis(
        f"it answers with bytes that are no Kafka ({error.head[:8]!r}): is this a broker's port?",
        hopeless=True,
    )


def _no_kafka(error: BaseException, tls: bool) -> Diagnosis:
    return Diagnosis(f"it answers with bytes that are no Kafka ({error})", hopeless=True)


_SETTING_UP: Final = (Stage.CONNECTING, Stage.HANDSHAKE)
_CAUSES: Final[
    tuple[
        tuple[
            type[BaseException],
            tuple[Stage, ...],
            Callable[[BaseException, bool], Diagnosis | None],
        ],
        ...,
    ]
] = (
    (ssl.SSLCertVerificationError, _SETTING_UP, _certificate),
    (ssl.SSLError, _SETTING_UP, _no_tls),
    (socket.gaierror, _SETTING_UP, _unknown_name),
    (ConnectionRefusedError, _SETTING_UP, _refused),
    (FrameSizeError, (Stage.HANDSHAKE,), _greeting),
    (ProtocolError, (Stage.HANDSHAKE,), _no_kafka),
    (TimeoutError, (Stage.CONNECTING,), _unreachable),
    (TimeoutError, (Stage.HANDSHAKE,), _silent),
    (ConnectionError, _SETTING_UP, _hung_up),
)
