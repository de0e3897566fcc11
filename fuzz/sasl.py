"""The target "sasl": a byte selects a mechanism; the rest are the broker's messages to it.

0xFF separates the messages. An empty part is an empty message. Functions that take long are
replaced by a constant result, so that the fuzzer does not compute SCRAM's salted password.

GSSAPI gets a Kerberos library that needs no key distribution center: the first byte of a message
decides if the library accepts it, wants more, or raises an error, whose number follows. Messages of
AWS MSK IAM are those of OAUTHBEARER.
"""

from __future__ import annotations

import hmac
import sys
from base64 import b64decode, b64encode
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from fuzz.oracle import require
from fuzz.target import Target, functions_of
from kafka_async.client.security.sasl import (
    aws_msk_iam,
    credentials,
    gssapi,
    oauthbearer,
    plain,
    scram,
)
from kafka_async.client.security.sasl.aws_msk_iam import AwsMskIam
from kafka_async.client.security.sasl.gssapi import Gssapi
from kafka_async.client.security.sasl.mechanism import Compute, SaslContext
from kafka_async.client.security.sasl.oauthbearer import OAuthBearer
from kafka_async.client.security.sasl.plain import Plain
from kafka_async.client.security.sasl.scram import Scram
from kafka_async.config import ClientConfig
from kafka_async.errors import KafkaConnectionError, SaslAuthenticationError
from kafka_async.secrets import Secret, SecretBytes
from kafka_async.types import Token

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from types import FunctionType

    from kafka_async.client.security.sasl.mechanism import SaslMechanism

SEPARATOR: Final = b"\xff"
MAX_ERROR_TEXT: Final = 2400
"""Characters of an error; 200 characters of a broker's reason are repeated in it, escaped."""
NONCE: Final = "fyko+d2lbbFgONRv9qkxdawL"
PASSWORD: Final = "the planted password"
TOKEN: Final = "the-planted-token"
SALTED: Final = bytes(range(32))
SALT: Final = b64encode(bytes(16))

MORE: Final = 1
ERROR: Final = 2
ONE_SIDED: Final = 3
"""First bytes of a message to the Kerberos library; it accepts a message with any other."""
NO_LAYER_OFFER: Final = b"\x01\x00\x00\x00"

CONFIG: Final = ClientConfig("broker:9092")


class _Tokens:
    purpose = "sasl_token_provider"

    async def token(self) -> Token:
        """Return the planted token; it is never awaited here."""
        return Token(TOKEN)

    def reject(self, token: Token) -> None:
        """Accept the rejection."""


class _GssError(Exception):
    """An error of the Kerberos library, with the number that a message has after its first byte."""

    def __init__(self, received: bytes) -> None:
        super().__init__(f"{received!r:.2000}\n" * 2)
        self.min_code = int.from_bytes(received[1:5], "big") - 1765328384


class _SecurityContext:
    """Takes the place of a context of the Kerberos library."""

    def __init__(self, **options: object) -> None:
        self.complete = False
        self.actual_flags: set[str] = {"mutual_authentication"}

    def step(self, received: bytes | None) -> bytes | None:
        if received is None:
            return b"first"
        kind = received[:1]
        if kind == bytes((ERROR,)):
            raise _GssError(received)
        if kind == bytes((ONE_SIDED,)):
            self.actual_flags.clear()
        self.complete = kind != bytes((MORE,))
        return None if self.complete else b"next"

    def unwrap(self, message: bytes) -> SimpleNamespace:
        if message[:1] == bytes((ERROR,)):
            raise _GssError(message)
        return SimpleNamespace(message=message)

    def wrap(self, message: bytes, encrypted: bool) -> SimpleNamespace:
        return SimpleNamespace(message=message)


def _name(name: str, kind: str) -> tuple[str, str]:
    return name, kind


def _kerberos_library() -> ModuleType:
    library: Any = ModuleType("gssapi")
    flags = ("mutual_authentication", "integrity", "out_of_sequence_detection")
    library.RequirementFlag = SimpleNamespace(**{name: name for name in flags})
    library.NameType = SimpleNamespace(hostbased_service="service", kerberos_principal="principal")
    library.MechType = SimpleNamespace(kerberos="kerberos")
    library.exceptions = SimpleNamespace(GSSError=_GssError)
    library.Name = _name
    library.SecurityContext = _SecurityContext
    return library


LIBRARY: Final = _kerberos_library()


@contextmanager
def kerberos() -> Generator[None]:
    """Let imports of `gssapi` return the library of this module."""
    found = sys.modules.get("gssapi")
    sys.modules["gssapi"] = LIBRARY
    try:
        yield
    finally:
        if found is None:
            del sys.modules["gssapi"]
        else:
            sys.modules["gssapi"] = found


CONTEXT: Final = SaslContext(CONFIG, "alice", Secret(PASSWORD), "broker", 9092, _Tokens())


def mechanisms() -> list[SaslMechanism]:
    """Return new mechanisms, in the order of an input's first byte."""
    nonce: Callable[[], str] = lambda: NONCE  # noqa: E731
    scram_mechanisms = [Scram("SHA-256", nonce), Scram("SHA-512", nonce)]
    return [Plain(), *scram_mechanisms, OAuthBearer(), Gssapi(), AwsMskIam()]


