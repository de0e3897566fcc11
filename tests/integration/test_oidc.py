"""OAUTHBEARER with tokens of an OpenID Connect issuer, which brokers check by its public keys."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from kafka_async import Client, Consumer, Producer, Token
from kafka_async.errors import SaslAuthenticationError
from kafka_async.hooks import Authenticated, Hooks
from tests.client.issuer import Received, Respond, answer, issuer
from tests.integration import tokens
from tests.integration.helpers import create_topic, read_values
from tests.integration.secure_cluster import ADMIN

if TYPE_CHECKING:
    from asyncio import StreamWriter
    from collections.abc import Mapping
    from pathlib import Path

    from tests.client.issuer import Issuer
    from tests.integration.secure_cluster import SecureCluster

pytestmark = pytest.mark.asyncio

CLIENT_ID, CLIENT_SECRET = "the-client", "the-client-secret"


def grants(
    cluster: SecureCluster,
    lifetime: float = tokens.LIFETIME,
    claims: Mapping[str, object] | None = None,
) -> Respond:
    """Return a response with a new token of the user "admin" for each request."""

    async def respond(request: Received, writer: StreamWriter) -> None:
        token = cluster.issuer.issue(ADMIN, lifetime, **claims or {})
        # A second less, since the times in the token are whole seconds.
        body = {"access_token": token, "expires_in": int(lifetime) - 1, "token_type": "Bearer"}
        await answer(200, json.dumps(body))(request, writer)

    return respond


def options_with(cluster: SecureCluster, endpoint: Issuer, **changed: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.servers("OIDC"),
        "security_protocol": "SASL_SSL",
        "ssl_cafile": cluster.certificates.cafile,
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": endpoint.url,
        "sasl_oauthbearer_client_credentials_client_id": CLIENT_ID,
        "sasl_oauthbearer_client_credentials_client_secret": CLIENT_SECRET,
        "sasl_oauthbearer_scope": "produce consume",
        **changed,
    }


async def test_clients_with_client_credentials_send_and_read(
    secure_cluster: SecureCluster,
) -> None:
    topic = await create_topic(secure_cluster.handle)
    async with issuer(secure_cluster.certificates.authority, grants(secure_cluster)) as endpoint:
        client = Client(**options_with(secure_cluster, endpoint))
        async with (
            client,
            Producer(client) as producer,
            Consumer(client, topics=[topic], auto_offset_reset="earliest") as consumer,
        ):
            await producer.send(topic, b"value")
            [record] = await consumer.poll(timeout=30)
    assert record.value == b"value"
    [request] = endpoint.requests
    assert request.form == {"grant_type": ["client_credentials"], "scope": ["produce consume"]}


async def test_client_with_a_signed_assertion_sends(
    secure_cluster: SecureCluster, tmp_path: Path
) -> None:
    topic = await create_topic(secure_cluster.handle)
    key = rsa.generate_private_key(65537, 2048)
    path = tmp_path / "assertion.pem"
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    assertion = {
        "sasl_oauthbearer_client_credentials_client_id": None,
        "sasl_oauthbearer_client_credentials_client_secret": None,
        "sasl_oauthbearer_jwt_retriever": "jwt_bearer",
        "sasl_oauthbearer_assertion_private_key_file": str(path),
        "sasl_oauthbearer_assertion_algorithm": "RS256",
        "sasl_oauthbearer_assertion_claim_iss": CLIENT_ID,
        "sasl_oauthbearer_assertion_claim_aud": "https://issuer.test",
    }
    async with (
        issuer(secure_cluster.certificates.authority, grants(secure_cluster)) as endpoint,
        Producer(**options_with(secure_cluster, endpoint, **assertion)) as producer,
    ):
        await producer.send(topic, b"value")
    assert await read_values(secure_cluster.handle, topic) == [b"value"]
    [request] = endpoint.requests
    assert "assertion" in request.form


async def test_sends_while_tokens_expire(secure_cluster: SecureCluster) -> None:
    """Checks sessions that end with their tokens, each of which lives for a few seconds."""
    topic, hooks = await create_topic(secure_cluster.handle), Hooks()
    renewed = asyncio.Event()
    hooks.listen(Authenticated, lambda event: renewed.set() if event.reauthentication else None)
    values: list[bytes] = []
    async with issuer(secure_cluster.certificates.authority, grants(secure_cluster, 6)) as endpoint:
        options = options_with(secure_cluster, endpoint)
        async with Producer(**options, hooks=hooks) as producer, asyncio.timeout(60):
            while not renewed.is_set():
                values.append(b"%d" % len(values))
                await producer.send(topic, values[-1])
                await asyncio.sleep(0.01)
            await producer.send(topic, b"last")
    assert len(endpoint.requests) > 1
    assert await read_values(secure_cluster.handle, topic) == [*values, b"last"]


@pytest.mark.parametrize(
    "claims",
    [{"aud": "another audience"}, {"iss": "https://another.test"}, {"exp": 1_000_000_000}],
    ids=lambda claims: next(iter(claims)),
)
async def test_brokers_reject_tokens_with_a_wrong_claim(
    secure_cluster: SecureCluster, claims: dict[str, object]
) -> None:
    grant = grants(secure_cluster, claims=claims)
    async with issuer(secure_cluster.certificates.authority, grant) as endpoint:
        client = Client(**options_with(secure_cluster, endpoint))
        with pytest.raises(SaslAuthenticationError, match="issuer, audience") as raised:
            async with asyncio.timeout(5):
                await client.start()
    assert len(endpoint.requests) <= 2
    assert CLIENT_SECRET not in repr(raised.value)


async def test_brokers_reject_tokens_of_another_key(secure_cluster: SecureCluster) -> None:
    known = secure_cluster.issuer
    other = tokens.Issuer(known.name, known.audience)

    async def provide() -> Token:
        return Token(other.issue(ADMIN))

    options = secure_cluster.options("OIDC", "OAUTHBEARER", sasl_token_provider=provide)
    with pytest.raises(SaslAuthenticationError, match="sasl_token_provider"):
        await Client(**options).start()
