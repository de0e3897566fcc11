"""Produce, Fetch, ListOffsets, DeleteRecords and OffsetForLeaderEpoch."""

from __future__ import annotations

import uuid
from typing import Any, Final

from tests.contract.model import TOPIC, Ask, Batch, Fields, Joined, Scenario, TopicId, reply, topic

NOWHERE: Final = uuid.UUID(int=0x1234_5678)
"""A topic id that no topic has."""


def produce(
    records: Any = Batch(),  # noqa: B008  # immutable
    *,
    acks: int = -1,
    index: int = 0,
    name: Any = None,
    topic_id: Any = None,
    transactional_id: Any = None,
) -> Fields:
    """Return a Produce request for one partition."""
    row = {"index": index, "records": records}
    where = {"name": topic() if name is None else name, "partition_data": [row]}
    if topic_id is not None:
        where = {"topic_id": topic_id, "partition_data": [row]}
    fields: Fields = {"acks": acks, "timeout_ms": 10_000, "topic_data": [where]}
    return fields if transactional_id is None else fields | {"transactional_id": transactional_id}


def fetch(
    offset: int = 0,
    *,
    by_id: bool = False,
    index: int = 0,
    name: Any = None,
    topic_id: Any = None,
    session: tuple[Any, int] = (0, -1),
    row: Fields | None = None,
    **fields: Any,
) -> Fields:
    """Return a Fetch request for one partition."""
    partition = {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    where: Fields = {"topic": topic() if name is None else name}
    if by_id or topic_id is not None:
        where = {"topic_id": TopicId() if topic_id is None else topic_id}
    return {
        "max_bytes": 1 << 20,
        "min_bytes": 0,
        "max_wait_ms": 0,
        "session_id": session[0],
        "session_epoch": session[1],
        "topics": [{**where, "partitions": [partition | (row or {})]}],
    } | fields


def offsets(timestamp: int, *, index: int = 0, name: Any = None, **row: Any) -> Fields:
    """Return a ListOffsets request for one partition."""
    rows = [{"partition_index": index, "timestamp": timestamp, **row}]
    return {
        "replica_id": -1,
        "topics": [{"name": topic() if name is None else name, "partitions": rows}],
    }


def delete_records(offset: int, *, index: int = 0, name: Any = None) -> Fields:
    """Return a DeleteRecords request for one partition."""
    rows = [{"partition_index": index, "offset": offset}]
    where = {"name": topic() if name is None else name, "partitions": rows}
    return {"topics": [where], "timeout_ms": 10_000}


def epoch_end(epoch: int, *, current: int = -1, index: int = 0, name: Any = None) -> Fields:
    """Return an OffsetForLeaderEpoch request for one partition."""
    rows = [{"partition": index, "leader_epoch": epoch, "current_leader_epoch": current}]
    where = {"topic": topic() if name is None else name, "partitions": rows}
    return {"replica_id": -1, "topics": [where]}


def producers(*indexes: int, name: Any = None) -> Fields:
    """Return a DescribeProducers request for one topic, of partition 0 unless told."""
    where = {"name": topic() if name is None else name, "partition_indexes": indexes or (0,)}
    return {"topics": [where]}


SEED: Final = Ask("Produce", 9, produce(Batch((b"a", b"b", b"c"))), setup=True)
IDEMPOTENT: Final = Ask(
    "InitProducerId",
    5,
    {"transactional_id": None, "transaction_timeout_ms": 60_000},
    label="p",
    retry=(14,),
    setup=True,
)
ME: Final = reply("p", "producer_id")


def mine(sequence: int, *values: bytes, epoch: int = 0, **more: Any) -> Batch:
    """Return a batch of the scenario's idempotent producer."""
    return Batch(values or (b"v",), producer_id=ME, epoch=epoch, sequence=sequence, **more)


def number(value: int, size: int) -> bytes:
    """Return a field of a batch's header."""
    return value.to_bytes(size, "big", signed=True)


PRODUCE: Final = [
    Scenario(
        "produce-versions",
        [
            *[
                Ask("Produce", version, produce(acks=acks))
                for version in range(3, 13)
                for acks in (-1, 1)
            ],
            Ask("Produce", 13, produce(topic_id=TopicId())),
            Ask("Produce", 9, produce(acks=0), silent=True),
            Ask("Produce", 9, produce(Batch((b"a", b"b")))),
        ],
        TOPIC,
    ),
    Scenario(
        "produce-refused",
        [
            *[Ask("Produce", version, produce(acks=2)) for version in (3, 8, 12)],
            Ask("Produce", 12, produce(acks=-2)),
            *[Ask("Produce", version, produce(index=7)) for version in (3, 9, 12)],
            Ask("Produce", 9, produce(index=-1)),
            *[Ask("Produce", version, produce(name="contract-missing")) for version in (3, 12)],
            Ask("Produce", 12, produce(name="")),
            Ask("Produce", 12, produce(name="no/name")),
            Ask("Produce", 13, produce(topic_id=NOWHERE)),
            Ask("Produce", 13, produce(topic_id=uuid.UUID(int=0))),
            Ask("Produce", 9, produce(b"")),
            Ask("Produce", 9, produce(b"short")),
            Ask("Produce", 9, produce(b"x" * 100)),
            Ask("Produce", 9, produce(acks=0, index=7), silent=True),
            Ask("Produce", 9, produce(acks=5, index=7)),
            *[Ask("Produce", version, produce(), broker=2) for version in (3, 9, 10, 12)],
            Ask("Produce", 9, produce(), cut=3),
            Ask("Produce", 99, {}),
            Ask("Produce", -1, {}),
        ],
        TOPIC,
    ),
    Scenario(
        "produce-batches",
        [
            Ask("Produce", 9, produce(Batch(patches=((60, b"\x55"),), good_crc=False))),
            Ask("Produce", 9, produce(Batch(patches=((16, b"\x03"),)))),
            Ask("Produce", 9, produce(Batch(patches=((16, b"\x01"),)))),
            Ask("Produce", 9, produce(Joined((Batch(), Batch())))),
            Ask("Produce", 9, produce(Batch(patches=((8, number(4000, 4)),)))),
            Ask("Produce", 9, produce(Batch(patches=((57, number(2, 4)),)))),
            Ask("Produce", 9, produce(Batch(patches=((57, number(0, 4)),)))),
            Ask("Produce", 9, produce(Batch(patches=((57, number(-1, 4)),)))),
            Ask("Produce", 9, produce(Batch(patches=((23, number(5, 4)),)))),
            Ask("Produce", 9, produce(Batch(patches=((23, number(-1, 4)),)))),
            Ask("Produce", 9, produce(Batch(patches=((21, number(0x20, 2)),)))),
            Ask("Produce", 9, produce(Batch(patches=((21, number(7, 2)),)))),
            Ask("Produce", 9, produce(Batch(patches=((21, number(0x10, 2)),)))),
            Ask("Produce", 9, produce(Batch(patches=((0, number(77, 8)),), good_crc=True))),
            Ask("Produce", 9, produce(Batch(patches=((61, b"\x7f"),)))),
            Ask("Produce", 9, produce(Batch((b"x" * 1_100_000,)))),
            Ask("Produce", 3, produce(Batch(compression="zstd"))),
            Ask("Produce", 6, produce(Batch(compression="zstd"))),
            Ask("Produce", 7, produce(Batch(compression="zstd"))),
            *[
                Ask("Produce", 9, produce(Batch(compression=codec)))
                for codec in ("gzip", "snappy", "lz4")
            ],
            Ask("Fetch", 12, fetch()),
        ],
        TOPIC,
    ),
    Scenario(
        "produce-timestamps",
        [
            Ask("Produce", 9, produce(name=topic("append"))),
            Ask("Produce", 2 + 1, produce(name=topic("append"))),
            Ask("Produce", 9, produce(Batch(timestamp=-1))),
            Ask("Produce", 9, produce(Batch(timestamp=32_503_680_000_000))),
            Ask("Produce", 9, produce(Batch(timestamp=0), name=topic("recent"))),
            Ask("Produce", 9, produce(name=topic("small"))),
            Ask("Produce", 9, produce(Batch((b"x" * 200,)), name=topic("small"))),
            Ask("Fetch", 12, fetch(name=topic("append"))),
        ],
        {
            "t": {},
            "append": {"configs": {"message.timestamp.type": "LogAppendTime"}},
            "recent": {"configs": {"message.timestamp.before.max.ms": "1000"}},
            "small": {"configs": {"max.message.bytes": "100"}},
        },
    ),
    Scenario(
        "produce-idempotent",
        [
            IDEMPOTENT,
            Ask("Produce", 9, produce(mine(0, b"a", b"b"))),
            Ask("Produce", 9, produce(mine(0, b"a", b"b"))),
            Ask("Produce", 9, produce(mine(2))),
            Ask("Produce", 9, produce(mine(2))),
            Ask("Produce", 9, produce(mine(9))),
            Ask("Produce", 9, produce(mine(0))),
            Ask("Produce", 9, produce(mine(5, epoch=1))),
            Ask("Produce", 9, produce(mine(0, epoch=1))),
            Ask("Produce", 9, produce(mine(3, epoch=0))),
            Ask("Produce", 3, produce(mine(3, epoch=0))),
            Ask("Produce", 9, produce(mine(-1))),
            Ask("Produce", 9, produce(mine(1, epoch=-1))),
            Ask("Produce", 9, produce(Batch(producer_id=-1, epoch=1, sequence=0))),
            Ask("Produce", 9, produce(Batch(producer_id=987_654, epoch=0, sequence=5))),
            Ask("Produce", 9, produce(Joined((mine(1, epoch=1), mine(2, epoch=1))))),
            Ask("Produce", 9, produce(mine(1, epoch=1, transactional=True))),
            Ask("Produce", 9, produce(Batch(transactional=True))),
            Ask("Produce", 9, produce(Batch(producer_id=987_655, epoch=-1, sequence=0))),
            Ask(
                "Produce",
                9,
                {
                    "acks": -1,
                    "timeout_ms": 10_000,
                    "topic_data": [
                        {"name": topic(), "partition_data": [{"index": 0, "records": Batch()}]},
                        {
                            "name": "contract-missing",
                            "partition_data": [
                                {"index": 0, "records": Batch(transactional=True)},
                                {"index": 1, "records": Batch()},
                            ],
                        },
                    ],
                },
            ),
            Ask("Fetch", 12, fetch()),
        ],
        TOPIC,
    ),
    Scenario(
        "produce-min-isr",
        [
            Ask("Produce", 9, produce()),
            Ask("Produce", 9, produce(acks=1)),
            Ask("Produce", 9, produce(name=topic("two"))),
        ],
        {
            "t": {"configs": {"min.insync.replicas": "3"}},
            "two": {"replicas": [1, 2], "configs": {"min.insync.replicas": "3"}},
        },
    ),
    Scenario(
        "produce-segment",
        [Ask("Produce", 9, produce(Batch((b"x" * 1_500_000,))))],
        {"t": {"configs": {"segment.bytes": "1048576", "max.message.bytes": "3000000"}}},
    ),
    Scenario(
        "internal-topics",
        [
            Ask("Produce", 9, produce(name="__consumer_offsets")),
            Ask("DeleteRecords", 2, delete_records(0, name="__consumer_offsets")),
        ],
    ),
    Scenario(
        "produce-compacted",
        [Ask("Produce", 9, produce()), Ask("Produce", 3, produce())],
        {"t": {"configs": {"cleanup.policy": "compact"}}},
    ),
]

FETCH: Final = [
    Scenario(
        "fetch-versions",
        [
            SEED,
            *[Ask("Fetch", version, fetch(by_id=version >= 13)) for version in range(4, 19)],
            Ask("Fetch", 12, fetch(1)),
            Ask("Fetch", 12, fetch(3)),
            Ask("Fetch", 12, fetch(isolation_level=1)),
            Ask("Fetch", 4, fetch(isolation_level=1)),
            Ask("Fetch", 12, fetch(row={"partition_max_bytes": 1})),
            Ask("Fetch", 12, fetch(max_bytes=0)),
            Ask("Fetch", 12, fetch(row={"partition_max_bytes": 0})),
            Ask("Fetch", 12, fetch(row={"partition_max_bytes": -1})),
            Ask("Fetch", 12, fetch(max_wait_ms=-1, min_bytes=100)),
            Ask("Fetch", 12, fetch(isolation_level=7)),
            Ask("Fetch", 12, {"max_bytes": 100, "session_epoch": -1, "topics": []}),
        ],
        TOPIC,
    ),
    Scenario(
        "fetch-refused",
        [
            SEED,
            *[Ask("Fetch", version, fetch(9)) for version in (4, 11, 12)],
            Ask("Fetch", 12, fetch(-1)),
            *[Ask("Fetch", version, fetch(index=5)) for version in (4, 12)],
            Ask("Fetch", 17, fetch(index=5, by_id=True)),
            *[Ask("Fetch", version, fetch(name="contract-missing")) for version in (4, 12)],
            Ask("Fetch", 17, fetch(topic_id=NOWHERE)),
            Ask("Fetch", 17, fetch(topic_id=uuid.UUID(int=0))),
            *[Ask("Fetch", version, fetch(), broker=2) for version in (4, 12)],
            *[Ask("Fetch", version, fetch(by_id=True), broker=2) for version in (13, 16, 18)],
            *[
                Ask("Fetch", version, fetch(row={"current_leader_epoch": epoch}))
                for version in (9, 12)
                for epoch in (0, 5)
            ],
            Ask("Fetch", 12, fetch(row={"current_leader_epoch": -2})),
            Ask("Fetch", 12, fetch(row={"last_fetched_epoch": 5})),
            Ask("Fetch", 12, fetch(row={"last_fetched_epoch": 0})),
            Ask("Fetch", 12, fetch(7, row={"last_fetched_epoch": 0})),
            Ask("Fetch", 12, fetch(), cut=2),
            Ask("Fetch", 99, {}),
        ],
        TOPIC,
    ),
    Scenario(
        "fetch-sessions",
        [
            SEED,
            Ask("Fetch", 12, fetch(session=(0, 0)), label="s"),
            Ask("Fetch", 12, fetch(session=(reply("s", "session_id"), 1), topics=[])),
            Ask("Fetch", 12, fetch(3, session=(reply("s", "session_id"), 2))),
            Ask("Fetch", 12, fetch(session=(reply("s", "session_id"), 9), topics=[])),
            Ask("Fetch", 12, fetch(session=(reply("s", "session_id"), 2), topics=[])),
            Ask("Fetch", 13, fetch(session=(reply("s", "session_id"), 3), topics=[])),
            Ask("Fetch", 12, fetch(session=(123_456, 1), topics=[])),
            Ask("Fetch", 12, fetch(session=(0, 1), topics=[])),
            Ask("Fetch", 12, fetch(session=(reply("s", "session_id"), -1), topics=[])),
            Ask("Fetch", 12, fetch(session=(reply("s", "session_id"), 3), topics=[])),
            Ask("Fetch", 12, fetch(session=(0, -2), topics=[])),
            Ask("Fetch", 13, fetch(session=(0, 0), by_id=True), label="i"),
            Ask("Fetch", 12, fetch(session=(reply("i", "session_id"), 1), topics=[])),
            Ask("Fetch", 7, fetch(session=(0, 0), index=5), label="bad"),
            Ask("Fetch", 7, fetch(session=(reply("bad", "session_id"), 1), topics=[])),
        ],
        TOPIC,
    ),
]

OFFSETS: Final = [
    Scenario(
        "list-offsets",
        [
            SEED,
            Ask("Produce", 9, produce(Batch(timestamp=5_000)), setup=True),
            *[
                Ask("ListOffsets", version, offsets(timestamp))
                for version in range(1, 12)
                for timestamp in (-1, -2)
            ],
            *[Ask("ListOffsets", version, offsets(-3)) for version in (1, 6, 7, 11)],
            *[Ask("ListOffsets", version, offsets(-4)) for version in (7, 8)],
            *[Ask("ListOffsets", version, offsets(-5)) for version in (8, 9)],
            *[Ask("ListOffsets", version, offsets(-6)) for version in (10, 11)],
            *[Ask("ListOffsets", version, offsets(-9)) for version in (1, 11)],
            *[Ask("ListOffsets", 8, offsets(time)) for time in (0, 1_000, 1_001, 5_000, 5_001)],
            Ask("ListOffsets", 8, offsets(-1) | {"isolation_level": 1}),
            Ask("ListOffsets", 8, offsets(-1) | {"isolation_level": 9}),
            Ask("ListOffsets", 8, offsets(-1) | {"replica_id": -2}),
            Ask("ListOffsets", 8, offsets(-1, index=4)),
            Ask("ListOffsets", 1, offsets(-1, index=4)),
            Ask("ListOffsets", 8, offsets(-1, name="contract-missing")),
            Ask("ListOffsets", 8, offsets(-1), broker=3),
            Ask("ListOffsets", 1, offsets(-1), broker=3),
            Ask("ListOffsets", 8, offsets(-1, current_leader_epoch=4)),
            Ask("ListOffsets", 8, offsets(-1, current_leader_epoch=0)),
            Ask("ListOffsets", 8, offsets(-1, current_leader_epoch=-2)),
            Ask("ListOffsets", 8, {"replica_id": -1, "topics": []}),
            Ask(
                "ListOffsets",
                8,
                {
                    "replica_id": -1,
                    "topics": [
                        {
                            "name": topic(),
                            "partitions": [{"partition_index": 0, "timestamp": -1}] * 2,
                        }
                    ],
                },
            ),
        ],
        TOPIC,
    ),
    Scenario(
        "list-offsets-empty",
        [Ask("ListOffsets", 11, offsets(timestamp)) for timestamp in (-1, -2, -3, -4, -5, -6, 0)],
        TOPIC,
    ),
    Scenario(
        "delete-records",
        [
            SEED,
            *[Ask("DeleteRecords", version, delete_records(version)) for version in (0, 1, 2)],
            Ask("DeleteRecords", 2, delete_records(1)),
            Ask("DeleteRecords", 2, delete_records(-1)),
            Ask("DeleteRecords", 2, delete_records(99)),
            Ask("DeleteRecords", 0, delete_records(99)),
            Ask("DeleteRecords", 2, delete_records(-2)),
            Ask("DeleteRecords", 2, delete_records(0, index=6)),
            Ask("DeleteRecords", 2, delete_records(0, name="contract-missing")),
            Ask("DeleteRecords", 2, delete_records(0), broker=2),
            Ask("DeleteRecords", 2, delete_records(0, name=topic("compacted"))),
            Ask("DeleteRecords", 2, {"topics": [], "timeout_ms": 1000}),
            Ask("Fetch", 12, fetch(0)),
            Ask("ListOffsets", 8, offsets(-2)),
        ],
        {"t": {}, "compacted": {"configs": {"cleanup.policy": "compact"}}},
    ),
    Scenario(
        "describe-producers",
        [
            SEED,
            IDEMPOTENT,
            Ask("DescribeProducers", 0, producers()),
            Ask("Produce", 9, produce(mine(0, b"a", b"b")), setup=True),
            Ask("DescribeProducers", 0, producers()),
            Ask("DescribeProducers", 0, producers(0, 6)),
            Ask("DescribeProducers", 0, producers(-1)),
            Ask("DescribeProducers", 0, producers(name="contract-missing")),
            Ask("DescribeProducers", 0, producers(name="no topic")),
            Ask("DescribeProducers", 0, producers(), broker=2),
            Ask("DescribeProducers", 0, {"topics": []}),
        ],
        {"t": {}},
    ),
    Scenario(
        "offset-for-leader-epoch",
        [
            SEED,
            *[Ask("OffsetForLeaderEpoch", version, epoch_end(0)) for version in (2, 3, 4)],
            Ask("OffsetForLeaderEpoch", 4, epoch_end(7)),
            Ask("OffsetForLeaderEpoch", 4, epoch_end(-1)),
            Ask("OffsetForLeaderEpoch", 4, epoch_end(0, current=0)),
            Ask("OffsetForLeaderEpoch", 4, epoch_end(0, current=3)),
            Ask("OffsetForLeaderEpoch", 4, epoch_end(0, current=-2)),
            Ask("OffsetForLeaderEpoch", 4, epoch_end(-3)),
            Ask("OffsetForLeaderEpoch", 4, epoch_end(0, index=3)),
            Ask("OffsetForLeaderEpoch", 2, epoch_end(0, name="contract-missing")),
            Ask("OffsetForLeaderEpoch", 4, epoch_end(0), broker=2),
            Ask("OffsetForLeaderEpoch", 4, {"replica_id": -1, "topics": []}),
        ],
        TOPIC,
    ),
]

SCENARIOS: Final = [*PRODUCE, *FETCH, *OFFSETS]
