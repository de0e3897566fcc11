"""A cluster for commands, and a function that calls them in this process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from typer.testing import CliRunner

from kafka_async.cli.app import app
from kafka_async.embedded import run_in_thread


@pytest.fixture(scope="session")
def servers() -> Iterator[str]:
    """Return the address of a broker that does not create topics automatically."""
    with run_in_thread(1, auto_create_topics=False) as cluster:
        yield cluster.bootstrap_servers


@dataclass(frozen=True)
class Ended:
    status: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """Error of a command that failed, in one line, and wrote nothing to standard output."""
        (line,) = self.err.splitlines()
        assert (self.status, self.out) == (1, "")
        assert line.startswith("error: ")
        return line


@dataclass(frozen=True)
class Command:
    """Calls `kafka-async ... --bootstrap SERVERS --timeout 5` in this process."""

    servers: str

    def __call__(self, *arguments: str, timeout: float = 5) -> Ended:
        return call(*arguments, "--bootstrap", self.servers, "--timeout", str(timeout))


@pytest.fixture
def command(servers: str) -> Command:
    return Command(servers)


def call(*arguments: str, **options: Any) -> Ended:
    """Call the command line; raise the exception that it does not handle."""
    result = CliRunner().invoke(app, list(arguments), **options)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ended(result.exit_code, result.stdout, result.stderr)
