"""Tests of the requests for tokens, with an issuer on https in this process."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import socket
import traceback
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

from kafka_async.client.security import oidc
from kafka_async.client.security.oidc import ALLOWED_URLS, MAX_RESPONSE_SIZE, TokenEndpoint
from kafka_async.client.security.sasl.oauthbearer import OAuthBearer
from kafka_async.client.security.token_errors import TokenEndpointUnreachableError
from kafka_async.client.security.token_source import token_source
from kafka_async.config import ClientConfig
from kafka_async.errors import (
    InvalidConfigurationError,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationError,
)
from kafka_async.foundation.clock import LoopClock
from kafka_async.foundation.supervisor import Supervisor
from kafka_async.types import Token
from tests.client.issuer import Respond, answer, drop, flood, hang, issuer
from tests.integration.certificates import Authority

SECRET = "planted-client-secret"
TOKEN = "planted-access-token"
GRANTED = answer(200, json.dumps({"access_token": TOKEN, "expires_in": 600}))


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest_asyncio.fixture
async def supervisor() -> AsyncIterator[Supervisor]:
    started = Supervisor("test")
    await started.start()
    yield started
    await started.stop()


def config_with(**options: Any) -> ClientConfig:
    """Return the options of a client that authenticates by OAUTHBEARER."""
    given: dict[str, Any] = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "OAUTHBEARER",
        **options,
    }
    return ClientConfig("localhost:9092", **given)


def client_credentials(url: str, **options: Any) -> ClientConfig:
    given: dict[str, Any] = {
        "sasl_oauthbearer_token_endpoint_url": url,
        "sasl_oauthbearer_client_credentials_client_id": "client",
        "sasl_oauthbearer_client_credentials_client_secret": SECRET,
        **options,
    }
    config = config_with(**given)
    OAuthBearer().check(config)
    return config


Fetch = Callable[..., Any]


@pytest.fixture
def fetch(supervisor: Supervisor, authority: Authority) -> Fetch:
    """Return a function that requests a token from a URL, trusting the authority."""

    async def request(url: str, **options: Any) -> Token:
        config = client_credentials(url, **{"ssl_cafile": authority.pem, **options})
        return await TokenEndpoint(config, supervisor.offload, LoopClock(supervisor.loop))()

    return request


async def failure(
    fetch: Fetch, authority: Authority, *answers: Respond, **options: Any
) -> KafkaError:
    """Return the error for an issuer's answers, which shows no secret."""
    async with issuer(authority, *answers) as server:
        with pytest.raises(KafkaError) as raised:
            await fetch(server.url, **options)
    assert_hidden(raised.value)
    return raised.value


def assert_hidden(error: BaseException) -> None:
    """Search an error and the frames of the product for secrets, with contexts that are hidden."""
    found: list[BaseException] = [error]
    for one in found:
        found += [each for each in (one.__cause__, one.__context__) if each is not None]
        shown = traceback.TracebackException.from_exception(one, capture_locals=True)
        frames = [each for each in shown.stack if "/tests/" not in each.filename]
        text = f"{one!r}{[each.locals for each in frames]}"
        encoded = base64.b64encode(f"client:{SECRET}".encode()).decode()
        for secret in (SECRET, TOKEN, encoded):
            assert secret not in text


# --- Client credentials --------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_requests_a_token_with_client_credentials(
    fetch: Fetch, authority: Authority, supervisor: Supervisor
) -> None:
    clock = LoopClock(supervisor.loop)
    async with issuer(authority, GRANTED) as server:
        before = clock.wall()
        token = await fetch(
            server.url,
            sasl_oauthbearer_scope="kafka read",
            sasl_oauthbearer_extensions={"logicalCluster": "lkc-1"},
        )
        after = clock.wall()
    [request] = server.requests
    assert request.line == "POST /oauth2/token HTTP/1.1"
    assert request.form == {"grant_type": ["client_credentials"], "scope": ["kafka read"]}
    encoded = base64.b64encode(f"client:{SECRET}".encode()).decode()
    assert request.headers["authorization"] == f"Basic {encoded}"
    assert request.headers["accept"] == "application/json"
    assert token.value.reveal() == TOKEN
    assert token.expires_at is not None
    assert before + 600 <= token.expires_at <= after + 600
    assert token.extensions == {"logicalCluster": "lkc-1"}


