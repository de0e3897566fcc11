"""Groups with members of both protocols, and their conversion (KIP-848, online migration)."""

from __future__ import annotations

from typing import Any, Final

from tests.contract.cases.consumer_groups import (
    LISTED,
    NOBODY,
    TWO_PARTITIONS,
    describe,
    owned,
    stay,
)
from tests.contract.cases.consumer_groups import join as join_consumer
from tests.contract.cases.groups import (
    NO_TOPICS,
    commit,
    committed_by,
    delete_offsets,
    heartbeat,
    join,
    leave,
    sync,
)
from tests.contract.model import GROUP, Assignment, Step, Subscription, T, reply, scenario, send

SUBSCRIBED: Final = Subscription()
COOPERATIVE: Final = Subscription(version=1)
CLASSIC: Final = reply("classic", "member_id")
DESCRIBED_AS_CLASSIC: Final = send("DescribeGroups", 6, groups=[GROUP])


def ranged(subscription: Any = SUBSCRIBED) -> tuple[tuple[str, Any], ...]:
    """Return the protocols of a member with one assignor."""
    return (("range", subscription),)


def classic(version: int = 9, *, label: str = "classic", **more: Any) -> list[Step]:
    """Return the two JoinGroup requests of a new member."""
    protocols = more.pop("protocols", ranged())
    return [
        join(version, "", protocols, label=f"{label}-id", **more),
        join(version, reply(f"{label}-id", "member_id"), protocols, label=label, **more),
    ]


def stable_classic_group(assigned: tuple[int, ...] = (0, 1)) -> list[Step]:
    """Return a classic group with one member, which has partitions."""
    return [*classic(), sync(5, CLASSIC, assignments=((CLASSIC, Assignment(assigned)),))]


