"""Produce, Fetch, ListOffsets, DeleteRecords and OffsetForLeaderEpoch."""

from __future__ import annotations

import uuid
from typing import Any, Final

from tests.contract.model import (
    TOPIC,
    Batch,
    Fields,
    Joined,
    Scenario,
    SendRequest,
    TopicId,
    reply,
    topic,
)

UNKNOWN_TOPIC_ID: Final = uuid.UUID(int=0x1234_5678)
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
    """Return a DescribeProducers request for one topic, of partition 0 by default."""
    where = {"name": topic() if name is None else name, "partition_indexes": indexes or (0,)}
    return {"topics": [where]}


SEED: Final = SendRequest("Produce", 9, produce(Batch((b"a", b"b", b"c"))), setup=True)
IDEMPOTENT: Final = SendRequest(
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
                SendRequest("Produce", version, produce(acks=acks))
                for version in range(3, 13)
                for acks in (-1, 1)
            ],
            SendRequest("Produce", 13, produce(topic_id=TopicId())),
            SendRequest("Produce", 9, produce(acks=0), silent=True),
            SendRequest("Produce", 9, produce(Batch((b"a", b"b")))),
        ],
        TOPIC,
    ),
    Scenario(
        "produce-refused",
        [
            *[SendRequest("Produce", version, produce(acks=2)) for version in (3, 8, 12)],
            SendRequest("Produce", 12, produce(acks=-2)),
            *[SendRequest("Produce", version, produce(index=7)) for version in (3, 9, 12)],
            SendRequest("Produce", 9, produce(index=-1)),
            *[
                SendRequest("Produce", version, produce(name="contract-missing"))
                for version in (3, 12)
            ],
            SendRequest("Produce", 12, produce(name="")),
            SendRequest("Produce", 12, produce(name="no/name")),
            SendRequest("Produce", 13, produce(topic_id=UNKNOWN_TOPIC_ID)),
            SendRequest("Produce", 13, produce(topic_id=uuid.UUID(int=0))),
            SendRequest("Produce", 9, produce(b"")),
            SendRequest("Produce", 9, produce(b"short")),
            SendRequest("Produce", 9, produce(b"x" * 100)),
            SendRequest("Produce", 9, produce(acks=0, index=7), silent=True),
            SendRequest("Produce", 9, produce(acks=5, index=7)),
            *[SendRequest("Produce", version, produce(), broker=2) for version in (3, 9, 10, 12)],
            SendRequest("Produce", 9, produce(), cut=3),
            SendRequest("Produce", 99, {}),
            SendRequest("Produce", -1, {}),
        ],
        TOPIC,
    ),
    Scenario(
        "produce-batches",
        [
            SendRequest("Produce", 9, produce(Batch(patches=((60, b"\x55"),), good_crc=False))),
            SendRequest("Produce", 9, produce(Batch(patches=((16, b"\x03"),)))),
            SendRequest("Produce", 9, produce(Batch(patches=((16, b"\x01"),)))),
            SendRequest("Produce", 9, produce(Joined((Batch(), Batch())))),
            SendRequest("Produce", 9, produce(Batch(patches=((8, number(4000, 4)),)))),
            SendRequest("Produce", 9, produce(Batch(patches=((57, number(2, 4)),)))),
            SendRequest("Produce", 9, produce(Batch(patches=((57, number(0, 4)),)))),
            SendRequest("Produce", 9, produce(Batch(patches=((57, number(-1, 4)),)))),
            SendRequest("Produce", 9, produce(Batch(patches=((23, number(5, 4)),)))),
            SendRequest("Produce", 9, produce(Batch(patches=((23, number(-1, 4)),)))),
            SendRequest("Produce", 9, produce(Batch(patches=((21, number(0x20, 2)),)))),
            SendRequest("Produce", 9, produce(Batch(patches=((21, number(7, 2)),)))),
            SendRequest("Produce", 9, produce(Batch(patches=((21, number(0x10, 2)),)))),
            SendRequest("Produce", 9, produce(Batch(patches=((0, number(77, 8)),), good_crc=True))),
            SendRequest("Produce", 9, produce(Batch(patches=((61, b"\x7f"),)))),
            SendRequest("Produce", 9, produce(Batch((b"x" * 1_100_000,)))),
            SendRequest("Produce", 3, produce(Batch(compression="zstd"))),
            SendRequest("Produce", 6, produce(Batch(compression="zstd"))),
            SendRequest("Produce", 7, produce(Batch(compression="zstd"))),
            *[
                SendRequest("Produce", 9, produce(Batch(compression=codec)))
                for codec in ("gzip", "snappy", "lz4")
            ],
            SendRequest("Fetch", 12, fetch()),
        ],
        TOPIC,
    ),
    Scenario(
        "produce-timestamps",
        [
            SendRequest("Produce", 9, produce(name=topic("append"))),
            SendRequest("Produce", 2 + 1, produce(name=topic("append"))),
            SendRequest("Produce", 9, produce(Batch(timestamp=-1))),
            SendRequest("Produce", 9, produce(Batch(timestamp=32_503_680_000_000))),
            SendRequest("Produce", 9, produce(Batch(timestamp=0), name=topic("recent"))),
            SendRequest("Produce", 9, produce(name=topic("small"))),
            SendRequest("Produce", 9, produce(Batch((b"x" * 200,)), name=topic("small"))),
            SendRequest("Fetch", 12, fetch(name=topic("append"))),
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
            SendRequest("Produce", 9, produce(mine(0, b"a", b"b"))),
            SendRequest("Produce", 9, produce(mine(0, b"a", b"b"))),
            SendRequest("Produce", 9, produce(mine(2))),
            SendRequest("Produce", 9, produce(mine(2))),
            SendRequest("Produce", 9, produce(mine(9))),
            SendRequest("Produce", 9, produce(mine(0))),
            SendRequest("Produce", 9, produce(mine(5, epoch=1))),
            SendRequest("Produce", 9, produce(mine(0, epoch=1))),
            SendRequest("Produce", 9, produce(mine(3, epoch=0))),
            SendRequest("Produce", 3, produce(mine(3, epoch=0))),
            SendRequest("Produce", 9, produce(mine(-1))),
            SendRequest("Produce", 9, produce(mine(1, epoch=-1))),
            SendRequest("Produce", 9, produce(Batch(producer_id=-1, epoch=1, sequence=0))),
            SendRequest("Produce", 9, produce(Batch(producer_id=987_654, epoch=0, sequence=5))),
            SendRequest("Produce", 9, produce(Joined((mine(1, epoch=1), mine(2, epoch=1))))),
            SendRequest("Produce", 9, produce(mine(1, epoch=1, transactional=True))),
            SendRequest("Produce", 9, produce(Batch(transactional=True))),
            SendRequest("Produce", 9, produce(Batch(producer_id=987_655, epoch=-1, sequence=0))),
            SendRequest(
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
            SendRequest("Fetch", 12, fetch()),
        ],
        TOPIC,
    ),
    Scenario(
        "produce-min-isr",
        [
            SendRequest("Produce", 9, produce()),
            SendRequest("Produce", 9, produce(acks=1)),
            SendRequest("Produce", 9, produce(name=topic("two"))),
        ],
        {
            "t": {"configs": {"min.insync.replicas": "3"}},
            "two": {"replicas": [1, 2], "configs": {"min.insync.replicas": "3"}},
        },
    ),
    Scenario(
        "produce-segment",
        [SendRequest("Produce", 9, produce(Batch((b"x" * 1_500_000,))))],
        {"t": {"configs": {"segment.bytes": "1048576", "max.message.bytes": "3000000"}}},
    ),
    Scenario(
        "internal-topics",
        [
            SendRequest("Produce", 9, produce(name="__consumer_offsets")),
            SendRequest("DeleteRecords", 2, delete_records(0, name="__consumer_offsets")),
        ],
    ),
    Scenario(
        "produce-compacted",
        [SendRequest("Produce", 9, produce()), SendRequest("Produce", 3, produce())],
        {"t": {"configs": {"cleanup.policy": "compact"}}},
    ),
]

