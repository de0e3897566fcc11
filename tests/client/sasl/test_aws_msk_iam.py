"""Tests of AWS_MSK_IAM: tokens equal to those of Amazon's signer, credentials, regions."""

from __future__ import annotations

import asyncio
import logging
import random
import string
import traceback
from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aws_msk_iam_sasl_signer.MSKAuthTokenProvider as amazon_signer
import botocore.auth
import botocore.exceptions
import botocore.session
import pytest
import pytest_asyncio
from botocore.credentials import CredentialProvider, Credentials

from kafka_async.client.client import Client
from kafka_async.client.metadata.request_router import AnyBroker
from kafka_async.client.security.sasl.aws_msk_iam import (
    AwsCredentials,
    AwsMskIam,
    MskIamTokens,
    presigned_token,
    region_of,
)
from kafka_async.client.security.sasl.mechanism import SaslMechanism
from kafka_async.client.security.token_source import token_source
from kafka_async.config import ClientConfig
from kafka_async.embedded import EmbeddedCluster, Listener
from kafka_async.errors import (
    InvalidConfigurationError,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationError,
)
from kafka_async.foundation.clock import LoopClock
from kafka_async.foundation.supervisor import Supervisor
from kafka_async.hooks import Authenticated
from kafka_async.protocol.messages.metadata import MetadataRequest
from kafka_async.secrets import Secret
from kafka_async.types import Token
from tests.rows import row

MSK = "b-1.demo.abc123.c2.kafka.eu-west-3.amazonaws.com:9098"
SECRET_KEY, SESSION_TOKEN = "planted/secret+key", "planted/session+token=="
CHARACTERS = string.ascii_letters + string.digits + "+/="
REGIONS = ["us-east-1", "eu-central-1", "ap-southeast-2", "cn-north-1", "us-gov-west-1"]


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Give AWS an empty configuration, and no network."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return monkeypatch