UPGRADES: Final = [
    scenario(
        "migration-upgrade",
        TWO_PARTITIONS,
        *stable_classic_group(),
        commit(9, CLASSIC, 1),
        join_consumer(1),
        DESCRIBED_AS_CLASSIC,
        describe(1),
        LISTED,
        stay(1, epoch=2),
        heartbeat(4, CLASSIC, 1),
        heartbeat(4, CLASSIC, 2),
        sync(5, CLASSIC, 1),
        sync(5, CLASSIC, 2),
        commit((8, 9), CLASSIC, 1),
        commit((8, 9), CLASSIC, 2),
        commit((9,), CLASSIC, -1),
        committed_by(
            9,
            groups=[
                {"group_id": GROUP, "member_id": member, "member_epoch": epoch, "topics": None}
                for member, epoch in ((CLASSIC, 1), (CLASSIC, 2), (None, -1))
            ],
        ),
        delete_offsets(0, (T, 0)),
        send("DeleteGroups", 2, groups_names=[GROUP]),
        join(9, CLASSIC, ranged(), label="again"),
        heartbeat(4, CLASSIC, 2),
        stay(1, epoch=2),
        sync(5, CLASSIC, 2),
        sync(5, CLASSIC, 2, protocol_name="roundrobin"),
        sync(5, CLASSIC, 2, protocol_type="connect"),
        heartbeat(4, CLASSIC, 2),
        stay(1, epoch=2, topic_partitions=owned(1)),
        describe(1),
        leave(5, (NOBODY, None), ("m1", None), (CLASSIC, None)),
        stay(1, epoch=2),
        describe(1),
    ),
    scenario(
        "migration-upgrade-cooperative",
        TWO_PARTITIONS,
        *classic(protocols=ranged(COOPERATIVE)),
        sync(5, CLASSIC, assignments=((CLASSIC, Assignment((0, 1))),)),
        join_consumer(1),
        heartbeat(4, CLASSIC, 1),
        join(9, CLASSIC, ranged(Subscription(owned=(0, 1), version=1)), label="revokes"),
        describe(1),
        heartbeat(4, CLASSIC, 1),
        stay(1, epoch=2),
        sync(5, CLASSIC, 1),
        heartbeat(4, CLASSIC, 1),
        stay(1, epoch=2),
        join(9, CLASSIC, ranged(Subscription(owned=(0,), version=1)), label="keeps"),
        sync(5, CLASSIC, 2),
        heartbeat(4, CLASSIC, 2),
        stay(1, epoch=2),
        describe(1),
        # The classic member gets the rest when the other one has revoked it.
        stay(1, epoch=-1),
        DESCRIBED_AS_CLASSIC,
        heartbeat(4, CLASSIC, 2),
        heartbeat(4, CLASSIC, 3),
        join(9, CLASSIC, ranged(Subscription(owned=(0,), version=1)), label="alone"),
        sync(5, CLASSIC, 4, ((CLASSIC, Assignment((0, 1))),)),
        DESCRIBED_AS_CLASSIC,
        describe(1),
        LISTED,
    ),
    scenario(
        "migration-upgrade-refused",
        TWO_PARTITIONS,
        join(9, "", (("p", b"x"),), label="classic-id", protocol_type="connect"),
        join(
            9,
            reply("classic-id", "member_id"),
            (("p", b"x"),),
            label="classic",
            protocol_type="connect",
        ),
        sync(
            5, CLASSIC, assignments=((CLASSIC, b"y"),), protocol_type="connect", protocol_name="p"
        ),
        join_consumer(1),
        stay(1),
        DESCRIBED_AS_CLASSIC,
        describe(1),
    ),
    scenario(
        "migration-upgrade-malformed",
        TWO_PARTITIONS,
        *classic(protocols=ranged(b"")),
        sync(5, CLASSIC, assignments=((CLASSIC, Assignment((0, 1))),)),
        join_consumer(1),
        stay(1),
        DESCRIBED_AS_CLASSIC,
    ),
    scenario(
        "migration-upgrade-malformed-assignment",
        TWO_PARTITIONS,
        *classic(),
        sync(5, CLASSIC, assignments=((CLASSIC, b"\0"),)),
        join_consumer(1),
        DESCRIBED_AS_CLASSIC,
    ),
    scenario(
        "migration-upgrade-during-a-rebalance",
        TWO_PARTITIONS,
        *classic(),
        join_consumer(1, names=()),
        describe(1),
        sync(5, CLASSIC, assignments=((CLASSIC, Assignment((0, 1))),)),
        heartbeat(4, CLASSIC, 1),
        join(9, CLASSIC, ranged(), label="again"),
        sync(5, CLASSIC, 2),
        heartbeat(4, CLASSIC, 2),
    ),
    scenario(
        "migration-upgrade-waiting-requests",
        TWO_PARTITIONS,
        *stable_classic_group(),
        join(9, "", ranged(), label="second-id", connection="b"),
        join(
            9, reply("second-id", "member_id"), ranged(), label="second", connection="b", later=True
        ),
        heartbeat(4, CLASSIC, until=27),
        join_consumer(1, names=()),
        describe(1),
    ),
]
JOINS: Final = [
    scenario(
        "migration-classic-joins",
        TWO_PARTITIONS,
        join_consumer(1),
        stay(1, topic_partitions=owned(0, 1)),
        join(9, "", (("range", b""),), label="bad-id"),
        join(9, NOBODY, (("range", b""),)),
        join(9, NOBODY, (("range", NO_TOPICS),), protocol_type="connect"),
        join(9, NOBODY, ()),
        join(9, "", ranged(), session_timeout_ms=1),
        *classic(),
        describe(1),
        heartbeat(4, CLASSIC, 3),
        sync(5, CLASSIC, 3),
        heartbeat(4, CLASSIC, 3),
        stay(1, epoch=2),
        stay(1, epoch=2, topic_partitions=owned(0)),
        heartbeat(4, CLASSIC, 3),
        join(9, CLASSIC, ranged(), label="again"),
        sync(5, CLASSIC, 3),
        heartbeat(4, CLASSIC, 3),
        join(9, NOBODY, (("roundrobin", SUBSCRIBED),)),
        join(9, NOBODY, (("roundrobin", SUBSCRIBED), ("range", SUBSCRIBED)), label="stranger"),
        describe(1),
        heartbeat(4, NOBODY, 3),
        heartbeat(4, CLASSIC, 2),
        heartbeat(4, "m1", 3),
        sync(5, "m1", 3),
        sync(5, NOBODY, 3),
        sync(5, CLASSIC, 2),
        leave(5, ("m1", None)),
        stay(1, epoch=3),
    ),
    scenario(
        "migration-classic-joins-old-versions",
        TWO_PARTITIONS,
        join_consumer(1),
        join(3, "", ranged(), label="classic"),
        sync(3, CLASSIC, 3, named=False),
        heartbeat(3, CLASSIC, 3),
        send("LeaveGroup", 2, group_id=GROUP, member_id=CLASSIC),
        send("LeaveGroup", 2, group_id=GROUP, member_id="m1"),
        describe(1),
    ),
    scenario(
        "migration-downgrade",
        TWO_PARTITIONS,
        join_consumer(1),
        stay(1, topic_partitions=owned(0, 1)),
        *classic(),
        stay(1, epoch=2, topic_partitions=owned(0)),
        stay(1, epoch=2, topic_partitions=owned(0)),
        heartbeat(4, CLASSIC, 3),
        sync(5, CLASSIC, 3),
        stay(1, epoch=-1),
        describe(1),
        DESCRIBED_AS_CLASSIC,
        LISTED,
        stay(1, epoch=3),
        commit((9,), CLASSIC, 3),
        heartbeat(4, CLASSIC, 3),
        join(9, CLASSIC, ranged(), label="again"),
        DESCRIBED_AS_CLASSIC,
        sync(5, CLASSIC, 4, ((CLASSIC, Assignment((0, 1))),)),
        heartbeat(4, CLASSIC, 4),
        DESCRIBED_AS_CLASSIC,
        join_consumer(1, "m2"),
        describe(1),
    ),
]