def run(data: bytes) -> None:
    """Send the messages and check every promise."""
    known = mechanisms()
    mechanism = known[(data[0] if data else 0) % len(known)]
    sent, verified, error = exchange(mechanism, data[1:].split(SEPARATOR))
    if error is not None:
        text = "\n".join([str(error), *getattr(error, "__notes__", ())])
        require(len(text) <= MAX_ERROR_TEXT, f"an error of {len(text)} characters")
        for secret in (PASSWORD, TOKEN):
            require(secret not in text, f"an error that shows a secret: {text}")
        passing = isinstance(error, KafkaConnectionError)
        require(not passing or isinstance(mechanism, Gssapi), f"a retriable error: {text}")
    if isinstance(mechanism, Gssapi) and verified is not None:
        messages = data[1:].split(SEPARATOR)
        *tokens, offer, end = messages[: len(sent)]
        require(tokens[-1][:1] != bytes((ONE_SIDED,)), "a broker without a proof is accepted")
        require(len(offer) == len(NO_LAYER_OFFER) and offer[0] & 1, "a wrong offer is accepted")
        require(not end and sent[-1] == NO_LAYER_OFFER, "a message after the end is accepted")
    if isinstance(mechanism, Scram):
        require(PASSWORD.encode() not in b"".join(sent), "the password is sent")
        if verified is not None:
            expected = signature(mechanism, sent, data[1:].split(SEPARATOR)[0])
            # The bytes, since the last character of base64 has bits that mean nothing.
            accepted = b64decode(verified.removeprefix(b"v=").partition(b",")[0])
            require(accepted == b64decode(expected), "a wrong signature is accepted")


def exchange(
    mechanism: SaslMechanism, replies: list[bytes]
) -> tuple[list[bytes], bytes | None, SaslAuthenticationError | KafkaConnectionError | None]:
    """Return the client's messages, the last reply if it was accepted, and the error if not."""
    sent: list[bytes] = []
    remaining = iter(replies)
    steps = mechanism.authenticate(CONTEXT)
    reply: bytes = b""
    result: Any = None
    try:
        while True:
            step = steps.send(result)
            if isinstance(step, SecretBytes):
                sent.append(step.reveal())
                found = next(remaining, None)
                if found is None:
                    return sent, None, None
                result = reply = found
            elif isinstance(step, Compute) and isinstance(mechanism, Gssapi):
                with kerberos():
                    result = step.function(*step.arguments)
            elif isinstance(step, Compute):
                result = SecretBytes(SALTED)
            else:
                result = Token(TOKEN)
    except StopIteration:
        return sent, reply, None
    except (SaslAuthenticationError, KafkaConnectionError) as error:
        return sent, None, error


def signature(mechanism: Scram, sent: list[bytes], server_first: bytes) -> bytes:
    """Return the signature that a broker with the salted password sends."""
    hash_name = mechanism.name.removeprefix("SCRAM-").replace("-", "").lower()
    signed = b",".join((sent[0][3:], server_first, sent[1].rpartition(b",p=")[0]))
    key = hmac.digest(SALTED, b"Server Key", hash_name)
    return b64encode(hmac.digest(key, signed, hash_name))


def subject(data: bytes) -> Callable[[], object]:
    """Return a call that only runs the exchange."""
    known = mechanisms()
    mechanism, replies = known[(data[0] if data else 0) % len(known)], data[1:].split(SEPARATOR)
    return lambda: exchange(mechanism, replies)


def seeds() -> Iterator[tuple[str, bytes]]:
    """Yield exchanges that succeed, and those that brokers reject."""
    first = b"r=" + NONCE.encode() + b"server,s=" + SALT + b",i=4096"
    for number, mechanism in enumerate(mechanisms()):
        yield f"{number}-{mechanism.name}-empty", bytes([number])
        yield f"{number}-{mechanism.name}-error", bytes([number]) + b"e=invalid-proof"
        yield f"{number}-{mechanism.name}-extension", bytes([number]) + b"m=x," + first
        if isinstance(mechanism, Scram):
            sent, _, _ = exchange(mechanism, [first])
            last = b"v=" + signature(mechanism, sent, first)
            yield f"{number}-{mechanism.name}-valid", bytes([number]) + first + SEPARATOR + last
            yield (
                f"{number}-{mechanism.name}-late",
                bytes([number]) + first + SEPARATOR + b"e=other-error",
            )
    yield "token-rejected", b'\x03{"status":"invalid_token","scope":"kafka"}'
    for number, mechanism in enumerate(mechanisms()):
        if isinstance(mechanism, Gssapi):
            more, last = bytes((number, MORE)), b"token" + SEPARATOR + NO_LAYER_OFFER + SEPARATOR
            yield "kerberos", bytes((number,)) + last
            yield "kerberos-more", more + SEPARATOR + last
            yield "kerberos-without-end", more + (SEPARATOR + bytes((MORE,))) * 9
            yield "kerberos-one-sided", bytes((number, ONE_SIDED)) + SEPARATOR + NO_LAYER_OFFER
            yield "kerberos-layer", bytes((number,)) + b"token" + SEPARATOR + b"\x04\x00\x10\x00"
            for code in (21, 33, 34, 156, 7):
                yield f"kerberos-error-{code}", bytes((number, ERROR, 0, 0, 0, code))
        elif isinstance(mechanism, AwsMskIam):
            yield "msk-rejected", bytes((number,)) + b'{"status":"invalid_token"}' + SEPARATOR
    yield "token-rejected-twice", b'\x03{"status":"invalid_token"}' + SEPARATOR


def functions() -> Iterable[FunctionType]:
    """Return the functions of the mechanisms."""
    return functions_of(credentials, plain, scram, oauthbearer, gssapi, aws_msk_iam)


TARGET = Target(run, subject, len, seeds, functions)