@pytest.mark.asyncio
async def test_a_token_source_uses_the_endpoint(
    supervisor: Supervisor, authority: Authority
) -> None:
    async with issuer(authority, GRANTED) as server:
        config = client_credentials(server.url, ssl_cafile=authority.pem)
        source = token_source(config, supervisor, LoopClock(supervisor.loop))
        assert source is not None
        for _ in range(3):
            assert (await source.token()).value.reveal() == TOKEN
    assert len(server.requests) == 1


@pytest.mark.asyncio
@pytest.mark.parametrize("form", ["path", "one line"])
async def test_trusts_certificate_authorities_as_for_brokers(
    fetch: Fetch, authority: Authority, tmp_path: Path, form: str
) -> None:
    path = tmp_path / "ca.pem"
    path.write_text(authority.pem)
    cafile = str(path) if form == "path" else " ".join(authority.pem.split("\n"))
    async with issuer(authority, GRANTED) as server:
        assert (await fetch(server.url, ssl_cafile=cafile)).value.reveal() == TOKEN


def unsigned(claims: dict[str, Any]) -> str:
    encoded = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{encoded}.c2ln"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("fields", "expires_at"),
    [
        ({"access_token": unsigned({"exp": 4e9})}, 4e9),
        ({"access_token": unsigned({"exp": 4e9}), "expires_in": "x"}, 4e9),
        ({"access_token": unsigned({"exp": 4e9}), "expires_in": 1e300}, 4e9),
        ({"access_token": unsigned({"exp": 4e9}), "expires_in": float("nan")}, 4e9),
        ({"access_token": unsigned({"exp": "soon"})}, None),
        ({"access_token": "a.!.c"}, None),
        ({"access_token": "a.b.c"}, None),
        ({"access_token": "opaque", "expires_in": True}, None),
        ({"access_token": "opaque", "expires_in": -1}, None),
    ],
)
async def test_finds_the_expiry_in_the_token_if_the_response_has_none(
    fetch: Fetch, authority: Authority, fields: dict[str, Any], expires_at: float | None
) -> None:
    async with issuer(authority, answer(200, json.dumps(fields))) as server:
        assert (await fetch(server.url)).expires_at == expires_at


# --- JWT bearer ----------------------------------------------------------------------------------


def write_key(path: Path, key: Any, passphrase: str | None) -> None:
    encryption = (
        NoEncryption() if passphrase is None else BestAvailableEncryption(passphrase.encode())
    )
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))


def jwt_bearer(path: Path, algorithm: str, **options: Any) -> dict[str, Any]:
    return {
        "sasl_oauthbearer_jwt_retriever": "jwt_bearer",
        "sasl_oauthbearer_assertion_private_key_file": str(path),
        "sasl_oauthbearer_assertion_algorithm": algorithm,
        "sasl_oauthbearer_assertion_claim_iss": "issuer",
        "sasl_oauthbearer_assertion_claim_sub": "subject",
        "sasl_oauthbearer_assertion_claim_aud": "https://audience",
        **options,
    }


