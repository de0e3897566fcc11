"""Tests of the mechanism PLAIN."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.client.security.sasl import mechanism_for
from kafka_async.client.security.sasl.mechanism import SaslContext
from kafka_async.client.security.sasl.plain import Plain
from kafka_async.config import ClientConfig
from kafka_async.errors import InvalidConfigurationError
from kafka_async.secrets import Secret, SecretBytes

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


def config(**options: Any) -> ClientConfig:
    given: dict[str, Any] = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "tim",
        "sasl_password": "tanstaaftanstaaf",
    }
    return ClientConfig("b1:9092", **(given | options))


def context(username: str, password: str) -> SaslContext:
    return SaslContext(config(), username, Secret(password), "b1", 9092)


def messages(username: str, password: str) -> list[bytes]:
    """Return what the client sends to a broker that accepts it."""
    sent: list[bytes] = []
    exchange = Plain().authenticate(context(username, password))
    try:
        step = next(exchange)
        while True:
            assert isinstance(step, SecretBytes)
            sent.append(step.reveal())
            step = exchange.send(b"")
    except StopIteration:
        return sent


def test_sends_the_message_of_rfc_4616() -> None:
    assert messages("tim", "tanstaaftanstaaf") == [b"\0tim\0tanstaaftanstaaf"]


@given(TEXT, TEXT)
def test_sends_any_text_as_utf8(username: str, password: str) -> None:
    (message,) = messages(username, password)
    assert message.split(b"\0") == [b"", username.encode(), password.encode()]


def test_message_and_context_are_not_shown() -> None:
    found = context("tim", "tanstaaftanstaaf")
    exchange = Plain().authenticate(found)
    assert "tanstaaf" not in repr((found, next(exchange)))


@pytest.mark.parametrize("text", ["a\0b", "\ud800", ""])
def test_refuses_text_that_cannot_be_sent_without_showing_it(text: str) -> None:
    exchange = Plain().authenticate(context("tim", text))
    with pytest.raises(InvalidConfigurationError, match="sasl_password") as raised:
        next(exchange)
    assert raised.value.__context__ is None
    with pytest.raises(InvalidConfigurationError, match="sasl_username"):
        next(Plain().authenticate(context(text, "tanstaaftanstaaf")))


def test_one_mechanism_is_found_for_each_name() -> None:
    for name in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        found = mechanism_for(config(sasl_mechanism=name))
        assert found is not None
        assert found.name == name
        assert found.needs_tls


def test_no_mechanism_without_sasl() -> None:
    assert mechanism_for(ClientConfig("b1:9092")) is None
