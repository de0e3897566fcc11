"""The APIs of groups of the consumer protocol (KIP-848), and what both protocols share."""

from __future__ import annotations

from typing import Any, Final

from tests.contract.cases.groups import commit, committed_by, delete_offsets, heartbeat, leave, sync
from tests.contract.cases.groups import join as join_classic
from tests.contract.model import (
    GROUP,
    TOPIC,
    Fields,
    Step,
    T,
    TopicId,
    group,
    reply,
    request,
    scenario,
    send,
    topic,
)

TWO_PARTITIONS: Final = {"t": {"partitions": 2}}
BY_ID: Final = {"topic_id": TopicId()}
MINUTE: Final = 60_000
NOBODY: Final = "stranger"


def owned(*partitions: int, key: str = "t") -> list[Fields]:
    """Return the partitions of a topic as a member reports them."""
    return [{"topic_id": TopicId(key), "partitions": list(partitions)}] if partitions else []


@request("ConsumerGroupHeartbeat")
def join(member: Any = "m1", names: Any = (T,), **more: Any) -> Fields:
    """Return the first heartbeat of a member."""
    return {
        "group_id": GROUP,
        "member_id": member,
        "member_epoch": 0,
        "rebalance_timeout_ms": MINUTE,
        "subscribed_topic_names": list(names),
        "topic_partitions": [],
        **more,
    }


@request("ConsumerGroupHeartbeat")
def stay(member: Any = "m1", epoch: int = 2) -> Fields:
    """Return a later heartbeat of a member."""
    return {"group_id": GROUP, "member_id": member, "member_epoch": epoch}


@request("ConsumerGroupDescribe")
def describe(*groups: Any) -> Fields:
    """Return a ConsumerGroupDescribe request."""
    return {"group_ids": list(groups) or [GROUP]}


LISTED: Final = send("ListGroups", 5, own=True)


def _alone(version: int) -> list[Step]:
    """Return the life of a group with one member."""
    return [
        join(version),
        stay(version),
        stay(version, topic_partitions=owned(0, 1)),
        stay(
            version,
            rebalance_timeout_ms=MINUTE,
            subscribed_topic_names=[T],
            topic_partitions=owned(0, 1),
        ),
        describe(0),
        describe(1),
        LISTED,
        send("ListGroups", 5, own=True, types_filter=["consumer"]),
        send("ListGroups", 5, own=True, types_filter=["classic"]),
        send("ListGroups", 5, own=True, states_filter=["stable"]),
        stay(version, subscribed_topic_names=[]),
        stay(version, topic_partitions=[]),
        describe(1),
        stay(version, epoch=-1),
        describe(1),
        LISTED,
        stay(version, epoch=-1),
        join(version),
        stay(version, epoch=-1),
        send("DeleteGroups", 2, groups_names=[GROUP]),
        describe(1),
    ]


