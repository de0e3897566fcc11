"""Runs Kafka's producer in transactions with a refused batch, on the embedded cluster.

    python -m tests.integration.java_producer
    python -m tests.integration.java_producer kafka-2.1

Each error code meets each layout with each version of transactions: 2,466 cases, of which the tests
run a third. The argument is the profile of the cluster; an older one has transactions v1. The
program prints the cases in which Java's producer does not do what `handling_of` says, which
`tests/producer/test_failed_batches.py` checks for ours.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import time
from collections import Counter
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafka_async import Consumer, EmbeddedCluster
from kafka_async.errors import Category, DuplicateSequenceError
from kafka_async.testing.backends.jvm import find_java
from kafka_async.types import TopicPartition
from tests.producer.produce_errors import (
    CATEGORIES_IN_JAVA,
    CODES,
    FATAL_CODES,
    JAVA_IS_STRICTER,
    LAYOUTS,
    RETRIED_BY_JAVA,
    VERSIONS,
    Layout,
    handling_of,
)
from tools.conformance.java import FLAGS, class_path, compile_files

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter
    from collections.abc import AsyncGenerator, Sequence

SOURCE: Final = Path(__file__).parent / "ProduceErrors.java"
JVM_FLAGS: Final = (*FLAGS, "-XX:TieredStopAtLevel=1")
"""Many producers run for a moment, so the optimizing compiler costs more than it gains."""
CASES_AT_A_TIME: Final = 16
"""Producers that run at the same time in one JVM."""


class Outcomes(NamedTuple):
    """Describes what Java's producer did.

    Attributes:
        records: Names of the exceptions of the refused record and those behind it, or "ok".
        commit: Names of the commit's exception and of its causes, or "ok".
        category: Category of the commit's exception (KIP-1050); empty if its class has none.
        abort: Those of the abort's exception, or "ok"; empty if the transaction was committed.
        next: Those of the exception of the next transaction, or "ok".
        error: Name of the class of the error code.
    """

    records: list[str]
    commit: str
    category: str
    abort: str
    next: str
    error: str


class JavaTransaction:
    """Runs one case in a thread of the JVM."""

    def __init__(self, java: JavaProducers, number: int) -> None:
        self._java = java
        self._number = number
        self._responses = java.responses[number] = asyncio.Queue()

    async def begin(
        self, cluster: EmbeddedCluster, name: str, code: int, layout: Layout, timeout_ms: int
    ) -> None:
        """Begin a transaction in a new topic, up to the record that the fault is for."""
        await cluster.create_topic(name, partitions=1)
        await self._java.tell(
            id=self._number,
            servers=cluster.bootstrap_servers,
            name=name,
            code=code,
            timeout_ms=timeout_ms,
            **layout._asdict(),
        )
        await self._step("ready")

    async def send(self) -> None:
        """Send the remaining records; return when those in flight are sent."""
        await self._java.tell(id=self._number)
        await self._step("sent")

    async def finish(self) -> Outcomes:
        """Commit, abort if that fails, and use another transaction."""
        await self._java.tell(id=self._number)
        found = await self._step("done")
        return Outcomes(**{name: found[name] for name in Outcomes._fields})

    async def _step(self, expected: str) -> dict[str, Any]:
        found = await self._responses.get()
        assert found["step"] == expected, found
        assert "failed" not in found, found
        return found


class JavaProducers:
    """Runs cases in one JVM, several at the same time."""

    def __init__(self, requests: StreamWriter, responses: StreamReader) -> None:
        self._requests = requests
        self._responses = responses
        self._numbers = itertools.count()
        self.responses: dict[int, asyncio.Queue[dict[str, Any]]] = {}
        """By the number of the case."""

    def transaction(self) -> JavaTransaction:
        """Return a case that has not begun."""
        return JavaTransaction(self, next(self._numbers))

    async def tell(self, **fields: object) -> None:
        """Write a line to the program."""
        self._requests.write(json.dumps(fields).encode() + b"\n")
        await self._requests.drain()

    async def read(self) -> None:
        """Hand each line of the program to its case; at its end, let all cases fail."""
        async for line in self._responses:
            found = json.loads(line)
            self.responses[found["id"]].put_nowait(found)
        for queue in self.responses.values():
            queue.put_nowait({"step": "ended"})


@asynccontextmanager
async def java_producers() -> AsyncGenerator[JavaProducers]:
    """Run the program until the end of the `async with` block."""
    jars = class_path()
    classes = compile_files([SOURCE], jars)
    command = [find_java().command, *JVM_FLAGS, "-cp", os.pathsep.join([str(classes), jars])]
    process = await asyncio.create_subprocess_exec(
        *command,
        SOURCE.stem,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    java = JavaProducers(process.stdin, process.stdout)
    reading = asyncio.ensure_future(java.read())
    try:
        yield java
        process.stdin.close()
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await reading


class Difference(NamedTuple):
    """Describes a case in which Java's producer does not do what is expected."""

    code: int
    layout: Layout
    version: int
    expected: object
    found: object


