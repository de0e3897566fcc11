"""Tests of OAUTHBEARER: its messages, what it validates, and hostile brokers."""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.client.security.sasl.mechanism import Await, Exchange, SaslContext, SaslMechanism
from kafka_async.client.security.sasl.oauthbearer import OAuthBearer, initial_response
from kafka_async.config import ClientConfig
from kafka_async.errors import InvalidConfigurationError, SaslAuthenticationError
from kafka_async.secrets import SecretBytes
from kafka_async.types import Token

TOKEN = Token("planted.token-value_1")


class FixedTokens:
    """Returns one token, and records rejections."""

    purpose = "sasl_token_provider"

    def __init__(self, token: Token = TOKEN) -> None:
        self.current = token
        self.rejected: list[Token] = []

    async def token(self) -> Token:
        return self.current

    def reject(self, token: Token) -> None:
        self.rejected.append(token)


async def provider() -> Token:
    return TOKEN


def begin(tokens: FixedTokens) -> tuple[Exchange, SecretBytes]:
    """Start an exchange; return it and its first message."""
    config = ClientConfig("localhost:9092")
    exchange = OAuthBearer().authenticate(
        SaslContext(config, None, None, "broker1", 9093, tokens=tokens)
    )
    step = next(exchange)
    assert step == Await(tokens.token, "sasl_token_provider")
    message = exchange.send(tokens.current)
    assert isinstance(message, SecretBytes)
    return exchange, message


def reject_with(response: bytes, tokens: FixedTokens | None = None) -> SaslAuthenticationError:
    """Let a broker answer the token with `response`; return the error of the exchange."""
    exchange, _ = begin(tokens or FixedTokens())
    acknowledgement = exchange.send(response)
    assert isinstance(acknowledgement, SecretBytes)
    assert acknowledgement.reveal() == b"\x01"
    with pytest.raises(SaslAuthenticationError) as raised:
        exchange.send(b"")
    return raised.value


def test_satisfies_the_interface() -> None:
    assert isinstance(OAuthBearer(), SaslMechanism)


def test_ends_after_an_empty_response() -> None:
    tokens = FixedTokens()
    exchange, message = begin(tokens)
    assert message.reveal() == b"n,,\x01auth=Bearer planted.token-value_1\x01\x01"
    with pytest.raises(StopIteration):
        exchange.send(b"")
    assert tokens.rejected == []


def test_sends_extensions_in_their_order() -> None:
    token = Token("t", extensions={"logicalCluster": "lkc-1", "identityPoolId": "pool 2"})
    assert initial_response(token, "p").reveal() == (
        b"n,,\x01auth=Bearer t\x01logicalCluster=lkc-1\x01identityPoolId=pool 2\x01\x01"
    )


def config_with(**options: Any) -> ClientConfig:
    """Return the options of a client that authenticates by OAUTHBEARER."""
    return ClientConfig(
        "localhost:9092", security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", **options
    )


@pytest.mark.parametrize(
    ("extensions", "match"),
    [
        ({"auth": "Bearer other"}, "reserved"),
        ({"a1": "x"}, "letters"),
        ({"": "x"}, "letters"),
        ({"a=b": "x"}, "letters"),
        ({"name\n": "x"}, "letters"),
        ({"name": ""}, "at least one"),
        ({"name": "a\x01auth=Bearer other"}, "printable"),
        ({"name": "\u00e4"}, "printable"),
        ({"name": 5}, "must be a str"),
    ],
)
def test_refuses_extensions_that_brokers_refuse(extensions: Mapping[str, str], match: str) -> None:
    with pytest.raises(SaslAuthenticationError, match=match):
        initial_response(Token("t", extensions=extensions), "p")
    config = config_with(sasl_token_provider=provider, sasl_oauthbearer_extensions=extensions)
    with pytest.raises(InvalidConfigurationError, match=match):
        OAuthBearer().check(config)


@pytest.mark.parametrize("value", ["", "a b", "a\x01b", "a\n", '"a"', "\u00e4", "=", "a=b"])
def test_refuses_a_token_that_would_change_the_message(value: str) -> None:
    with pytest.raises(SaslAuthenticationError, match="RFC 6750"):
        initial_response(Token(value), "p")


@given(st.text())
def test_a_message_has_one_token_whatever_the_provider_returns(value: str) -> None:
    try:
        message = initial_response(Token(value), "p").reveal()
    except SaslAuthenticationError:
        return
    assert message == b"n,,\x01auth=Bearer " + value.encode() + b"\x01\x01"
    assert message.count(b"\x01") == 3


def test_check_requires_an_origin_of_tokens() -> None:
    with pytest.raises(InvalidConfigurationError, match="sasl_token_provider"):
        OAuthBearer().check(config_with())
    OAuthBearer().check(config_with(sasl_token_provider=provider))


def test_reports_why_the_broker_rejected_the_token() -> None:
    tokens = FixedTokens()
    response = b'{"status":"invalid_token", "scope":"kafka", "openid-configuration":"https://i"}'
    text = str(reject_with(response, tokens))
    assert "broker1:9093 rejected the token of sasl_token_provider" in text
    assert "'status invalid_token, scope kafka, openid-configuration https://i'" in text
    assert "issuer, audience, scope and expiry" in text
    assert tokens.rejected == [TOKEN]


def test_reports_the_reason_when_the_broker_ends_with_an_error() -> None:
    exchange, _ = begin(FixedTokens())
    exchange.send(b'{"status":"invalid_token"}')
    ended = SaslAuthenticationError("the broker's message")
    with pytest.raises(SaslAuthenticationError, match="status invalid_token") as raised:
        exchange.throw(ended)
    assert raised.value.__cause__ is ended


@pytest.mark.parametrize(
    ("response", "shown"),
    [
        (b"\xff\xfe\x00", "\\x00"),
        (b"[" * 100_000, "[[["),
        (b"null", "'null'"),
        (b'{"status": {"a": [1]}}', "status {"),
        (b'{"status": "a\\r\\nWARNING forged log line"}', "a\\r\\nWARNING"),
        (b'{"status": "\\u001b[2J"}', "\\x1b[2J"),
        (b"{}", "'{}'"),
        (b'{"status":"' + b"x" * 1_000_000 + b'"}', "xxx"),
    ],
)
def test_hostile_rejections_are_bounded_and_printable(response: bytes, shown: str) -> None:
    text = str(reject_with(response))
    assert shown in text
    assert len(text) < 1_000
    assert text.isprintable()


@pytest.mark.parametrize("as_json", [False, True])
def test_a_broker_that_repeats_the_token_does_not_show_it(as_json: bool) -> None:
    text = f"bad token: {TOKEN.value.reveal()}"
    error = reject_with((json.dumps({"status": text}) if as_json else text).encode())
    shown = traceback.TracebackException.from_exception(error, capture_locals=True)
    product = [frame for frame in shown.stack if "/kafka_async/" in frame.filename]
    assert product
    text = str(error) + "".join(str(frame.locals) for frame in product)
    assert "planted" not in text
    assert "bad token: ***" in text
