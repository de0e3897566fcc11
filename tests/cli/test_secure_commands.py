"""Commands on a cluster with SASL, and the arguments and environment of their processes."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafka_async.admin import AclBinding, AclOperation, AclResourceType, Admin
from kafka_async.cli.credentials import SASL_PASSWORD
from kafka_async.embedded import AclAuthorizer, Listener, run_in_thread
from tests.cli.conftest import call
from tests.cli.programs import Program
from tests.integration.certificates import Certificates
from tests.planted_secrets import NEW_PASSWORD, PASSWORD, secrets_in

SASL = ("--security-protocol", "SASL_PLAINTEXT", "--sasl-allow-plaintext")
ALICE = (*SASL, "--sasl-mechanism", "SCRAM-SHA-256", "--sasl-username", "alice")


@pytest.fixture(scope="module")
def secure_servers() -> Iterator[str]:
    with run_in_thread(3, listeners="SASL_PLAINTEXT", users={"alice": PASSWORD}) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture
def password_file(tmp_path: Path) -> str:
    file = tmp_path / "password"
    file.touch(0o600)
    file.write_text(PASSWORD + "\n")
    return str(file)


def test_commands_authenticate(
    secure_servers: str,
    password_file: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = (*ALICE, "--bootstrap", secure_servers, "--timeout", "10")
    by_file = (*options, "--sasl-password-file", password_file)
    assert call("topics", "create", "secure", *by_file).err == "created secure with 1 partition\n"
    monkeypatch.setenv(SASL_PASSWORD, PASSWORD)
    text = tmp_path / "text"
    text.write_text("one\n")
    assert call("produce", "secure", str(text), *options).err == "1 record produced to secure\n"
    properties = tmp_path / "client.properties"
    properties.touch(0o600)
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.allow.plaintext=true\nsasl.mechanism=PLAIN\n"
        f"sasl.username=alice\nsasl.password={PASSWORD}\nbootstrap.servers={secure_servers}\n"
    )
    consumed = call(
        "consume", "secure", "--offset=beginning", "--exit", "--command-config", str(properties)
    )
    assert (consumed.status, consumed.out) == (0, "one\n")


def test_commands_connect_over_tls_with_a_client_certificate(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.write("broker.pem", certificates.broker.pem))
    context.load_verify_locations(certificates.cafile)
    listener = Listener(security_protocol="SSL", ssl_context=context, client_auth="required")
    chain = certificates.write("client.pem", certificates.client.chain)
    key = certificates.write("client.key", certificates.client.key)
    own = ("--ssl-certfile", chain, "--ssl-keyfile", key)
    with run_in_thread(1, listeners={"MUTUAL": listener}) as cluster:
        servers = ("--bootstrap", cluster.bootstrap_servers, "--security-protocol", "SSL")
        options = (*servers, "--ssl-cafile", certificates.cafile)
        assert call("topics", "create", "mutual", *options, *own).status == 0
        assert call("topics", "list", *options, *own).out == "mutual\n"
        assert "give --ssl-certfile and --ssl-keyfile" in call("topics", "list", *options).error
        other = ("--ssl-cafile", certificates.other_cafile)
        error = call("topics", "list", *servers, *other, *own).error
        assert "give --ssl-cafile that trusts its issuer" in error
        assert (
            "set --security-protocol SSL or SASL_SSL" in call("topics", "list", *servers[:2]).error
        )


def test_error_of_a_wrong_password_says_what_to_check(
    secure_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SASL_PASSWORD, NEW_PASSWORD)
    error = call("topics", "list", *ALICE, "--bootstrap", secure_servers).error
    assert f"check --sasl-username and the password ({SASL_PASSWORD}, --sasl-pass" in error
    assert secrets_in(error) == set()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (ALICE, f"SCRAM-SHA-256 needs the password ({SASL_PASSWORD}, --sasl-password-file or --s"),
        (ALICE[:-2], "SCRAM-SHA-256 needs --sasl-username: it is missing or empty"),
        (SASL, "needs --sasl-mechanism: name the one that the brokers offer"),
        (ALICE[3:], "set --security-protocol SASL_SSL, or SASL_PLAINTEXT"),
        ((*SASL[:2], *ALICE[3:]), "set --security-protocol SASL_SSL, or --sasl-allow-plaintext to"),
        ((*SASL, "--sasl-mechanism", "OAUTHBEARER"), "give sasl.oauthbearer.token.endpoint.url in"),
    ],
)
def test_error_of_missing_options_names_what_the_command_line_takes(
    secure_servers: str, arguments: tuple[str, ...], words: str
) -> None:
    error = call("topics", "list", *arguments, "--bootstrap", secure_servers).error.replace('"', "")
    assert words in error
    assert not re.search(r"\b(ssl|sasl|security)_[a-z]", error)


async def create_acl(servers: str, binding: AclBinding) -> None:
    async with Admin(
        servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_username="admin",
        sasl_password=PASSWORD,
        sasl_allow_plaintext=True,
    ) as admin:
        await admin.create_acls([binding])


def test_describes_a_topic_whose_configuration_the_user_may_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(SASL_PASSWORD, PASSWORD)
    authorizer = AclAuthorizer(super_users=["User:admin"])
    users = {"alice": PASSWORD, "admin": PASSWORD}
    allowed = AclBinding(AclResourceType.TOPIC, "life", "User:alice", AclOperation.DESCRIBE)
    with run_in_thread(
        1, listeners="SASL_PLAINTEXT", users=users, authorizer=authorizer
    ) as cluster:
        cluster.create_topic("life", partitions=2)
        asyncio.run(create_acl(cluster.bootstrap_servers, allowed))
        servers = ("--bootstrap", cluster.bootstrap_servers)
        described = call("topics", "describe", "life", *ALICE, *servers)
    assert described.status == 0
    assert "in sync" in described.out
    assert described.err.startswith("no configuration: ")
    assert "DESCRIBE_CONFIGS" in described.err


def shown_by(pid: int) -> str:
    """Return the arguments and the environment of a process, as other programs can read them."""
    place = Path("/proc", str(pid))
    return (
        place.joinpath("cmdline").read_bytes() + place.joinpath("environ").read_bytes()
    ).decode()


def test_processes_show_no_secret(secure_servers: str, password_file: str, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("one\n")
    options = (*ALICE, "--bootstrap", secure_servers, *by(password_file))
    assert call("topics", "create", "secrets", *options).status == 0
    assert call("produce", "secrets", str(text), *options).status == 0
    with Program("consume", "secrets", "--offset=beginning", *options) as program:
        assert program.read_line() == b"one\n"
        shown = shown_by(program.process.pid)
        assert "--sasl-password-file" in shown
        assert secrets_in(shown) == set()


def by(file: str) -> tuple[str, ...]:
    return ("--sasl-password-file", file)


@pytest.mark.slow
def test_demo_authenticates_and_its_processes_show_no_secret(
    secure_servers: str, tmp_path: Path
) -> None:
    text = tmp_path / "text"
    text.write_text("".join(f"line {n} of many\n" for n in range(2000)))
    arguments = ("demo", str(text), "--no-spark", *ALICE, "--bootstrap", secure_servers)
    with Program(*arguments, environment={SASL_PASSWORD: PASSWORD}) as program:
        program.wait_for("three workers share")
        children = set(program.running()) - {program.process.pid}
        shown = "".join(map(shown_by, children))
        assert "kafka_async.cli.demo.worker" in shown
        assert secrets_in(shown) == set()
        status, out, err = program.end(within=120)
    assert status == 0, err
    assert "equal" in out + err
    assert secrets_in(out + err) == set()
