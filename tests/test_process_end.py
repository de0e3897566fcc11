"""The end of a process: records of clients are delivered, or an error on stderr counts them.

Each test runs a program that writes a dot for each record that a producer has accepted.
"""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import blocking
from kafka_async.embedded import run_in_thread
from kafka_async.types import TopicPartition
from tests.programs import ROOT

if TYPE_CHECKING:
    from kafka_async.embedded import BlockingCluster

DEADLINE = 60.0
"""Seconds after which a program counts as hung."""

topics = (f"topic-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def cluster() -> Iterator[BlockingCluster]:
    with run_in_thread(1) as cluster:
        yield cluster


@dataclass(frozen=True)
class Ended:
    """A program that has ended."""

    topic: str
    status: int
    accepted: int
    errors: str

    @property
    def lost(self) -> int:
        """Number of records that the errors count."""
        return sum(int(count) for count in re.findall(r"(\d+) records? (?:was|were) not", self.errors))


def run_program(cluster: BlockingCluster, text: str, *flags: str) -> Ended:
    """Run a program with the addresses of the cluster and the name of a new topic."""
    topic = next(topics)
    cluster.create_topic(topic)
    done = subprocess.run(
        [sys.executable, *flags, "-c", text, cluster.bootstrap_servers, topic],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.stdout.strip(".") == ""
    return Ended(topic, done.returncode, done.stdout.count("."), done.stderr)


def delivered(cluster: BlockingCluster, topic: str) -> int:
    """Return the number of records in a topic; a transaction that is not committed counts."""
    with blocking.Admin(cluster.bootstrap_servers) as admin:
        return admin.list_offsets({(topic, 0): -1})[TopicPartition(topic, 0)].offset


# -- blocking producers ---------------------------------------------------------------------------

BLOCKING = """
import atexit, logging, os, signal, sys, threading
from kafka_async import blocking

servers, topic = sys.argv[1:]
producer = blocking.Producer(
    servers, linger_ms=60_000, batch_size=1_000_000, compression_type="COMPRESSION"
)

def accept(count):
    for _ in range(count):
        producer.enqueue(topic, b"0123456789" * 5_000)
        os.write(1, b".")
"""
"""Compresses the batch in a thread, since it is large."""

HANDLER = """
class Handler(logging.Handler):
    def emit(self, record):
        if not record.name.startswith("kafka_async"):
            accept(1)
    def close(self):
        CLOSE
        super().close()

logging.getLogger().addHandler(Handler())
producer.start()
for _ in range(9):
    logging.getLogger("application").warning("text")
"""

ENDS: dict[str, tuple[int, str]] = {
    "normal end": (0, "producer.start(); accept(9)"),
    "exception": (1, "producer.start(); accept(9); raise ValueError"),
    "sys.exit": (3, "producer.start(); accept(9); sys.exit(3)"),
    "sys.exit in a thread": (
        0,
        "producer.start()\n"
        "threading.Thread(target=lambda: (accept(9), sys.exit(3))).start()",
    ),
    "thread that goes on": (
        0,
        "producer.start()\n"
        "threading.Thread(target=lambda: (threading.main_thread().join(), accept(9))).start()",
    ),
    "stop in a thread that goes on": (
        0,
        "producer.start()\n"
        "def work():\n"
        "    threading.main_thread().join()\n"
        "    accept(9)\n"
        "    producer.stop()\n"
        "threading.Thread(target=work).start()",
    ),
    "stop at exit, registered before": (
        0,
        "atexit.register(producer.stop); producer.start(); accept(9)",
    ),
    "stop at exit, registered after": (
        0,
        "producer.start(); atexit.register(producer.stop); accept(9)",
    ),
    "records at exit, registered before": (
        0,
        "atexit.register(accept, 5); producer.start(); accept(4)",
    ),
    "records at exit, registered after": (
        0,
        "producer.start(); atexit.register(accept, 5); accept(4)",
    ),
    "start at exit": (0, "atexit.register(accept, 9); atexit.register(producer.start); "
        "other = blocking.Producer(servers); other.start()"),
    "logging handler that stops": (0, HANDLER.replace("CLOSE", "producer.stop()")),
    "logging handler that does not stop": (0, HANDLER.replace("CLOSE", "pass")),
    "logging handler that flushes": (0, HANDLER.replace("CLOSE", "producer.flush()")),
    "daemon thread": (
        0,
        "producer.start()\n"
        "begun = threading.Event()\n"
        "def work():\n"
        "    while True:\n"
        "        accept(1)\n"
        "        begun.set()\n"
        "threading.Thread(target=work, daemon=True).start()\n"
        "begun.wait()",
    ),
}  # fmt: skip
"""The status and the text of programs that end in different ways."""

COMPRESSIONS = ["none", "gzip", "lz4", "zstd"]


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("end", ENDS)
def test_blocking_producer_delivers_what_it_has_accepted(
    cluster: BlockingCluster, end: str, compression: str
) -> None:
    status, text = ENDS[end]
    ended = run_program(cluster, BLOCKING.replace("COMPRESSION", compression) + text)
    assert ended.status == status, ended
    assert ended.accepted >= 9
    assert delivered(cluster, ended.topic) >= ended.accepted, ended
    assert ended.lost == 0
    if status != 1:
        assert ended.errors == ""
