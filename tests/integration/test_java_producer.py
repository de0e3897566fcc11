"""Refused batches of transactions: Kafka's own producer as the judge of ours.

Java's producer meets the faults of `tests/producer/test_failed_batches.py` on the embedded cluster:
each error code, with batches in flight and queued behind the refused one. Whether it delivers the
records, can abort, and can use the next transaction must be what `handling_of` says, which that
test checks for our producer.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from kafka_async import Consumer, EmbeddedCluster
from kafka_async.errors import Category, DuplicateSequenceError, UnknownProducerIdError
from kafka_async.testing.backends.jvm import find_java
from kafka_async.types import TopicPartition
from tests.producer.produce_errors import (
    CASES,
    JAVA_IS_STRICTER,
    VERSIONS,
    Layout,
    handling_of,
)
from tools.conformance.java import FLAGS, class_path, compile_files

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter

pytestmark = [
    pytest.mark.slow,
    pytest.mark.foreign,
    pytest.mark.asyncio,
    pytest.mark.may_block,  # while javac runs
    pytest.mark.timeout(300),
]

WRITTEN_WITH_MARKERS = 4
"""Offset after the first transaction, the record of the second one, and its abort marker."""
SOURCE = Path(__file__).parent / "ProduceErrors.java"


class Outcomes(NamedTuple):
    """Names of exceptions, or "ok"."""

    records: list[str]
    commit: str
    abort: str
    following: str


class JavaProducer:
    """Runs cases in one JVM, one after the other."""

    def __init__(self, requests: StreamWriter, responses: StreamReader) -> None:
        self._requests = requests
        self._responses = responses

    async def begin(self, cluster: EmbeddedCluster, name: str, timeout_ms: int, at: Layout) -> None:
        """Begin a transaction in a new topic, up to the record that the fault is for."""
        await cluster.create_topic(name, partitions=1)
        await self._tell(cluster.bootstrap_servers, name, name, timeout_ms, *at)
        assert await self._line() == "ready"

    async def send(self) -> None:
        """Send the remaining records; return when those in flight are sent."""
        await self._tell("go")
        assert await self._line() == "sent"

    async def finish(self) -> Outcomes:
        """Commit, abort if that fails, and use another transaction."""
        await self._tell("go")
        *records, commit, abort, following = (await self._line()).split("\t")
        return Outcomes(records, commit, abort, following)

    async def _tell(self, *words: object) -> None:
        self._requests.write((" ".join(map(str, words)) + "\n").encode())
        await self._requests.drain()

    async def _line(self) -> str:
        return (await self._responses.readline()).decode().rstrip("\n")


@asynccontextmanager
async def java_producer() -> AsyncGenerator[JavaProducer]:
    jars = class_path()
    classes = compile_files([SOURCE], jars)
    command = [find_java().command, *FLAGS, "-cp", os.pathsep.join([str(classes), jars])]
    process = await asyncio.create_subprocess_exec(
        *command,
        SOURCE.stem,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield JavaProducer(process.stdin, process.stdout)
        process.stdin.close()
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def expected(code: int | None) -> tuple[bool, bool]:
    """Return whether Java's producer commits, and whether it is usable afterwards."""
    if code == UnknownProducerIdError.code:  # no broker since Kafka 2.5 responds with it (KIP-360)
        return True, True
    category = handling_of(code)
    usable = category is not Category.APPLICATION_RECOVERABLE and code not in JAVA_IS_STRICTER
    return category is None, usable


@pytest.mark.parametrize("version", VERSIONS)
async def test_java_handles_refused_batches_as_we_do(version: int) -> None:
    different: list[tuple[int | None, Layout, Outcomes]] = []
    async with (
        EmbeddedCluster(brokers=1, transaction_version=version) as cluster,
        java_producer() as java,
    ):
        for number, (code, layout, of_version) in enumerate(CASES):
            if of_version != version:
                continue
            topic = f"topic-{number}"
            await java.begin(cluster, topic, 60_000, layout)
            written = code == DuplicateSequenceError.code
            held = cluster.faults.add(
                api="Produce", topic=topic, error=code, hang=True, applied=written
            )
            await java.send()
            held.release()
            found = await java.finish()
            usable = found.following == "ok" and found.abort in ("ok", "-")
            if (found.commit == "ok", usable) != expected(code):
                different.append((code, layout, found))
    assert different == []


@pytest.mark.parametrize("version", VERSIONS)
async def test_java_recovers_from_a_timeout_with_transactions_v2(version: int) -> None:
    """Ours recovers with both; see `test_transaction_that_timed_out_can_be_aborted`."""
    async with (
        EmbeddedCluster(brokers=1, transaction_version=version) as cluster,
        java_producer() as java,
        Consumer(
            cluster.bootstrap_servers,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer,
    ):
        await java.begin(cluster, "late", 1_000, Layout(before=1, behind=-1, queued=1))
        partition = TopicPartition("late", 0)
        consumer.assign([partition])
        while await consumer.position(partition) < WRITTEN_WITH_MARKERS:
            await consumer.poll(timeout=1)
        await java.send()
        found = await java.finish()
        assert found.records == ["InvalidProducerEpochException"]
        assert found.commit == "InvalidProducerEpochException"
        assert (found.abort, found.following) == (
            ("ok", "ok") if version == 2 else ("ProducerFencedException", "ProducerFencedException")
        )
