"""An address that is no Kafka broker ends a command in one line."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.cli.conftest import call


def serve(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A port that does something with each connection, in one thread."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        kept: list[socket.socket] = []

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    kept.append(connection)
                    answer(connection)

        thread = threading.Thread(target=accept)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in kept:
            connection.close()


@pytest.fixture
def silent() -> Iterator[str]:
    yield from serve(lambda connection: None)


@pytest.fixture
def http() -> Iterator[str]:
    def answer(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        connection.close()

    yield from serve(answer)


@pytest.fixture
def tls() -> Iterator[str]:
    """What a TLS server says to who is not: an alert, record type 21."""

    def answer(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(bytes([21, 3, 3, 0, 2, 2, 70]))
        connection.close()

    yield from serve(answer)


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


def refused(address: str, *arguments: str) -> str:
    """Run a command, which must end in an error; return its last line."""
    ended = call(*arguments, "--bootstrap", address, "--timeout", "1")
    assert ended.status == 1
    assert ended.out == ""
    line = ended.err.splitlines()[-1]
    assert line.startswith("error: ")
    assert address in line
    return line


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda words: words[0])
def test_a_broker_that_accepts_and_says_nothing(silent: str, arguments: tuple[str, ...]) -> None:
    assert "accepts connections but does not answer" in refused(silent, *arguments)


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda words: words[0])
def test_a_port_that_speaks_http(http: str, arguments: tuple[str, ...]) -> None:
    assert "it answers in HTTP" in refused(http, *arguments)


def test_a_tls_port(tls: str) -> None:
    assert "TLS" in refused(tls, "topics", "list")


def test_a_port_where_nobody_listens(closed: str) -> None:
    assert "connection refused" in refused(closed, "topics", "list")


def test_a_name_that_does_not_exist() -> None:
    assert "cannot be resolved" in refused("no-such-host.invalid:9092", "topics", "list")


@pytest.mark.parametrize("address", ["localhost", "localhost:0", "localhost:banana"])
def test_what_is_no_address(address: str) -> None:
    assert "write host:port" in refused(address, "topics", "list")
