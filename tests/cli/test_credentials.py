"""Options and secrets of a command's connection: their sources, their order, and refusals."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import keyring
import pytest
import typer
from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked
from typer.testing import CliRunner

from kafka_async.cli import options
from kafka_async.cli.app import app
from kafka_async.cli.connection_options import ConnectionOptions
from kafka_async.cli.credentials import CLIENT_SECRET, SASL_PASSWORD, SSL_PASSWORD
from kafka_async.config import ClientConfig, ConsumerConfig, ProducerConfig
from kafka_async.secrets import Secret
from tests.cli.conftest import Ended, call

PASSWORD = "planted-5up3r-password"
SASL = ("--security-protocol", "SASL_SSL", "--sasl-mechanism", "SCRAM-SHA-512")
ALICE = (*SASL, "--sasl-username", "alice")


@dataclass
class Result:
    status: int
    err: str
    connections: list[ConnectionOptions] = field(default_factory=list[ConnectionOptions])

    @property
    def connection(self) -> ConnectionOptions:
        assert self.status == 0, self.err
        (only,) = self.connections
        return only

    @property
    def error(self) -> str:
        assert self.status == 1
        assert PASSWORD not in self.err
        return self.err


def connect(*arguments: str) -> Result:
    """Run a command that takes a connection, and keep the connection."""
    commands, made = typer.Typer(), Result(0, "")

    @commands.command()
    @options.connects
    def run(connection: ConnectionOptions) -> None:
        made.connections.append(connection)

    ended = CliRunner().invoke(commands, list(arguments))
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
    return Result(ended.exit_code, ended.stderr, made.connections)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    def write_file(content: str | bytes, mode: int = 0o600) -> str:
        file = tmp_path / "file"
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        file.chmod(mode)
        return str(file)

    return write_file


# --- Options and files ---------------------------------------------------------------------------


def test_options_become_the_client_configuration(tmp_path: Path) -> None:
    pem = tmp_path / "ca.pem"
    pem.touch()
    connection = connect(
        *ALICE, "--bootstrap", "a:1,b:2", "--ssl-cafile", str(pem), "--timeout", "8"
    ).connection
    config = connection.limited_config(ClientConfig, sasl_password=Secret("x"))
    assert config.bootstrap_servers == ("a:1", "b:2")
    assert (config.security_protocol, config.sasl_mechanism) == ("SASL_SSL", "SCRAM-SHA-512")
    assert (config.sasl_username, config.ssl_cafile) == ("alice", str(pem))
    assert (config.default_api_timeout_ms, config.request_timeout_ms) == (8000, 4000)


def test_connects_to_localhost_unless_told_otherwise() -> None:
    connection = connect().connection
    assert connection.bootstrap is None
    assert connection.config(ClientConfig).bootstrap_servers == ("localhost:9092",)


def test_file_of_properties_is_overridden_by_options(write: Callable[..., str]) -> None:
    file = write("bootstrap.servers=a:1\nclient.id = one \nlinger.ms=7\nclient.rack=r\n")
    connection = connect("--command-config", file, "--bootstrap", "b:2").connection
    config = connection.limited_config(ProducerConfig, client_rack="s")
    assert (config.bootstrap_servers, config.client_id) == (("b:2",), "one")
    assert (config.linger_ms, config.client_rack) == (7, "s")
    with pytest.raises(Exception, match=r"linger\.ms is an option of a producer"):
        connection.config(ConsumerConfig)


def test_error_of_an_option_does_not_name_the_property_that_it_overrides(
    write: Callable[..., str],
) -> None:
    file = write("compression.type=lz4\nlinger.ms=5\n")
    produce = ("produce", "t", "--command-config", file)
    error = call(*produce, "--compression", "zip").error
    assert error.startswith("error: --compression 'zip' is not one of 'none', 'gzip', ")
    write("compression.type=zap\nlinger.ms=x\n")
    error = call(*produce, "--compression", "lz4").error
    assert error.startswith("error: linger.ms='x' must be a number")
    write("compression.type=zap\n")
    assert call(*produce).error.startswith("error: compression.type='zap' is not one of ")


def test_error_of_a_password_file_does_not_name_the_property_that_it_overrides(
    write: Callable[..., str], tmp_path: Path
) -> None:
    password = tmp_path / "password"
    password.touch(0o600)
    password.write_text(PASSWORD)
    file = write("security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI\nsasl.password=other\n")
    arguments = ("--command-config", file, "--sasl-password-file", str(password))
    error = call("topics", "list", *arguments).error
    assert error.startswith(f"error: the password ({SASL_PASSWORD}, --sasl-password-file or ")
    assert "is given but sasl.mechanism" in error


def test_error_of_an_unknown_property_suggests_a_name_like_those_of_the_file(
    write: Callable[..., str],
) -> None:
    error = call("produce", "t", "--command-config", write("linger.mss=5\n")).error
    assert error == "error: there is no option linger.mss: did you mean linger.ms?"


def test_secrets_in_a_file_of_properties_are_wrapped(write: Callable[..., str]) -> None:
    file = write(
        f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=alice\n"
        f"sasl.password={PASSWORD}\nssl.password={PASSWORD}\nsasl.pass={PASSWORD}\n"
    )
    connection = connect("--command-config", file).connection
    assert PASSWORD not in repr(connection)
    assert connection.properties["sasl_password"] == Secret(PASSWORD)
    with pytest.raises(Exception, match=r"no option sasl\.pass: ") as caught:
        connection.config(ClientConfig)
    shown = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    assert PASSWORD not in "".join(shown.format())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (f"sasl.password={PASSWORD}\\u00".encode(), r"line 1 has \\u without"),
        (PASSWORD.encode() + b"\xfc", "the byte at 22 is not UTF-8"),
        (b"#" * (2**20 + 1), "longer than 1,048,576 bytes"),
    ],
)
def test_error_names_an_unreadable_file_of_properties(
    write: Callable[..., str], content: bytes, message: str
) -> None:
    file = write(content)
    error = connect("--command-config", file).error
    assert file in error
    assert re.search(message, error)


@pytest.mark.parametrize(
    "option",
    ["command-config", "ssl-cafile", "ssl-certfile", "ssl-keyfile", "sasl-password-file"],
)
def test_error_names_a_missing_file(option: str) -> None:
    assert re.match(
        "error: missing( cannot be read)?: [Nn]o such file", connect(f"--{option}", "missing").error
    )


@pytest.mark.parametrize(
    "line",
    [
        f"sasl.password={PASSWORD}",
        f"sasl.pass={PASSWORD}",
        f'sasl.jaas.config=a.PlainLoginModule required username="a" password="{PASSWORD}";',
        f"ssl.keystore.key=-----BEGIN PRIVATE KEY----- {PASSWORD} -----END PRIVATE KEY-----",
    ],
)
def test_refuses_a_file_of_properties_with_a_secret_that_others_can_read(
    write: Callable[..., str], line: str
) -> None:
    file = write(f"client.id=one\n{line}\n", 0o644)
    error = connect("--command-config", file).error
    assert f"{file} can be read by other users (mode 0644): run chmod 600 {file}" in error


def test_reads_a_file_of_properties_without_a_secret_that_others_can_read(
    write: Callable[..., str],
) -> None:
    file = write(
        "security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI\nssl.keyfile=/etc/key.pem\n"
        "sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required "
        'useKeyTab=true keyTab="/etc/a.keytab";\nsasl.password=\n',
        0o644,
    )
    assert connect("--command-config", file).status == 0


def test_connection_of_a_child_process_is_one_line_with_its_secrets() -> None:
    options = {"bootstrap_servers": "a:1", "sasl_allow_plaintext": True}
    connection = ConnectionOptions({**options, "sasl_password": Secret('"\n\u20ac')}, 3.5)
    line = connection.to_json()
    assert "\n" not in line.reveal()
    assert ConnectionOptions.from_json(line) == connection


def test_demo_takes_a_secure_connection_only_with_servers() -> None:
    assert "need --bootstrap" in call("demo", "--security-protocol", "SSL").error


def test_private_key_is_not_taken_as_an_argument() -> None:
    key = f"-----BEGIN PRIVATE KEY-----\n{PASSWORD}\n-----END PRIVATE KEY-----"
    assert "--ssl-keyfile takes a file's path" in connect("--ssl-keyfile", key).error


# --- Secrets -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("--sasl-password", SASL_PASSWORD),
        ("--ssl-password", SSL_PASSWORD),
        ("--sasl-oauthbearer-client-credentials-client-secret", CLIENT_SECRET),
    ],
)
@pytest.mark.parametrize("command", ["topics list", "consume t", "produce t"])
@pytest.mark.parametrize("joined", [True, False])
def test_secret_is_not_taken_as_an_argument(
    name: str, variable: str, command: str, joined: bool
) -> None:
    given = [f"{name}={PASSWORD}"] if joined else [name, PASSWORD]
    ended: Ended = call(*command.split(), *given)
    assert f"{name} is not taken as an argument" in ended.error
    assert f"use {variable}" in ended.error
    assert "--command-config FILE" in ended.error
    assert PASSWORD not in ended.error


@pytest.mark.parametrize("arguments", [("topics", "list", "--sasl-passwort"), ("--sasl-password",)])
def test_misspelled_option_does_not_show_its_value(arguments: tuple[str, ...]) -> None:
    ended = CliRunner().invoke(app, [*arguments[:-1], f"{arguments[-1]}={PASSWORD}", "topics"])
    assert ended.exit_code == 2
    assert PASSWORD not in ended.output


@pytest.mark.parametrize(
    ("variable", "arguments", "option"),
    [
        (SASL_PASSWORD, ALICE, "sasl_password"),
        (SASL_PASSWORD, ("--security-protocol", "SASL_PLAINTEXT"), "sasl_password"),
        (SASL_PASSWORD, (), None),
        (SASL_PASSWORD, ("--security-protocol", "SSL"), None),
        (SASL_PASSWORD, (*SASL[:3], "OAUTHBEARER"), None),
        (SSL_PASSWORD, ("--security-protocol", "SSL"), "ssl_password"),
        (SSL_PASSWORD, SASL, "ssl_password"),
        (SSL_PASSWORD, ("--security-protocol", "SASL_PLAINTEXT"), None),
        (
            CLIENT_SECRET,
            (*SASL[:3], "OAUTHBEARER"),
            "sasl_oauthbearer_client_credentials_client_secret",
        ),
        (CLIENT_SECRET, SASL, None),
    ],
)
def test_environment_gives_the_secrets_that_the_options_need(
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    arguments: tuple[str, ...],
    option: str | None,
) -> None:
    monkeypatch.setenv(variable, PASSWORD)
    properties = connect(*arguments).connection.properties
    secrets = {name: value for name, value in properties.items() if isinstance(value, Secret)}
    assert secrets == ({} if option is None else {option: Secret(PASSWORD)})
    assert variable not in os.environ  # Child processes must not inherit it.


@pytest.mark.parametrize("name", ["sasl.password", "sasl.jaas.config"])
def test_file_of_properties_comes_before_the_environment(
    monkeypatch: pytest.MonkeyPatch, write: Callable[..., str], name: str
) -> None:
    monkeypatch.setenv(SASL_PASSWORD, "other")
    properties = connect(*ALICE, "--command-config", write(f"{name}=one")).connection.properties
    assert properties[name.replace(".", "_")] == Secret("one")
    assert Secret("other") not in properties.values()


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_file_gives_the_password(write: Callable[..., str], end: str) -> None:
    connection = connect(*ALICE, "--sasl-password-file", write(f" {PASSWORD} {end}")).connection
    assert connection.config(ClientConfig).sasl_password == Secret(f" {PASSWORD} ")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o677])
def test_refuses_a_password_file_that_others_can_read(write: Callable[..., str], mode: int) -> None:
    file = write(PASSWORD, mode)
    error = connect(*ALICE, "--sasl-password-file", file).error
    assert f"{file} can be read by other users (mode {mode:04o})" in error
    assert f"chmod 600 {file}" in error


def test_refuses_an_empty_password_file(write: Callable[..., str]) -> None:
    assert "is empty" in connect("--sasl-password-file", write("\n")).error


class MemoryKeyring(KeyringBackend):
    """A keyring in memory, or one that is locked."""

    priority = 1  # type: ignore[assignment]  # keyring reads it from the class

    def __init__(self, *, locked: bool = False) -> None:
        super().__init__()
        self._locked = locked
        self._passwords: dict[tuple[str, str], str] = {}

    def set_password(self, service: str, username: str, password: str) -> None:
        self._passwords[service, username] = password

    def get_password(self, service: str, username: str) -> str | None:
        if self._locked:
            raise KeyringLocked("unlock it first")
        return self._passwords.get((service, username))


@pytest.fixture
def use_keyring() -> Iterator[Callable[[MemoryKeyring], None]]:
    before = keyring.get_keyring()
    yield keyring.set_keyring
    keyring.set_keyring(before)


def test_keyring_gives_the_password(use_keyring: Callable[[MemoryKeyring], None]) -> None:
    use_keyring(MemoryKeyring())
    keyring.set_password("kafka", "alice", PASSWORD)
    connection = connect(*ALICE, "--sasl-password-keyring", "kafka").connection
    assert connection.config(ClientConfig).sasl_password == Secret(PASSWORD)


@pytest.mark.parametrize(
    ("arguments", "locked", "message"),
    [
        (("--sasl-password-keyring", "kafka"), False, "needs --sasl-username"),
        ((*ALICE, "--sasl-password-keyring", "other"), False, "`keyring set other alice`"),
        ((*ALICE, "--sasl-password-keyring", "kafka"), True, "unlock it first"),
    ],
)
def test_error_says_why_the_keyring_gives_no_password(
    use_keyring: Callable[[MemoryKeyring], None],
    arguments: tuple[str, ...],
    locked: bool,
    message: str,
) -> None:
    use_keyring(MemoryKeyring(locked=locked))
    assert message in connect(*arguments).error


def test_password_comes_from_one_place(write: Callable[..., str]) -> None:
    file = write(PASSWORD)
    both = ("--sasl-password-file", file, "--sasl-password-keyring", "kafka")
    assert "not both" in connect(*ALICE, *both).error
