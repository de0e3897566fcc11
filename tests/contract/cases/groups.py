"""The APIs of groups and of committed offsets."""

from __future__ import annotations

import uuid
from typing import Any, Final

from tests.contract.cases.log import UNKNOWN_TOPIC_ID
from tests.contract.model import (
    TOPIC,
    AwaitResponse,
    CloseConnection,
    Fields,
    Scenario,
    SendRequest,
    Step,
    Subscription,
    TopicId,
    group,
    reply,
    topic,
)

NO_TOPICS: Final = b"\0\0\0\0\0\0\xff\xff\xff\xff"
"""A consumer's metadata: version 0, subscribed to nothing."""
SUBSCRIBED: Final = Subscription()


def join(
    member: Any = "",
    *,
    instance: str | None = None,
    protocols: tuple[tuple[str, Any], ...] = (("range", NO_TOPICS),),
    kind: str = "consumer",
    session: int = 30_000,
    rebalance: int = 60_000,
    name: Any = None,
) -> Fields:
    """Return a JoinGroup request."""
    fields: Fields = {
        "group_id": group() if name is None else name,
        "session_timeout_ms": session,
        "rebalance_timeout_ms": rebalance,
        "member_id": member,
        "protocol_type": kind,
        "protocols": [{"name": key, "metadata": data} for key, data in protocols],
    }
    return fields if instance is None else fields | {"group_instance_id": instance}


def sync(
    member: Any,
    generation: int = 1,
    *,
    instance: str | None = None,
    assignments: tuple[tuple[Any, bytes], ...] = (),
    kind: str | None = "consumer",
    protocol: str | None = "range",
    named: bool = True,
    name: Any = None,
) -> Fields:
    """Return a SyncGroup request; versions before 5 do not name the protocol."""
    fields: Fields = {
        "group_id": group() if name is None else name,
        "generation_id": generation,
        "member_id": member,
        "assignments": [{"member_id": it, "assignment": data} for it, data in assignments],
    }
    if named:
        fields |= {"protocol_type": kind, "protocol_name": protocol}
    return fields if instance is None else fields | {"group_instance_id": instance}


def heartbeat(
    member: Any, generation: int = 1, *, instance: str | None = None, name: Any = None
) -> Fields:
    """Return a Heartbeat request."""
    fields: Fields = {
        "group_id": group() if name is None else name,
        "generation_id": generation,
        "member_id": member,
    }
    return fields if instance is None else fields | {"group_instance_id": instance}


def leave(*members: tuple[Any, str | None], name: Any = None) -> Fields:
    """Return a LeaveGroup request of version 3 or later."""
    rows = [{"member_id": it, "group_instance_id": instance} for it, instance in members]
    return {"group_id": group() if name is None else name, "members": rows}


def commit(
    member: Any = "",
    generation: int = -1,
    *,
    instance: str | None = None,
    offset: int = 5,
    metadata: str | None = "m",
    index: int = 0,
    where: Fields | None = None,
    name: Any = None,
    epoch: int | None = None,
) -> Fields:
    """Return an OffsetCommit request for one partition."""
    row: Fields = {
        "partition_index": index,
        "committed_offset": offset,
        "committed_metadata": metadata,
    }
    if epoch is not None:
        row["committed_leader_epoch"] = epoch
    fields: Fields = {
        "group_id": group() if name is None else name,
        "member_id": member,
        "generation_id_or_member_epoch": generation,
        "topics": [{**({"name": topic()} if where is None else where), "partitions": [row]}],
    }
    return fields if instance is None else fields | {"group_instance_id": instance}


def committed(index: int = 0, *, name: Any = None, where: Any = None) -> Fields:
    """Return an OffsetFetch request before version 8."""
    rows = [{"name": topic() if where is None else where, "partition_indexes": [index]}]
    return {"group_id": group() if name is None else name, "topics": rows}