HEARTBEATS: Final = [
    *[
        scenario(f"consumer-group-alone-v{version}", TWO_PARTITIONS, *_alone(version))
        for version in (0, 1)
    ],
    scenario(
        "consumer-group-member-id",
        TOPIC,
        join(0, "", label="join"),
        stay(0, reply("join", "member_id")),
        stay(1, reply("join", "member_id"), -1),
        join(1, ""),
        stay(0, "", 1),
        stay(0, "", -1),
        stay(1, "", -2, instance_id="i"),
    ),
    scenario(
        "consumer-group-refused",
        TOPIC,
        stay(1),
        stay(1, epoch=-1),
        stay(1, epoch=-2, instance_id="i"),
        stay(1, epoch=-2),
        stay(1, epoch=-3),
        join(1, group_id=""),
        join(1, group_id=group("far", on_other_broker=True)),
        join(1, instance_id=""),
        join(1, rack_id=""),
        join(1, rebalance_timeout_ms=-1),
        join(1, topic_partitions=None),
        join(1, topic_partitions=owned(0)),
        join(1, subscribed_topic_names=None),
        join(1, server_assignor="sticky"),
        join(1, server_assignor=""),
        describe(1),
        join(1, cut=3),
        send("ConsumerGroupHeartbeat", 9),
        join(1),
        stay(1, NOBODY),
        stay(1, NOBODY, -1),
        stay(1, epoch=3),
        stay(1, epoch=1),
        stay(1, server_assignor="sticky"),
        stay(1, instance_id="i"),
        stay(1, "m1", -1, instance_id="i"),
        describe((0, 1), "", GROUP, group("far", on_other_broker=True), group("missing")),
        describe(1, include_authorized_operations=True),
    ),
    scenario(
        "consumer-group-two-members",
        TWO_PARTITIONS,
        join(1, "m1"),
        join(1, "m2"),
        describe(1),
        stay(1, "m2", 3),
        stay(1, "m1", 2),
        describe(1),
        stay(1, "m1", 2),
        stay(1, "m1", 2, topic_partitions=owned(0, 1)),
        stay(1, "m2", 3, topic_partitions=[]),
        stay(1, "m1", 2, topic_partitions=owned(0)),
        describe(1),
        # The response to the last heartbeat may have been lost.
        stay(1, "m1", 2, topic_partitions=owned(0)),
        stay(1, "m1", 2),
        stay(1, "m2", 3),
        describe(1),
        stay(1, "m1", -1),
        stay(1, "m2", 3),
        describe(1),
        join(1, "m2"),
        stay(1, "m2", 4),
    ),
    scenario(
        "consumer-group-range",
        {"t": {"partitions": 2}, "u": {"partitions": 1}},
        join(1, "m1", (T, topic("u")), server_assignor="range"),
        describe(1),
        join(1, "m2", (T,), server_assignor="range"),
        stay(1, "m1", 2, topic_partitions=[]),
        stay(1, "m2", 3),
        describe(1),
        stay(1, "m2", 3, server_assignor="uniform"),
        stay(1, "m1", 3, server_assignor="uniform"),
        describe(1),
    ),
    scenario(
        "consumer-group-subscriptions",
        {"t": {"partitions": 2}, "u": {"partitions": 1}},
        join(1, "m1", (T, topic("missing"))),
        stay(1, subscribed_topic_names=[T, topic("u")]),
        stay(1, epoch=3, subscribed_topic_names=[topic("u")]),
        describe(1),
        stay(1, epoch=3, topic_partitions=owned(0, key="u")),
        describe(1),
        send(
            "CreatePartitions",
            3,
            topics=[{"name": topic("u"), "count": 2, "assignments": None}],
            timeout_ms=30_000,
        ),
        stay(1, epoch=4, awaiting='"member_epoch": 5'),
        send("DeleteTopics", 6, topics=[{"name": topic("u")}], timeout_ms=30_000),
        stay(1, epoch=5, topic_partitions=[], awaiting='"member_epoch": 6'),
        describe(1),
    ),
    scenario(
        "consumer-group-static",
        TWO_PARTITIONS,
        join(1, "m1", instance_id="i"),
        join(1, "m2", instance_id="i"),
        stay(1, "m2", 2, instance_id="i"),
        stay(1, "m1", 2, instance_id="j"),
        stay(1, "m1", 2, instance_id="i"),
        stay(1, "m1", 2),
        describe(1),
        stay(1, "m2", -2, instance_id="i"),
        stay(1, "m1", -2, instance_id="i"),
        describe(1),
        stay(1, "m1", 2, instance_id="i"),
        commit(9, "m1", 2),
        join(1, "m2", instance_id="i"),
        describe(1),
        stay(1, "m1", 2, instance_id="i"),
        stay(1, "m1", 2),
        stay(1, "m2", 2, instance_id="i", topic_partitions=owned(0, 1)),
        stay(1, "m2", -1, instance_id="j"),
        stay(1, "m1", -1, instance_id="i"),
        stay(1, "m2", -1, instance_id="i"),
        describe(1),
    ),
]


def _pattern(number: int, pattern: str) -> Step:
    """Return a join of another member with a regular expression."""
    return join(1, f"m{number}", subscribed_topic_names=None, subscribed_topic_regex=pattern)