Case = tuple[int, Layout, int]


async def differences(
    java: JavaProducers, cases: Sequence[Case], profile: str | None = None
) -> list[Difference]:
    """Run cases, a cluster per version of transactions; return those with another result."""
    found = await asyncio.gather(
        *(
            _differences(java, [case for case in cases if case[2] == version], version, profile)
            for version in VERSIONS
        )
    )
    return [each for rows in found for each in rows]


async def _differences(
    java: JavaProducers, cases: Sequence[Case], version: int, profile: str | None
) -> list[Difference]:
    running = asyncio.Semaphore(CASES_AT_A_TIME)
    names = [f"topic-{number}" for number in range(len(cases))]
    async with EmbeddedCluster(brokers=1, profile=profile, transaction_version=version) as cluster:

        async def run(name: str, code: int, layout: Layout) -> Outcomes:
            async with running:
                return await _refuse_batch(java.transaction(), cluster, name, code, layout)

        outcomes = await asyncio.gather(
            *(run(name, *case[:2]) for name, case in zip(names, cases, strict=True))
        )
        visible = await _visible_records(cluster, names)
    rows = [
        Difference(*case, expected(*case[:2]), summary(row, visible[name]))
        for name, case, row in zip(names, cases, outcomes, strict=True)
    ]
    return [row for row in rows if row.expected != row.found]


async def _refuse_batch(
    java: JavaTransaction, cluster: EmbeddedCluster, name: str, code: int, layout: Layout
) -> Outcomes:
    await java.begin(cluster, name, code, layout, 60_000)
    written = code == DuplicateSequenceError.code
    held = cluster.faults.add(api="Produce", topic=name, error=code, hang=True, applied=written)
    await java.send()
    held.release()
    return await java.finish()


async def _visible_records(cluster: EmbeddedCluster, names: Sequence[str]) -> Counter[str]:
    """Return the number of committed records by topic."""
    visible: Counter[str] = Counter()
    async with Consumer(
        cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        partitions = [TopicPartition(name, 0) for name in names]
        ends = await consumer.end_offsets(partitions)
        consumer.assign(partitions)
        for partition in partitions:
            while await consumer.position(partition) < ends[partition]:
                visible.update(record.topic for record in await consumer.poll(timeout=1))
    return visible


class Summary(NamedTuple):
    """Describes a case by what an application depends on.

    Attributes:
        cause: True if the refused record and the commit have the error of the code.
        category: Category of the error; None if the transaction was committed.
        usable: True if the transaction can be aborted or was committed, and the next one succeeds.
        visible: Number of committed records: of the transaction before, this one, and the next.
    """

    cause: bool
    category: str | None
    usable: bool
    visible: int


def expected(code: int, layout: Layout) -> Summary:
    """Return what `handling_of` says, with the differences between Java's producer and ours."""
    category = None if code == RETRIED_BY_JAVA else handling_of(code)
    if category is None:
        return Summary(cause=False, category=None, usable=True, visible=3 + sum(layout))
    usable = code not in FATAL_CODES and code not in JAVA_IS_STRICTER
    name = CATEGORIES_IN_JAVA.get(code, category).name
    return Summary(cause=True, category=name, usable=usable, visible=1 + usable)


def summary(found: Outcomes, visible: int) -> Summary:
    """Return what Java's producer did; an error without category is abortable if an abort was."""
    committed = found.commit == "ok"
    abortable = Category.ABORTABLE.name if found.abort == "ok" else ""
    return Summary(
        cause={found.records[0], found.commit.split("<")[-1]} == {found.error},
        category=None if committed else found.category or abortable,
        usable=found.next == "ok" and (committed or found.abort == "ok"),
        visible=visible,
    )


async def main(profile: str | None) -> int:
    """Run all cases; return the number of differences."""
    versions = VERSIONS if profile is None else (1,)
    cases = list(itertools.product(CODES, LAYOUTS, versions))
    began = time.monotonic()
    async with java_producers() as java:
        found = await differences(java, cases, profile)
    lines = [json.dumps(row._asdict()) for row in found]
    seconds = time.monotonic() - began
    lines.append(f"{len(cases)} cases, {len(found)} differences, {seconds:.0f} s")
    sys.stdout.write("\n".join([*lines, ""]))
    return len(found)


if __name__ == "__main__":
    sys.exit(min(asyncio.run(main(next(iter(sys.argv[1:]), None))), 1))