def committed_by(*names: Any, topics: Any = (), **fields: Any) -> Fields:
    """Return an OffsetFetch request of version 8 or later; `topics` is empty for the topic `t`."""
    rows = [{"name": topic(), "partition_indexes": [0]}] if topics == () else topics
    return {"groups": [{"group_id": it, "topics": rows} for it in names or (group(),)], **fields}


ME: Final = reply("join", "member_id")
OTHER: Final = reply("other", "member_id")


def stable(version: int = 9, *, instance: str | None = None) -> list[Step]:
    """Return the steps of a member that joins and synchronizes alone."""
    first = (
        []
        if instance is not None
        else [SendRequest("JoinGroup", version, join(), label="id", setup=True)]
    )
    known = "" if instance is not None else reply("id", "member_id")
    return [
        *first,
        SendRequest("JoinGroup", version, join(known, instance=instance), label="join", setup=True),
        SendRequest(
            "SyncGroup",
            5,
            sync(ME, instance=instance, assignments=((ME, b"mine"),)),
            setup=True,
        ),
    ]


def _waits_to_join() -> list[Step]:
    """Return the steps after which a second member's JoinGroup waits for the first member's."""
    return [
        *stable(),
        SendRequest("JoinGroup", 9, join(), label="id2", connection="b", setup=True),
        SendRequest(
            "JoinGroup",
            9,
            join(reply("id2", "member_id")),
            label="other",
            connection="b",
            later=True,
        ),
        SendRequest("Heartbeat", 4, heartbeat(ME), until=27),
    ]