REGULAR_EXPRESSIONS: Final = (
    *("t.*", "^t$", "(a|b)+?", r"\Qa.b\E", "(?i)T", "(?P<n>a)", "(?<n>a)", "[[:alpha:]]+", r"\d\z"),
    *("a{1,1000}", "[^a-c]", r"\pN", "(?:a)", "", r"\x41", r"\.", "a|", "(?s:.)"),
    *(r"\pL+", r"[\p{Lu}_]"),
    *("(", "a)", "[a", "(?=a)", "(?!a)", "(?<=a)", "(?<!a)", "(?>a)", r"(a)\1", "a**", "a++"),
    *(
        "[z-a]",
        "a{1001}",
        "a{2,1}",
        r"\y",
        r"\Z",
        "(?P=n)",
        "*a",
        "[[:no:]]",
        "(?#a)",
        "a\\",
        r"\C",
    ),
)
PATTERNS: Final = [
    scenario(
        "consumer-group-regular-expressions",
        {},
        *[_pattern(number, pattern) for number, pattern in enumerate(REGULAR_EXPRESSIONS)],
    ),
    scenario(
        "consumer-group-pattern",
        TWO_PARTITIONS,
        join(1, subscribed_topic_names=None, subscribed_topic_regex=T),
        stay(1, epoch=1, awaiting='"partitions": [0, 1]'),
        describe(1),
        join(1, "m2", subscribed_topic_names=None, subscribed_topic_regex="("),
        stay(1, epoch=2, subscribed_topic_regex="("),
        join(0, "m3", subscribed_topic_names=None),
        stay(1, epoch=2, subscribed_topic_names=[T], subscribed_topic_regex=""),
        describe(1),
        stay(1, epoch=-1),
        describe(1),
    ),
]
OFFSETS: Final = [
    scenario(
        "consumer-group-offsets",
        TWO_PARTITIONS,
        commit(9),
        join(1),
        commit(range(2, 10), "m1", 2),
        commit(10, "m1", 2, where=BY_ID),
        commit((9,), "m1", 3),
        commit((9,), "m1", 1),
        commit((9,), "m1", -1),
        commit((9,), NOBODY, 2),
        commit((8, 9)),
        committed_by((8, 9)),
        committed_by(
            9,
            groups=[
                {"group_id": GROUP, "member_id": member, "member_epoch": epoch, "topics": None}
                for member, epoch in (("m1", 2), ("m1", 1), ("m1", 3), (NOBODY, 2), (None, -1))
            ],
        ),
        delete_offsets(0, (T, 0)),
        join(1, "m2"),
        stay(1, "m1", 2),
        stay(1, "m1", 2, topic_partitions=owned(0)),
        # The epoch is older, but the member has had the partition since then.
        commit((9,), "m1", 2),
        commit((9,), "m1", 2, index=1),
        stay(1, "m2", 3),
        commit((9,), "m2", 2, index=1),
        commit((9,), "m2", 3, index=0),
        send("DeleteGroups", 2, groups_names=[GROUP]),
        stay(1, "m1", -1),
        stay(1, "m2", -1),
        commit((9,), "m1", 2),
        commit((9,)),
        delete_offsets(0, (T, 0)),
        send("DeleteGroups", 2, groups_names=[GROUP]),
        committed_by(9),
    ),
]
BOTH_PROTOCOLS: Final = [
    scenario(
        "consumer-group-and-classic-requests",
        TOPIC,
        join(1),
        heartbeat(4, "m1", 2),
        sync(5, "m1", 2),
        leave(5, (NOBODY, None)),
        send("DescribeGroups", 5, groups=[GROUP]),
        send("DescribeGroups", 6, groups=[GROUP]),
        send("DeleteGroups", 2, groups_names=[GROUP]),
        stay(1, epoch=-1),
        heartbeat(4, "m1", 2),
        sync(5, "m1", 2),
        send("DescribeGroups", 6, groups=[GROUP]),
        join_classic(9, NOBODY),
        join_classic(9, label="id"),
        send("DescribeGroups", 6, groups=[GROUP], awaiting="Empty"),
        LISTED,
        describe(1),
        leave(5, (reply("id", "member_id"), None)),
        stay(1),
        join(1),
        describe(1),
        LISTED,
    ),
]
SCENARIOS: Final = [*HEARTBEATS, *PATTERNS, *OFFSETS, *BOTH_PROTOCOLS]