FETCH: Final = [
    Scenario(
        "fetch-versions",
        [
            SEED,
            *[
                SendRequest("Fetch", version, fetch(by_id=version >= 13))
                for version in range(4, 19)
            ],
            SendRequest("Fetch", 12, fetch(1)),
            SendRequest("Fetch", 12, fetch(3)),
            SendRequest("Fetch", 12, fetch(isolation_level=1)),
            SendRequest("Fetch", 4, fetch(isolation_level=1)),
            SendRequest("Fetch", 12, fetch(row={"partition_max_bytes": 1})),
            SendRequest("Fetch", 12, fetch(max_bytes=0)),
            SendRequest("Fetch", 12, fetch(row={"partition_max_bytes": 0})),
            SendRequest("Fetch", 12, fetch(row={"partition_max_bytes": -1})),
            SendRequest("Fetch", 12, fetch(max_wait_ms=-1, min_bytes=100)),
            SendRequest("Fetch", 12, fetch(isolation_level=7)),
            SendRequest("Fetch", 12, {"max_bytes": 100, "session_epoch": -1, "topics": []}),
        ],
        TOPIC,
    ),
    Scenario(
        "fetch-refused",
        [
            SEED,
            *[SendRequest("Fetch", version, fetch(9)) for version in (4, 11, 12)],
            SendRequest("Fetch", 12, fetch(-1)),
            *[SendRequest("Fetch", version, fetch(index=5)) for version in (4, 12)],
            SendRequest("Fetch", 17, fetch(index=5, by_id=True)),
            *[SendRequest("Fetch", version, fetch(name="contract-missing")) for version in (4, 12)],
            SendRequest("Fetch", 17, fetch(topic_id=UNKNOWN_TOPIC_ID)),
            SendRequest("Fetch", 17, fetch(topic_id=uuid.UUID(int=0))),
            *[SendRequest("Fetch", version, fetch(), broker=2) for version in (4, 12)],
            *[
                SendRequest("Fetch", version, fetch(by_id=True), broker=2)
                for version in (13, 16, 18)
            ],
            *[
                SendRequest("Fetch", version, fetch(row={"current_leader_epoch": epoch}))
                for version in (9, 12)
                for epoch in (0, 5)
            ],
            SendRequest("Fetch", 12, fetch(row={"current_leader_epoch": -2})),
            SendRequest("Fetch", 12, fetch(row={"last_fetched_epoch": 5})),
            SendRequest("Fetch", 12, fetch(row={"last_fetched_epoch": 0})),
            SendRequest("Fetch", 12, fetch(7, row={"last_fetched_epoch": 0})),
            SendRequest("Fetch", 12, fetch(), cut=2),
            SendRequest("Fetch", 99, {}),
        ],
        TOPIC,
    ),
    Scenario(
        "fetch-sessions",
        [
            SEED,
            SendRequest("Fetch", 12, fetch(session=(0, 0)), label="s"),
            SendRequest("Fetch", 12, fetch(session=(reply("s", "session_id"), 1), topics=[])),
            SendRequest("Fetch", 12, fetch(3, session=(reply("s", "session_id"), 2))),
            SendRequest("Fetch", 12, fetch(session=(reply("s", "session_id"), 9), topics=[])),
            SendRequest("Fetch", 12, fetch(session=(reply("s", "session_id"), 2), topics=[])),
            SendRequest("Fetch", 13, fetch(session=(reply("s", "session_id"), 3), topics=[])),
            SendRequest("Fetch", 12, fetch(session=(123_456, 1), topics=[])),
            SendRequest("Fetch", 12, fetch(session=(0, 1), topics=[])),
            SendRequest("Fetch", 12, fetch(session=(reply("s", "session_id"), -1), topics=[])),
            SendRequest("Fetch", 12, fetch(session=(reply("s", "session_id"), 3), topics=[])),
            SendRequest("Fetch", 12, fetch(session=(0, -2), topics=[])),
            SendRequest("Fetch", 13, fetch(session=(0, 0), by_id=True), label="i"),
            SendRequest("Fetch", 12, fetch(session=(reply("i", "session_id"), 1), topics=[])),
            SendRequest("Fetch", 7, fetch(session=(0, 0), index=5), label="bad"),
            SendRequest("Fetch", 7, fetch(session=(reply("bad", "session_id"), 1), topics=[])),
        ],
        TOPIC,
    ),
]