def static(version: int = 9, member: Any = "", *, label: str = "", **more: Any) -> Step:
    """Return a JoinGroup request of the static member "i"."""
    return join(version, member, ranged(), label=label, group_instance_id="i", **more)


STATIC_MEMBERS: Final = [
    scenario(
        "migration-static-to-consumer",
        TWO_PARTITIONS,
        static(label="classic"),
        sync(5, CLASSIC, assignments=((CLASSIC, Assignment((0, 1))),), group_instance_id="i"),
        join_consumer(1, instance_id="i"),
        describe(1),
        heartbeat(4, CLASSIC, 1, group_instance_id="i"),
        stay(1, epoch=1, instance_id="i"),
    ),
    scenario(
        "migration-static-to-classic",
        TWO_PARTITIONS,
        join_consumer(1, instance_id="i"),
        stay(1, instance_id="i", topic_partitions=owned(0, 1)),
        static(label="classic"),
        describe(1),
        DESCRIBED_AS_CLASSIC,
        sync(5, CLASSIC, 2, group_instance_id="i"),
        heartbeat(4, CLASSIC, 2, group_instance_id="i"),
        stay(1, instance_id="i"),
    ),
    scenario(
        "migration-static-members",
        TWO_PARTITIONS,
        join_consumer(1, "m1"),
        stay(1, "m1", topic_partitions=owned(0, 1)),
        join_consumer(1, "m2", instance_id="i"),
        stay(1, "m1", 2, topic_partitions=owned(0)),
        stay(1, "m1", 2, topic_partitions=owned(0)),
        stay(1, "m2", 3, instance_id="i"),
        stay(1, "m2", -2, instance_id="i"),
        static(label="classic"),
        describe(1),
        sync(5, CLASSIC, 3, group_instance_id="i"),
        heartbeat(4, CLASSIC, 3, group_instance_id="i"),
        heartbeat(4, NOBODY, 3, group_instance_id="i"),
        heartbeat(4, CLASSIC, 3, group_instance_id="j"),
        static(label="replaced"),
        describe(1),
        heartbeat(4, CLASSIC, 3, group_instance_id="i"),
        leave(5, (NOBODY, "i"), ("", "j"), ("", "i")),
        describe(1),
    ),
]
SCENARIOS: Final = [*UPGRADES, *JOINS, *STATIC_MEMBERS]
