"""Commands exit with one line of error for an address that is not a Kafka broker."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from kafka_async.testing.backends.nodes import free_ports
from tests.cli.conftest import call
from tests.testing.fakes import server


@pytest.fixture
def silent() -> Iterator[str]:
    """Listen on a port; the operating system accepts connections, and nothing responds."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


COMMANDS = [
    ("topics", "list"),
    ("produce", "t", __file__),
    ("consume", "t"),
    ("demo", "--no-spark"),
]


def error_line(address: str, *arguments: str) -> str:
    """Run a command that must fail, and return the last line of its output."""
    ended = call(*arguments, "--bootstrap", address, "--timeout", "1")
    assert ended.status == 1
    assert ended.out == ""
    line = ended.err.splitlines()[-1]
    assert line.startswith("error: ")
    assert address in line
    return line


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda words: words[0])
def test_names_a_server_that_does_not_respond(silent: str, arguments: tuple[str, ...]) -> None:
    assert "accepts connections but does not answer" in error_line(silent, *arguments)


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda words: words[0])
def test_names_an_http_server(arguments: tuple[str, ...]) -> None:
    response = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"
    with server(lambda _: response) as address:
        assert "it answers in HTTP" in error_line(address, *arguments)


def test_names_a_tls_server() -> None:
    """Responds as a TLS server does to plain text: with an alert, record type 21."""
    with server(lambda _: bytes([21, 3, 3, 0, 2, 2, 70])) as address:
        assert "TLS" in error_line(address, "topics", "list")


def test_names_a_closed_port() -> None:
    (port,) = free_ports(1)
    assert "connection refused" in error_line(f"127.0.0.1:{port}", "topics", "list")


def test_names_a_host_that_does_not_exist() -> None:
    assert "cannot be resolved" in error_line("no-such-host.invalid:9092", "topics", "list")


@pytest.mark.parametrize("address", ["localhost", "localhost:0", "localhost:banana"])
def test_refuses_a_malformed_address(address: str) -> None:
    assert "write host:port" in error_line(address, "topics", "list")


def test_does_not_announce_retries_before_a_permanent_error() -> None:
    with server(lambda _: b"") as address:
        assert "TLS port" in call("topics", "list", "--bootstrap", address).error
