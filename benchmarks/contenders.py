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


def _java() -> str:
    return find_java().description.splitlines()[0].strip()


def _nothing() -> str:
    return ""


@dataclass(frozen=True)
class Peer:
    """A client: `module` is run with a task, `requires` says its version or raises what is missing.

    `speeds` are thousands of records a second of 100 bytes, by way. `counts_only` is for a tool
    that tells how many records it read but not what was in them.
    """

    name: str
    title: str
    module: str
    requires: Callable[[], str] = _nothing
    speeds: Mapping[str, float] = field(default_factory=dict[str, float])
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    counts_only: bool = False

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
        _package("kafka-async"),
        {"enqueue": 700, "send_many": 900, "send_batch": 1_500, "send": 100}
        | {"poll": 2_000, "iterate": 1_500, "batches": 4_000, "arrow": 4_000},
        {"KAFKA_ASYNC_KERNEL": "c"},
    ),
    Peer(
        PLAIN,
        "kafka_async (plain Python)",
        "benchmarks.peers.kafka_async_peer",
        _package("kafka-async"),
        {"enqueue": 150, "send_many": 200, "send_batch": 1_000, "send": 50}
        | {"poll": 250, "iterate": 200, "batches": 300, "arrow": 200},
        {"KAFKA_ASYNC_KERNEL": "python"},
    ),
    Peer(
        "aiokafka",
        "aiokafka",
        "benchmarks.peers.aiokafka_peer",
        _package("aiokafka"),
        {"enqueue": 110, "send": 30, "poll": 450, "iterate": 300},
    ),
    Peer(
        "confluent",
        "confluent-kafka",
        "benchmarks.peers.confluent_peer",
        _package("confluent-kafka"),
        {"enqueue": 350, "send": 40, "poll": 1_000, "iterate": 800},
    ),
    Peer(
        "confluent_asyncio",
        "confluent-kafka asyncio",
        "benchmarks.peers.confluent_asyncio_peer",
        _package("confluent-kafka"),
        {"enqueue": 70, "send": 20, "poll": 1_000, "iterate": 100},
    ),
    Peer(
        "kafka_python",
        "kafka-python",
        "benchmarks.peers.kafka_python_peer",
        _package("kafka-python"),
        {"enqueue": 50, "send": 20, "poll": 120, "iterate": 100},
    ),
    Peer(
        JAVA,
        "Java tool",
        "benchmarks.peers.java_peer",
        _java,
        {"enqueue": 900, "send": 30, "poll": 2_000},
        counts_only=True,
    ),
    Peer(
        RAW,
        "raw socket (the limit)",
        "benchmarks.peers.raw_socket_peer",
        speeds={"send_batch": 2_500, "batches": 6_000},
        counts_only=True,
    ),
)
PEERS = {peer.name: peer for peer in _PEERS}
