"""Who takes part: every client, how its process is started, and how fast it is about.

The speeds only choose how many records a run takes, so that each lasts about a second on the
project's machine. They need not be right: a rate is the same for a second as for a minute.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafka_async.testing.backends.base import BackendUnavailableError
from kafka_async.testing.backends.jvm import find_java

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


def _prepared() -> None:
    """Nothing is to be done before the first run."""


@dataclass(frozen=True)
class Peer:
    """A client: `module` is run with a task, `requires` says its version or raises what is missing.

    `prepare` makes what its runs need, once, and raises what is missing too. `speeds` are thousands
    of records a second of 100 bytes, by way. `counts_only` is for tools that choose what they send,
    measure a part of it, and tell how many records they read but not what was in them. `around` is
    how many seconds a run takes about what is timed: the process, the topic, what is checked.
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

    def missing(self) -> str | None:
        """Why it can't take part, or None if it can."""
        try:
            self.requires()
        except BackendUnavailableError as error:
            return str(error)
        if importlib.util.find_spec(self.module) is None:
            return f"there is no module {self.module}"
        return None


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
        {"enqueue": 2_500, "send_many": 4_000, "send_batch": 4_000, "send": 350}
        | {"poll": 5_000, "iterate": 4_000, "batches": 30_000, "arrow": 8_000},
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
PEERS = {peer.name: peer for peer in _PEERS}
