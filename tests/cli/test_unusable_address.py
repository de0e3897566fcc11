"""Commands exit with one line of error for an address that is not a Kafka broker."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.cli.conftest import call


def serve(handle: Callable[[socket.socket], None]) -> Iterator[str]:
    """Listen on a port and handle each connection in a thread."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connections: list[socket.socket] = []

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    connections.append(connection)
                    handle(connection)

        thread = threading.Thread(target=accept)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in connections:
            connection.close()


@pytest.fixture
def silent() -> Iterator[str]:
    yield from serve(lambda connection: None)


@pytest.fixture
def http() -> Iterator[str]:
    def respond(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        connection.close()

    yield from serve(respond)


@pytest.fixture
def tls() -> Iterator[str]:
    """Respond as a TLS server does to plain text: with an alert, record type 21."""

    def respond(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(bytes([21, 3, 3, 0, 2, 2, 70]))
        connection.close()

    yield from serve(respond)


@pytest.fixture
def closed() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


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
def test_names_an_http_server(http: str, arguments: tuple[str, ...]) -> None:
    assert "it answers in HTTP" in error_line(http, *arguments)


def test_names_a_tls_server(tls: str) -> None:
    assert "TLS" in error_line(tls, "topics", "list")


def test_names_a_closed_port(closed: str) -> None:
    assert "connection refused" in error_line(closed, "topics", "list")


def test_names_a_host_that_does_not_exist() -> None:
    assert "cannot be resolved" in error_line("no-such-host.invalid:9092", "topics", "list")


@pytest.mark.parametrize("address", ["localhost", "localhost:0", "localhost:banana"])
def test_refuses_a_malformed_address(address: str) -> None:
    assert "write host:port" in error_line(address, "topics", "list")
