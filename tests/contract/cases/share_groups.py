"""The APIs of share groups (KIP-932, KIP-1206, KIP-1222), and the configurations of groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.contract.cases.admin import alter as alter_configs
from tests.contract.cases.admin import describe as describe_configs
from tests.contract.cases.consumer_groups import join as join_consumer
from tests.contract.cases.consumer_groups import stay as stay_consumer
from tests.contract.cases.groups import commit, committed_by, delete_offsets, heartbeat, leave, sync
from tests.contract.cases.groups import join as join_classic
from tests.contract.cases.log import UNKNOWN_TOPIC_ID, delete_records, produce
from tests.contract.cases.log import fetch as fetch_log
from tests.contract.cases.transactions import EPOCH, MARKER, ME, add, begin, end
from tests.contract.model import (
    GROUP,
    TOPIC,
    TXN,
    Batch,
    CloseConnection,
    Fields,
    SendRequest,
    Step,
    T,
    TopicId,
    group,
    request,
    scenario,
    send,
    topic,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

GROUP_CONFIG: Final = 32
TWO_PARTITIONS: Final = {"t": {"partitions": 2}}
STRANGER: Final = "stranger"
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
BATCH_OPTIMIZED, RECORD_LIMIT = range(2)
EMPTY_WAIT_MS: Final = 100
WAIT_MS: Final = 1_500
"""Time for which a fetch waits whose scenario has records for it."""
ASSIGNED: Final = '"topic_partitions": [{'


@request("ShareGroupHeartbeat")
def join(member: Any = "m1", names: Any = (T,), **more: Any) -> Fields:
    """Return the first heartbeat of a member."""
    return {
        "group_id": GROUP,
        "member_id": member,
        "member_epoch": 0,
        "subscribed_topic_names": list(names),
        **more,
    }


@request("ShareGroupHeartbeat")
def stay(member: Any = "m1", epoch: int = 3) -> Fields:
    """Return a later heartbeat of a member."""
    return {"group_id": GROUP, "member_id": member, "member_epoch": epoch}


@request("ShareGroupDescribe")
def describe(*groups: Any) -> Fields:
    """Return a ShareGroupDescribe request."""
    return {"group_ids": list(groups) or [GROUP]}


def acknowledgements(*rows: tuple[int, int, Sequence[int]]) -> list[Fields]:
    """Return acknowledgement batches: first offset, last offset and types of each."""
    return [
        {"first_offset": first, "last_offset": last, "acknowledge_types": list(types)}
        for first, last, types in rows
    ]


def partition(index: int = 0, *rows: tuple[int, int, Sequence[int]], key: str = "t") -> Fields:
    """Return a topic with one partition and its acknowledgements."""
    row = {"partition_index": index, "acknowledgement_batches": acknowledgements(*rows)}
    return {"topic_id": TopicId(key), "partitions": [row]}


@request("ShareFetch")
def fetch(epoch: int = 0, member: Any = "m1", topics: Any = None) -> Fields:
    """Return a ShareFetch request; without `topics` the first one of a session has partition 0."""
    first = [partition()] if epoch == 0 else []
    return {
        "group_id": GROUP,
        "member_id": member,
        "share_session_epoch": epoch,
        "max_wait_ms": WAIT_MS,
        "min_bytes": 1,
        "max_bytes": 1_000_000,
        "max_records": 500,
        "batch_size": 500,
        "topics": first if topics is None else topics,
    }


def empty_fetch(version: int, epoch: int, member: Any = "m1", **more: Any) -> SendRequest:
    """Return a ShareFetch that finds nothing."""
    return fetch(version, epoch, member, **{"max_wait_ms": EMPTY_WAIT_MS, **more})


@request("ShareAcknowledge")
def acknowledge(
    epoch: int, *rows: tuple[int, int, Sequence[int]], member: Any = "m1", topics: Any = None
) -> Fields:
    """Return a ShareAcknowledge request for partition 0."""
    return {
        "group_id": GROUP,
        "member_id": member,
        "share_session_epoch": epoch,
        "topics": [partition(0, *rows)] if topics is None else topics,
    }


def renew(epoch: int, *rows: tuple[int, int, Sequence[int]], member: Any = "m1") -> Step:
    """Return a ShareAcknowledge request that may renew locks."""
    return acknowledge(2, epoch, *rows, member=member, is_renew_ack=True)


@request("DescribeShareGroupOffsets")
def describe_offsets(*topics: Any, every: bool = False, name: Any = GROUP) -> Fields:
    """Return a DescribeShareGroupOffsets request; `topics` are names with partitions."""
    rows = [{"topic_name": it, "partitions": list(indexes)} for it, indexes in topics]
    return {"groups": [{"group_id": name, "topics": None if every else rows}]}


@request("AlterShareGroupOffsets")
def alter_offsets(*rows: tuple[int, int], name: Any = T) -> Fields:
    """Return an AlterShareGroupOffsets request: partitions with their start offsets."""
    partitions = [{"partition_index": index, "start_offset": offset} for index, offset in rows]
    return {"group_id": GROUP, "topics": [{"topic_name": name, "partitions": partitions}]}


@request("DeleteShareGroupOffsets")
def delete_share_offsets(*names: Any) -> Fields:
    """Return a DeleteShareGroupOffsets request."""
    return {"group_id": GROUP, "topics": [{"topic_name": name} for name in names or (T,)]}


def configure(name: str, value: str | None, operation: int = 0) -> list[Step]:
    """Return the steps that change a configuration of the group and wait until it applies."""
    return [
        alter_configs(1, (name, value, operation), kind=GROUP_CONFIG, name=GROUP),
        describe_configs(4, GROUP_CONFIG, GROUP, (name,), awaiting=f'"value": "{value}"'),
    ]


def started(*values: bytes, member: str = "m1") -> list[Step]:
    """Return the steps after which a group reads the topic from its start.

    The topic has a batch of one record for each value.
    """
    return [
        *(produce(9, Batch((value,)), setup=True) for value in values),
        *configure("share.auto.offset.reset", "earliest"),
        join(1, member),
        stay(1, member, 2, awaiting=ASSIGNED),
    ]


LISTED: Final = send("ListGroups", 5, own=True)
STARTED: Final = started(b"a", b"b", b"c", b"d")
OFFSETS: Final = describe_offsets(1, (T, [0]))
"""Shows the start offset and the lag, which counts records that are not done with."""

MEMBERSHIP: Final = [
    scenario(
        "share-group-alone",
        TWO_PARTITIONS,
        join(1),
        stay(1, epoch=2, awaiting=ASSIGNED),
        stay(1),
        stay(1, epoch=2),
        stay(1, subscribed_topic_names=[T]),
        describe(1),
        describe(1, include_authorized_operations=True),
        LISTED,
        send("ListGroups", 5, own=True, types_filter=["share"]),
        send("ListGroups", 5, own=True, types_filter=["Share"]),
        send("ListGroups", 5, own=True, types_filter=["classic", "consumer"]),
        send("ListGroups", 5, own=True, states_filter=["stable"]),
        send("ListGroups", 4, own=True),
        send("DescribeGroups", (5, 6), groups=[GROUP]),
        send("DeleteGroups", 2, groups_names=[GROUP]),
        stay(1, epoch=-1),
        describe(1),
        LISTED,
        stay(1, epoch=-1),
        join(1),
        stay(1, epoch=-1),
        send("DeleteGroups", 2, groups_names=[GROUP]),
        describe(1),
        send("DeleteGroups", 2, groups_names=[GROUP]),
    ),
    scenario(
        "share-group-refused",
        TOPIC,
        stay(1),
        stay(1, epoch=-1),
        stay(1, epoch=-2),
        join(1, ""),
        join(1, "m" * 36),
        stay(1, "m" * 36, 2, awaiting=ASSIGNED),
        join(1, "m" * 37),
        join(1, group_id=""),
        join(1, group_id=group("far", on_other_broker=True)),
        join(1, rack_id=""),
        join(1, subscribed_topic_names=None),
        join(1, names=()),
        join(1, "m1", rack_id="r"),
        stay(1, STRANGER),
        stay(1, STRANGER, -1),
        stay(1, epoch=99),
        stay(1, epoch=1),
        join(1, cut=3),
        send("ShareGroupHeartbeat", 9),
        send("ShareGroupHeartbeat", 0),
        describe(1, "", GROUP, group("far", on_other_broker=True), group("missing")),
    ),
    scenario(
        "share-group-two-members",
        TOPIC,
        join(1, "m1"),
        stay(1, "m1", 2, awaiting=ASSIGNED),
        join(1, "m2"),
        describe(1),
        stay(1, "m1", 3),
        stay(1, "m1", 3),
        stay(1, "m2", 4),
        describe(1),
        stay(1, "m1", -1),
        describe(1),
        stay(1, "m2", 4),
        stay(1, "m2", 5),
        describe(1),
    ),
    scenario(
        "share-group-subscriptions",
        {"t": {"partitions": 2}, "u": {}},
        join(1, "m1", (T, topic("missing"))),
        stay(1, epoch=2, awaiting=ASSIGNED),
        stay(1, subscribed_topic_names=[topic("u")]),
        stay(1, epoch=4, awaiting=ASSIGNED),
        describe(1),
        stay(1, epoch=5, subscribed_topic_names=[]),
        describe(1),
        stay(1, epoch=6, subscribed_topic_names=[T]),
        describe(1),
    ),
    scenario(
        "share-group-and-other-protocols",
        TOPIC,
        join(1),
        join_classic(9, ""),
        join_consumer(1),
        commit(9),
        committed_by(9),
        delete_offsets(0, (T, 0)),
        stay_consumer(1, epoch=1),
        heartbeat(4, "m1", 1),
        sync(5, "m1", 1),
        leave(5, ("m1", None)),
        stay(1, epoch=-1),
        join_classic(9, ""),
        join_consumer(1),
        commit(9),
        delete_offsets(0, (T, 0)),
        LISTED,
        join_consumer(1, group_id=group("h")),
        join(1, group_id=group("h")),
        describe(1, group("h")),
        alter_offsets(0, (0, 1), group_id=group("h")),
        delete_share_offsets(0, group_id=group("h")),
        describe_offsets(0, (T, [0]), name=group("h")),
        stay_consumer(1, epoch=-1, group_id=group("h")),
        join(1, group_id=group("h")),
    ),
]
SESSIONS: Final = [
    scenario(
        "share-fetch-sessions",
        TOPIC,
        STARTED,
        fetch(1, 1),
        acknowledge(1, 1, (0, 0, [ACCEPT])),
        fetch(1, -1),
        acknowledge(1, -1, (0, 0, [ACCEPT])),
        acknowledge(1, 0, (0, 0, [ACCEPT])),
        fetch(1, topics=[partition(0, (0, 0, [ACCEPT]))]),
        fetch(1),
        empty_fetch(1, 1),
        fetch(1, 5),
        fetch(1, 1),
        acknowledge(1, 3, (0, 0, [ACCEPT])),
        acknowledge(1, 0, (0, 0, [ACCEPT])),
        empty_fetch(1, 2, topics=[partition(0, (0, 1, [ACCEPT]))]),
        empty_fetch(1, 3, topics=[partition(0, (1, 1, [ACCEPT]))]),
        OFFSETS,
        acknowledge(1, 4, (2, 2, [REJECT])),
        # A new session replaces the former one, and leaves what the member has acquired.
        empty_fetch(1, 0),
        acknowledge(1, 1, (3, 3, [RELEASE])),
        fetch(1, 2),
        empty_fetch(1, -1, topics=[partition(0, (3, 3, [ACCEPT]))]),
        fetch(1, 3),
        fetch(1, -1),
        OFFSETS,
    ),
    scenario(
        "share-fetch-final-epoch-releases",
        TOPIC,
        STARTED,
        fetch(1),
        acknowledge(1, -1, (0, 1, [ACCEPT])),
        acknowledge(1, 1, (2, 2, [ACCEPT])),
        fetch(1, 0, "m2"),
        empty_fetch(1, -1, "m2"),
        fetch(1, 0, "m3"),
        fetch(1, -1, "m3", topics=[partition(0, (2, 3, [REJECT]))]),
        OFFSETS,
    ),
    scenario(
        "share-fetch-refused",
        {"t": {"partitions": 2}, "far": {"leader": 2}},
        STARTED,
        fetch(1, group_id=None),
        fetch(1, group_id=""),
        fetch(1, member=None),
        fetch(1, member=""),
        fetch(1, member="m" * 37),
        fetch(1, epoch=-2),
        fetch(1, max_records=0),
        fetch(1, max_records=-1, max_wait_ms=100),
        fetch(1, max_bytes=0),
        empty_fetch(1, 0, topics=[{"topic_id": UNKNOWN_TOPIC_ID, "partitions": [{}]}]),
        empty_fetch(1, 0, topics=[partition(7)]),
        empty_fetch(1, 0, topics=[partition(-1)]),
        empty_fetch(1, 0, topics=[partition(key="far")]),
        empty_fetch(1, 0, topics=[]),
        fetch(1, cut=2),
        send("ShareFetch", 0),
        send("ShareFetch", 3),
        fetch(2, share_acquire_mode=2),
        fetch(2, is_renew_ack=True),
        fetch(2, is_renew_ack=True, max_bytes=0, min_bytes=0, max_wait_ms=0),
        acknowledge(1, 1, group_id=None),
        acknowledge(1, 1, group_id=""),
        acknowledge(1, 1, member=None),
        acknowledge(1, 1, member=""),
        acknowledge(1, 1, member="m" * 37),
        acknowledge(1, 1, cut=2),
        send("ShareAcknowledge", 0),
        send("ShareAcknowledge", 3),
    ),
    scenario(
        "share-fetch-partitions",
        {"t": {"partitions": 2}, "u": {}},
        produce(9, Batch((b"u",)), name=topic("u"), setup=True),
        *started(b"a"),
        stay(1, subscribed_topic_names=[T, topic("u")]),
        stay(1, epoch=4, awaiting='"<id of u>"'),
        fetch(1),
        fetch(1, 1, topics=[partition(key="u")]),
        empty_fetch(
            1, 2, topics=[], forgotten_topics_data=[{"topic_id": TopicId(), "partitions": [0]}]
        ),
        acknowledge(1, 3, topics=[partition(0, (0, 0, [ACCEPT])), partition(1, (0, 0, [ACCEPT]))]),
        acknowledge(
            1,
            4,
            topics=[
                {"topic_id": UNKNOWN_TOPIC_ID, "partitions": [{"partition_index": 0}]},
                partition(7, (0, 0, [ACCEPT])),
                partition(0, key="u"),
            ],
        ),
        acknowledge(1, 5, topics=[]),
        describe_offsets(1, (T, [0, 1]), (topic("u"), [0])),
    ),
    scenario(
        "share-fetch-without-members",
        TOPIC,
        produce(9, setup=True),
        empty_fetch(1, 0),
        acknowledge(1, 1, (0, 0, [ACCEPT])),
        describe_offsets(0, (T, [0])),
    ),
    scenario(
        "share-fetch-disconnection-releases",
        TOPIC,
        STARTED,
        fetch(1, connection="lost"),
        acknowledge(1, 1, (0, 0, [ACCEPT]), connection="lost"),
        CloseConnection("lost"),
        fetch(1, 0, "m2"),
        fetch(1, 2, until=122),
        OFFSETS,
    ),
]
ACKNOWLEDGEMENTS: Final = [
    scenario(
        "share-acknowledge-types",
        TOPIC,
        produce(9, Batch((b"a", b"b", b"c", b"d", b"e", b"f")), setup=True),
        started(),
        fetch(1),
        acknowledge(1, 1, (0, 0, [ACCEPT])),
        OFFSETS,
        acknowledge(1, 2, (0, 0, [ACCEPT])),
        acknowledge(1, 3, (1, 3, [RELEASE, REJECT, GAP])),
        OFFSETS,
        fetch(1, 4),
        acknowledge(1, 5, (1, 1, [ACCEPT]), (4, 5, [ACCEPT])),
        OFFSETS,
        acknowledge(1, 6, (4, 5, [ACCEPT])),
        acknowledge(1, 7, (6, 6, [ACCEPT])),
    ),
    scenario(
        "share-acknowledge-refused",
        TOPIC,
        STARTED,
        fetch(1),
        acknowledge(1, 1, (1, 0, [ACCEPT])),
        acknowledge(1, 2, (1, 1, [ACCEPT]), (0, 0, [ACCEPT])),
        acknowledge(1, 3, (0, 0, [])),
        acknowledge(1, 4, (0, 2, [ACCEPT, ACCEPT])),
        acknowledge(1, 5, (0, 0, [5])),
        acknowledge(1, 6, (0, 0, [-1])),
        acknowledge(1, 7, (0, 0, [RENEW])),
        acknowledge(2, 8, (0, 0, [RENEW])),
        acknowledge(1, 9, (0, 7, [ACCEPT])),
        acknowledge(1, 10, (7, 8, [ACCEPT])),
        # One batch fails, so none is acknowledged.
        acknowledge(1, 11, (0, 0, [ACCEPT]), (7, 7, [ACCEPT])),
        OFFSETS,
        empty_fetch(1, 0, "m2"),
        acknowledge(1, 1, (0, 0, [ACCEPT]), member="m2"),
        acknowledge(1, 2, (0, 0, [ACCEPT] * 1), (1, 1, [ACCEPT]), member="m2"),
        acknowledge(1, 12, (0, 1, [ACCEPT])),
        acknowledge(1, 13, (3, 3, [ACCEPT]), (3, 3, [ACCEPT])),
        acknowledge(1, 14, (3, 3, [RELEASE])),
        acknowledge(1, 15, (3, 3, [ACCEPT])),
        acknowledge(1, 16, (0, 3, [ACCEPT])),
        acknowledge(1, 17, (2, 2, [ACCEPT])),
        OFFSETS,
    ),
    scenario(
        "share-acknowledge-renews",
        TOPIC,
        STARTED,
        fetch(2),
        renew(1, (0, 0, [RENEW])),
        renew(2, (0, 1, [RENEW, ACCEPT])),
        renew(3, (1, 1, [RENEW])),
        fetch(
            2,
            4,
            topics=[partition(0, (0, 0, [RENEW]))],
            is_renew_ack=True,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=0,
            max_records=0,
        ),
        acknowledge(2, 5, (0, 0, [ACCEPT])),
        OFFSETS,
        *configure("share.renew.acknowledge.enable", "false"),
        renew(6, (2, 2, [RENEW])),
        renew(7, (2, 3, [ACCEPT])),
        OFFSETS,
    ),
    scenario(
        "share-acknowledge-delivery-count",
        TOPIC,
        started(b"a"),
        fetch(1),
        *(
            step
            for delivery in range(1, 5)
            for step in (
                acknowledge(1, 2 * delivery - 1, (0, 0, [RELEASE])),
                fetch(1, 2 * delivery),
            )
        ),
        acknowledge(1, 9, (0, 0, [RELEASE])),
        empty_fetch(1, 10),
        OFFSETS,
    ),
    scenario(
        "share-acknowledge-delivery-count-limit",
        TOPIC,
        started(b"a"),
        configure("share.delivery.count.limit", "2"),
        fetch(1),
        acknowledge(1, 1, (0, 0, [RELEASE])),
        fetch(1, 2),
        acknowledge(1, 3, (0, 0, [RELEASE])),
        OFFSETS,
    ),
    scenario(
        "share-fetch-throttles-poison-records",
        TOPIC,
        produce(9, Batch(tuple(b"abcdefgh"[i : i + 1] for i in range(8))), setup=True),
        started(),
        fetch(1),
        acknowledge(1, 1, (0, 7, [RELEASE])),
        fetch(1, 2),
        acknowledge(1, 3, (0, 7, [RELEASE])),
        fetch(1, 4),
        acknowledge(1, 5, (0, 7, [RELEASE])),
        fetch(1, 6),
        acknowledge(1, 7, (0, 3, [RELEASE])),
        fetch(1, 8),
        fetch(1, 9),
        fetch(1, 10),
        OFFSETS,
    ),
    scenario(
        "share-acquisition-lock-expires",
        TOPIC,
        STARTED,
        configure("share.record.lock.duration.ms", "1000"),
        fetch(1),
        fetch(1, 1),
        acknowledge(1, 2, (0, 0, [ACCEPT])),
        acknowledge(1, 3, (1, 2, [ACCEPT])),
        acknowledge(1, 4, (3, 3, [ACCEPT])),
        OFFSETS,
    ),
]
LIMITS: Final = [
    scenario(
        "share-fetch-batch-optimized",
        TOPIC,
        produce(9, Batch((b"a", b"b", b"c")), setup=True),
        produce(9, Batch((b"d", b"e", b"f")), setup=True),
        produce(9, Batch((b"g",)), setup=True),
        started(),
        fetch(2, max_records=2),
        fetch(2, 1, max_records=4, batch_size=1),
        acknowledge(2, 2, (1, 1, [RELEASE]), (4, 4, [RELEASE]), (6, 6, [RELEASE])),
        fetch(2, 3, batch_size=1),
        empty_fetch(2, 4),
        acknowledge(2, 5, (0, 6, [ACCEPT])),
        OFFSETS,
    ),
    scenario(
        "share-fetch-record-limit",
        TOPIC,
        produce(9, Batch((b"a", b"b", b"c")), setup=True),
        produce(9, Batch((b"d", b"e", b"f")), setup=True),
        started(),
        fetch(2, max_records=2, share_acquire_mode=RECORD_LIMIT),
        fetch(2, 1, max_records=2, share_acquire_mode=RECORD_LIMIT),
        fetch(2, 2, max_records=2, share_acquire_mode=RECORD_LIMIT),
        acknowledge(2, 3, (0, 1, [RELEASE])),
        fetch(2, 4, max_records=1, share_acquire_mode=RECORD_LIMIT),
        acknowledge(2, 5, (0, 0, [ACCEPT]), (2, 5, [ACCEPT])),
        OFFSETS,
    ),
    scenario(
        "share-fetch-record-locks",
        TOPIC,
        *(produce(9, Batch((b"v",) * 60), setup=True) for _ in range(3)),
        configure("share.partition.max.record.locks", "100"),
        started(),
        fetch(1),
        empty_fetch(1, 1),
        acknowledge(1, 2, (0, 59, [ACCEPT])),
        fetch(1, 3),
        OFFSETS,
    ),
    scenario(
        "share-fetch-waits-for-release",
        TOPIC,
        started(b"a"),
        fetch(1),
        empty_fetch(1, 0, "m2"),
        fetch(1, 1, "m2", connection="waiting", later=True, label="waiting"),
        acknowledge(1, 1, (0, 0, [RELEASE])),
    ),
    scenario(
        "share-fetch-after-deletion",
        TOPIC,
        STARTED,
        fetch(1, max_records=1),
        delete_records(2, 3),
        acknowledge(1, 1, (0, 0, [ACCEPT])),
        fetch(1, 2),
        acknowledge(1, 3, (3, 3, [ACCEPT])),
        OFFSETS,
    ),
    scenario(
        "share-isolation-level",
        TOPIC,
        configure("share.isolation.level", "read_committed"),
        begin(4),
        add(3),
        produce(
            9,
            Batch((b"a", b"b"), producer_id=ME, epoch=EPOCH, sequence=0, transactional=True),
            transactional_id=TXN,
            retry=(6, 19),
        ),
        started(),
        empty_fetch(1, 0),
        end(3, False, retry=(14, 51)),
        fetch_log(4, 2, awaiting=MARKER, setup=True),
        produce(9, Batch((b"c",))),
        fetch(1, 1),
        acknowledge(1, 2, (0, 3, [ACCEPT])),
        acknowledge(1, 3, (2, 3, [GAP, ACCEPT])),
        OFFSETS,
    ),
    scenario(
        "share-auto-offset-reset",
        TOPIC,
        produce(9, Batch((b"old",), timestamp=1_000)),
        produce(9, Batch((b"new",))),
        join(1),
        stay(1, epoch=2, awaiting=ASSIGNED),
        fetch(1, max_wait_ms=1_000),
        produce(9, Batch((b"newest",))),
        fetch(1, 1),
        OFFSETS,
        alter_configs(
            1,
            ("share.auto.offset.reset", "by_duration:PT1H", 0),
            kind=GROUP_CONFIG,
            name=group("h"),
        ),
        describe_configs(
            4, GROUP_CONFIG, group("h"), ("share.auto.offset.reset",), awaiting="by_duration:PT1H"
        ),
        join(1, group_id=group("h")),
        stay(1, epoch=2, group_id=group("h"), awaiting=ASSIGNED),
        fetch(1, group_id=group("h")),
        produce(9, Batch((b"recent",), timestamp=None)),
        fetch(1, group_id=group("h")),
    ),
]
GROUP_OFFSETS: Final = [
    scenario(
        "share-group-offsets",
        TWO_PARTITIONS,
        describe_offsets((0, 1), (T, [0, 1]), (topic("missing"), [0])),
        describe_offsets(1, every=True),
        describe_offsets(1),
        describe_offsets(1, (T, [0]), name=""),
        describe_offsets(1, (T, [0]), name=group("far", on_other_broker=True)),
        delete_share_offsets(0),
        alter_offsets(0, (0, 1), group_id=""),
        delete_share_offsets(0, group_id=""),
        *(produce(9, Batch((value,)), setup=True) for value in (b"a", b"b", b"c")),
        alter_offsets(0, (0, 1), (7, 1)),
        alter_offsets(0, (0, 1), name=topic("missing")),
        describe_offsets(1, every=True),
        describe(1),
        LISTED,
        alter_offsets(0, (0, -1)),
        describe_offsets(1, (T, [0])),
        alter_offsets(0, (0, 1)),
        join(1),
        alter_offsets(0, (0, 0)),
        delete_share_offsets(0),
        stay(1, epoch=2, awaiting=ASSIGNED),
        fetch(1),
        acknowledge(1, -1, (1, 1, [ACCEPT])),
        describe_offsets(1, (T, [0])),
        stay(1, epoch=-1),
        delete_share_offsets(0, T, topic("missing")),
        describe_offsets(1, (T, [0])),
        describe_offsets(1, every=True),
        delete_share_offsets(0),
        send("DeleteGroups", 2, groups_names=[GROUP]),
        delete_share_offsets(0),
        describe_offsets(1, (T, [0])),
        alter_offsets(0, (0, 1), cut=2),
        send("AlterShareGroupOffsets", 1),
        send("DeleteShareGroupOffsets", 1),
        send("DescribeShareGroupOffsets", 2),
    ),
]


def _alter(name: str, value: str | None, operation: int = 0) -> Step:
    return alter_configs(1, (name, value, operation), kind=GROUP_CONFIG, name=GROUP)


CONFIGURATIONS: Final = [
    scenario(
        "group-configurations",
        {},
        describe_configs(4, GROUP_CONFIG, GROUP, ("share.auto.offset.reset",)),
        describe_configs(4, GROUP_CONFIG, GROUP, ("share.record.lock.duration.ms", "none")),
        describe_configs(4, GROUP_CONFIG, "", None),
        alter_configs(1, ("share.auto.offset.reset", "earliest", 0), kind=GROUP_CONFIG, name=""),
        *(
            _alter(name, value)
            for name, value in (
                ("none", "1"),
                ("share.auto.offset.reset", "none"),
                ("share.auto.offset.reset", "by_duration:PT"),
                ("share.auto.offset.reset", "by_duration:-PT1H"),
                ("share.auto.offset.reset", "by_duration:P1DT2H3M4.5S"),
                ("share.isolation.level", "READ_COMMITTED"),
                ("share.isolation.level", "read_committed"),
                ("share.record.lock.duration.ms", "999"),
                ("share.record.lock.duration.ms", "60001"),
                ("share.record.lock.duration.ms", "x"),
                ("share.record.lock.duration.ms", "60000"),
                ("share.delivery.count.limit", "1"),
                ("share.delivery.count.limit", "11"),
                ("share.delivery.count.limit", "10"),
                ("share.partition.max.record.locks", "99"),
                ("share.partition.max.record.locks", "4001"),
                ("share.partition.max.record.locks", "4000"),
                ("share.renew.acknowledge.enable", "yes"),
                ("share.renew.acknowledge.enable", "true"),
                ("share.session.timeout.ms", "60001"),
                ("share.session.timeout.ms", "1"),
                ("share.session.timeout.ms", "60000"),
                ("share.heartbeat.interval.ms", "15001"),
                ("share.heartbeat.interval.ms", "15000"),
                ("share.assignment.interval.ms", "15001"),
                ("share.assignment.interval.ms", "-1"),
                ("share.assignment.interval.ms", "15000"),
                ("share.assignor.offload.enable", "false"),
                ("consumer.session.timeout.ms", "60001"),
                ("consumer.session.timeout.ms", "60000"),
                ("consumer.heartbeat.interval.ms", "15001"),
                ("consumer.heartbeat.interval.ms", "15000"),
                ("consumer.assignment.interval.ms", "15001"),
                ("consumer.assignment.interval.ms", "0"),
                ("streams.session.timeout.ms", "60001"),
                ("streams.session.timeout.ms", "50000"),
                ("streams.heartbeat.interval.ms", "15001"),
                ("streams.num.standby.replicas", "3"),
                ("streams.num.standby.replicas", "2"),
                ("streams.initial.rebalance.delay.ms", "-1"),
                ("streams.num.warmup.replicas", "21"),
                ("streams.task.offset.interval.ms", "14999"),
                ("streams.rack.aware.assignment.tags", "a,a"),
                ("streams.rack.aware.assignment.tags", "a,b"),
                ("streams.acceptable.recovery.lag", "-1"),
                ("streams.assignor.name", "none"),
                ("streams.assignor.name", "sticky"),
                ("errors.deadletterqueue.topic.name", "__x"),
                ("errors.deadletterqueue.topic.name", "dlq.x"),
                ("errors.deadletterqueue.copy.record.enable", "true"),
            )
        ),
        _alter("share.record.lock.duration.ms", None),
        _alter("share.record.lock.duration.ms", "1", 2),
        _alter("streams.rack.aware.assignment.tags", "c", 2),
        _alter("streams.rack.aware.assignment.tags", "a", 3),
        _alter("share.delivery.count.limit", None, 1),
        _alter("share.delivery.count.limit", "5", 9),
        alter_configs(
            1,
            ("share.session.timeout.ms", "50000", 0),
            ("share.session.timeout.ms", "50000", 0),
            kind=GROUP_CONFIG,
            name=GROUP,
        ),
        alter_configs(
            1,
            ("share.session.timeout.ms", "50000", 0),
            kind=GROUP_CONFIG,
            name=GROUP,
            dry=True,
        ),
        _alter("streams.rack.aware.assignment.tags", "b,c"),
        describe_configs(
            4, GROUP_CONFIG, GROUP, (), awaiting='"value": "b,c"', include_synonyms=True
        ),
        *(
            _alter(name, None, 1)
            for name in ("share.session.timeout.ms", "share.heartbeat.interval.ms")
        ),
    ),
]
SCENARIOS: Final = [
    *MEMBERSHIP,
    *SESSIONS,
    *ACKNOWLEDGEMENTS,
    *LIMITS,
    *GROUP_OFFSETS,
    *CONFIGURATIONS,
]