@pytest.fixture
def keys(environment: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Put credentials into the environment."""
    environment.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    environment.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    environment.setenv("AWS_SESSION_TOKEN", SESSION_TOKEN)
    return environment


@pytest_asyncio.fixture
async def supervisor() -> AsyncIterator[Supervisor]:
    started = Supervisor("test")
    await started.start()
    yield started
    await started.stop()


def provider_of(supervisor: Supervisor, server: str = MSK) -> MskIamTokens:
    config = ClientConfig(server, security_protocol="SASL_SSL", sasl_mechanism="AWS_MSK_IAM")
    AwsMskIam().check(config)
    return MskIamTokens(config, supervisor.offload, LoopClock(supervisor.loop), "kafka-async/test")


def url_of(token: Token) -> str:
    value = token.value.reveal()
    return urlsafe_b64decode(value + "=" * (-len(value) % 4)).decode()


def fields_of(token: Token) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(url_of(token)).query).items()}


# --- Tokens --------------------------------------------------------------------------------------


def fixed(credentials: Credentials) -> CredentialProvider:
    """Return a provider that gives Amazon's signer credentials."""
    provider = CredentialProvider()
    provider.__dict__["load"] = lambda: credentials
    return provider


def text(rng: random.Random, length: int) -> str:
    return "".join(rng.choices(CHARACTERS, k=length))


def test_tokens_are_those_of_amazons_signer(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(100):
        with row(seed):
            check_tokens_are_those_of_amazons_signer(seed, monkeypatch)


def check_tokens_are_those_of_amazons_signer(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    region = rng.choice(REGIONS)
    access_key = text(rng, rng.randint(16, 40)).replace("=", "A")
    secret_key = text(rng, rng.randint(1, 60))
    session_token = text(rng, rng.randint(100, 900)) if rng.random() < 0.7 else None
    now = rng.uniform(1e9, 4e9)

    def frozen(remove_tzinfo: bool = True) -> datetime:
        time = datetime.fromtimestamp(now, UTC)
        return time.replace(tzinfo=None) if remove_tzinfo else time

    monkeypatch.setattr(botocore.auth, "get_current_datetime", frozen)
    signer: Any = amazon_signer
    expected, expires_at_ms = signer.generate_auth_token_from_credentials_provider(
        region, fixed(Credentials(access_key, secret_key, session_token))
    )
    credentials = AwsCredentials(
        access_key, Secret(secret_key), None if session_token is None else Secret(session_token)
    )
    user_agent: str = signer.__dict__["__get_user_agent__"]()
    token = presigned_token(credentials, region, now, user_agent)
    assert token.value.reveal() == expected
    assert token.expires_at == expires_at_ms / 1000


def test_a_token_names_its_region_and_lifetime() -> None:
    token = presigned_token(AwsCredentials("AKID", Secret("s")), "us-east-1", 1e9, "kafka-async/1")
    url, fields = urlsplit(url_of(token)), fields_of(token)
    assert (url.scheme, url.netloc, url.path) == ("https", "kafka.us-east-1.amazonaws.com", "/")
    assert fields["Action"] == "kafka-cluster:Connect"
    assert fields["X-Amz-Credential"] == "AKID/20010909/us-east-1/kafka-cluster/aws4_request"
    assert fields["X-Amz-Date"] == "20010909T014640Z"
    assert fields["X-Amz-Expires"] == "900"
    assert fields["User-Agent"] == "kafka-async/1"
    assert "X-Amz-Security-Token" not in fields


# --- Options and regions -------------------------------------------------------------------------


def test_is_oauthbearer_on_the_wire() -> None:
    mechanism = AwsMskIam()
    assert isinstance(mechanism, SaslMechanism)
    assert mechanism.name == "OAUTHBEARER"
    assert mechanism.needs_tls


def test_check_refuses_another_origin_of_tokens() -> None:
    async def provider() -> Token:
        return Token("t")

    config = ClientConfig(
        MSK,
        security_protocol="SASL_SSL",
        sasl_mechanism=AwsMskIam(),
        sasl_token_provider=provider,
    )
    with pytest.raises(InvalidConfigurationError, match='sasl_mechanism="OAUTHBEARER"'):
        AwsMskIam().check(config)


@pytest.mark.parametrize(
    ("host", "region"),
    [
        ("b-1.demo.abc123.c2.kafka.us-east-1.amazonaws.com", "us-east-1"),
        ("b-1.DEMO.abc123.c2.KAFKA.US-EAST-1.amazonaws.com", "us-east-1"),
        ("boot-abc.c1.kafka-serverless.ap-southeast-2.amazonaws.com", "ap-southeast-2"),
        ("b-1.demo.abc.c3.kafka.us-gov-west-1.amazonaws.com", "us-gov-west-1"),
        ("b-1.demo.abc.c3.kafka.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("kafka.example.com", None),
        ("kafka.us-east-1.amazonaws.com.example.com", None),
        ("10.0.0.1", None),
    ],
)
def test_finds_the_region_in_the_host_name(host: str, region: str | None) -> None:
    assert region_of(("10.0.0.1:9098", f"{host}:9098")) == region


@pytest.mark.asyncio
async def test_the_environment_names_the_region_of_other_hosts(
    keys: pytest.MonkeyPatch, supervisor: Supervisor, tmp_path: Path
) -> None:
    provider = provider_of(supervisor, "kafka.example.com:9098")
    with pytest.raises(SaslAuthenticationError, match="set AWS_REGION"):
        await provider()
    (tmp_path / "config").write_text("[default]\nregion = sa-east-1\n")
    provider = provider_of(supervisor, "kafka.example.com:9098")
    assert "/sa-east-1/" in fields_of(await provider())["X-Amz-Credential"]
    keys.setenv("AWS_REGION", "us-west-2")
    assert "/us-west-2/" in fields_of(await provider())["X-Amz-Credential"]
    keys.setenv("AWS_REGION", "evil.example.com/")
    with pytest.raises(SaslAuthenticationError, match="region is unknown"):
        await provider()


# --- Credentials ---------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_a_token_source_signs_with_the_credentials_of_the_environment(
    keys: pytest.MonkeyPatch, supervisor: Supervisor
) -> None:
    config = ClientConfig(MSK, security_protocol="SASL_SSL", sasl_mechanism="AWS_MSK_IAM")
    source = token_source(config, supervisor, LoopClock(supervisor.loop))
    assert source is not None
    token = await source.token()
    fields = fields_of(token)
    assert fields["X-Amz-Credential"].startswith("AKIDEXAMPLE/")
    assert fields["X-Amz-Credential"].split("/")[2] == "eu-west-3"
    assert fields["X-Amz-Security-Token"] == SESSION_TOKEN
    assert fields["User-Agent"].startswith("kafka-async/")
    assert await source.token() is token


@pytest.mark.asyncio
async def test_credentials_that_botocore_renews_are_read_for_each_token(
    environment: pytest.MonkeyPatch, supervisor: Supervisor
) -> None:
    class Renewed:
        number = 0

        def get_frozen_credentials(self) -> Credentials:
            self.number += 1
            return Credentials(f"AKID{self.number}", "secret", "token")

    renewed = Renewed()

    def get_credentials(session: object) -> Renewed:
        return renewed

    environment.setattr(botocore.session.Session, "get_credentials", get_credentials)
    provider = provider_of(supervisor)
    found = [fields_of(await provider())["X-Amz-Credential"].split("/")[0] for _ in range(2)]
    assert found == ["AKID1", "AKID2"]


@pytest.mark.asyncio
async def test_names_what_to_set_without_credentials(
    environment: pytest.MonkeyPatch, supervisor: Supervisor
) -> None:
    with pytest.raises(SaslAuthenticationError, match="AWS_ACCESS_KEY_ID"):
        await provider_of(supervisor)()


@pytest.mark.asyncio
async def test_names_a_profile_that_does_not_exist(
    environment: pytest.MonkeyPatch, supervisor: Supervisor
) -> None:
    environment.setenv("AWS_PROFILE", "missing")
    with pytest.raises(SaslAuthenticationError, match=r"profile \(missing\) could not be found"):
        await provider_of(supervisor)()


@pytest.mark.asyncio
async def test_names_the_package_to_install(
    environment: pytest.MonkeyPatch, supervisor: Supervisor
) -> None:
    environment.setitem(__import__("sys").modules, "botocore.session", None)
    with pytest.raises(SaslAuthenticationError, match="the extra msk: pip install"):
        await provider_of(supervisor)()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (botocore.exceptions.ConnectTimeoutError(endpoint_url="u"), KafkaConnectionError),
        (botocore.exceptions.EndpointConnectionError(endpoint_url="u"), KafkaConnectionError),
        (
            botocore.exceptions.CredentialRetrievalError(provider="p", error_msg=SECRET_KEY),
            SaslAuthenticationError,
        ),
        (RuntimeError(SECRET_KEY), SaslAuthenticationError),
    ],
)
async def test_failures_of_botocore_show_no_secret(
    environment: pytest.MonkeyPatch,
    supervisor: Supervisor,
    error: Exception,
    expected: type[KafkaError],
) -> None:
    def get_credentials(session: object) -> object:
        raise error

    environment.setattr(botocore.session.Session, "get_credentials", get_credentials)
    with pytest.raises(expected, match=type(error).__name__) as raised:
        await provider_of(supervisor)()
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None
    shown = traceback.TracebackException.from_exception(raised.value, capture_locals=True)
    product = [str(frame.locals) for frame in shown.stack if "/kafka_async/" in frame.filename]
    assert product
    assert SECRET_KEY not in f"{raised.value}{product}"


@pytest.mark.asyncio
async def test_logs_show_no_secret(
    keys: pytest.MonkeyPatch, supervisor: Supervisor, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    logger = logging.getLogger("botocore.parsers")
    original: Any = botocore.session.Session.get_credentials

    def get_credentials(session: object) -> object:
        logger.debug("Response body: %s", SECRET_KEY)
        logger.warning("something is wrong")
        return original(session)

    keys.setattr(botocore.session.Session, "get_credentials", get_credentials)
    token = await provider_of(supervisor)()
    logger.debug("after the call")
    assert "something is wrong" in caplog.text
    assert "after the call" in caplog.text
    for secret in (SECRET_KEY, SESSION_TOKEN, token.value.reveal()):
        assert secret not in caplog.text


# -- against a broker -----------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_connects_and_authenticates_again_before_a_session_ends(
    keys: pytest.MonkeyPatch,
) -> None:
    """As at MSK, the mechanism on the wire is OAUTHBEARER and the token names the access key."""
    keys.setenv("AWS_REGION", "eu-west-3")
    tokens: list[str] = []

    def validate(token: str) -> tuple[str, float | None]:
        query = parse_qs(urlsplit(urlsafe_b64decode(token + "==").decode()).query)
        assert query["Action"] == ["kafka-cluster:Connect"]
        tokens.append(query["X-Amz-Credential"][0].partition("/")[0])
        return tokens[-1], None

    listener = Listener(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanisms=("OAUTHBEARER",),
        oauthbearer=validate,
        connections_max_reauth_ms=2_000,
    )
    again = asyncio.Event()

    def observe(event: Authenticated) -> None:
        if event.reauthentication:
            again.set()

    async with (
        EmbeddedCluster(1, listeners={"MSK": listener}) as cluster,
        Client(
            cluster.bootstrap_servers,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="AWS_MSK_IAM",
            sasl_allow_plaintext=True,
        ) as client,
    ):
        client.hooks.listen(Authenticated, observe)
        await client.request(MetadataRequest(topics=None), to=AnyBroker())
        await asyncio.wait_for(again.wait(), 30)
        await client.request(MetadataRequest(topics=None), to=AnyBroker())
    assert set(tokens) == {"AKIDEXAMPLE"}
    assert len(tokens) >= 2