@pytest.mark.asyncio
@pytest.mark.parametrize("passphrase", [None, "planted-passphrase"])
@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
async def test_requests_a_token_with_a_signed_assertion(
    fetch: Fetch,
    authority: Authority,
    supervisor: Supervisor,
    tmp_path: Path,
    algorithm: str,
    passphrase: str | None,
) -> None:
    path = tmp_path / "key.pem"
    if algorithm == "RS256":
        native = rsa.generate_private_key(65537, 2048)
        public: Any = RSAKey.import_key(native.public_key())
    else:
        native = ec.generate_private_key(ec.SECP256R1())
        public = ECKey.import_key(native.public_key())
    write_key(path, native, passphrase)
    options = jwt_bearer(
        path, algorithm, sasl_oauthbearer_assertion_private_key_passphrase=passphrase
    )
    now = LoopClock(supervisor.loop).wall()
    async with issuer(authority, GRANTED) as server:
        token = await fetch(server.url, **options, sasl_oauthbearer_scope="kafka")
    assert token.value.reveal() == TOKEN
    [request] = server.requests
    assert "authorization" not in request.headers
    [assertion] = request.form.pop("assertion")
    assert request.form == {"grant_type": [oidc.JWT_BEARER], "scope": ["kafka"]}
    decoded = jwt.decode(assertion, public, algorithms=[algorithm])
    assert decoded.header["alg"] == algorithm
    claims = decoded.claims
    assert (claims["iss"], claims["sub"], claims["aud"]) == (
        "issuer",
        "subject",
        "https://audience",
    )
    assert abs(claims["iat"] - now) <= 5
    assert claims["exp"] - claims["iat"] == 300
    assert claims["iat"] - claims["nbf"] == 60
    assert claims["jti"]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("content", "passphrase", "match"),
    [
        (None, None, "cannot be read: No such file"),
        (b"planted-client-secret", None, "cannot sign an assertion"),
        ("encrypted", None, "check its passphrase"),
        ("encrypted", "planted-client-secret", "check its passphrase"),
        ("ec", None, "cannot sign an assertion with RS256"),
    ],
)
async def test_a_key_that_cannot_sign_is_reported(
    fetch: Fetch,
    authority: Authority,
    tmp_path: Path,
    content: object,
    passphrase: str | None,
    match: str,
) -> None:
    path = tmp_path / "key.pem"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content == "encrypted":
        write_key(path, rsa.generate_private_key(65537, 2048), "right")
    elif content == "ec":
        write_key(path, ec.generate_private_key(ec.SECP256R1()), None)
    options = jwt_bearer(
        path, "RS256", sasl_oauthbearer_assertion_private_key_passphrase=passphrase
    )
    error = await failure(fetch, authority, GRANTED, **options)
    assert isinstance(error, SaslAuthenticationError)
    assert match in str(error)


# --- Assertions from files -----------------------------------------------------------------------

ASSERTION = "eyJhbGciOiJSUzI1NiJ9.planted-client-secret.c2ln"


@pytest.mark.asyncio
async def test_sends_the_assertion_of_a_file_and_reads_it_again(
    supervisor: Supervisor, authority: Authority, tmp_path: Path
) -> None:
    path = tmp_path / "assertion.jwt"
    options = {
        "sasl_oauthbearer_jwt_retriever": "jwt_bearer",
        "sasl_oauthbearer_assertion_file": path,
        "ssl_cafile": authority.pem,
    }
    async with issuer(authority, GRANTED) as server:
        config = client_credentials(server.url, **options)
        endpoint = TokenEndpoint(config, supervisor.offload, LoopClock(supervisor.loop))
        path.write_text(f"{ASSERTION}\n")
        await endpoint()
        path.write_text("bmV3.bmV3.bmV3")
        await endpoint()
    sent = [request.form for request in server.requests]
    assert sent == [
        {"grant_type": [oidc.JWT_BEARER], "assertion": [ASSERTION]},
        {"grant_type": [oidc.JWT_BEARER], "assertion": ["bmV3.bmV3.bmV3"]},
    ]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("content", "match"),
    [
        (None, "cannot be read: No such file"),
        ("", "has no assertion"),
        (SECRET, "has no assertion"),
        (f"{ASSERTION}.x", "has no assertion"),
        ("a." * 40_000, "is longer than 65,536 bytes"),
        ("pipe", "is a pipe, a device or another special file"),
    ],
)
async def test_a_file_without_an_assertion_is_reported(
    fetch: Fetch, authority: Authority, tmp_path: Path, content: str | None, match: str
) -> None:
    path = tmp_path / "assertion.jwt"
    if content == "pipe":
        os.mkfifo(path)
    elif content is not None:
        path.write_text(content)
    error = await failure(
        fetch,
        authority,
        GRANTED,
        sasl_oauthbearer_jwt_retriever="jwt_bearer",
        sasl_oauthbearer_assertion_file=str(path),
    )
    assert isinstance(error, SaslAuthenticationError)
    assert f"sasl_oauthbearer_assertion_file {match}" in str(error)


