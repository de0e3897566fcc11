"""Tests of the explanations of connection errors."""

from __future__ import annotations

import re
import socket
import ssl

import pytest

from kafka_async.cluster.connection_diagnosis import ConnectionStage, diagnose
from kafka_async.cluster.framing import FrameSizeError
from kafka_async.errors import (
    AuthenticationError,
    CorrelationIdMismatchError,
    DecodeError,
    KafkaTimeoutError,
)

_, CONNECTING, HANDSHAKE, OPEN = ConnectionStage


def greeting(head: bytes) -> FrameSizeError:
    return FrameSizeError("absurd", head)


RETRIED: list[tuple[BaseException, ConnectionStage, bool, str]] = [
    (ConnectionRefusedError(), CONNECTING, False, "connection refused: is the broker"),
    (socket.gaierror(-2, "not known"), CONNECTING, False, r"cannot be resolved \(not known"),
    (TimeoutError(), CONNECTING, False, "does not answer at all: is the address right, i"),
    (TimeoutError(), CONNECTING, True, "does the port speak TLS"),
    (TimeoutError(), HANDSHAKE, False, "accepts connections but does not answer.*TLS"),
    (KafkaTimeoutError(), HANDSHAKE, True, "does not answer: not a Kafka broker, or on"),
    (ConnectionResetError(), HANDSHAKE, False, "or a TLS port .then set security_pr"),
    (ConnectionResetError(), CONNECTING, True, "before TLS was set up: if this is a pl"),
    (OSError("odd"), CONNECTING, False, "odd"),
    (ConnectionResetError("reset"), OPEN, False, "^reset$"),
    (ConnectionResetError(), OPEN, False, "ConnectionResetError"),
]
PERMANENT: list[tuple[BaseException, ConnectionStage, bool, str]] = [
    (greeting(b"HTTP/1.1"), HANDSHAKE, False, "answers in HTTP: this is the port of a web"),
    (greeting(b"\x15\x03\x03\x00"), HANDSHAKE, False, 'in TLS: set security_protocol="SSL"'),
    (greeting(b"SSH-2.0"), HANDSHAKE, False, "in SSH"),
    (greeting(b"220 smtp"), HANDSHAKE, False, "mail or file server"),
    (greeting(b"\xff\xff\xff\xff"), HANDSHAKE, False, "bytes that are not the Kafka pro"),
    (DecodeError("bad"), HANDSHAKE, False, r"not the Kafka protocol \(bad\)"),
    (CorrelationIdMismatchError("odd"), HANDSHAKE, False, r"not the Kafka protocol \(odd\)"),
    (ssl.SSLCertVerificationError("untrusted"), CONNECTING, True, "certificate is not acc"),
    (ssl.SSLError("wrong"), CONNECTING, True, "leave security_protocol out"),
    (AuthenticationError("who?"), HANDSHAKE, False, "who?"),
]


@pytest.mark.parametrize(
    ("error", "stage", "tls", "words", "permanent"),
    [*((*row, False) for row in RETRIED), *((*row, True) for row in PERMANENT)],
)
def test_names_cause_and_what_to_do(
    error: BaseException, stage: ConnectionStage, tls: bool, words: str, permanent: bool
) -> None:
    found = diagnose(error, stage, tls=tls)
    assert re.search(words, found.text)
    assert found.permanent is permanent
