"""Creates the topics that both connectors read, each with records that are hard in another way."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from kafka_async import Leader, NewTopic, ProducerRecord, TopicPartition, blocking
from kafka_async.admin import OffsetSpec
from kafka_async.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

if TYPE_CHECKING:
    from collections.abc import Generator

FIRST_TIMESTAMP: Final = 1_700_000_000_000
PLAIN, APPENDED, TRANSACTIONAL, COMPACTED, TRIMMED, EMPTY, GROWING, SHRINKING = (
    "plain",
    "plain-appended",
    "transactional",
    "compacted",
    "trimmed",
    "empty",
    "growing",
    "shrinking",
)
PARTITIONS: Final = {
    PLAIN: 3,
    APPENDED: 1,
    TRANSACTIONAL: 2,
    TRIMMED: 2,
    EMPTY: 1,
    GROWING: 2,
    SHRINKING: 2,
}
COMPACTION: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "100",
    "delete.retention.ms": "0",
}
BROKER_PROPERTIES: Final = {
    "log.cleaner.backoff.ms": "200",
    "log.initial.task.delay.ms": "86400000",  # The records are old: retention would delete them.
}
COMPACTION_TIMEOUT: Final = 120.0
"""Seconds."""


@contextmanager
def topics(servers: str, *, compacts: bool) -> Generator[None]:
    """Create and fill all topics; a transaction is open until the context ends.

    Args:
        servers: Addresses of brokers.
        compacts: The brokers compact topics.
    """
    with blocking.Admin(servers) as admin:
        configs = {APPENDED: {"message.timestamp.type": "LogAppendTime"}}
        admin.create_topics(
            [
                NewTopic(name, count, configs=configs.get(name, {}))
                for name, count in PARTITIONS.items()
            ]
        )
        admin.create_topics([NewTopic(COMPACTED, 1, configs=COMPACTION)])
        for name in (PLAIN, APPENDED, TRIMMED, GROWING, SHRINKING):
            extend(servers, name, 300)
        with blocking.Producer(servers) as producer:
            for number in range(40):
                producer.send(COMPACTED, b"%d" % number, b"key-%d" % (number % 5))
                producer.flush()
        if compacts:
            _wait_for_compaction(servers)
        _delete_records(servers, TopicPartition(TRIMMED, 0), 17)
        with _transactions(servers):
            yield


def extend(servers: str, topic: str, count: int) -> None:
    """Send records with and without keys, values and headers."""
    partitions = PARTITIONS[topic]
    records = [
        ProducerRecord(
            topic,
            None if number % 11 == 3 else b"value %d" % number if number % 7 else b"",
            key=None if number % 5 == 2 else b"key %d" % (number % 13),
            partition=number % partitions,
            timestamp=FIRST_TIMESTAMP + 1_000 * number,
            headers=[("name", b"%d" % number), ("name", None)] if number % 4 == 1 else [],
        )
        for number in range(count)
    ]
    with blocking.Producer(servers, compression_type="lz4", batch_size=2_000) as producer:
        producer.send_records(records)
        producer.flush()


@contextmanager
def _transactions(servers: str) -> Generator[None]:
    """Commit one transaction, abort one, commit one, and leave one open in partition 0."""
    with (
        blocking.Producer(servers, transactional_id="conformance") as ended,
        blocking.Producer(
            servers, transactional_id="conformance-open", transaction_timeout_ms=900_000
        ) as left_open,
    ):
        for number, commits in enumerate((True, False, True)):
            transaction = ended.transaction()
            with transaction:
                values = [b"%d of %d" % (each, number) for each in range(10)]
                transaction.send_many(TRANSACTIONAL, values, keys=values)
                if not commits:
                    transaction.abort()
        transaction = left_open.transaction()
        with transaction:
            transaction.send(TRANSACTIONAL, b"open", partition=0)
            left_open.flush()
            try:
                yield
            finally:
                transaction.abort()


def _wait_for_compaction(servers: str) -> None:
    """Send records until a read shows that the broker has compacted the closed segments."""
    deadline = time.monotonic() + COMPACTION_TIMEOUT
    partition = TopicPartition(COMPACTED, 0)
    with blocking.Producer(servers) as producer, blocking.Admin(servers) as admin:
        while time.monotonic() < deadline:
            producer.send(COMPACTED, b"last", b"last")
            producer.flush()
            end = admin.list_offsets({partition: OffsetSpec.LATEST})[partition].offset
            if _count(servers, partition, end) < end - 10:
                return
            time.sleep(1)
    raise TimeoutError(f"the topic {COMPACTED} was not compacted in {COMPACTION_TIMEOUT:g} s")


def _delete_records(servers: str, partition: TopicPartition, before: int) -> None:
    """Remove the records of a partition before an offset."""
    rows = [DeleteRecordsPartition(partition_index=partition.partition, offset=before)]
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=partition.topic, partitions=rows)], timeout_ms=30_000
    )
    with blocking.Client(servers) as client:
        code = client.request(request, to=Leader(partition)).topics[0].partitions[0].error_code
    if code:
        raise RuntimeError(f"the records of {partition} are not deleted: error code {code}")


def delete_all_but(servers: str, topic: str, count: int) -> None:
    """Remove all records of each partition but the last ones."""
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS[topic])]
    with blocking.Admin(servers) as admin:
        ends = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
    for partition in partitions:
        _delete_records(servers, partition, ends[partition].offset - count)


def _count(servers: str, partition: TopicPartition, end: int) -> int:
    """Return the number of records of a partition before an offset."""
    with blocking.Consumer(servers, partitions=[partition]) as consumer:
        consumer.seek_to_beginning([partition])
        count = 0
        while consumer.position(partition) < end:
            count += len(consumer.poll(timeout=5))
    return count


def add_partition(servers: str) -> None:
    """Add a partition to the growing topic."""
    partition = TopicPartition(GROWING, 0)
    with blocking.Admin(servers) as admin:
        count = len(admin.describe_topics([partition.topic])[partition.topic].partitions)
        admin.create_partitions({partition.topic: count + 1})
