"""The table of clients: how each is started, and its approximate speed.

The speeds determine the number of records of a run, so that each run takes about a second. They
need not be exact.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafka_async.testing.backends.base import BackendUnavailableError
from kafka_async.testing.backends.jvm import find_java
from tools import pythons

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PYTHONS: Final = ("3.11", "3.12", "3.13")
"""Python versions that `--pythons` compares."""
THIS_PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
OURS: Final = "kafka_async"
PLAIN: Final = "kafka_async_python"
RAW: Final = "raw_socket"
JAVA: Final = "java"


@dataclass(frozen=True)
class Peer:
    """Client of the benchmark.

    Attributes:
        version: returns the client's version, or raises BackendUnavailableError if it is missing.
        speeds: thousands of records of 100 bytes per second, by call.
        counts_only: the tool chooses the values itself and reports only numbers of records.
        prepare: called once before the first run; may raise BackendUnavailableError too.
        around: seconds of a run that are not timed: the process, the topic and the check.
        python: the Python version that runs the client, if the benchmark compares versions.
    """

    name: str
    title: str
    module: str
    version: Callable[[], str] = str
    speeds: Mapping[str, float] = field(default_factory=dict[str, float])
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    counts_only: bool = False
    prepare: Callable[[], object] = lambda: None
    around: float = 0.3
    python: str = ""

    @property
    def interpreter(self) -> str:
        """Path of the Python interpreter that runs the client."""
        if self.python in ("", THIS_PYTHON):
            return sys.executable
        return str(pythons.ROOT / f".venv-{self.python}" / "bin" / "python")

    def missing(self) -> str | None:
        """Return the reason why the client cannot run, else None."""
        try:
            self.version()
        except BackendUnavailableError as error:
            return str(error)
        if importlib.util.find_spec(self.module) is None:
            return f"there is no module {self.module}"
        return None


def on_python(peer: str, version: str) -> str:
    """Return the name of a peer that runs on a Python version."""
    return f"{peer}-{version}"


# -- versions and preparations --------------------------------------------------------------------


def _package(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        raise BackendUnavailableError(f"the package {name} is not installed") from None


def _compiled() -> str:
    if importlib.util.find_spec("kafka_async.kernel._ckernel") is None:
        raise BackendUnavailableError("the compiled kernel is not built: install a C compiler")
    return importlib.metadata.version("kafka-async")


def _java() -> str:
    return find_java().description.splitlines()[0].strip()


def _prepare_java() -> None:
    """Download the tools and compile the programs before the first run, because it takes long."""
    from benchmarks.peers import java_peer

    java_peer.prepare()


@cache
def _interpreters() -> dict[str, str]:
    """Return an interpreter of each Python version, including this process's."""
    return {**pythons.find_pythons(), THIS_PYTHON: sys.executable}


def _require_python(version: str) -> str:
    if version not in _interpreters():
        raise BackendUnavailableError(f"there is no Python {version} on the PATH or in pyenv")
    return ""


def _prepare_python(version: str) -> None:
    if version != THIS_PYTHON and _environment(version) is None:
        raise BackendUnavailableError(f"the environment of Python {version} could not be made")


@cache
def _environment(version: str) -> Path | None:
    return pythons.make_environment(version, _interpreters()[version])


# -- table ----------------------------------------------------------------------------------------

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
        partial(_package, "kafka-async"),
        {"enqueue": 600, "send_many": 800, "send_batch": 4_000, "send": 250}
        | {"poll": 700, "iterate": 700, "batches": 20_000, "arrow": 250},
        {"KAFKA_ASYNC_KERNEL": "python"},
    ),
    Peer(
        "aiokafka",
        "aiokafka",
        "benchmarks.peers.aiokafka_peer",
        partial(_package, "aiokafka"),
        {"enqueue": 180, "send": 120, "poll": 500, "iterate": 250},
    ),
    Peer(
        "confluent",
        "confluent-kafka",
        "benchmarks.peers.confluent_peer",
        partial(_package, "confluent-kafka"),
        {"enqueue": 1_200, "callbacks": 900, "poll": 1_500, "iterate": 900},
    ),
    Peer(
        "confluent_asyncio",
        "confluent-kafka asyncio",
        "benchmarks.peers.confluent_asyncio_peer",
        partial(_package, "confluent-kafka"),
        {"enqueue": 250, "send": 170, "poll": 1_300, "iterate": 50},
    ),
    Peer(
        "kafka_python",
        "kafka-python",
        "benchmarks.peers.kafka_python_peer",
        partial(_package, "kafka-python"),
        {"enqueue": 80, "poll": 220, "iterate": 100},
    ),
    Peer(
        JAVA,
        "Java tool",
        "benchmarks.peers.java_peer",
        _java,
        {"enqueue": 2_000, "program": 1_000, "poll": 3_500},
        counts_only=True,
        prepare=_prepare_java,
        around=2.0,
    ),
    Peer(
        RAW,
        "raw socket (the limit)",
        "benchmarks.peers.raw_socket_peer",
        speeds={"send_batch": 5_000, "batches": 50_000},
    ),
)
_ON_PYTHONS = tuple(
    replace(
        peer,
        name=on_python(peer.name, version),
        title=f"{peer.title}, Python {version}",
        version=partial(_require_python, version),
        prepare=partial(_prepare_python, version),
        python=version,
    )
    for version in PYTHONS
    for peer in _PEERS
    if peer.name in (OURS, "confluent", "confluent_asyncio")
)
PEERS = {peer.name: peer for peer in (*_PEERS, *_ON_PYTHONS)}