def with_template(directory: Path, template: object, **options: Any) -> dict[str, Any]:
    """Return the options of a signed assertion whose template is a JSON value or text."""
    write_key(directory / "key.pem", rsa.generate_private_key(65537, 2048), None)
    path = directory / "template.json"
    path.write_text(template if isinstance(template, str) else json.dumps(template))
    return jwt_bearer(
        directory / "key.pem",
        "RS256",
        sasl_oauthbearer_assertion_template_file=path,
        **options,
    )


def decoded_part(assertion: str, index: int) -> dict[str, Any]:
    part = assertion.split(".")[index]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


@pytest.mark.asyncio
async def test_a_template_has_precedence_over_options_and_none_over_times(
    supervisor: Supervisor, authority: Authority, tmp_path: Path
) -> None:
    template = {
        "header": {"kid": "k1", "alg": "none", "typ": "x"},
        "payload": {"iss": "other", "aud": ["a", "b"], "tenant": {"id": 7}, "exp": 1, "jti": "j"},
    }
    options = with_template(tmp_path, template, ssl_cafile=authority.pem)
    async with issuer(authority, GRANTED) as server:
        config = client_credentials(server.url, **options)
        endpoint = TokenEndpoint(config, supervisor.offload, LoopClock(supervisor.loop))
        await endpoint()
        (tmp_path / "template.json").write_text('{"payload": {"iss": "newer"}}')
        await endpoint()
    first, second = (request.form["assertion"][0] for request in server.requests)
    assert decoded_part(first, 0) == {"kid": "k1", "alg": "RS256", "typ": "JWT"}
    claims = decoded_part(first, 1)
    assert claims.pop("exp") == claims["iat"] + 300 == claims.pop("nbf") + 360
    del claims["iat"]
    assert claims == {
        "iss": "other",
        "sub": "subject",
        "aud": ["a", "b"],
        "tenant": {"id": 7},
        "jti": "j",
    }
    assert decoded_part(second, 1)["iss"] == "newer"
    assert decoded_part(second, 1)["aud"] == "https://audience"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("template", "match"),
    [
        (SECRET, "is no template"),
        ("[" * 30_000, "is no template"),
        ([], "is no template"),
        ({}, "is no template"),
        ({"claims": {}}, "is no template"),
        ({"payload": []}, "is no template"),
        ({"header": {}}, "has no iss and no aud in its payload"),
        ({"payload": {"iss": "i"}}, "has no aud in its payload"),
        ({"payload": {"iss": "i", "aud": "a"}, "header": {"odd": 1}}, "for names in its header"),
    ],
)
async def test_a_template_that_cannot_be_used_is_reported(
    fetch: Fetch, authority: Authority, tmp_path: Path, template: object, match: str
) -> None:
    options = with_template(
        tmp_path,
        template,
        sasl_oauthbearer_assertion_claim_iss=None,
        sasl_oauthbearer_assertion_claim_aud=None,
    )
    error = await failure(fetch, authority, GRANTED, **options)
    assert isinstance(error, SaslAuthenticationError)
    assert f"sasl_oauthbearer_assertion_template_file {match}" in str(error)


# --- Options -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "http://issuer.example/token",
        "HTTP://issuer.example/token",
        "file:///etc/passwd",
        "ftp://issuer.example/",
        "issuer.example/token",
        "https:///token",
        "https://",
        "https://issuer.example:99999/",
        "https://[::1/token",
        "https://issuer.example/a b",
        "https://issuer.example/\n",
        "",
    ],
)
def test_only_https_urls_are_accepted(url: str) -> None:
    with pytest.raises(InvalidConfigurationError, match="must be an https URL"):
        client_credentials(url)


