"""The APIs of groups and of committed offsets."""

from __future__ import annotations

import uuid
from typing import Any, Final

from tests.contract.cases.log import NOWHERE
from tests.contract.model import (
    TOPIC,
    Ask,
    Drop,
    Fields,
    Scenario,
    Step,
    Subscription,
    Take,
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


def beat(
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
        [] if instance is not None else [Ask("JoinGroup", version, join(), label="id", setup=True)]
    )
    known = "" if instance is not None else reply("id", "member_id")
    return [
        *first,
        Ask("JoinGroup", version, join(known, instance=instance), label="join", setup=True),
        Ask(
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
        Ask("JoinGroup", 9, join(), label="id2", connection="b", setup=True),
        Ask(
            "JoinGroup",
            9,
            join(reply("id2", "member_id")),
            label="other",
            connection="b",
            later=True,
        ),
        Ask("Heartbeat", 4, beat(ME), until=27),
    ]


JOIN: Final = [
    *[
        Scenario(
            f"join-v{version}",
            [
                Ask("JoinGroup", version, join(), label="join"),
                *([Ask("JoinGroup", version, join(ME), label="join")] if version >= 4 else []),
                Ask("Heartbeat", min(version, 4), beat(ME)),
                Ask("JoinGroup", version, join(ME), label="join"),
                Ask(
                    "SyncGroup",
                    min(version, 5),
                    sync(ME, assignments=((ME, b"a"),), named=version >= 5),
                ),
                Ask("Heartbeat", min(version, 4), beat(ME, 1)),
                Ask("LeaveGroup", 2, {"group_id": group(), "member_id": ME}),
                Ask("Heartbeat", min(version, 4), beat(ME, 1)),
            ],
        )
        for version in range(10)
    ],
    Scenario(
        "join-refused",
        [
            Ask("JoinGroup", 9, join(session=10)),
            Ask("JoinGroup", 9, join(session=100_000_000)),
            Ask("JoinGroup", 0, {**join(session=10), "rebalance_timeout_ms": -1}),
            Ask("JoinGroup", 9, join("stranger")),
            Ask("JoinGroup", 2, join("stranger")),
            Ask("JoinGroup", 9, join(name="")),
            Ask("JoinGroup", 9, join(name=group("far", away=True))),
            Ask("JoinGroup", 9, join(protocols=())),
            Ask("JoinGroup", 9, join(kind="")),
            Ask("JoinGroup", 9, join(instance="", name=group("i1"))),
            Ask("JoinGroup", 9, join(instance="no/name", name=group("i2"))),
            Ask("JoinGroup", 9, join("stranger", instance="i")),
            *stable(),
            Ask("JoinGroup", 9, join(kind="connect")),
            Ask("JoinGroup", 9, join(protocols=(("sticky", NO_TOPICS),))),
            Ask("JoinGroup", 9, join("stranger")),
            Ask("JoinGroup", 9, join(ME, instance="unknown")),
            Ask("JoinGroup", 9, join(name=group()), cut=4),
            Ask("JoinGroup", 99, {}),
        ],
    ),
    Scenario(
        "join-two",
        [
            *stable(),
            Ask("JoinGroup", 9, join(), label="id2", connection="b"),
            Ask(
                "JoinGroup",
                9,
                join(reply("id2", "member_id")),
                label="other",
                connection="b",
                later=True,
            ),
            Ask("Heartbeat", 4, beat(ME), until=27),
            Ask("DescribeGroups", 6, {"groups": [group()]}),
            Ask("OffsetCommit", 9, commit(ME, 1)),
            Ask("SyncGroup", 5, sync(ME)),
            Ask("OffsetDelete", 0, {"group_id": group(), "topics": []}),
            Ask("JoinGroup", 9, join(ME), label="join"),
            Take("other"),
            Ask("DescribeGroups", 6, {"groups": [group()]}),
            Ask("OffsetCommit", 9, commit(ME, 2)),
            Ask("SyncGroup", 5, sync(OTHER, 2), connection="b", label="s2", later=True),
            Ask("SyncGroup", 5, sync(ME, 2, assignments=((ME, b"1"), (OTHER, b"2")))),
            Take("s2"),
            Ask("SyncGroup", 5, sync(OTHER, 2), connection="b"),
            Ask("JoinGroup", 9, join(OTHER), connection="b"),
            Ask("DescribeGroups", 6, {"groups": [group()]}),
            Ask("LeaveGroup", 5, leave((OTHER, None))),
            Ask("Heartbeat", 4, beat(ME, 2)),
            Ask("LeaveGroup", 5, leave((ME, None))),
            Ask("DescribeGroups", 6, {"groups": [group()]}),
        ],
        TOPIC,
    ),
    Scenario(
        "join-during-sync",
        [
            *_waits_to_join(),
            Ask("JoinGroup", 9, join(ME), label="join"),
            Take("other"),
            Ask("SyncGroup", 5, sync(OTHER, 2), connection="b", label="s2", later=True),
            Ask("JoinGroup", 9, join(), label="id3", connection="c", setup=True),
            Ask(
                "JoinGroup",
                9,
                join(reply("id3", "member_id")),
                label="third",
                connection="c",
                later=True,
            ),
            Take("s2"),
            Ask("LeaveGroup", 5, leave((ME, None), (OTHER, None))),
            Take("third"),
            Ask("DescribeGroups", 6, {"groups": [group()]}),
        ],
    ),
    Scenario(
        "join-repeated",
        [
            *_waits_to_join(),
            Ask(
                "JoinGroup",
                9,
                join(reply("id2", "member_id")),
                label="again",
                connection="c",
                later=True,
            ),
            Ask("DescribeGroups", 6, {"groups": [group()]}),
            Drop("b"),
            Take("other"),
            Ask("JoinGroup", 9, join(ME), label="join"),
            Take("again"),
        ],
    ),
    Scenario(
        "leave-waiting",
        [
            *_waits_to_join(),
            Ask("LeaveGroup", 5, leave((reply("id2", "member_id"), None))),
            Take("other"),
            Ask("Heartbeat", 4, beat(ME)),
        ],
    ),
    Scenario(
        "join-static-waiting",
        [
            *stable(),
            Ask("JoinGroup", 9, join(instance="i"), label="old", connection="b", later=True),
            Ask("Heartbeat", 4, beat(ME), until=27),
            Ask("JoinGroup", 9, join(instance="i"), label="new", connection="c", later=True),
            Take("old"),
            Ask("JoinGroup", 9, join(ME), label="join"),
            Take("new"),
        ],
    ),
    Scenario(
        "sync-repeated",
        [
            *_waits_to_join(),
            Ask("JoinGroup", 9, join(ME), label="join"),
            Take("other"),
            Ask("SyncGroup", 5, sync(OTHER, 2), connection="b", label="s1", later=True),
            Ask("DescribeGroups", 6, {"groups": [group()]}),
            Ask("SyncGroup", 5, sync(OTHER, 2), connection="c", label="s2", later=True),
            Ask("DescribeGroups", 6, {"groups": [group()]}),
            Drop("b"),
            Take("s1"),
            Ask("SyncGroup", 5, sync(ME, 2, assignments=((OTHER, b"2"),))),
            Take("s2"),
        ],
    ),
    Scenario(
        "join-static",
        [
            *stable(instance="i"),
            Ask("JoinGroup", 9, join(instance="i"), label="again"),
            Ask("JoinGroup", 9, join(ME, instance="i")),
            Ask("Heartbeat", 4, beat(ME, instance="i")),
            Ask("Heartbeat", 4, beat(reply("again", "member_id"), instance="i")),
            Ask("Heartbeat", 4, beat(reply("again", "member_id"), instance="j")),
            Ask("SyncGroup", 5, sync(ME, instance="i")),
            Ask("SyncGroup", 5, sync(reply("again", "member_id"), instance="i")),
            Ask("OffsetCommit", 9, commit(ME, 1, instance="i")),
            Ask("OffsetCommit", 9, commit(reply("again", "member_id"), 1, instance="i")),
            Ask("JoinGroup", 8, join(instance="i"), label="older"),
            Ask("LeaveGroup", 5, leave((ME, "i"))),
            Ask("LeaveGroup", 5, leave(("", "j"), ("", "i"))),
            Ask("DescribeGroups", 6, {"groups": [group()]}),
        ],
        TOPIC,
    ),
]

MEMBERS: Final = [
    Scenario(
        "sync-refused",
        [
            Ask("SyncGroup", 5, sync("stranger")),
            *[Ask("SyncGroup", version, sync("s", named=False)) for version in (0, 3, 4)],
            *stable(),
            Ask("SyncGroup", 5, sync("stranger")),
            Ask("SyncGroup", 5, sync(ME, 7)),
            Ask("SyncGroup", 5, sync(ME, kind="connect")),
            Ask("SyncGroup", 5, sync(ME, protocol="sticky")),
            Ask("SyncGroup", 5, sync(ME, kind=None)),
            Ask("SyncGroup", 5, sync(ME, protocol=None)),
            Ask("SyncGroup", 5, sync("", name="")),
            Ask("SyncGroup", 5, sync("m", name=group("far", away=True))),
            Ask("SyncGroup", 3, sync("m", named=False, name=group("far", away=True))),
            *[Ask("SyncGroup", version, sync(ME, named=False)) for version in range(5)],
            Ask("SyncGroup", 5, sync(ME)),
            Ask("SyncGroup", 5, sync(ME, instance="unknown")),
        ],
    ),
    Scenario(
        "heartbeat-refused",
        [
            *[Ask("Heartbeat", version, beat("stranger")) for version in range(5)],
            Ask("Heartbeat", 4, beat("", name="")),
            Ask("Heartbeat", 4, beat("m", name=group("far", away=True))),
            *stable(),
            *[Ask("Heartbeat", version, beat(ME)) for version in range(5)],
            Ask("Heartbeat", 4, beat("stranger")),
            Ask("Heartbeat", 4, beat(ME, 3)),
            Ask("Heartbeat", 4, beat(ME, -1)),
            Ask("Heartbeat", 3, beat(ME, instance="unknown")),
        ],
    ),
    Scenario(
        "leave-refused",
        [
            *[
                Ask("LeaveGroup", version, {"group_id": group(), "member_id": "stranger"})
                for version in range(3)
            ],
            *[Ask("LeaveGroup", version, leave(("stranger", None))) for version in (3, 4, 5)],
            Ask("LeaveGroup", 5, leave()),
            Ask("LeaveGroup", 5, leave(("", None), name="")),
            Ask("LeaveGroup", 5, leave(("m", None), name=group("far", away=True))),
            Ask("LeaveGroup", 1, {"group_id": group("far", away=True), "member_id": "stranger"}),
            *stable(),
            Ask("LeaveGroup", 5, leave(("stranger", None), ("", "unknown"), ("", None))),
            Ask("LeaveGroup", 5, leave((ME, "unknown"))),
            Ask("LeaveGroup", 5, leave((ME, None), (ME, None))),
            Ask("JoinGroup", 9, join(), label="pending", setup=True),
            Ask("LeaveGroup", 5, leave((reply("pending", "member_id"), None))),
        ],
    ),
    Scenario(
        "describe-groups",
        [
            *[Ask("DescribeGroups", version, {"groups": [group()]}) for version in range(7)],
            Ask("DescribeGroups", 6, {"groups": [group("far", away=True)]}),
            Ask("DescribeGroups", 0, {"groups": [group("far", away=True)]}),
            Ask("DescribeGroups", 6, {"groups": []}),
            *stable(),
            *[Ask("DescribeGroups", version, {"groups": [group()]}) for version in range(7)],
            Ask(
                "DescribeGroups",
                6,
                {"groups": [group(), group("none")], "include_authorized_operations": True},
            ),
            Ask(
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
            *[Ask("ListGroups", version, {}, own=True) for version in range(6)],
            *[
                Ask("ListGroups", 5, {"states_filter": [state]}, own=True)
                for state in ("Stable", "stable", "Empty", "Nonsense")
            ],
            *[
                Ask("ListGroups", 5, {"types_filter": [kind]}, own=True)
                for kind in ("classic", "Classic", "consumer", "share", "nonsense")
            ],
            Ask(
                "ListGroups", 5, {"states_filter": ["Empty"], "types_filter": ["classic"]}, own=True
            ),
            Ask("LeaveGroup", 5, leave((ME, None)), setup=True),
            Ask("ListGroups", 4, {"states_filter": ["Empty"]}, own=True),
            Ask("ListGroups", 5, {}, cut=1),
            Ask("ListGroups", 99, {}),
        ],
    ),
    Scenario(
        "delete-groups",
        [
            *[Ask("DeleteGroups", version, {"groups_names": [group()]}) for version in range(4)],
            Ask("DeleteGroups", 2, {"groups_names": []}),
            Ask("DeleteGroups", 2, {"groups_names": [group("far", away=True)]}),
            *stable(),
            Ask("DeleteGroups", 2, {"groups_names": [group(), group("none")]}),
            Ask("LeaveGroup", 5, leave((ME, None)), setup=True),
            Ask("DeleteGroups", 2, {"groups_names": [group()]}),
            Ask("DeleteGroups", 2, {"groups_names": [group()]}),
            Ask("OffsetCommit", 8, commit(), setup=True),
            Ask("DeleteGroups", 0, {"groups_names": [group()]}),
            Ask("OffsetFetch", 7, committed()),
        ],
        TOPIC,
    ),
    Scenario(
        "delete-groups-rebalancing",
        [
            *_waits_to_join(),
            Ask("DeleteGroups", 2, {"groups_names": [group()]}),
            Ask("JoinGroup", 9, join(ME), label="join"),
            Take("other"),
            Ask("DeleteGroups", 2, {"groups_names": [group()]}),
        ],
    ),
]

OFFSETS: Final = [
    Scenario(
        "offset-commit",
        [
            *[Ask("OffsetCommit", version, commit(offset=version)) for version in range(2, 10)],
            Ask("OffsetCommit", 10, commit(where={"topic_id": TopicId()})),
            Ask("OffsetCommit", 9, commit(epoch=3)),
            *[Ask("OffsetFetch", version, committed()) for version in range(1, 8)],
            *[Ask("OffsetFetch", version, committed_by()) for version in (8, 9)],
            Ask(
                "OffsetFetch",
                10,
                committed_by(topics=[{"topic_id": TopicId(), "partition_indexes": [0]}]),
            ),
            Ask("OffsetCommit", 9, commit(metadata=None)),
            Ask("OffsetCommit", 9, commit(offset=-1)),
            Ask("OffsetCommit", 9, commit(offset=-7)),
            Ask("OffsetFetch", 9, committed_by()),
            Ask("DescribeGroups", 6, {"groups": [group()]}),
        ],
        TOPIC,
    ),
    Scenario(
        "offset-commit-refused",
        [
            Ask("OffsetCommit", 9, commit(index=5)),
            Ask("OffsetCommit", 2, commit(index=5)),
            Ask("OffsetCommit", 9, commit(index=-1)),
            Ask("OffsetCommit", 9, commit(where={"name": "contract-missing"})),
            Ask("OffsetCommit", 9, commit(where={"name": ""})),
            Ask("OffsetCommit", 10, commit(where={"topic_id": NOWHERE})),
            Ask("OffsetCommit", 10, commit(where={"topic_id": uuid.UUID(int=0)})),
            Ask("OffsetCommit", 9, commit(metadata="x" * 5_000)),
            Ask("OffsetCommit", 9, commit(metadata="x" * 4_096)),
            Ask("OffsetCommit", 9, commit("m", 3, name=group("none"))),
            Ask("OffsetCommit", 8, commit("m", 3, name=group("none"))),
            Ask("OffsetCommit", 9, commit("m", -1, name=group("none2"))),
            Ask("OffsetCommit", 9, commit("", 3, name=group("none3"))),
            Ask("OffsetCommit", 9, commit(name=group("far", away=True))),
            Ask("OffsetCommit", 9, {**commit(), "topics": []}),
            *stable(),
            Ask("OffsetCommit", 9, commit(ME, 1)),
            Ask("OffsetCommit", 9, commit()),
            Ask("OffsetCommit", 9, commit("stranger", 1)),
            Ask("OffsetCommit", 9, commit(ME, 4)),
            Ask("OffsetCommit", 9, commit(ME, -1)),
            Ask("OffsetCommit", 9, commit(ME, 1, instance="unknown")),
            Ask("OffsetCommit", 9, commit("", 1)),
        ],
        TOPIC,
    ),
    Scenario(
        "offset-fetch-refused",
        [
            Ask("OffsetFetch", 1, committed()),
            Ask("OffsetFetch", 7, committed()),
            Ask("OffsetFetch", 7, committed(9)),
            Ask("OffsetFetch", 7, committed(where="contract-missing")),
            *[
                Ask("OffsetFetch", version, committed(name=group("far", away=True)))
                for version in (1, 2, 7)
            ],
            Ask("OffsetFetch", 9, committed_by(group("far", away=True), group())),
            Ask("OffsetFetch", 9, committed_by(topics=[])),
            Ask(
                "OffsetFetch",
                10,
                committed_by(topics=[{"topic_id": NOWHERE, "partition_indexes": [0, 1]}]),
            ),
            Ask("OffsetCommit", 9, commit(), setup=True),
            Ask("OffsetFetch", 7, {"group_id": group(), "topics": None}),
            Ask("OffsetFetch", 9, committed_by(topics=None)),
            Ask("OffsetFetch", 10, committed_by(topics=None)),
            Ask("OffsetFetch", 7, committed() | {"require_stable": True}),
            Ask("OffsetFetch", 9, committed_by(require_stable=True)),
            Ask(
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
            Ask("OffsetDelete", 0, {"group_id": group(), "topics": []}),
            Ask("OffsetCommit", 8, commit(), setup=True),
            Ask(
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
            Ask(
                "OffsetDelete",
                0,
                {
                    "group_id": group(),
                    "topics": [{"name": topic(), "partitions": [{"partition_index": 8}]}],
                },
            ),
            Ask("OffsetFetch", 7, committed()),
            Ask("OffsetDelete", 0, {"group_id": "", "topics": []}),
            Ask("OffsetDelete", 0, {"group_id": group("far", away=True), "topics": []}),
            Ask("OffsetDelete", 0, {"group_id": group(), "topics": []}),
        ],
        TOPIC,
    ),
    Scenario(
        "offset-delete-members",
        [
            Ask("OffsetCommit", 8, commit(), setup=True),
            Ask("JoinGroup", 3, join(protocols=(("range", SUBSCRIBED),)), label="join", setup=True),
            Ask("SyncGroup", 3, sync(ME, named=False), setup=True),
            Ask(
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
            Ask("JoinGroup", 3, join(kind="connect"), label="join", setup=True),
            Ask(
                "OffsetDelete",
                0,
                {
                    "group_id": group(),
                    "topics": [{"name": topic(), "partitions": [{"partition_index": 0}]}],
                },
            ),
            Ask("DescribeGroups", 6, {"groups": [group()]}, awaiting="CompletingRebalance"),
            Ask("ListGroups", 4, {}, own=True),
        ],
        TOPIC,
    ),
]

SCENARIOS: Final = [*JOIN, *MEMBERS, *OFFSETS]
