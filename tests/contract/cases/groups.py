"""The APIs of groups and of committed offsets."""

from __future__ import annotations

import uuid
from typing import Any, Final

from tests.contract.cases.log import UNKNOWN_TOPIC_ID
from tests.contract.model import (
    BY_NAME,
    GROUP,
    TOPIC,
    AwaitResponse,
    CloseConnection,
    Fields,
    Step,
    Subscription,
    T,
    TopicId,
    group,
    reply,
    request,
    scenario,
    send,
)

NO_TOPICS: Final = b"\0\0\0\0\0\0\xff\xff\xff\xff"
"""A consumer's metadata: version 0, subscribed to nothing."""
SUBSCRIBED: Final = Subscription()
FIRST_PARTITION: Final = [{"name": T, "partition_indexes": [0]}]


@request("JoinGroup")
def join(
    member: Any = "", protocols: tuple[tuple[str, Any], ...] = (("range", NO_TOPICS),)
) -> Fields:
    """Return a JoinGroup request."""
    return {
        "group_id": GROUP,
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 60_000,
        "member_id": member,
        "protocol_type": "consumer",
        "protocols": [{"name": key, "metadata": data} for key, data in protocols],
    }


@request("SyncGroup")
def sync(
    member: Any,
    generation: int = 1,
    assignments: tuple[tuple[Any, bytes], ...] = (),
    *,
    named: bool = True,
) -> Fields:
    """Return a SyncGroup request; versions before 5 do not name the protocol."""
    return {
        "group_id": GROUP,
        "generation_id": generation,
        "member_id": member,
        "assignments": [{"member_id": it, "assignment": data} for it, data in assignments],
        **({"protocol_type": "consumer", "protocol_name": "range"} if named else {}),
    }


@request("Heartbeat")
def heartbeat(member: Any, generation: int = 1) -> Fields:
    """Return a Heartbeat request."""
    return {"group_id": GROUP, "generation_id": generation, "member_id": member}


@request("LeaveGroup")
def leave(*members: tuple[Any, str | None]) -> Fields:
    """Return a LeaveGroup request of version 3 or later."""
    rows = [{"member_id": it, "group_instance_id": instance} for it, instance in members]
    return {"group_id": GROUP, "members": rows}


@request("OffsetCommit")
def commit(
    member: Any = "",
    generation: int = -1,
    *,
    offset: int = 5,
    metadata: str | None = "m",
    index: int = 0,
    epoch: int | None = None,
    where: Fields = BY_NAME,
) -> Fields:
    """Return an OffsetCommit request for one partition."""
    row = {
        "partition_index": index,
        "committed_offset": offset,
        "committed_metadata": metadata,
        **({} if epoch is None else {"committed_leader_epoch": epoch}),
    }
    return {
        "group_id": GROUP,
        "member_id": member,
        "generation_id_or_member_epoch": generation,
        "topics": [{**where, "partitions": [row]}],
    }


@request("OffsetFetch")
def committed(index: int = 0, where: Any = T) -> Fields:
    """Return an OffsetFetch request before version 8."""
    return {"group_id": GROUP, "topics": [{"name": where, "partition_indexes": [index]}]}


@request("OffsetFetch")
def committed_by(*names: Any, topics: Any = FIRST_PARTITION) -> Fields:
    """Return an OffsetFetch request of version 8 or later."""
    return {"groups": [{"group_id": it, "topics": topics} for it in names or (GROUP,)]}


@request("OffsetDelete")
def delete_offsets(*rows: tuple[Any, int]) -> Fields:
    """Return an OffsetDelete request; a row is a topic and a partition."""
    topics = [{"name": name, "partitions": [{"partition_index": index}]} for name, index in rows]
    return {"group_id": GROUP, "topics": topics}


ME: Final = reply("join", "member_id")
OTHER: Final = reply("other", "member_id")


def stable(instance: str | None = None) -> list[Step]:
    """Return the steps of a member, static or not, that joins and synchronizes alone."""
    static = {"group_instance_id": instance} if instance else {}
    first = [] if instance else [join(9, label="id", setup=True)]
    known = "" if instance else reply("id", "member_id")
    return [
        *first,
        join(9, known, label="join", setup=True, **static),
        sync(5, ME, assignments=((ME, b"mine"),), setup=True, **static),
    ]


def _waits_to_join() -> list[Step]:
    """Return the steps after which a second member's JoinGroup waits for the first member's."""
    return [
        *stable(),
        join(9, label="id2", connection="b", setup=True),
        join(9, reply("id2", "member_id"), label="other", connection="b", later=True),
        heartbeat(4, ME, until=27),
    ]


