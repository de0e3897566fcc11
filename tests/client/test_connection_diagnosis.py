"""Tests of the explanations of connection errors."""

from __future__ import annotations

import re
import socket
import ssl

import pytest

from kafka_async.client.connection.diagnosis import (
    MAX_HANG_UPS,
    ConnectionFacts,
    ConnectionStage,
    diagnose,
    is_hang_up,
)
from kafka_async.client.wire.framing import FrameSizeError
from kafka_async.errors import (
    AuthenticationError,
    CorrelationIdMismatchError,
    DecodeError,
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    SslAuthenticationError,
)

_, CONNECTING, HANDSHAKE, _, OPEN = ConnectionStage


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
    found = diagnose(error, stage, ConnectionFacts("SSL" if tls else "PLAINTEXT"))
    assert re.search(words, found.text)
    assert found.permanent is permanent


# -- TLS and SASL ---------------------------------------------------------------------------------


def alert(name: str) -> ssl.SSLError:
    error = ssl.SSLError(1, f"[SSL: {name}] alert")
    error.reason = name
    return error


def unverified(code: int, words: str) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, words)
    error.verify_code, error.verify_message = code, words
    return error


TLS = ConnectionFacts("SSL")
OWN = TLS._replace(certificate=True)
RESET = ConnectionResetError("reset")
NEW_TLS = TLS._replace(tls_version="TLSv1.3", hang_ups=MAX_HANG_UPS)
PLAIN = ConnectionFacts(hang_ups=MAX_HANG_UPS)
AT_FIRST_REQUEST = PLAIN._replace(known=True, first_request=True)


@pytest.mark.parametrize(
    ("error", "stage", "facts", "raised", "words"),
    [
        (unverified(20, "no issuer"), CONNECTING, TLS, SslAuthenticationError, "give ssl_cafile"),
        (unverified(62, "mismatch"), CONNECTING, TLS, SslAuthenticationError, "ssl_check_hostname"),
        (unverified(10, "expired"), CONNECTING, TLS, SslAuthenticationError, "must be renewed"),
        (unverified(9, "not yet"), CONNECTING, TLS, SslAuthenticationError, "clocks"),
        *(
            (alert(name), stage, facts, SslAuthenticationError, words)
            for stage in (CONNECTING, HANDSHAKE, OPEN)
            for name, facts, words in [
                ("TLSV13_ALERT_CERTIFICATE_REQUIRED", TLS, "give ssl_certfile and ssl_keyfile"),
                ("SSLV3_ALERT_BAD_CERTIFICATE", TLS, "give ssl_certfile and ssl_keyfile"),
                ("SSLV3_ALERT_BAD_CERTIFICATE", OWN, "check ssl_certfile"),
                ("SSLV3_ALERT_CERTIFICATE_EXPIRED", OWN, "expired: renew "),
                ("SSLV3_ALERT_CERTIFICATE_UNKNOWN", OWN, "check ssl_certfile"),
                ("TLSV1_ALERT_UNKNOWN_CA", OWN, "does not trust the issuer"),
                ("TLSV1_ALERT_UNKNOWN_CA", TLS._replace(certificate=None), "the issuer"),
            ]
        ),
        (alert("TLSV1_ALERT_PROTOCOL_VERSION"), CONNECTING, TLS, SslAuthenticationError, "1.2 and"),
        (alert("WRONG_VERSION_NUMBER"), CONNECTING, TLS, None, "leave security_protocol out"),
        (
            alert("WRONG_VERSION_NUMBER"),
            CONNECTING,
            ConnectionFacts("SASL_SSL"),
            None,
            'security_protocol="SASL_PLAINTEXT"',
        ),
        (RESET, HANDSHAKE, NEW_TLS, SslAuthenticationError, "requires a client certificate: give"),
        (
            RESET,
            HANDSHAKE,
            NEW_TLS._replace(certificate=True),
            SslAuthenticationError,
            "refuses the client certificate: check ssl_certfile",
        ),
        (RESET, HANDSHAKE, NEW_TLS._replace(tls_version="TLSv1.2"), None, "as soon as TLS was set"),
        (RESET, CONNECTING, TLS._replace(hang_ups=MAX_HANG_UPS), None, "before TLS was set up"),
        (ssl.SSLEOFError(8, "EOF"), CONNECTING, NEW_TLS, None, "leave security_protocol out"),
        (RESET, HANDSHAKE, PLAIN, None, 'TLS port .then set security_protocol="SSL"'),
        (
            RESET,
            HANDSHAKE,
            PLAIN._replace(protocol="SASL_PLAINTEXT"),
            None,
            'TLS port .then set security_protocol="SASL_SSL"',
        ),
        (RESET, OPEN, AT_FIRST_REQUEST, AuthenticationError, 'requires SASL: .*"SASL_PLAINTEXT"'),
        (
            RESET,
            OPEN,
            AT_FIRST_REQUEST._replace(protocol="SSL"),
            AuthenticationError,
            'requires SASL: .*"SASL_SSL" and sasl_mechanism',
        ),
        (IllegalSaslStateError(), HANDSHAKE, TLS, AuthenticationError, '"SASL_SSL" and sasl_m'),
        (IllegalSaslStateError(), OPEN, PLAIN, AuthenticationError, '"SASL_PLAINTEXT" and'),
    ],
)
def test_names_permanent_failure_of_tls_or_sasl(
    error: BaseException,
    stage: ConnectionStage,
    facts: ConnectionFacts,
    raised: type[KafkaError] | None,
    words: str,
) -> None:
    found = diagnose(error, stage, facts)
    assert re.search(words, found.text)
    assert found.error is raised
    assert found.permanent


@pytest.mark.parametrize(
    ("stage", "facts"),
    [
        *(
            (stage, facts._replace(**change))
            for stage, facts in [(HANDSHAKE, NEW_TLS), (HANDSHAKE, PLAIN), (OPEN, AT_FIRST_REQUEST)]
            for change in ({"hang_ups": MAX_HANG_UPS - 1}, {"joined": True})
        ),
        (HANDSHAKE, NEW_TLS._replace(known=True)),
        (HANDSHAKE, PLAIN._replace(known=True)),
        (OPEN, AT_FIRST_REQUEST._replace(first_request=False)),
        (OPEN, AT_FIRST_REQUEST._replace(protocol="SASL_SSL")),
    ],
)
def test_does_not_take_a_restarting_broker_for_a_wrong_protocol(
    stage: ConnectionStage, facts: ConnectionFacts
) -> None:
    found = diagnose(RESET, stage, facts)
    assert not found.permanent
    assert found.error is None


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionResetError(), True),
        (BrokenPipeError(), True),
        (ssl.SSLEOFError(), True),
        (ssl.SSLZeroReturnError(), True),
        (ConnectionRefusedError(), False),
        (TimeoutError(), False),
        (ssl.SSLError(), False),
        (DecodeError(), False),
        (KafkaConnectionError(), False),
    ],
)
def test_tells_hang_ups_from_other_errors(error: BaseException, expected: bool) -> None:
    assert is_hang_up(error) is expected
