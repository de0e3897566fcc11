"""The target "sasl": a byte selects a mechanism; the rest are the broker's messages to it.

0xFF separates the messages. An empty part is an empty message. Functions that take long are
replaced by a constant result, so that the fuzzer does not compute SCRAM's salted password.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from typing import TYPE_CHECKING, Any, Final

from fuzz.oracle import require
from fuzz.target import Target, functions_of
from kafka_async.cluster.sasl import credentials, oauthbearer, plain, scram
from kafka_async.cluster.sasl.mechanism import Compute, SaslContext
from kafka_async.cluster.sasl.oauthbearer import OAuthBearer
from kafka_async.cluster.sasl.plain import Plain
from kafka_async.cluster.sasl.scram import Scram
from kafka_async.config import ClientConfig
from kafka_async.errors import SaslAuthenticationError
from kafka_async.secrets import Secret, SecretBytes
from kafka_async.types import Token

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FunctionType

    from kafka_async.cluster.sasl.mechanism import SaslMechanism

SEPARATOR: Final = b"\xff"
MAX_ERROR_TEXT: Final = 2400
"""Characters of an error; 200 characters of a broker's reason are repeated in it, escaped."""
NONCE: Final = "fyko+d2lbbFgONRv9qkxdawL"
PASSWORD: Final = "the planted password"
TOKEN: Final = "the-planted-token"
SALTED: Final = bytes(range(32))
SALT: Final = b64encode(bytes(16))

CONFIG: Final = ClientConfig("broker:9092")


class _Tokens:
    purpose = "sasl_token_provider"

    async def token(self) -> Token:
        """Return the planted token; it is never awaited here."""
        return Token(TOKEN)

    def reject(self, token: Token) -> None:
        """Accept the rejection."""


CONTEXT: Final = SaslContext(CONFIG, "alice", Secret(PASSWORD), "broker", 9092, _Tokens())


def mechanisms() -> list[SaslMechanism]:
    """Return new mechanisms, in the order of an input's first byte."""
    nonce: Callable[[], str] = lambda: NONCE  # noqa: E731
    return [Plain(), Scram("SHA-256", nonce), Scram("SHA-512", nonce), OAuthBearer()]


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
    if isinstance(mechanism, Scram):
        require(PASSWORD.encode() not in b"".join(sent), "the password is sent")
        if verified is not None:
            expected = signature(mechanism, sent, data[1:].split(SEPARATOR)[0])
            require(verified.startswith(b"v=" + expected), "a wrong signature is accepted")


def exchange(
    mechanism: SaslMechanism, replies: list[bytes]
) -> tuple[list[bytes], bytes | None, SaslAuthenticationError | None]:
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
            elif isinstance(step, Compute):
                result = SecretBytes(SALTED)
            else:
                result = Token(TOKEN)
    except StopIteration:
        return sent, reply, None
    except SaslAuthenticationError as error:
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
        yield f"{mechanism.name}-empty", bytes([number])
        yield f"{mechanism.name}-error", bytes([number]) + b"e=invalid-proof"
        yield f"{mechanism.name}-extension", bytes([number]) + b"m=x," + first
        if isinstance(mechanism, Scram):
            sent, _, _ = exchange(mechanism, [first])
            last = b"v=" + signature(mechanism, sent, first)
            yield f"{mechanism.name}-valid", bytes([number]) + first + SEPARATOR + last
            yield f"{mechanism.name}-late", bytes([number]) + first + SEPARATOR + b"e=other-error"
    yield "token-rejected", b'\x03{"status":"invalid_token","scope":"kafka"}'
    yield "token-rejected-twice", b'\x03{"status":"invalid_token"}' + SEPARATOR


def functions() -> Iterable[FunctionType]:
    """Return the functions of the mechanisms."""
    return functions_of(credentials, plain, scram, oauthbearer)


TARGET = Target(run, subject, len, seeds, functions)