JOIN: Final = [
    *[
        Scenario(
            f"join-v{version}",
            [
                SendRequest("JoinGroup", version, join(), label="join"),
                *(
                    [SendRequest("JoinGroup", version, join(ME), label="join")]
                    if version >= 4
                    else []
                ),
                SendRequest("Heartbeat", min(version, 4), heartbeat(ME)),
                SendRequest("JoinGroup", version, join(ME), label="join"),
                SendRequest(
                    "SyncGroup",
                    min(version, 5),
                    sync(ME, assignments=((ME, b"a"),), named=version >= 5),
                ),
                SendRequest("Heartbeat", min(version, 4), heartbeat(ME, 1)),
                SendRequest("LeaveGroup", 2, {"group_id": group(), "member_id": ME}),
                SendRequest("Heartbeat", min(version, 4), heartbeat(ME, 1)),
            ],
        )
        for version in range(10)
    ],
    Scenario(
        "join-refused",
        [
            SendRequest("JoinGroup", 9, join(session=10)),
            SendRequest("JoinGroup", 9, join(session=100_000_000)),
            SendRequest("JoinGroup", 0, {**join(session=10), "rebalance_timeout_ms": -1}),
            SendRequest("JoinGroup", 9, join("stranger")),
            SendRequest("JoinGroup", 2, join("stranger")),
            SendRequest("JoinGroup", 9, join(name="")),
            SendRequest("JoinGroup", 9, join(name=group("far", on_other_broker=True))),
            SendRequest("JoinGroup", 9, join(protocols=())),
            SendRequest("JoinGroup", 9, join(kind="")),
            SendRequest("JoinGroup", 9, join(instance="", name=group("i1"))),
            SendRequest("JoinGroup", 9, join(instance="no/name", name=group("i2"))),
            SendRequest("JoinGroup", 9, join("stranger", instance="i")),
            *stable(),
            SendRequest("JoinGroup", 9, join(kind="connect")),
            SendRequest("JoinGroup", 9, join(protocols=(("sticky", NO_TOPICS),))),
            SendRequest("JoinGroup", 9, join("stranger")),
            SendRequest("JoinGroup", 9, join(ME, instance="unknown")),
            SendRequest("JoinGroup", 9, join(name=group()), cut=4),
            SendRequest("JoinGroup", 99, {}),
        ],
    ),
    Scenario(
        "join-two",
        [
            *stable(),
            SendRequest("JoinGroup", 9, join(), label="id2", connection="b"),
            SendRequest(
                "JoinGroup",
                9,
                join(reply("id2", "member_id")),
                label="other",
                connection="b",
                later=True,
            ),
            SendRequest("Heartbeat", 4, heartbeat(ME), until=27),
            SendRequest("DescribeGroups", 6, {"groups": [group()]}),
            SendRequest("OffsetCommit", 9, commit(ME, 1)),
            SendRequest("SyncGroup", 5, sync(ME)),
            SendRequest("OffsetDelete", 0, {"group_id": group(), "topics": []}),
            SendRequest("JoinGroup", 9, join(ME), label="join"),
            AwaitResponse("other"),
            SendRequest("DescribeGroups", 6, {"groups": [group()]}),
            SendRequest("OffsetCommit", 9, commit(ME, 2)),
            SendRequest("SyncGroup", 5, sync(OTHER, 2), connection="b", label="s2", later=True),
            SendRequest("SyncGroup", 5, sync(ME, 2, assignments=((ME, b"1"), (OTHER, b"2")))),
            AwaitResponse("s2"),
            SendRequest("SyncGroup", 5, sync(OTHER, 2), connection="b"),
            SendRequest("JoinGroup", 9, join(OTHER), connection="b"),
            SendRequest("DescribeGroups", 6, {"groups": [group()]}),
            SendRequest("LeaveGroup", 5, leave((OTHER, None))),
            SendRequest("Heartbeat", 4, heartbeat(ME, 2)),
            SendRequest("LeaveGroup", 5, leave((ME, None))),
            SendRequest("DescribeGroups", 6, {"groups": [group()]}),
        ],
        TOPIC,
    ),
    Scenario(
        "join-during-sync",
        [
            *_waits_to_join(),
            SendRequest("JoinGroup", 9, join(ME), label="join"),
            AwaitResponse("other"),
            SendRequest("SyncGroup", 5, sync(OTHER, 2), connection="b", label="s2", later=True),
            SendRequest("JoinGroup", 9, join(), label="id3", connection="c", setup=True),
            SendRequest(
                "JoinGroup",
                9,
                join(reply("id3", "member_id")),
                label="third",
                connection="c",
                later=True,
            ),
            AwaitResponse("s2"),
            SendRequest("LeaveGroup", 5, leave((ME, None), (OTHER, None))),
            AwaitResponse("third"),
            SendRequest("DescribeGroups", 6, {"groups": [group()]}),
        ],
    ),
    Scenario(
        "join-repeated",
        [
            *_waits_to_join(),
            SendRequest(
                "JoinGroup",
                9,
                join(reply("id2", "member_id")),
                label="again",
                connection="c",
                later=True,
            ),
            SendRequest("DescribeGroups", 6, {"groups": [group()]}),
            CloseConnection("b"),
            AwaitResponse("other"),
            SendRequest("JoinGroup", 9, join(ME), label="join"),
            AwaitResponse("again"),
        ],
    ),
    Scenario(
        "leave-waiting",
        [
            *_waits_to_join(),
            SendRequest("LeaveGroup", 5, leave((reply("id2", "member_id"), None))),
            AwaitResponse("other"),
            SendRequest("Heartbeat", 4, heartbeat(ME)),
        ],
    ),
    Scenario(
        "join-static-waiting",
        [
            *stable(),
            SendRequest(
                "JoinGroup", 9, join(instance="i"), label="old", connection="b", later=True
            ),
            SendRequest("Heartbeat", 4, heartbeat(ME), until=27),
            SendRequest(
                "JoinGroup", 9, join(instance="i"), label="new", connection="c", later=True
            ),
            AwaitResponse("old"),
            SendRequest("JoinGroup", 9, join(ME), label="join"),
            AwaitResponse("new"),
        ],
    ),
    Scenario(
        "sync-repeated",
        [
            *_waits_to_join(),
            SendRequest("JoinGroup", 9, join(ME), label="join"),
            AwaitResponse("other"),
            SendRequest("SyncGroup", 5, sync(OTHER, 2), connection="b", label="s1", later=True),
            SendRequest("DescribeGroups", 6, {"groups": [group()]}),
            SendRequest("SyncGroup", 5, sync(OTHER, 2), connection="c", label="s2", later=True),
            SendRequest("DescribeGroups", 6, {"groups": [group()]}),
            CloseConnection("b"),
            AwaitResponse("s1"),
            SendRequest("SyncGroup", 5, sync(ME, 2, assignments=((OTHER, b"2"),))),
            AwaitResponse("s2"),
        ],
    ),
    Scenario(
        "join-static",
        [
            *stable(instance="i"),
            SendRequest("JoinGroup", 9, join(instance="i"), label="again"),
            SendRequest("JoinGroup", 9, join(ME, instance="i")),
            SendRequest("Heartbeat", 4, heartbeat(ME, instance="i")),
            SendRequest("Heartbeat", 4, heartbeat(reply("again", "member_id"), instance="i")),
            SendRequest("Heartbeat", 4, heartbeat(reply("again", "member_id"), instance="j")),
            SendRequest("SyncGroup", 5, sync(ME, instance="i")),
            SendRequest("SyncGroup", 5, sync(reply("again", "member_id"), instance="i")),
            SendRequest("OffsetCommit", 9, commit(ME, 1, instance="i")),
            SendRequest("OffsetCommit", 9, commit(reply("again", "member_id"), 1, instance="i")),
            SendRequest("JoinGroup", 8, join(instance="i"), label="older"),
            SendRequest("LeaveGroup", 5, leave((ME, "i"))),
            SendRequest("LeaveGroup", 5, leave(("", "j"), ("", "i"))),
            SendRequest("DescribeGroups", 6, {"groups": [group()]}),
        ],
        TOPIC,
    ),
]