@pytest.mark.parametrize(
    "url", [f"https://client:{SECRET}@issuer.example/", "https://issuer.example/#x"]
)
def test_a_url_with_credentials_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(InvalidConfigurationError, match="must not have a user name") as raised:
        client_credentials(url)
    assert SECRET not in str(raised.value)


def test_names_the_options_that_the_grant_needs() -> None:
    url = "https://issuer.example/token"
    with pytest.raises(InvalidConfigurationError, match=r"_client_id and .*_client_secret"):
        OAuthBearer().check(config_with(sasl_oauthbearer_token_endpoint_url=url))
    with pytest.raises(InvalidConfigurationError, match=r"_private_key_file and .*claim_iss"):
        client_credentials(url, sasl_oauthbearer_jwt_retriever="jwt_bearer")


@pytest.mark.parametrize(
    "other",
    [
        "sasl_oauthbearer_assertion_template_file",
        "sasl_oauthbearer_assertion_private_key_file",
        "sasl_oauthbearer_assertion_claim_sub",
    ],
)
def test_a_ready_made_assertion_has_no_other_options(other: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=f"{other} is given besides .*_file"):
        client_credentials(
            "https://issuer.example/token",
            sasl_oauthbearer_jwt_retriever="jwt_bearer",
            sasl_oauthbearer_assertion_file="assertion.jwt",
            **{other: "x"},
        )


def test_a_template_needs_a_private_key() -> None:
    with pytest.raises(InvalidConfigurationError, match=r"needs \S+_private_key_file for the"):
        client_credentials(
            "https://issuer.example/token",
            sasl_oauthbearer_jwt_retriever="jwt_bearer",
            sasl_oauthbearer_assertion_template_file="template.json",
        )


def test_tokens_have_one_origin() -> None:
    async def provider() -> Token:
        return Token("t")

    with pytest.raises(InvalidConfigurationError, match="leave one out"):
        client_credentials("https://issuer.example/token", sasl_token_provider=provider)


@pytest.mark.asyncio
async def test_the_environment_can_limit_the_urls(
    fetch: Fetch, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with issuer(authority, GRANTED) as server:
        monkeypatch.setenv(ALLOWED_URLS, "https://issuer.example/token")
        with pytest.raises(SaslAuthenticationError, match="not listed"):
            await fetch(server.url)
        assert server.requests == []
        monkeypatch.setenv(ALLOWED_URLS, f"https://issuer.example/token, {server.url}")
        await fetch(server.url)


# --- Failures ------------------------------------------------------------------------------------


@pytest.mark.asyncio
@pytest.mark.parametrize("status", [400, 401, 403, 404, 501])
async def test_a_refusal_names_the_error_field_and_is_not_retried(
    fetch: Fetch, authority: Authority, status: int
) -> None:
    body = {"error": "invalid_client", "error_description": f"{SECRET} is wrong"}
    async with issuer(authority, answer(status, json.dumps(body))) as server:
        with pytest.raises(SaslAuthenticationError) as raised:
            await fetch(server.url)
    assert f"HTTP {status}, error invalid_client" in str(raised.value)
    assert server.url in str(raised.value)
    assert len(server.requests) == 1
    assert_hidden(raised.value)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "named",
    [SECRET, f"wrong.{SECRET}", "a\r\nforged log line", "x" * 1000, {"a": 1}, "\u202eevil", None],
)
async def test_an_error_field_that_is_no_code_is_not_repeated(
    fetch: Fetch, authority: Authority, named: object
) -> None:
    error = await failure(fetch, authority, answer(400, json.dumps({"error": named})))
    assert "HTTP 400. Check the client's id" in str(error)


@pytest.mark.asyncio
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_follows_no_redirect(fetch: Fetch, authority: Authority, status: int) -> None:
    async with issuer(authority, GRANTED) as other:
        redirect = answer(status, "", f"Location: {other.url}")
        error = await failure(fetch, authority, redirect)
    assert isinstance(error, SaslAuthenticationError)
    assert f"redirects (HTTP {status})" in str(error)
    assert other.requests == []


