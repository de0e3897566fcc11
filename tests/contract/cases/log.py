"""Produce, Fetch, ListOffsets, DeleteRecords and OffsetForLeaderEpoch."""

from __future__ import annotations

import uuid
from typing import Any, Final

from tests.contract.model import (
    TOPIC,
    Batch,
    Fields,
    Joined,
    T,
    TopicId,
    reply,
    request,
    scenario,
    send,
    topic,
)

UNKNOWN_TOPIC_ID: Final = uuid.UUID(int=0x1234_5678)
"""A topic id that no topic has."""


@request("Produce")
def produce(
    records: Any = Batch(),  # noqa: B008  # immutable
    *,
    index: int = 0,
    name: Any = T,
    topic_id: Any = None,
) -> Fields:
    """Return a Produce request for one partition."""
    where = {"name": name} if topic_id is None else {"topic_id": topic_id}
    row = {"index": index, "records": records}
    return {"acks": -1, "timeout_ms": 10_000, "topic_data": [{**where, "partition_data": [row]}]}


@request("Fetch")
def fetch(
    offset: int = 0,
    *,
    by_id: bool = False,
    index: int = 0,
    name: Any = T,
    topic_id: Any = TopicId(),  # noqa: B008  # immutable
    session: tuple[Any, int] = (0, -1),
    row: Fields | None = None,
) -> Fields:
    """Return a Fetch request for one partition, named by the topic's name or its id."""
    partition = {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    where = {"topic_id": topic_id} if by_id else {"topic": name}
    return {
        "max_bytes": 1 << 20,
        "min_bytes": 0,
        "max_wait_ms": 0,
        "session_id": session[0],
        "session_epoch": session[1],
        "topics": [{**where, "partitions": [partition | (row or {})]}],
    }


@request("ListOffsets")
def offsets(timestamp: int, *, index: int = 0, name: Any = T, row: Fields | None = None) -> Fields:
    """Return a ListOffsets request for one partition."""
    partition = {"partition_index": index, "timestamp": timestamp} | (row or {})
    return {"replica_id": -1, "topics": [{"name": name, "partitions": [partition]}]}


@request("DeleteRecords")
def delete_records(offset: int, *, index: int = 0, name: Any = T) -> Fields:
    """Return a DeleteRecords request for one partition."""
    rows = [{"partition_index": index, "offset": offset}]
    return {"topics": [{"name": name, "partitions": rows}], "timeout_ms": 10_000}


@request("OffsetForLeaderEpoch")
def epoch_end(epoch: int, *, current: int = -1, index: int = 0, name: Any = T) -> Fields:
    """Return an OffsetForLeaderEpoch request for one partition."""
    rows = [{"partition": index, "leader_epoch": epoch, "current_leader_epoch": current}]
    return {"replica_id": -1, "topics": [{"topic": name, "partitions": rows}]}


@request("DescribeProducers")
def producers(*indexes: int, name: Any = T) -> Fields:
    """Return a DescribeProducers request for one topic, of partition 0 by default."""
    return {"topics": [{"name": name, "partition_indexes": indexes or (0,)}]}


SEED: Final = produce(9, Batch((b"a", b"b", b"c")), setup=True)
SEED_IS_REPLICATED: Final = '"high_watermark": 3'
NEAR_2: Final = {"rack_id": "rack-2"}
"""The rack of broker 2: brokers are in racks of their ids."""
WITHOUT_ID: Final = {"transactional_id": None, "transaction_timeout_ms": 60_000}
IDEMPOTENT: Final = send("InitProducerId", 5, **WITHOUT_ID, label="p", retry=(14,), setup=True)
ME: Final = reply("p", "producer_id")


def mine(sequence: int, *values: bytes, epoch: int = 0, **more: Any) -> Batch:
    """Return a batch of the scenario's idempotent producer."""
    return Batch(values or (b"v",), producer_id=ME, epoch=epoch, sequence=sequence, **more)


def number(value: int, size: int) -> bytes:
    """Return a field of a batch's header."""
    return value.to_bytes(size, "big", signed=True)


PRODUCE: Final = [
    scenario(
        "produce-versions",
        TOPIC,
        *[produce(version, acks=acks) for version in range(3, 13) for acks in (-1, 1)],
        produce(13, topic_id=TopicId()),
        produce(9, acks=0, silent=True),
        produce(9, Batch((b"a", b"b"))),
    ),
    scenario(
        "produce-refused",
        TOPIC,
        produce((3, 8, 12), acks=2),
        produce(12, acks=-2),
        produce((3, 9, 12), index=7),
        produce(9, index=-1),
        produce((3, 12), name="contract-missing"),
        produce(12, name=""),
        produce(12, name="no/name"),
        produce(13, topic_id=UNKNOWN_TOPIC_ID),
        produce(13, topic_id=uuid.UUID(int=0)),
        produce(9, b""),
        produce(9, b"short"),
        produce(9, b"x" * 100),
        produce(9, acks=0, index=7, silent=True),
        produce(9, acks=5, index=7),
        produce((3, 9, 10, 12), broker=2),
        produce(9, cut=3),
        send("Produce", 99),
        send("Produce", -1),
    ),
    scenario(
        "produce-batches",
        TOPIC,
        produce(9, Batch(patches=((60, b"\x55"),), good_crc=False)),
        produce(9, Batch(patches=((16, b"\x03"),))),
        produce(9, Batch(patches=((16, b"\x01"),))),
        produce(9, Joined((Batch(), Batch()))),
        produce(9, Batch(patches=((8, number(4000, 4)),))),
        produce(9, Batch(patches=((57, number(2, 4)),))),
        produce(9, Batch(patches=((57, number(0, 4)),))),
        produce(9, Batch(patches=((57, number(-1, 4)),))),
        produce(9, Batch(patches=((23, number(5, 4)),))),
        produce(9, Batch(patches=((23, number(-1, 4)),))),
        produce(9, Batch(patches=((21, number(0x20, 2)),))),
        produce(9, Batch(patches=((21, number(7, 2)),))),
        produce(9, Batch(patches=((21, number(0x10, 2)),))),
        produce(9, Batch(patches=((0, number(77, 8)),), good_crc=True)),
        produce(9, Batch(patches=((61, b"\x7f"),))),
        produce(9, Batch((b"x" * 1_100_000,))),
        produce(3, Batch(compression="zstd")),
        produce(6, Batch(compression="zstd")),
        produce(7, Batch(compression="zstd")),
        *[produce(9, Batch(compression=codec)) for codec in ("gzip", "snappy", "lz4")],
        fetch(12),
    ),
    scenario(
        "produce-timestamps",
        {
            "t": {},
            "append": {"configs": {"message.timestamp.type": "LogAppendTime"}},
            "recent": {"configs": {"message.timestamp.before.max.ms": "1000"}},
            "small": {"configs": {"max.message.bytes": "100"}},
        },
        produce(9, name=topic("append")),
        produce(2 + 1, name=topic("append")),
        produce(9, Batch(timestamp=-1)),
        produce(9, Batch(timestamp=32_503_680_000_000)),
        produce(9, Batch(timestamp=0), name=topic("recent")),
        produce(9, name=topic("small")),
        produce(9, Batch((b"x" * 200,)), name=topic("small")),
        fetch(12, name=topic("append")),
    ),
    scenario(
        "produce-idempotent",
        TOPIC,
        IDEMPOTENT,
        produce(9, mine(0, b"a", b"b")),
        produce(9, mine(0, b"a", b"b")),
        produce(9, mine(2)),
        produce(9, mine(2)),
        produce(9, mine(9)),
        produce(9, mine(0)),
        produce(9, mine(5, epoch=1)),
        produce(9, mine(0, epoch=1)),
        produce(9, mine(3, epoch=0)),
        produce(3, mine(3, epoch=0)),
        produce(9, mine(-1)),
        produce(9, mine(1, epoch=-1)),
        produce(9, Batch(producer_id=-1, epoch=1, sequence=0)),
        produce(9, Batch(producer_id=987_654, epoch=0, sequence=5)),
        produce(9, Joined((mine(1, epoch=1), mine(2, epoch=1)))),
        produce(9, mine(1, epoch=1, transactional=True)),
        produce(9, Batch(transactional=True)),
        produce(9, Batch(producer_id=987_655, epoch=-1, sequence=0)),
        send(
            "Produce",
            9,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[
                {"name": T, "partition_data": [{"index": 0, "records": Batch()}]},
                {
                    "name": "contract-missing",
                    "partition_data": [
                        {"index": 0, "records": Batch(transactional=True)},
                        {"index": 1, "records": Batch()},
                    ],
                },
            ],
        ),
        fetch(12),
    ),
    scenario(
        "produce-min-isr",
        {
            "t": {"configs": {"min.insync.replicas": "3"}},
            "two": {"replicas": [1, 2], "configs": {"min.insync.replicas": "3"}},
        },
        produce(9),
        produce(9, acks=1),
        produce(9, name=topic("two")),
    ),
    scenario(
        "produce-segment",
        {"t": {"configs": {"segment.bytes": "1048576", "max.message.bytes": "3000000"}}},
        produce(9, Batch((b"x" * 1_500_000,))),
    ),
    scenario(
        "internal-topics",
        {},
        produce(9, name="__consumer_offsets"),
        delete_records(2, 0, name="__consumer_offsets"),
    ),
    scenario(
        "produce-compacted",
        {"t": {"configs": {"cleanup.policy": "compact"}}},
        produce(9),
        produce(3),
    ),
]

FETCH: Final = [
    scenario(
        "fetch-versions",
        TOPIC,
        SEED,
        *[fetch(version, by_id=version >= 13) for version in range(4, 19)],
        fetch(12, 1),
        fetch(12, 3),
        fetch(12, isolation_level=1),
        fetch(4, isolation_level=1),
        fetch(12, row={"partition_max_bytes": 1}),
        fetch(12, max_bytes=0),
        fetch(12, row={"partition_max_bytes": 0}),
        fetch(12, row={"partition_max_bytes": -1}),
        fetch(12, max_wait_ms=-1, min_bytes=100),
        fetch(12, isolation_level=7),
        send("Fetch", 12, max_bytes=100, session_epoch=-1, topics=[]),
    ),
    scenario(
        "fetch-refused",
        TOPIC,
        SEED,
        fetch((4, 11, 12), 9),
        fetch(12, -1),
        fetch((4, 12), index=5),
        fetch(17, index=5, by_id=True),
        fetch((4, 12), name="contract-missing"),
        fetch(17, by_id=True, topic_id=UNKNOWN_TOPIC_ID),
        fetch(17, by_id=True, topic_id=uuid.UUID(int=0)),
        fetch((4, 12), broker=2),
        fetch((13, 16, 18), by_id=True, broker=2),
        *[
            fetch(version, row={"current_leader_epoch": epoch})
            for version in (9, 12)
            for epoch in (0, 5)
        ],
        fetch(12, row={"current_leader_epoch": -2}),
        fetch(12, row={"last_fetched_epoch": 5}),
        fetch(12, row={"last_fetched_epoch": 0}),
        fetch(12, 7, row={"last_fetched_epoch": 0}),
        fetch(12, cut=2),
        send("Fetch", 99),
    ),
    scenario(
        "fetch-sessions",
        TOPIC,
        SEED,
        fetch(12, session=(0, 0), label="s"),
        fetch(12, session=(reply("s", "session_id"), 1), topics=[]),
        fetch(12, 3, session=(reply("s", "session_id"), 2)),
        fetch(12, session=(reply("s", "session_id"), 9), topics=[]),
        fetch(12, session=(reply("s", "session_id"), 2), topics=[]),
        fetch(13, session=(reply("s", "session_id"), 3), topics=[]),
        fetch(12, session=(123_456, 1), topics=[]),
        fetch(12, session=(0, 1), topics=[]),
        fetch(12, session=(reply("s", "session_id"), -1), topics=[]),
        fetch(12, session=(reply("s", "session_id"), 3), topics=[]),
        fetch(12, session=(0, -2), topics=[]),
        fetch(13, session=(0, 0), by_id=True, label="i"),
        fetch(12, session=(reply("i", "session_id"), 1), topics=[]),
        fetch(7, session=(0, 0), index=5, label="bad"),
        fetch(7, session=(reply("bad", "session_id"), 1), topics=[]),
    ),
    scenario(
        "fetch-replicas",
        {"t": {"replicas": [1, 2]}},
        SEED,
        *[fetch(version, by_id=version >= 13, **NEAR_2) for version in range(11, 19)],
        fetch(10),
        *[fetch(12, rack_id=rack) for rack in ("", "rack-1", "rack-3", "no-rack")],
        fetch(12, 3, min_bytes=1, max_wait_ms=10_000, **NEAR_2),
        fetch(12, 9, **NEAR_2),
        fetch(12, -1, **NEAR_2),
        fetch(12, isolation_level=1, **NEAR_2),
        fetch(12, row={"partition_max_bytes": -1}, **NEAR_2),
        fetch(12, row={"last_fetched_epoch": 5}, **NEAR_2),
        *[fetch(12, row={"current_leader_epoch": epoch}, **NEAR_2) for epoch in (0, 5)],
        fetch(12, session=(0, 0), label="s", **NEAR_2),
        fetch(12, session=(reply("s", "session_id"), 1), topics=[], **NEAR_2),
        fetch(12, session=(reply("s", "session_id"), 2), topics=[]),
        fetch(12, session=(reply("s", "session_id"), 3), topics=[]),
        fetch(12, session=(reply("s", "session_id"), 4), topics=[], **NEAR_2),
        fetch(11, broker=2, awaiting=SEED_IS_REPLICATED, **NEAR_2),
        *[fetch(version, by_id=version >= 13, broker=2, **NEAR_2) for version in range(12, 19)],
        fetch((4, 10), broker=2),
        *[fetch(12, broker=2, rack_id=rack) for rack in ("", "rack-1", "rack-3")],
        fetch(12, 3, broker=2),
        fetch(12, 9, broker=2),
        fetch(12, isolation_level=1, broker=2),
        fetch(12, row={"last_fetched_epoch": 0}, broker=2),
        *[fetch(12, row={"current_leader_epoch": epoch}, broker=2) for epoch in (0, 5)],
        fetch(12, broker=3, **NEAR_2),
        fetch(12, row={"current_leader_epoch": 5}, broker=3),
        offsets((1, 8), -1, broker=2),
        offsets(8, -1, row={"current_leader_epoch": 5}, broker=2),
        epoch_end(4, 0, broker=2),
        epoch_end(4, 0, current=5, broker=2),
    ),
]

OFFSETS: Final = [
    scenario(
        "list-offsets",
        TOPIC,
        SEED,
        produce(9, Batch(timestamp=5_000), setup=True),
        *[offsets(version, timestamp) for version in range(1, 12) for timestamp in (-1, -2)],
        offsets((1, 6, 7, 11), -3),
        offsets((7, 8), -4),
        offsets((8, 9), -5),
        offsets((10, 11), -6),
        offsets((1, 11), -9),
        *[offsets(8, time) for time in (0, 1_000, 1_001, 5_000, 5_001)],
        offsets(8, -1, isolation_level=1),
        offsets(8, -1, isolation_level=9),
        offsets(8, -1, replica_id=-2),
        offsets(8, -1, index=4),
        offsets(1, -1, index=4),
        offsets(8, -1, name="contract-missing"),
        offsets(8, -1, broker=3),
        offsets(1, -1, broker=3),
        offsets(8, -1, row={"current_leader_epoch": 4}),
        offsets(8, -1, row={"current_leader_epoch": 0}),
        offsets(8, -1, row={"current_leader_epoch": -2}),
        send("ListOffsets", 8, replica_id=-1, topics=[]),
        send(
            "ListOffsets",
            8,
            replica_id=-1,
            topics=[{"name": T, "partitions": [{"partition_index": 0, "timestamp": -1}] * 2}],
        ),
    ),
    scenario(
        "list-offsets-empty",
        TOPIC,
        *[offsets(11, timestamp) for timestamp in (-1, -2, -3, -4, -5, -6, 0)],
    ),
    scenario(
        "delete-records",
        {"t": {}, "compacted": {"configs": {"cleanup.policy": "compact"}}},
        SEED,
        *[delete_records(version, version) for version in (0, 1, 2)],
        delete_records(2, 1),
        delete_records(2, -1),
        delete_records(2, 99),
        delete_records(0, 99),
        delete_records(2, -2),
        delete_records(2, 0, index=6),
        delete_records(2, 0, name="contract-missing"),
        delete_records(2, 0, broker=2),
        delete_records(2, 0, name=topic("compacted")),
        send("DeleteRecords", 2, topics=[], timeout_ms=1000),
        fetch(12, 0),
        offsets(8, -2),
    ),
    scenario(
        "describe-producers",
        {"t": {}},
        SEED,
        IDEMPOTENT,
        producers(0),
        produce(9, mine(0, b"a", b"b"), setup=True),
        producers(0),
        producers(0, 0, 6),
        producers(0, -1),
        producers(0, name="contract-missing"),
        producers(0, name="no topic"),
        producers(0, broker=2),
        send("DescribeProducers", 0, topics=[]),
    ),
    scenario(
        "offset-for-leader-epoch",
        TOPIC,
        SEED,
        epoch_end((2, 3, 4), 0),
        epoch_end(4, 7),
        epoch_end(4, -1),
        epoch_end(4, 0, current=0),
        epoch_end(4, 0, current=3),
        epoch_end(4, 0, current=-2),
        epoch_end(4, -3),
        epoch_end(4, 0, index=3),
        epoch_end(2, 0, name="contract-missing"),
        epoch_end(4, 0, broker=2),
        send("OffsetForLeaderEpoch", 4, replica_id=-1, topics=[]),
    ),
]

SCENARIOS: Final = [*PRODUCE, *FETCH, *OFFSETS]