MEMBERS: Final = [
    Scenario(
        "sync-refused",
        [
            SendRequest("SyncGroup", 5, sync("stranger")),
            *[SendRequest("SyncGroup", version, sync("s", named=False)) for version in (0, 3, 4)],
            *stable(),
            SendRequest("SyncGroup", 5, sync("stranger")),
            SendRequest("SyncGroup", 5, sync(ME, 7)),
            SendRequest("SyncGroup", 5, sync(ME, kind="connect")),
            SendRequest("SyncGroup", 5, sync(ME, protocol="sticky")),
            SendRequest("SyncGroup", 5, sync(ME, kind=None)),
            SendRequest("SyncGroup", 5, sync(ME, protocol=None)),
            SendRequest("SyncGroup", 5, sync("", name="")),
            SendRequest("SyncGroup", 5, sync("m", name=group("far", on_other_broker=True))),
            SendRequest(
                "SyncGroup", 3, sync("m", named=False, name=group("far", on_other_broker=True))
            ),
            *[SendRequest("SyncGroup", version, sync(ME, named=False)) for version in range(5)],
            SendRequest("SyncGroup", 5, sync(ME)),
            SendRequest("SyncGroup", 5, sync(ME, instance="unknown")),
        ],
    ),
    Scenario(
        "heartbeat-refused",
        [
            *[SendRequest("Heartbeat", version, heartbeat("stranger")) for version in range(5)],
            SendRequest("Heartbeat", 4, heartbeat("", name="")),
            SendRequest("Heartbeat", 4, heartbeat("m", name=group("far", on_other_broker=True))),
            *stable(),
            *[SendRequest("Heartbeat", version, heartbeat(ME)) for version in range(5)],
            SendRequest("Heartbeat", 4, heartbeat("stranger")),
            SendRequest("Heartbeat", 4, heartbeat(ME, 3)),
            SendRequest("Heartbeat", 4, heartbeat(ME, -1)),
            SendRequest("Heartbeat", 3, heartbeat(ME, instance="unknown")),
        ],
    ),
    Scenario(
        "leave-refused",
        [
            *[
                SendRequest("LeaveGroup", version, {"group_id": group(), "member_id": "stranger"})
                for version in range(3)
            ],
            *[
                SendRequest("LeaveGroup", version, leave(("stranger", None)))
                for version in (3, 4, 5)
            ],
            SendRequest("LeaveGroup", 5, leave()),
            SendRequest("LeaveGroup", 5, leave(("", None), name="")),
            SendRequest(
                "LeaveGroup", 5, leave(("m", None), name=group("far", on_other_broker=True))
            ),
            SendRequest(
                "LeaveGroup",
                1,
                {"group_id": group("far", on_other_broker=True), "member_id": "stranger"},
            ),
            *stable(),
            SendRequest("LeaveGroup", 5, leave(("stranger", None), ("", "unknown"), ("", None))),
            SendRequest("LeaveGroup", 5, leave((ME, "unknown"))),
            SendRequest("LeaveGroup", 5, leave((ME, None), (ME, None))),
            SendRequest("JoinGroup", 9, join(), label="pending", setup=True),
            SendRequest("LeaveGroup", 5, leave((reply("pending", "member_id"), None))),
        ],
    ),
    Scenario(
        "describe-groups",
        [
            *[
                SendRequest("DescribeGroups", version, {"groups": [group()]})
                for version in range(7)
            ],
            SendRequest("DescribeGroups", 6, {"groups": [group("far", on_other_broker=True)]}),
            SendRequest("DescribeGroups", 0, {"groups": [group("far", on_other_broker=True)]}),
            SendRequest("DescribeGroups", 6, {"groups": []}),
            *stable(),
            *[
                SendRequest("DescribeGroups", version, {"groups": [group()]})
                for version in range(7)
            ],
            SendRequest(
                "DescribeGroups",
                6,
                {"groups": [group(), group("none")], "include_authorized_operations": True},
            ),
            SendRequest(
                "DescribeGroups",
                3,
                {"groups": [group()], "include_authorized_operations": True},
            ),
        ],
    ),
    Scenario(
        "list-groups",
        [
            *stable(),
            *[SendRequest("ListGroups", version, {}, own=True) for version in range(6)],
            *[
                SendRequest("ListGroups", 5, {"states_filter": [state]}, own=True)
                for state in ("Stable", "stable", "Empty", "Nonsense")
            ],
            *[
                SendRequest("ListGroups", 5, {"types_filter": [kind]}, own=True)
                for kind in ("classic", "Classic", "consumer", "share", "nonsense")
            ],
            SendRequest(
                "ListGroups", 5, {"states_filter": ["Empty"], "types_filter": ["classic"]}, own=True
            ),
            SendRequest("LeaveGroup", 5, leave((ME, None)), setup=True),
            SendRequest("ListGroups", 4, {"states_filter": ["Empty"]}, own=True),
            SendRequest("ListGroups", 5, {}, cut=1),
            SendRequest("ListGroups", 99, {}),
        ],
    ),
    Scenario(
        "delete-groups",
        [
            *[
                SendRequest("DeleteGroups", version, {"groups_names": [group()]})
                for version in range(4)
            ],
            SendRequest("DeleteGroups", 2, {"groups_names": []}),
            SendRequest("DeleteGroups", 2, {"groups_names": [group("far", on_other_broker=True)]}),
            *stable(),
            SendRequest("DeleteGroups", 2, {"groups_names": [group(), group("none")]}),
            SendRequest("LeaveGroup", 5, leave((ME, None)), setup=True),
            SendRequest("DeleteGroups", 2, {"groups_names": [group()]}),
            SendRequest("DeleteGroups", 2, {"groups_names": [group()]}),
            SendRequest("OffsetCommit", 8, commit(), setup=True),
            SendRequest("DeleteGroups", 0, {"groups_names": [group()]}),
            SendRequest("OffsetFetch", 7, committed()),
        ],
        TOPIC,
    ),
    Scenario(
        "delete-groups-rebalancing",
        [
            *_waits_to_join(),
            SendRequest("DeleteGroups", 2, {"groups_names": [group()]}),
            SendRequest("JoinGroup", 9, join(ME), label="join"),
            AwaitResponse("other"),
            SendRequest("DeleteGroups", 2, {"groups_names": [group()]}),
        ],
    ),
]