@pytest.mark.asyncio
@pytest.mark.parametrize("failing", [answer(503), answer(500), answer(429), answer(408), drop])
async def test_failures_of_the_issuer_are_retried(
    fetch: Fetch, authority: Authority, failing: Respond
) -> None:
    async with issuer(authority, failing, failing, GRANTED) as server:
        assert (await fetch(server.url)).value.reveal() == TOKEN
    assert len(server.requests) == 3


@pytest.mark.asyncio
async def test_gives_up_with_a_retriable_error(
    fetch: Fetch, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc, "RETRY_FOR", 0.0)
    body = json.dumps({"error": "temporarily_unavailable"})
    error = await failure(fetch, authority, answer(503, body))
    assert isinstance(error, KafkaConnectionError)
    assert "HTTP 503, error temporarily_unavailable" in str(error)


@pytest.mark.asyncio
async def test_an_issuer_that_cannot_be_reached_is_retriable(
    fetch: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc, "RETRY_FOR", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with pytest.raises(TokenEndpointUnreachableError, match="connection refused") as raised:
        await fetch(f"https://127.0.0.1:{port}/")
    assert not raised.value.permanent
    assert_hidden(raised.value)
    with pytest.raises(
        TokenEndpointUnreachableError,
        match=r"https://issuer\.invalid/: its name cannot be resolved",
    ):
        await fetch("https://issuer.invalid/")


@pytest.mark.asyncio
async def test_a_slow_response_is_bounded_in_time(
    fetch: Fetch, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc, "RETRY_FOR", 0.0)
    monkeypatch.setattr(oidc, "ATTEMPT_TIMEOUT", 1.0)
    error = await failure(fetch, authority, hang)
    assert isinstance(error, KafkaConnectionError)
    assert "within 1 s" in str(error)


@pytest.mark.asyncio
async def test_an_endless_response_is_bounded_in_size(fetch: Fetch, authority: Authority) -> None:
    error = await failure(fetch, authority, flood)
    assert isinstance(error, SaslAuthenticationError)
    assert f"more than {MAX_RESPONSE_SIZE} bytes" in str(error)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "response",
    [
        answer(200, f"<html>{TOKEN}</html>"),
        answer(200, ""),
        answer(200, "[" * 100_000),
        answer(200, b"\xff\xfe"),
        answer(200, f'["{TOKEN}"]'),
        answer(200, json.dumps({"access_token": None})),
        answer(200, json.dumps({"access_token": {"a": TOKEN}})),
        answer(200, json.dumps({"access_token": ""})),
        answer(200, json.dumps({"access_token": TOKEN, "token_type": "mac"})),
        answer(200, json.dumps({"access_token": TOKEN}), "Content-Encoding: gzip"),
    ],
)
async def test_a_response_without_a_bearer_token_is_refused(
    fetch: Fetch, authority: Authority, response: Respond
) -> None:
    error = await failure(fetch, authority, response)
    assert isinstance(error, SaslAuthenticationError)
    assert "check that it is a token endpoint" in str(error)


@pytest.mark.asyncio
async def test_a_head_that_is_not_http_is_retriable_and_not_repeated(
    fetch: Fetch, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc, "RETRY_FOR", 0.0)

    async def respond(request: object, writer: asyncio.StreamWriter) -> None:
        writer.write(f"{SECRET} {TOKEN}\r\n\r\n".encode())

    error = await failure(fetch, authority, respond)
    assert isinstance(error, KafkaConnectionError)
    assert "RemoteProtocolError" in str(error)


# --- TLS -----------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_an_unknown_authority_is_refused_before_credentials_are_sent(
    fetch: Fetch, authority: Authority
) -> None:
    async with issuer(Authority(), GRANTED) as server:
        with pytest.raises(SaslAuthenticationError, match="unable to get local issuer") as raised:
            await fetch(server.url)
    assert server.requests == []
    assert_hidden(raised.value)