OFFSETS: Final = [
    Scenario(
        "list-offsets",
        [
            SEED,
            SendRequest("Produce", 9, produce(Batch(timestamp=5_000)), setup=True),
            *[
                SendRequest("ListOffsets", version, offsets(timestamp))
                for version in range(1, 12)
                for timestamp in (-1, -2)
            ],
            *[SendRequest("ListOffsets", version, offsets(-3)) for version in (1, 6, 7, 11)],
            *[SendRequest("ListOffsets", version, offsets(-4)) for version in (7, 8)],
            *[SendRequest("ListOffsets", version, offsets(-5)) for version in (8, 9)],
            *[SendRequest("ListOffsets", version, offsets(-6)) for version in (10, 11)],
            *[SendRequest("ListOffsets", version, offsets(-9)) for version in (1, 11)],
            *[
                SendRequest("ListOffsets", 8, offsets(time))
                for time in (0, 1_000, 1_001, 5_000, 5_001)
            ],
            SendRequest("ListOffsets", 8, offsets(-1) | {"isolation_level": 1}),
            SendRequest("ListOffsets", 8, offsets(-1) | {"isolation_level": 9}),
            SendRequest("ListOffsets", 8, offsets(-1) | {"replica_id": -2}),
            SendRequest("ListOffsets", 8, offsets(-1, index=4)),
            SendRequest("ListOffsets", 1, offsets(-1, index=4)),
            SendRequest("ListOffsets", 8, offsets(-1, name="contract-missing")),
            SendRequest("ListOffsets", 8, offsets(-1), broker=3),
            SendRequest("ListOffsets", 1, offsets(-1), broker=3),
            SendRequest("ListOffsets", 8, offsets(-1, current_leader_epoch=4)),
            SendRequest("ListOffsets", 8, offsets(-1, current_leader_epoch=0)),
            SendRequest("ListOffsets", 8, offsets(-1, current_leader_epoch=-2)),
            SendRequest("ListOffsets", 8, {"replica_id": -1, "topics": []}),
            SendRequest(
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
        [
            SendRequest("ListOffsets", 11, offsets(timestamp))
            for timestamp in (-1, -2, -3, -4, -5, -6, 0)
        ],
        TOPIC,
    ),
    Scenario(
        "delete-records",
        [
            SEED,
            *[
                SendRequest("DeleteRecords", version, delete_records(version))
                for version in (0, 1, 2)
            ],
            SendRequest("DeleteRecords", 2, delete_records(1)),
            SendRequest("DeleteRecords", 2, delete_records(-1)),
            SendRequest("DeleteRecords", 2, delete_records(99)),
            SendRequest("DeleteRecords", 0, delete_records(99)),
            SendRequest("DeleteRecords", 2, delete_records(-2)),
            SendRequest("DeleteRecords", 2, delete_records(0, index=6)),
            SendRequest("DeleteRecords", 2, delete_records(0, name="contract-missing")),
            SendRequest("DeleteRecords", 2, delete_records(0), broker=2),
            SendRequest("DeleteRecords", 2, delete_records(0, name=topic("compacted"))),
            SendRequest("DeleteRecords", 2, {"topics": [], "timeout_ms": 1000}),
            SendRequest("Fetch", 12, fetch(0)),
            SendRequest("ListOffsets", 8, offsets(-2)),
        ],
        {"t": {}, "compacted": {"configs": {"cleanup.policy": "compact"}}},
    ),
    Scenario(
        "describe-producers",
        [
            SEED,
            IDEMPOTENT,
            SendRequest("DescribeProducers", 0, producers()),
            SendRequest("Produce", 9, produce(mine(0, b"a", b"b")), setup=True),
            SendRequest("DescribeProducers", 0, producers()),
            SendRequest("DescribeProducers", 0, producers(0, 6)),
            SendRequest("DescribeProducers", 0, producers(-1)),
            SendRequest("DescribeProducers", 0, producers(name="contract-missing")),
            SendRequest("DescribeProducers", 0, producers(name="no topic")),
            SendRequest("DescribeProducers", 0, producers(), broker=2),
            SendRequest("DescribeProducers", 0, {"topics": []}),
        ],
        {"t": {}},
    ),
    Scenario(
        "offset-for-leader-epoch",
        [
            SEED,
            *[SendRequest("OffsetForLeaderEpoch", version, epoch_end(0)) for version in (2, 3, 4)],
            SendRequest("OffsetForLeaderEpoch", 4, epoch_end(7)),
            SendRequest("OffsetForLeaderEpoch", 4, epoch_end(-1)),
            SendRequest("OffsetForLeaderEpoch", 4, epoch_end(0, current=0)),
            SendRequest("OffsetForLeaderEpoch", 4, epoch_end(0, current=3)),
            SendRequest("OffsetForLeaderEpoch", 4, epoch_end(0, current=-2)),
            SendRequest("OffsetForLeaderEpoch", 4, epoch_end(-3)),
            SendRequest("OffsetForLeaderEpoch", 4, epoch_end(0, index=3)),
            SendRequest("OffsetForLeaderEpoch", 2, epoch_end(0, name="contract-missing")),
            SendRequest("OffsetForLeaderEpoch", 4, epoch_end(0), broker=2),
            SendRequest("OffsetForLeaderEpoch", 4, {"replica_id": -1, "topics": []}),
        ],
        TOPIC,
    ),
]

SCENARIOS: Final = [*PRODUCE, *FETCH, *OFFSETS]
