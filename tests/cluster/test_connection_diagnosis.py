"""Tests of the explanations of connection errors."""

from __future__ import annotations

import socket
import ssl

import pytest

from kafka_async.cluster.connection_diagnosis import ConnectionStage, Diagnosis, diagnose
from kafka_async.cluster.framing import FrameSizeError
from kafka_async.errors import (
    AuthenticationError,
    CorrelationIdMismatchError,
    DecodeError,
    KafkaTimeoutError,
)

CONNECTING, HANDSHAKE, OPEN = (
    ConnectionStage.CONNECTING,
    ConnectionStage.HANDSHAKE,
    ConnectionStage.OPEN,
)


def greeting(head: bytes) -> FrameSizeError:
    return FrameSizeError("absurd", head)


@pytest.mark.parametrize(
    ("error", "stage", "tls", "words", "permanent"),
    [
        (ConnectionRefusedError(), CONNECTING, False, "connection refused: is the broker", False),
        (
            socket.gaierror(-2, "not known"),
            CONNECTING,
            False,
            r"cannot be resolved \(not known",
            False,
        ),
        (
            TimeoutError(),
            CONNECTING,
            False,
            "does not answer at all: is the address right, i",
            False,
        ),
        (TimeoutError(), CONNECTING, True, "does the port speak TLS", False),
        (TimeoutError(), HANDSHAKE, False, "accepts connections but does not answer.*TLS", False),
        (KafkaTimeoutError(), HANDSHAKE, True, "does not answer: not a Kafka broker, or on", False),
        (ConnectionResetError(), HANDSHAKE, False, "or a TLS port .then set security_pr", False),
        (ConnectionResetError(), CONNECTING, True, "before TLS was set up: if this is a pl", False),
        (
            greeting(b"HTTP/1.1"),
            HANDSHAKE,
            False,
            "answers in HTTP: this is the port of a web",
            True,
        ),
        (
            greeting(b"\x15\x03\x03\x00"),
            HANDSHAKE,
            False,
            'in TLS: set security_protocol="SSL"',
            True,
        ),
        (greeting(b"SSH-2.0"), HANDSHAKE, False, "in SSH", True),
        (greeting(b"220 smtp"), HANDSHAKE, False, "mail or file server", True),
        (greeting(b"\xff\xff\xff\xff"), HANDSHAKE, False, "bytes that are not the Kafka pro", True),
        (DecodeError("bad"), HANDSHAKE, False, r"not the Kafka protocol \(bad\)", True),
        (
            CorrelationIdMismatchError("odd"),
            HANDSHAKE,
            False,
            r"not the Kafka protocol \(odd\)",
            True,
        ),
        (
            ssl.SSLCertVerificationError("untrusted"),
            CONNECTING,
            True,
            "certificate is not acc",
            True,
        ),
        (ssl.SSLError("wrong"), CONNECTING, True, "leave security_protocol out", True),
        (AuthenticationError("who?"), HANDSHAKE, False, "who?", True),
        (OSError("odd"), CONNECTING, False, "odd", False),
        (ConnectionResetError("reset"), OPEN, False, "^reset$", False),
        (ConnectionResetError(), OPEN, False, "ConnectionResetError", False),
    ],
)
def test_names_cause_and_what_to_do(
    error: BaseException, stage: ConnectionStage, tls: bool, words: str, permanent: bool
) -> None:
    found = diagnose(error, stage, tls=tls)
    assert isinstance(found, Diagnosis)
    with pytest.raises(LookupError, match=words):
        raise LookupError(found.text)
    assert found.permanent is permanent