OFFSETS: Final = [
    Scenario(
        "offset-commit",
        [
            *[
                SendRequest("OffsetCommit", version, commit(offset=version))
                for version in range(2, 10)
            ],
            SendRequest("OffsetCommit", 10, commit(where={"topic_id": TopicId()})),
            SendRequest("OffsetCommit", 9, commit(epoch=3)),
            *[SendRequest("OffsetFetch", version, committed()) for version in range(1, 8)],
            *[SendRequest("OffsetFetch", version, committed_by()) for version in (8, 9)],
            SendRequest(
                "OffsetFetch",
                10,
                committed_by(topics=[{"topic_id": TopicId(), "partition_indexes": [0]}]),
            ),
            SendRequest("OffsetCommit", 9, commit(metadata=None)),
            SendRequest("OffsetCommit", 9, commit(offset=-1)),
            SendRequest("OffsetCommit", 9, commit(offset=-7)),
            SendRequest("OffsetFetch", 9, committed_by()),
            SendRequest("DescribeGroups", 6, {"groups": [group()]}),
        ],
        TOPIC,
    ),
    Scenario(
        "offset-commit-refused",
        [
            SendRequest("OffsetCommit", 9, commit(index=5)),
            SendRequest("OffsetCommit", 2, commit(index=5)),
            SendRequest("OffsetCommit", 9, commit(index=-1)),
            SendRequest("OffsetCommit", 9, commit(where={"name": "contract-missing"})),
            SendRequest("OffsetCommit", 9, commit(where={"name": ""})),
            SendRequest("OffsetCommit", 10, commit(where={"topic_id": UNKNOWN_TOPIC_ID})),
            SendRequest("OffsetCommit", 10, commit(where={"topic_id": uuid.UUID(int=0)})),
            SendRequest("OffsetCommit", 9, commit(metadata="x" * 5_000)),
            SendRequest("OffsetCommit", 9, commit(metadata="x" * 4_096)),
            SendRequest("OffsetCommit", 9, commit("m", 3, name=group("none"))),
            SendRequest("OffsetCommit", 8, commit("m", 3, name=group("none"))),
            SendRequest("OffsetCommit", 9, commit("m", -1, name=group("none2"))),
            SendRequest("OffsetCommit", 9, commit("", 3, name=group("none3"))),
            SendRequest("OffsetCommit", 9, commit(name=group("far", on_other_broker=True))),
            SendRequest("OffsetCommit", 9, {**commit(), "topics": []}),
            *stable(),
            SendRequest("OffsetCommit", 9, commit(ME, 1)),
            SendRequest("OffsetCommit", 9, commit()),
            SendRequest("OffsetCommit", 9, commit("stranger", 1)),
            SendRequest("OffsetCommit", 9, commit(ME, 4)),
            SendRequest("OffsetCommit", 9, commit(ME, -1)),
            SendRequest("OffsetCommit", 9, commit(ME, 1, instance="unknown")),
            SendRequest("OffsetCommit", 9, commit("", 1)),
        ],
        TOPIC,
    ),
    Scenario(
        "offset-fetch-refused",
        [
            SendRequest("OffsetFetch", 1, committed()),
            SendRequest("OffsetFetch", 7, committed()),
            SendRequest("OffsetFetch", 7, committed(9)),
            SendRequest("OffsetFetch", 7, committed(where="contract-missing")),
            *[
                SendRequest(
                    "OffsetFetch", version, committed(name=group("far", on_other_broker=True))
                )
                for version in (1, 2, 7)
            ],
            SendRequest(
                "OffsetFetch", 9, committed_by(group("far", on_other_broker=True), group())
            ),
            SendRequest("OffsetFetch", 9, committed_by(topics=[])),
            SendRequest(
                "OffsetFetch",
                10,
                committed_by(topics=[{"topic_id": UNKNOWN_TOPIC_ID, "partition_indexes": [0, 1]}]),
            ),
            SendRequest("OffsetCommit", 9, commit(), setup=True),
            SendRequest("OffsetFetch", 7, {"group_id": group(), "topics": None}),
            SendRequest("OffsetFetch", 9, committed_by(topics=None)),
            SendRequest("OffsetFetch", 10, committed_by(topics=None)),
            SendRequest("OffsetFetch", 7, committed() | {"require_stable": True}),
            SendRequest("OffsetFetch", 9, committed_by(require_stable=True)),
            SendRequest(
                "OffsetFetch",
                9,
                {
                    "groups": [
                        {
                            "group_id": group(),
                            "member_id": "stranger",
                            "member_epoch": 3,
                            "topics": [{"name": topic(), "partition_indexes": [0]}],
                        }
                    ]
                },
            ),
        ],
        TOPIC,
    ),
    Scenario(
        "offset-delete",
        [
            SendRequest("OffsetDelete", 0, {"group_id": group(), "topics": []}),
            SendRequest("OffsetCommit", 8, commit(), setup=True),
            SendRequest(
                "OffsetDelete",
                0,
                {
                    "group_id": group(),
                    "topics": [
                        {"name": topic(), "partitions": [{"partition_index": 0}]},
                        {"name": "contract-missing", "partitions": [{"partition_index": 0}]},
                    ],
                },
            ),
            SendRequest(
                "OffsetDelete",
                0,
                {
                    "group_id": group(),
                    "topics": [{"name": topic(), "partitions": [{"partition_index": 8}]}],
                },
            ),
            SendRequest("OffsetFetch", 7, committed()),
            SendRequest("OffsetDelete", 0, {"group_id": "", "topics": []}),
            SendRequest(
                "OffsetDelete", 0, {"group_id": group("far", on_other_broker=True), "topics": []}
            ),
            SendRequest("OffsetDelete", 0, {"group_id": group(), "topics": []}),
        ],
        TOPIC,
    ),
    Scenario(
        "offset-delete-members",
        [
            SendRequest("OffsetCommit", 8, commit(), setup=True),
            SendRequest(
                "JoinGroup", 3, join(protocols=(("range", SUBSCRIBED),)), label="join", setup=True
            ),
            SendRequest("SyncGroup", 3, sync(ME, named=False), setup=True),
            SendRequest(
                "OffsetDelete",
                0,
                {
                    "group_id": group(),
                    "topics": [{"name": topic(), "partitions": [{"partition_index": 0}]}],
                },
            ),
        ],
        TOPIC,
    ),
    Scenario(
        "offset-delete-connect",
        [
            SendRequest("JoinGroup", 3, join(kind="connect"), label="join", setup=True),
            SendRequest(
                "OffsetDelete",
                0,
                {
                    "group_id": group(),
                    "topics": [{"name": topic(), "partitions": [{"partition_index": 0}]}],
                },
            ),
            SendRequest("DescribeGroups", 6, {"groups": [group()]}, awaiting="CompletingRebalance"),
            SendRequest("ListGroups", 4, {}, own=True),
        ],
        TOPIC,
    ),
]

SCENARIOS: Final = [*JOIN, *MEMBERS, *OFFSETS]
