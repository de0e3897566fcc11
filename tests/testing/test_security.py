"""Properties of secure listeners."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_async.testing.backends.nodes import Node
from kafka_async.testing.backends.security import (
    ClusterSecurity,
    SecureListener,
    TokenIssuer,
    address_settings,
    allowed_urls_option,
    scram_arguments,
    security_settings,
    split_key,
)

KEY = "-----BEGIN PRIVATE KEY-----\nkey\n-----END PRIVATE KEY-----\n"
CHAIN = "-----BEGIN CERTIFICATE-----\nchain\n-----END CERTIFICATE-----\n"
ISSUER = TokenIssuer(
    issuer="https://issuer",
    audience="kafka",
    jwks_url="file:///keys.json",
    validate=lambda token: (token, None),
)


def test_maps_listeners_to_protocols_and_enables_the_authorizer() -> None:
    listeners = {"TLS": SecureListener(security_protocol="SSL", certificate=KEY + CHAIN)}
    security = ClusterSecurity(listeners=listeners, super_users=["User:admin"])
    settings = security_settings(security)
    mapped = settings["listener.security.protocol.map"].split(",")
    assert mapped == ["PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT", "TLS:SSL"]
    assert settings["super.users"] == "User:ANONYMOUS;User:admin"
    assert settings["listener.name.tls.ssl.keystore.key"] == KEY
    assert settings["listener.name.tls.ssl.keystore.certificate.chain"] == CHAIN
    assert settings["listener.name.tls.ssl.client.auth"] == "none"
    assert "listener.name.tls.ssl.truststore.type" not in settings


@pytest.mark.parametrize(
    ("mechanism", "login"),
    [
        ("PLAIN", 'plain.PlainLoginModule required user_alice="a \\"b\\" \\\\";'),
        ("SCRAM-SHA-256", "scram.ScramLoginModule required;"),
        ("SCRAM-SHA-512", "scram.ScramLoginModule required;"),
        (
            "OAUTHBEARER",
            'oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";',
        ),
    ],
)
def test_configures_the_login_of_each_mechanism(mechanism: str, login: str) -> None:
    listener = SecureListener(security_protocol="SASL_PLAINTEXT", sasl_mechanisms=[mechanism])
    security = ClusterSecurity(listeners={"SASL": listener}, users={"alice": 'a "b" \\'})
    settings = security_settings(security)
    assert settings["listener.name.sasl.sasl.enabled.mechanisms"] == mechanism
    key = f"listener.name.sasl.{mechanism.lower()}.sasl.jaas.config"
    assert settings[key] == f"org.apache.kafka.common.security.{login}"


def test_validates_tokens_with_the_keys_of_their_issuer() -> None:
    listener = SecureListener(
        security_protocol="SASL_PLAINTEXT", sasl_mechanisms=["OAUTHBEARER"], token_issuer=ISSUER
    )
    security = ClusterSecurity(listeners={"OIDC": listener})
    settings = security_settings(security)
    prefix = "listener.name.oidc."
    assert settings[f"{prefix}sasl.oauthbearer.jwks.endpoint.url"] == ISSUER.jwks_url
    login = settings[f"{prefix}oauthbearer.sasl.jaas.config"]
    assert login.endswith("OAuthBearerLoginModule required;")
    assert allowed_urls_option(security) == [
        "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file:///keys.json"
    ]
    assert allowed_urls_option(ClusterSecurity(listeners={})) == []


def test_lists_the_addresses_of_a_node() -> None:
    settings = address_settings({"PLAINTEXT": 1, "TLS": 2}, "127.0.0.1:3")
    clients = "PLAINTEXT://127.0.0.1:1,TLS://127.0.0.1:2"
    assert settings["advertised.listeners"] == clients
    assert settings["listeners"] == f"{clients},CONTROLLER://127.0.0.1:3"


def test_creates_each_user_for_both_scram_mechanisms() -> None:
    assert scram_arguments({"alice": "secret"}) == [
        "--add-scram=SCRAM-SHA-256=[name=alice,password=secret]",
        "--add-scram=SCRAM-SHA-512=[name=alice,password=secret]",
    ]


def test_splits_pem_text_with_the_key_at_either_end() -> None:
    assert split_key(KEY + CHAIN) == split_key(CHAIN + KEY) == (KEY, CHAIN)


def test_passwords_and_keys_are_not_in_the_repr() -> None:
    listener = SecureListener(security_protocol="SSL", certificate=KEY + CHAIN)
    security = ClusterSecurity(
        listeners={"TLS": listener}, users={"alice": "a-secret"}, delegation_token_key="a-secret"
    )
    assert "a-secret" not in repr(security)
    assert KEY not in repr(security)


def test_escapes_values_of_properties(tmp_path: Path) -> None:
    Node(1, 19092, tmp_path, ["java"], {"b": "x\ny\\z\u00fc\U0001f600"})
    text = (tmp_path / "server.properties").read_text()
    assert text.startswith("b=x\\ny\\\\z\\u00fc\\ud83d\\ude00\n")