JOIN: Final = [
    *[
        scenario(
            f"join-v{version}",
            {},
            join(version, label="join"),
            *([join(version, ME, label="join")] if version >= 4 else []),
            heartbeat(min(version, 4), ME),
            join(version, ME, label="join"),
            sync(min(version, 5), ME, assignments=((ME, b"a"),), named=version >= 5),
            heartbeat(min(version, 4), ME, 1),
            send("LeaveGroup", 2, group_id=GROUP, member_id=ME),
            heartbeat(min(version, 4), ME, 1),
        )
        for version in range(10)
    ],
    scenario(
        "join-refused",
        {},
        join(9, session_timeout_ms=10),
        join(9, session_timeout_ms=100_000_000),
        join(0, session_timeout_ms=10, rebalance_timeout_ms=-1),
        join(9, "stranger"),
        join(2, "stranger"),
        join(9, group_id=""),
        join(9, group_id=group("far", on_other_broker=True)),
        join(9, protocols=()),
        join(9, protocol_type=""),
        join(9, group_instance_id="", group_id=group("i1")),
        join(9, group_instance_id="no/name", group_id=group("i2")),
        join(9, "stranger", group_instance_id="i"),
        *stable(),
        join(9, protocol_type="connect"),
        join(9, protocols=(("sticky", NO_TOPICS),)),
        join(9, "stranger"),
        join(9, ME, group_instance_id="unknown"),
        join(9, group_id=GROUP, cut=4),
        send("JoinGroup", 99),
    ),
    scenario(
        "join-after-leaving",
        {},
        *stable(),
        leave(5, (ME, None)),
        join(9, ME),
        sync(5, ME),
        send("DescribeGroups", 6, groups=[GROUP]),
    ),
    scenario(
        "join-two",
        TOPIC,
        *stable(),
        join(9, label="id2", connection="b"),
        join(9, reply("id2", "member_id"), label="other", connection="b", later=True),
        heartbeat(4, ME, until=27),
        send("DescribeGroups", 6, groups=[GROUP]),
        commit(9, ME, 1),
        sync(5, ME),
        delete_offsets(0),
        join(9, ME, label="join"),
        AwaitResponse("other"),
        send("DescribeGroups", 6, groups=[GROUP]),
        commit(9, ME, 2),
        sync(5, OTHER, 2, connection="b", label="s2", later=True),
        sync(5, ME, 2, assignments=((ME, b"1"), (OTHER, b"2"))),
        AwaitResponse("s2"),
        sync(5, OTHER, 2, connection="b"),
        join(9, OTHER, connection="b"),
        send("DescribeGroups", 6, groups=[GROUP]),
        leave(5, (OTHER, None)),
        heartbeat(4, ME, 2),
        leave(5, (ME, None)),
        send("DescribeGroups", 6, groups=[GROUP]),
    ),
    scenario(
        "join-during-sync",
        {},
        *_waits_to_join(),
        join(9, ME, label="join"),
        AwaitResponse("other"),
        sync(5, OTHER, 2, connection="b", label="s2", later=True),
        join(9, label="id3", connection="c", setup=True),
        join(9, reply("id3", "member_id"), label="third", connection="c", later=True),
        AwaitResponse("s2"),
        leave(5, (ME, None), (OTHER, None)),
        AwaitResponse("third"),
        send("DescribeGroups", 6, groups=[GROUP]),
    ),
    scenario(
        "join-repeated",
        {},
        *_waits_to_join(),
        join(9, reply("id2", "member_id"), label="again", connection="c", later=True),
        send("DescribeGroups", 6, groups=[GROUP]),
        CloseConnection("b"),
        AwaitResponse("other"),
        join(9, ME, label="join"),
        AwaitResponse("again"),
    ),
    scenario(
        "leave-waiting",
        {},
        *_waits_to_join(),
        leave(5, (reply("id2", "member_id"), None)),
        AwaitResponse("other"),
        heartbeat(4, ME),
    ),
    scenario(
        "join-static-waiting",
        {},
        *stable(),
        join(9, group_instance_id="i", label="old", connection="b", later=True),
        heartbeat(4, ME, until=27),
        join(9, group_instance_id="i", label="new", connection="c", later=True),
        AwaitResponse("old"),
        join(9, ME, label="join"),
        AwaitResponse("new"),
    ),
    scenario(
        "sync-repeated",
        {},
        *_waits_to_join(),
        join(9, ME, label="join"),
        AwaitResponse("other"),
        sync(5, OTHER, 2, connection="b", label="s1", later=True),
        send("DescribeGroups", 6, groups=[GROUP]),
        sync(5, OTHER, 2, connection="c", label="s2", later=True),
        send("DescribeGroups", 6, groups=[GROUP]),
        CloseConnection("b"),
        AwaitResponse("s1"),
        sync(5, ME, 2, assignments=((OTHER, b"2"),)),
        AwaitResponse("s2"),
    ),
    scenario(
        "join-static",
        TOPIC,
        *stable("i"),
        join(9, group_instance_id="i", label="again"),
        join(9, ME, group_instance_id="i"),
        heartbeat(4, ME, group_instance_id="i"),
        heartbeat(4, reply("again", "member_id"), group_instance_id="i"),
        heartbeat(4, reply("again", "member_id"), group_instance_id="j"),
        sync(5, ME, group_instance_id="i"),
        sync(5, reply("again", "member_id"), group_instance_id="i"),
        commit(9, ME, 1, group_instance_id="i"),
        commit(9, reply("again", "member_id"), 1, group_instance_id="i"),
        join(8, group_instance_id="i", label="older"),
        leave(5, (ME, "i")),
        leave(5, ("", "j"), ("", "i")),
        send("DescribeGroups", 6, groups=[GROUP]),
    ),
]