@pytest.mark.asyncio
async def test_a_certificate_of_another_host_is_refused_whatever_the_options_for_brokers(
    fetch: Fetch, authority: Authority
) -> None:
    wrong = authority.issue("issuer.example")
    async with issuer(authority, GRANTED, certificate=wrong) as server:
        with pytest.raises(SaslAuthenticationError, match="IP address mismatch"):
            await fetch(server.url, ssl_check_hostname=False, security_protocol="SASL_SSL")
    assert server.requests == []


@pytest.mark.asyncio
async def test_an_expired_certificate_is_refused(fetch: Fetch, authority: Authority) -> None:
    expired = authority.issue(expired=True)
    async with issuer(authority, GRANTED, certificate=expired) as server:
        with pytest.raises(SaslAuthenticationError, match="certificate has expired"):
            await fetch(server.url)


@pytest.mark.asyncio
async def test_an_issuer_without_tls_is_refused(fetch: Fetch, authority: Authority) -> None:
    async with issuer(authority, GRANTED, tls=False) as server:
        with pytest.raises(SaslAuthenticationError, match="no TLS connection"):
            await fetch(server.url)


@pytest.mark.asyncio
async def test_a_file_of_authorities_that_cannot_be_read_is_reported(
    fetch: Fetch, authority: Authority, tmp_path: Path
) -> None:
    error = await failure(fetch, authority, GRANTED, ssl_cafile=str(tmp_path / "missing.pem"))
    assert isinstance(error, SaslAuthenticationError)
    assert "ssl_cafile: no certificates can be read" in str(error)


# --- Secrets and time ----------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_logs_show_no_secret(
    fetch: Fetch, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with issuer(authority, GRANTED) as server:
        await fetch(server.url)
    assert server.url in caplog.text  # httpx logs requests
    encoded = base64.b64encode(f"client:{SECRET}".encode()).decode()
    for secret in (SECRET, TOKEN, encoded):
        assert secret not in caplog.text


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_retries_back_off_for_five_seconds() -> None:
    supervisor = Supervisor("test")
    await supervisor.start()
    clock, times = LoopClock(supervisor.loop), list[float]()

    class Nothing(httpx.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield b""

    def unavailable(request: httpx.Request) -> httpx.Response:
        times.append(clock.monotonic())
        return httpx.Response(503, stream=Nothing())

    config = client_credentials("https://issuer.example/token")
    transport = httpx.MockTransport(unavailable)
    with pytest.raises(KafkaConnectionError, match="HTTP 503"):
        await TokenEndpoint(config, supervisor.offload, clock, transport)()
    assert 5 <= len(times) <= 8
    gaps = [after - before for before, after in pairwise(times)]
    assert gaps == sorted(gaps)
    assert times[-1] - times[0] <= 5
    await supervisor.stop()


def unreachable(cause: OSError, calls: list[httpx.Request]) -> httpx.MockTransport:
    """Return connections that fail as those of httpx do."""

    def connect(request: httpx.Request) -> httpx.Response:
        calls.append(request)
        raise httpx.ConnectError("All connection attempts failed") from cause

    return httpx.MockTransport(connect)


@pytest.mark.asyncio
@pytest.mark.virtual_clock
@pytest.mark.parametrize(
    ("cause", "permanent"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), True),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), False),
        (ConnectionRefusedError(111, "Connection refused"), False),
    ],
)
async def test_retries_an_issuer_that_cannot_be_reached_unless_its_name_does_not_exist(
    cause: OSError, permanent: bool, caplog: pytest.LogCaptureFixture
) -> None:
    supervisor = Supervisor("test")
    await supervisor.start()
    calls: list[httpx.Request] = []
    config = client_credentials("https://issuer.example/token")
    endpoint = TokenEndpoint(
        config, supervisor.offload, LoopClock(supervisor.loop), unreachable(cause, calls)
    )
    with pytest.raises(TokenEndpointUnreachableError):
        await endpoint()
    with pytest.raises(TokenEndpointUnreachableError) as raised:
        await endpoint()
    assert raised.value.permanent is permanent
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    if permanent:
        assert len(calls) == 2
        assert warnings == []
    else:
        assert len(calls) > 8
        assert warnings == [f"no token yet: {raised.value.message}; the client retries"]
    await supervisor.stop()
