"""Tests of TLS by options: certificates of both sides, reloading, and wrong protocols."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
import ssl
import struct
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
import pytest_asyncio
from cryptography.hazmat.primitives import serialization

from kafka_async.client.client import Client
from kafka_async.client.metadata.request_router import AnyBroker
from kafka_async.client.security import tls
from kafka_async.config import ClientConfig
from kafka_async.errors import (
    AuthenticationError,
    BootstrapError,
    InvalidConfigurationError,
    SslAuthenticationError,
)
from kafka_async.producer.producer import Producer
from kafka_async.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.client.tls_broker import (
    Authority,
    TlsBroker,
    alerting_server,
    chain_text,
    reconnect,
    server_context,
    use_certificate,
    write_certificate,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_async.secrets import Secret

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.may_block,  # the test makes certificates and reads files in the loop
]
TLS_1_2, TLS_1_3 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
LIMIT = 20
"""Seconds in which each failure must be raised, far below default_api_timeout_ms of 60 s."""


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest_asyncio.fixture
async def broker() -> Any:
    made = TlsBroker()
    yield made
    await made.stop()


async def connects(server: str, **options: Any) -> None:
    """Start a client, which fetches metadata, and send a request."""
    async with asyncio.timeout(LIMIT):
        async with Client(server, security_protocol="SSL", **options) as client:
            await request(client)


async def request(client: Client) -> None:
    await client.request(MetadataRequest(topics=[]), to=AnyBroker(), timeout=LIMIT)


async def failure(server: str, **options: Any) -> BaseException:
    """Return the error that the start of a client raises."""
    options = {"security_protocol": "SSL", **options}
    async with asyncio.timeout(LIMIT):
        client = Client(server, **options)
        try:
            await client.start()
        except (InvalidConfigurationError, BootstrapError) as error:
            return error
        await client.stop()
    raise AssertionError("the client has started")


# -- the broker's certificate ----------------------------------------------------------------------


@pytest.mark.parametrize("version", [TLS_1_2, TLS_1_3])
@pytest.mark.parametrize("form", ["path", "text", "one line", "comment"])
async def test_trusts_authorities_of_a_file_or_a_text(
    broker: TlsBroker, authority: Authority, form: str, version: ssl.TLSVersion
) -> None:
    server = await broker.start(server_context(authority.issue("localhost"), version=version))
    forms = {
        "path": authority.cafile,
        "text": authority.text,
        "one line": " ".join(authority.text.split("\n")),
        "comment": f"# Főtanúsítvány\n{authority.text}",
    }
    await connects(server, ssl_cafile=forms[form])


async def test_trusts_the_systems_authorities_by_default(
    broker: TlsBroker, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await broker.start(server_context(authority.issue("localhost")))
    assert isinstance(await failure(server), SslAuthenticationError)
    monkeypatch.setenv("SSL_CERT_FILE", authority.cafile)  # which OpenSSL reads
    await connects(server)


async def test_trusts_a_certificate_of_the_file_that_is_no_authority(
    broker: TlsBroker, authority: Authority, tmp_path: Path
) -> None:
    certificate = authority.issue("localhost")
    server = await broker.start(server_context(certificate))
    (tmp_path / "leaf.pem").write_bytes(certificate.cert_chain_pems[0].bytes())
    await connects(server, ssl_cafile=str(tmp_path / "leaf.pem"))


async def test_refuses_an_untrusted_authority(broker: TlsBroker, authority: Authority) -> None:
    server = await broker.start(
        server_context(Authority(authority.directory, "b").issue("localhost"))
    )
    error = await failure(server, ssl_cafile=authority.cafile)
    assert isinstance(error, SslAuthenticationError)
    assert re.search(
        r"localhost:\d+: its certificate is not accepted .*give ssl_cafile", str(error)
    )
    assert broker.attempts == 1, "it was retried"


async def test_refuses_an_expired_certificate(broker: TlsBroker, authority: Authority) -> None:
    server = await broker.start(server_context(authority.issue("localhost", expired=True)))
    error = await failure(server, ssl_cafile=authority.cafile)
    assert isinstance(error, SslAuthenticationError)
    assert "expired" in str(error)
    assert "must be renewed" in str(error)


async def test_starts_if_one_of_several_servers_has_an_expired_certificate(
    broker: TlsBroker, authority: Authority
) -> None:
    expired = TlsBroker()
    servers = [
        await expired.start(server_context(authority.issue("localhost", expired=True))),
        await broker.start(server_context(authority.issue("localhost"))),
    ]
    try:
        for _ in range(8):  # The order of the servers is random.
            await connects(",".join(servers), ssl_cafile=authority.cafile)
    finally:
        await expired.stop()


async def test_refuses_a_certificate_of_another_host(
    broker: TlsBroker, authority: Authority
) -> None:
    server = await broker.start(server_context(authority.issue("broker.example")))
    error = await failure(server, ssl_cafile=authority.cafile)
    assert isinstance(error, SslAuthenticationError)
    assert re.search("Hostname mismatch.*localhost.*ssl_check_hostname", str(error))


async def test_without_the_host_name_check_verifies_the_chain_and_sends_the_name(
    broker: TlsBroker, authority: Authority
) -> None:
    server = await broker.start(server_context(authority.issue("broker.example")))
    await connects(server, ssl_cafile=authority.cafile, ssl_check_hostname=False)
    assert set(broker.names) == {"localhost"}
    other = Authority(authority.directory, "other")
    error = await failure(server, ssl_cafile=other.cafile, ssl_check_hostname=False)
    assert isinstance(error, SslAuthenticationError)


async def test_checks_an_address_in_place_of_a_name(
    broker: TlsBroker, authority: Authority
) -> None:
    server = await broker.start(server_context(authority.issue("127.0.0.1")), host="127.0.0.1")
    await connects(server, ssl_cafile=authority.cafile)


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("broker.example", "broker.example"),
        ("broker.example.", "broker.example"),
        ("[::1]", "::1"),
        ("[fe80::1%eth0]", "fe80::1"),
    ],
)
async def test_name_to_check_has_neither_brackets_nor_dot(host: str, name: str) -> None:
    assert tls.server_name(host) == name


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated")
async def test_uses_no_version_before_tls_1_2(authority: Authority) -> None:
    context = server_context(authority.issue("localhost"))
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    with alerting_server(context) as server:
        error = await failure(server, ssl_cafile=authority.cafile)
    assert isinstance(error, SslAuthenticationError)
    assert "no version of TLS that this client allows" in str(error)


async def test_uses_only_the_enabled_versions(broker: TlsBroker, authority: Authority) -> None:
    context = server_context(authority.issue("localhost"), version=TLS_1_2)
    options = {"ssl_cafile": authority.cafile}
    await connects(await broker.start(context), **options, ssl_enabled_protocols=["TLSv1.2"])
    with alerting_server(context) as server:
        error = await failure(server, **options, ssl_enabled_protocols=["TLSv1.3"])
    assert isinstance(error, SslAuthenticationError)
    assert "ssl_enabled_protocols" in str(error)


async def test_calls_raise_while_the_certificate_is_refused_and_succeed_afterwards(
    broker: TlsBroker, authority: Authority
) -> None:
    broker.world.add("t", 1)
    context = server_context(authority.issue("localhost"))
    options: dict[str, Any] = {"security_protocol": "SSL", "ssl_cafile": authority.cafile}
    server = await broker.start(context)
    async with Client(server, **options) as client, Producer(client) as producer:
        await request(client)
        use_certificate(context, Authority(authority.directory, "other").issue("localhost"))
        await reconnect(client)
        async with asyncio.timeout(LIMIT):
            with pytest.raises(SslAuthenticationError, match="give ssl_cafile"):
                await request(client)
            with pytest.raises(SslAuthenticationError, match="give ssl_cafile"):
                await producer.send("t", b"v")
            with pytest.raises(SslAuthenticationError, match="give ssl_cafile"):
                await producer.send("topic without metadata", b"v")
        use_certificate(context, authority.issue("localhost"))
        await request(client)


# -- the client's certificate ----------------------------------------------------------------------


def encrypted(key: bytes, password: str) -> str:
    """Return a private key in PEM form that is encrypted with a password."""
    loaded = serialization.load_pem_private_key(key, None)
    return loaded.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(password.encode()),
    ).decode()


@pytest_asyncio.fixture
async def mutual(broker: TlsBroker, authority: Authority) -> str:
    """Return the address of a broker that requires certificates of `authority`."""
    context = server_context(authority.issue("localhost"), clients=authority)
    return await broker.start(context)


def own_certificate(authority: Authority, form: str, directory: Path) -> dict[str, Any]:
    """Return the options for a certificate of the client, in one of several forms."""
    certificate = authority.ca.issue_cert("client.example", common_name="alice")
    options = authority.client_options(certificate)
    key = certificate.private_key_pem.bytes()
    chain = chain_text(certificate)
    if form == "files":
        return options
    if form == "one file":
        (directory / "both.pem").write_text(key.decode() + chain)
        return {"ssl_certfile": str(directory / "both.pem")}
    if form == "texts":
        return {"ssl_certfile": chain, "ssl_keyfile": key.decode()}
    options["ssl_keyfile"] = encrypted(key, "geheim")
    if form == "password":
        return {**options, "ssl_password": "geheim"}
    return {**options, "ssl_password": lambda: "geheim"}


@pytest.mark.parametrize("form", ["files", "one file", "texts", "password", "function"])
async def test_presents_its_certificate(
    broker: TlsBroker, authority: Authority, mutual: str, form: str, tmp_path: Path
) -> None:
    await connects(
        mutual, ssl_cafile=authority.cafile, **own_certificate(authority, form, tmp_path)
    )
    assert set(broker.subjects) == {"alice"}


async def test_key_as_text_is_never_a_file_of_others(
    authority: Authority, mutual: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    modes: list[int] = []
    write = tls._write  # pyright: ignore[reportPrivateUsage]

    def spy(descriptor: int, content: Secret) -> None:
        modes.append(os.fstat(descriptor).st_mode & 0o777)
        (folder,) = (tmp_path / "temporary").iterdir()
        modes.append(folder.stat().st_mode & 0o777)
        write(descriptor, content)

    monkeypatch.setattr(tls, "_write", spy)
    options = own_certificate(authority, "texts", tmp_path)
    options["ssl_certfile"] = own_certificate(authority, "files", tmp_path)["ssl_certfile"]
    error = await failure(mutual, ssl_cafile=authority.cafile, **options)
    assert "is not the private key of ssl_certfile" in str(error)
    assert modes == [0o600, 0o700]
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize("version", [TLS_1_2, TLS_1_3])
async def test_names_the_missing_client_certificate(
    authority: Authority, version: ssl.TLSVersion
) -> None:
    context = server_context(authority.issue("localhost"), clients=authority, version=version)
    with alerting_server(context) as server:
        error = await failure(server, ssl_cafile=authority.cafile)
    assert isinstance(error, SslAuthenticationError)
    assert "certificate: give ssl_certfile and ssl_keyfile" in str(error)


@pytest.mark.parametrize("version", [TLS_1_2, TLS_1_3])
async def test_names_the_untrusted_client_certificate(
    authority: Authority, version: ssl.TLSVersion, tmp_path: Path
) -> None:
    context = server_context(authority.issue("localhost"), clients=authority, version=version)
    stranger = Authority(tmp_path, "stranger")
    options = stranger.client_options(stranger.issue("client.example"))
    with alerting_server(context) as server:
        error = await failure(server, ssl_cafile=authority.cafile, **options)
    assert isinstance(error, SslAuthenticationError)
    assert "check ssl_certfile" in str(error)


async def test_names_the_client_certificate_that_an_asyncio_server_refuses(
    mutual: str, authority: Authority
) -> None:
    error = await failure(mutual, ssl_cafile=authority.cafile)
    assert isinstance(error, SslAuthenticationError)
    assert "certificate: give ssl_certfile and ssl_keyfile" in str(error)


@pytest.mark.parametrize("own", [False, True])
async def test_names_the_client_certificate_if_the_alert_is_lost(
    broker: TlsBroker, authority: Authority, own: bool, tmp_path: Path
) -> None:
    class Resetting(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            reset(transport)

    context = server_context(authority.issue("localhost"), version=TLS_1_3)
    server = await broker.start(context, protocol=lambda _: Resetting())
    options = own_certificate(authority, "files", tmp_path) if own else {}
    error = await failure(server, ssl_cafile=authority.cafile, **options)
    assert isinstance(error, SslAuthenticationError)
    words = "refuses the client certificate: check ssl_certfile" if own else "requires a client cer"
    assert words in str(error)
    assert broker.attempts == 3


def reset(transport: asyncio.BaseTransport) -> None:
    """Close a connection by a reset, which discards what the client has not read yet."""
    stream = cast("asyncio.Transport", transport)
    sock = stream.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.abort()


# -- wrong files ----------------------------------------------------------------------------------


NO_CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----\n"


def wrong(authority: Authority, directory: Path) -> dict[str, tuple[dict[str, Any], str]]:
    """Return options that cannot be used, and the words that name the cause."""
    certificate, other = authority.issue("a.example"), authority.issue("b.example")
    good = authority.client_options(certificate)
    bad = authority.client_options(other, "other")
    empty = directory / "empty.pem"
    empty.write_text("")
    damaged = directory / "damaged.pem"
    damaged.write_text("-----BEGIN PRIVATE KEY-----\nMIIC\n-----END PRIVATE KEY-----\n")
    key = encrypted(certificate.private_key_pem.bytes(), "geheim")
    chain, good_key = chain_text(certificate), certificate.private_key_pem.bytes().decode()

    def fail() -> str:
        raise RuntimeError("geheim")

    return {
        "no authorities": ({"ssl_cafile": str(empty)}, "ssl_cafile: no certificates .*empty.pem"),
        "no file": ({"ssl_cafile": "/does/not/exist"}, "ssl_cafile.*exist.*No such file"),
        "wrong path": ({"ssl_cafile": "a\0b"}, "ssl_cafile: no certificates can be read"),
        "wrong text": ({"ssl_cafile": NO_CERTIFICATE}, "ssl_cafile: no .* text"),
        "no last line": ({"ssl_cafile": NO_CERTIFICATE[:29]}, "ssl_cafile .*without its last line"),
        "no first line": ({"ssl_cafile": "MIIE\n-----END CERTIFICATE-----"}, "without its first"),
        "no text": ({"ssl_cafile": ""}, "ssl_cafile is empty"),
        "no line breaks": (
            {"ssl_cafile": NO_CERTIFICATE.replace("\n", r"\n")},
            r'ssl_cafile .* the characters \\n .* text.replace\("\\\\n", "\\n"\)',
        ),
        "key without line breaks": (
            {"ssl_certfile": chain, "ssl_keyfile": good_key.replace("\n", r"\n")},
            r"ssl_keyfile is PEM text with the characters \\n",
        ),
        "key without its first line": (
            {"ssl_certfile": chain, "ssl_keyfile": good_key.partition("\n")[2]},
            "ssl_keyfile is PEM text without its first line",
        ),
        "key without its last line": (
            {"ssl_certfile": chain, "ssl_keyfile": good_key.partition("-----END")[0]},
            "ssl_keyfile is PEM text without its last line",
        ),
        "no certificate": (
            {**good, "ssl_certfile": "/does/not/exist"},
            "ssl_certfile='/does/not/exist' cannot be read .No such file",
        ),
        "no key": ({**good, "ssl_keyfile": "/no/key"}, "ssl_keyfile cannot be read .No such file"),
        "empty certificate": (
            {**good, "ssl_certfile": str(empty)},
            "ssl_certfile='.*empty.pem' has no certificate in PEM form .(not valid|no) PEM",
        ),
        "key missing": (
            {"ssl_certfile": good["ssl_certfile"]},
            "ssl_certfile='.*' has no private key in PEM form .*or the key as ssl_keyfile",
        ),
        "empty key": (
            {**good, "ssl_keyfile": str(empty)},
            "ssl_keyfile='.*empty.pem' has no private key in PEM form .(not valid|no) PEM",
        ),
        "damaged key": (
            {**good, "ssl_keyfile": str(damaged)},
            "ssl_certfile='.*' or ssl_keyfile='.*damaged.pem' cannot be used",
        ),
        "other key": (
            {**good, "ssl_keyfile": bad["ssl_keyfile"]},
            "ssl_keyfile='.*' is not the private key of ssl_certfile='.*'",
        ),
        "no password": (
            {"ssl_certfile": chain, "ssl_keyfile": key},
            "is encrypted: give ssl_password",
        ),
        "wrong password": (
            {"ssl_certfile": chain, "ssl_keyfile": key, "ssl_password": "falsch"},
            "ssl_password does not decrypt",
        ),
        "failing function": (
            {"ssl_certfile": chain, "ssl_keyfile": key, "ssl_password": fail},
            "ssl_password: the function has raised RuntimeError",
        ),
        "function of another kind": (
            {"ssl_certfile": chain, "ssl_keyfile": key, "ssl_password": lambda: 5},
            "ssl_password: the function has returned int, not a str",
        ),
    }


CASES = (
    "no authorities|no file|wrong path|wrong text|no last line|no first line|no text|"
    "no line breaks|key without line breaks|key without its first line|key without its last line|"
    "no certificate|no key|empty certificate|"
    "key missing|empty key|damaged key|other key|no password|wrong password|"
    "failing function|function of another kind"
)


@pytest.mark.parametrize("case", CASES.split("|"))
async def test_start_names_the_option_that_is_wrong(
    broker: TlsBroker, authority: Authority, case: str, tmp_path: Path
) -> None:
    server = await broker.start(server_context(authority.issue("localhost")))
    options, words = wrong(authority, tmp_path)[case]
    error = await failure(server, **{"ssl_cafile": authority.cafile, **options})
    assert type(error) is InvalidConfigurationError
    assert re.search(words, str(error))
    assert broker.attempts == 0
    shown = f"{error!r} {error.__cause__!r} {error.__context__!r}"
    for secret in ("geheim", "falsch", "PRIVATE KEY"):
        assert secret not in shown


# -- reloading ------------------------------------------------------------------------------------


async def test_reloads_certificates_on_request_and_at_the_next_connection(
    broker: TlsBroker, authority: Authority, mutual: str, tmp_path: Path
) -> None:
    options = own_certificate(authority, "files", tmp_path)
    files = Path(options["ssl_certfile"]), Path(options["ssl_keyfile"])
    client = Client(mutual, security_protocol="SSL", ssl_cafile=authority.cafile, **options)
    async with client:
        await request(client)
        write_certificate(authority.ca.issue_cert("c.example", common_name="bob"), *files)
        assert await client.reload_certificates()
        await request(client)
        assert set(broker.subjects) == {"alice"}, "an open connection keeps its certificate"
        await reconnect(client)
        await request(client)
        assert broker.subjects[-1] == "bob"
        write_certificate(authority.ca.issue_cert("d.example", common_name="carol"), *files)
        await reconnect(client)
        await request(client)
        assert broker.subjects[-1] == "carol"


async def test_keeps_the_certificates_if_the_new_ones_cannot_be_used(
    broker: TlsBroker,
    authority: Authority,
    mutual: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = own_certificate(authority, "files", tmp_path)
    keyfile = Path(options["ssl_keyfile"])
    client = Client(mutual, security_protocol="SSL", ssl_cafile=authority.cafile, **options)
    with caplog.at_level(logging.WARNING, "kafka_async"):
        async with client:
            replace_file(keyfile, "no key")
            for _ in range(3):
                await reconnect(client)
                await request(client)
            assert warnings(caplog) == 1, "one warning for each change"
            assert not await client.reload_certificates()
            assert warnings(caplog) == 2
            await reconnect(client)
            await request(client)
            replace_file(keyfile, None)
            await reconnect(client)
            await request(client)
            assert warnings(caplog) == 3
    assert set(broker.subjects) == {"alice"}
    assert "the certificates before stay in use, since ssl_keyfile=" in caplog.text


async def test_new_certificates_are_used_although_the_connection_that_found_them_was_cancelled(
    authority: Authority, tmp_path: Path
) -> None:
    options = own_certificate(authority, "files", tmp_path)
    config = ClientConfig("localhost:9093", security_protocol="SSL", **options)
    calls: list[str] = []
    cancel_in = ""

    async def offload(function: Callable[..., Any], *arguments: Any) -> Any:
        calls.append(function.__name__)
        if function.__name__ == cancel_in:
            raise asyncio.CancelledError
        return function(*arguments)

    context = tls.TlsContext(config, offload)
    first = await context.current()
    files = Path(options["ssl_certfile"]), Path(options["ssl_keyfile"])
    write_certificate(authority.ca.issue_cert("c.example", common_name="bob"), *files)
    cancel_in = "_build"
    with pytest.raises(asyncio.CancelledError):
        await context.current()
    assert calls[-1] == "_build"
    cancel_in = ""
    assert await context.current() is not first


def replace_file(path: Path, content: str | None) -> None:
    """Write a file, or remove it."""
    if content is None:
        path.unlink()
    else:
        path.write_text(content)


def warnings(caplog: pytest.LogCaptureFixture) -> int:
    return sum("certificates before stay in use" in record.message for record in caplog.records)


async def test_has_nothing_to_reload_without_files(broker: TlsBroker, authority: Authority) -> None:
    server = await broker.start(server_context(authority.issue("localhost")))
    context = ssl.create_default_context(cafile=authority.cafile)
    async with Client(server, security_protocol="SSL", ssl_context=context) as client:
        with pytest.raises(InvalidConfigurationError, match="ssl_context is given"):
            await client.reload_certificates()


# -- wrong protocols ------------------------------------------------------------------------------


class Closing(asyncio.Protocol):
    """Closes a connection at its first bytes, as Kafka does with TLS at a plaintext port."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._transport.close()