MEMBERS: Final = [
    scenario(
        "sync-refused",
        {},
        sync(5, "stranger"),
        sync((0, 3, 4), "s", named=False),
        *stable(),
        sync(5, "stranger"),
        sync(5, ME, 7),
        sync(5, ME, protocol_type="connect"),
        sync(5, ME, protocol_name="sticky"),
        sync(5, ME, protocol_type=None),
        sync(5, ME, protocol_name=None),
        sync(5, "", group_id=""),
        sync(5, "m", group_id=group("far", on_other_broker=True)),
        sync(3, "m", named=False, group_id=group("far", on_other_broker=True)),
        sync(range(5), ME, named=False),
        sync(5, ME),
        sync(5, ME, group_instance_id="unknown"),
    ),
    scenario(
        "heartbeat-refused",
        {},
        heartbeat(range(5), "stranger"),
        heartbeat(4, "", group_id=""),
        heartbeat(4, "m", group_id=group("far", on_other_broker=True)),
        *stable(),
        heartbeat(range(5), ME),
        heartbeat(4, "stranger"),
        heartbeat(4, ME, 3),
        heartbeat(4, ME, -1),
        heartbeat(3, ME, group_instance_id="unknown"),
    ),
    scenario(
        "leave-refused",
        {},
        send("LeaveGroup", range(3), group_id=GROUP, member_id="stranger"),
        leave((3, 4, 5), ("stranger", None)),
        leave(5),
        leave(5, ("", None), group_id=""),
        leave(5, ("m", None), group_id=group("far", on_other_broker=True)),
        send("LeaveGroup", 1, group_id=group("far", on_other_broker=True), member_id="stranger"),
        *stable(),
        leave(5, ("stranger", None), ("", "unknown"), ("", None)),
        leave(5, (ME, "unknown")),
        leave(5, (ME, None), (ME, None)),
        join(9, label="pending", setup=True),
        leave(5, (reply("pending", "member_id"), None)),
    ),
    scenario(
        "describe-groups",
        {},
        send("DescribeGroups", range(7), groups=[GROUP]),
        send("DescribeGroups", 6, groups=[group("far", on_other_broker=True)]),
        send("DescribeGroups", 0, groups=[group("far", on_other_broker=True)]),
        send("DescribeGroups", 6, groups=[]),
        *stable(),
        send("DescribeGroups", range(7), groups=[GROUP]),
        send(
            "DescribeGroups", 6, groups=[GROUP, group("none")], include_authorized_operations=True
        ),
        send("DescribeGroups", 3, groups=[GROUP], include_authorized_operations=True),
    ),
    scenario(
        "list-groups",
        {},
        *stable(),
        send("ListGroups", range(6), own=True),
        *[
            send("ListGroups", 5, states_filter=[state], own=True)
            for state in ("Stable", "stable", "Empty", "Nonsense")
        ],
        *[
            send("ListGroups", 5, types_filter=[kind], own=True)
            for kind in ("classic", "Classic", "consumer", "share", "nonsense")
        ],
        send("ListGroups", 5, states_filter=["Empty"], types_filter=["classic"], own=True),
        leave(5, (ME, None), setup=True),
        send("ListGroups", 4, states_filter=["Empty"], own=True),
        send("ListGroups", 5, cut=1),
        send("ListGroups", 99),
    ),
    scenario(
        "delete-groups",
        TOPIC,
        send("DeleteGroups", range(4), groups_names=[GROUP]),
        send("DeleteGroups", 2, groups_names=[]),
        send("DeleteGroups", 2, groups_names=[group("far", on_other_broker=True)]),
        *stable(),
        send("DeleteGroups", 2, groups_names=[GROUP, group("none")]),
        leave(5, (ME, None), setup=True),
        send("DeleteGroups", 2, groups_names=[GROUP]),
        send("DeleteGroups", 2, groups_names=[GROUP]),
        commit(8, setup=True),
        send("DeleteGroups", 0, groups_names=[GROUP]),
        committed(7),
    ),
    scenario(
        "delete-groups-rebalancing",
        {},
        *_waits_to_join(),
        send("DeleteGroups", 2, groups_names=[GROUP]),
        join(9, ME, label="join"),
        AwaitResponse("other"),
        send("DeleteGroups", 2, groups_names=[GROUP]),
    ),
]

