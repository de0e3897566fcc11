"""Who takes part: every client, how its process is started, and how fast it is about.

The speeds only choose how many records a run takes, so that each lasts about a second on the
project's machine. They need not be right: a rate is the same for a second as for a minute.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafka_async.testing.backends.base import BackendUnavailableError
from kafka_async.testing.backends.jvm import find_java
from tools import pythons

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def _package(name: str) -> Callable[[], str]:
    """A check for an installed package; raises with what is missing."""

    def version() -> str:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            raise BackendUnavailableError(f"the package {name} is not installed") from None

    return version


def _compiled() -> str:
    if importlib.util.find_spec("kafka_async.kernel._ckernel") is None:
        raise BackendUnavailableError("the compiled kernel is not built: install a C compiler")
    return importlib.metadata.version("kafka-async")


def _java() -> str:
    return find_java().description.splitlines()[0].strip()


def _nothing() -> str:
    return ""


def _compile_java() -> None:
    """Fetch the tools and compile the programs, which would take longer than a run may."""
    from benchmarks.peers import java_peer
    from tools.conformance.java import JavaError

    try:
        java_peer.prepare()
    except JavaError as error:
        raise BackendUnavailableError(str(error)) from error


@cache
def _interpreters() -> dict[str, str]:
    """Return an interpreter of each version of Python, this process's own among them."""
    return {**pythons.find_pythons(), THIS_PYTHON: sys.executable}


def _python(version: str) -> Callable[[], str]:
    """Return a check for a version of Python; it raises if the machine has none."""

    def check() -> str:
        if version not in _interpreters():
            raise BackendUnavailableError(f"there is no Python {version} on the PATH or in pyenv")
        return ""

    return check


def _environment(version: str) -> Callable[[], None]:
    """Return what makes or renews the environment of a version of Python."""

    def make() -> None:
        if version == THIS_PYTHON or _made(version) is not None:
            return
        raise BackendUnavailableError(f"the environment of Python {version} could not be made")

    return make


@cache
def _made(version: str) -> Path | None:
    return pythons.make_environment(version, _interpreters()[version])


def _prepared() -> None:
    """Nothing is to be done before the first run."""


@dataclass(frozen=True)
class Peer:
    """A client: `module` is run with a task, `requires` says its version or raises what is missing.

    `prepare` makes what its runs need, once, and raises what is missing too. `speeds` are thousands
    of records a second of 100 bytes, by way. `counts_only` is for tools that choose what they send,
    measure a part of it, and tell how many records they read but not what was in them. `around` is
    how many seconds a run takes about what is timed: the process, the topic, what is checked.
    `python` is the version of Python that runs it, if that is part of what is compared.
    """

    name: str
    title: str
    module: str
    requires: Callable[[], str] = _nothing
    speeds: Mapping[str, float] = field(default_factory=dict[str, float])
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    counts_only: bool = False
    prepare: Callable[[], None] = _prepared
    around: float = 0.3
    python: str = ""

    @property
    def interpreter(self) -> str:
        """The Python that runs it."""
        if self.python in ("", THIS_PYTHON):
            return sys.executable
        return str(pythons.ROOT / f".venv-{self.python}" / "bin" / "python")

    def missing(self) -> str | None:
        """Why it can't take part, or None if it can."""
        try:
            self.requires()
        except BackendUnavailableError as error:
            return str(error)
        if importlib.util.find_spec(self.module) is None:
            return f"there is no module {self.module}"
        return None


def on_python(peer: str, version: str) -> str:
    """Return the name of a peer that runs on that version of Python."""
    return f"{peer}-{version}"


PYTHONS: Final = ("3.11", "3.12", "3.13")
"""The versions of Python that `--pythons` compares."""
THIS_PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
OURS = "kafka_async"
PLAIN = "kafka_async_python"
RAW = "raw_socket"
JAVA = "java"

_PEERS = (
    Peer(
        OURS,
        "kafka_async",
        "benchmarks.peers.kafka_async_peer",
        _compiled,
        {"enqueue": 2_500, "enqueue_nowait": 2_500, "send_many": 4_000, "send_batch": 4_000}
        | {"send": 350, "poll": 5_000, "iterate": 4_000, "batches": 30_000, "arrow": 8_000},
        {"KAFKA_ASYNC_KERNEL": "c"},
    ),
    Peer(
        PLAIN,
        "kafka_async (plain Python)",
        "benchmarks.peers.kafka_async_peer",
        _package("kafka-async"),
        {"enqueue": 600, "send_many": 800, "send_batch": 4_000, "send": 250}
        | {"poll": 700, "iterate": 700, "batches": 20_000, "arrow": 250},
        {"KAFKA_ASYNC_KERNEL": "python"},
    ),
    Peer(
        "aiokafka",
        "aiokafka",
        "benchmarks.peers.aiokafka_peer",
        _package("aiokafka"),
        {"enqueue": 180, "send": 120, "poll": 500, "iterate": 250},
    ),
    Peer(
        "confluent",
        "confluent-kafka",
        "benchmarks.peers.confluent_peer",
        _package("confluent-kafka"),
        {"enqueue": 1_200, "callbacks": 900, "poll": 1_500, "iterate": 900},
    ),
    Peer(
        "confluent_asyncio",
        "confluent-kafka asyncio",
        "benchmarks.peers.confluent_asyncio_peer",
        _package("confluent-kafka"),
        {"enqueue": 250, "send": 170, "poll": 1_300, "iterate": 50},
    ),
    Peer(
        "kafka_python",
        "kafka-python",
        "benchmarks.peers.kafka_python_peer",
        _package("kafka-python"),
        {"enqueue": 80, "poll": 220, "iterate": 100},
    ),
    Peer(
        JAVA,
        "Java tool",
        "benchmarks.peers.java_peer",
        _java,
        {"enqueue": 2_000, "program": 1_000, "poll": 3_500},
        counts_only=True,
        prepare=_compile_java,
        around=2.0,
    ),
    Peer(
        RAW,
        "raw socket (the limit)",
        "benchmarks.peers.raw_socket_peer",
        speeds={"send_batch": 5_000, "batches": 50_000},
    ),
)
_ON_PYTHONS: Final = (OURS, "confluent", "confluent_asyncio")


def _on(version: str) -> list[Peer]:
    """Return the clients that `--pythons` compares, on a version of Python."""
    return [
        replace(
            peer,
            name=on_python(peer.name, version),
            title=f"{peer.title}, Python {version}",
            requires=_python(version),
            prepare=_environment(version),
            python=version,
        )
        for peer in _PEERS
        if peer.name in _ON_PYTHONS
    ]


PEERS = {
    peer.name: peer for peer in (*_PEERS, *(each for version in PYTHONS for each in _on(version)))
}