async def test_names_tls_to_a_plaintext_port(broker: TlsBroker) -> None:
    server = await broker.start(None, protocol=lambda _: Closing())
    error = await failure(server)
    assert isinstance(error, BootstrapError)
    assert "if this is a plaintext port, leave security_protocol out" in str(error)
    assert broker.attempts == 3


@pytest.mark.parametrize("closing", [False, True])
async def test_names_plaintext_to_a_tls_port(
    broker: TlsBroker, authority: Authority, closing: bool
) -> None:
    if closing:  # as Java's brokers do
        server = await broker.start(None, protocol=lambda _: Closing())
    else:
        server = await broker.start(server_context(authority.issue("localhost")))
    error = await failure(server, security_protocol="PLAINTEXT")
    assert isinstance(error, BootstrapError)
    assert 'set security_protocol="SSL"' in str(error)


METADATA = 3
ILLEGAL_SASL_STATE = 34


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
@pytest.mark.parametrize("how", ["closes", "responds"])
async def test_names_the_missing_sasl(
    broker: TlsBroker, authority: Authority, protocol: str, how: str
) -> None:
    def refuse(peer: Any, header: Any, request: Any) -> MetadataResponse | None:
        if how == "responds":
            return MetadataResponse(error_code=ILLEGAL_SASL_STATE)
        peer.transport.close()
        return None

    broker.broker.handlers[METADATA] = refuse
    context = server_context(authority.issue("localhost")) if protocol == "SSL" else None
    server = await broker.start(context)
    trusted = {"ssl_cafile": authority.cafile} if protocol == "SSL" else {}
    error = await failure(server, security_protocol=protocol, **trusted)
    assert isinstance(error, AuthenticationError)
    expected = "SASL_SSL" if protocol == "SSL" else "SASL_PLAINTEXT"
    assert f'requires SASL: set security_protocol="{expected}"' in str(error)
    assert broker.attempts == (1 if how == "responds" else 3)


async def test_key_without_its_header_in_the_wrong_option_is_not_shown(
    authority: Authority,
) -> None:
    key = authority.issue("localhost").private_key_pem.bytes().decode()
    body = "".join(key.splitlines()[1:-1])
    for option in ("ssl_cafile", "ssl_certfile"):
        options = {option: body, "ssl_keyfile": key} if option == "ssl_certfile" else {option: body}
        error = await failure("localhost:1", **options)
        assert option in str(error)
        assert body not in str(error)