OFFSETS: Final = [
    scenario(
        "offset-commit",
        TOPIC,
        *[commit(version, offset=version) for version in range(2, 10)],
        commit(10, where={"topic_id": TopicId()}),
        commit(9, epoch=3),
        committed(range(1, 8)),
        committed_by((8, 9)),
        committed_by(10, topics=[{"topic_id": TopicId(), "partition_indexes": [0]}]),
        commit(9, metadata=None),
        commit(9, offset=-1),
        commit(9, offset=-7),
        committed_by(9),
        send("DescribeGroups", 6, groups=[GROUP]),
    ),
    scenario(
        "offset-commit-refused",
        TOPIC,
        commit(9, index=5),
        commit(2, index=5),
        commit(9, index=-1),
        commit(9, where={"name": "contract-missing"}),
        commit(9, where={"name": ""}),
        commit(10, where={"topic_id": UNKNOWN_TOPIC_ID}),
        commit(10, where={"topic_id": uuid.UUID(int=0)}),
        commit(9, metadata="x" * 5_000),
        commit(9, metadata="x" * 4_096),
        commit(9, "m", 3, group_id=group("none")),
        commit(8, "m", 3, group_id=group("none")),
        commit(9, "m", -1, group_id=group("none2")),
        commit(9, "", 3, group_id=group("none3")),
        commit(9, group_id=group("far", on_other_broker=True)),
        commit(9, topics=[]),
        *stable(),
        commit(9, ME, 1),
        commit(9),
        commit(9, "stranger", 1),
        commit(9, ME, 4),
        commit(9, ME, -1),
        commit(9, ME, 1, group_instance_id="unknown"),
        commit(9, "", 1),
    ),
    scenario(
        "offset-fetch-refused",
        TOPIC,
        committed(1),
        committed(7),
        committed(7, 9),
        committed(7, where="contract-missing"),
        committed((1, 2, 7), group_id=group("far", on_other_broker=True)),
        committed_by(9, group("far", on_other_broker=True), GROUP),
        committed_by(9, topics=[]),
        committed_by(10, topics=[{"topic_id": UNKNOWN_TOPIC_ID, "partition_indexes": [0, 1]}]),
        commit(9, setup=True),
        send("OffsetFetch", 7, group_id=GROUP, topics=None),
        committed_by(9, topics=None),
        committed_by(10, topics=None),
        committed(7, require_stable=True),
        committed_by(9, require_stable=True),
        committed_by(
            9,
            groups=[
                {
                    "group_id": GROUP,
                    "member_id": "stranger",
                    "member_epoch": 3,
                    "topics": FIRST_PARTITION,
                }
            ],
        ),
    ),
    scenario(
        "offset-delete",
        TOPIC,
        delete_offsets(0),
        commit(8, setup=True),
        delete_offsets(0, (T, 0), ("contract-missing", 0)),
        delete_offsets(0, (T, 8)),
        committed(7),
        delete_offsets(0, group_id=""),
        delete_offsets(0, group_id=group("far", on_other_broker=True)),
        delete_offsets(0),
    ),
    scenario(
        "offset-delete-members",
        TOPIC,
        commit(8, setup=True),
        join(3, protocols=(("range", SUBSCRIBED),), label="join", setup=True),
        sync(3, ME, named=False, setup=True),
        delete_offsets(0, (T, 0)),
    ),
    scenario(
        "offset-delete-connect",
        TOPIC,
        join(3, protocol_type="connect", label="join", setup=True),
        delete_offsets(0, (T, 0)),
        send("DescribeGroups", 6, groups=[GROUP], awaiting="CompletingRebalance"),
        send("ListGroups", 4, own=True),
    ),
]

SCENARIOS: Final = [*JOIN, *MEMBERS, *OFFSETS]
