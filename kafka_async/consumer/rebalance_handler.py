"""What a consumer does in its group: subscriptions, shares of partitions, and taking them over.

Eagerly, a consumer gives everything up before it joins; cooperatively, it gives up what it is told
to after it has been told, and everybody joins once more (KIP-429). Either way partitions leave
only between two polls of the application (`delivery_gate.py`), after what it was handed has been
committed, if that is automatic, and after its listener has been told.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar, TypeVarTuple

from kafka_async import hooks
from kafka_async.config import seconds
from kafka_async.errors import UnknownTopicOrPartitionError
from kafka_async.group.assignors import (
    Assignor,
    MemberSubscription,
    RebalanceProtocol,
    choose,
    rebalance_protocol,
)
from kafka_async.group.consumer_protocol import (
    PROTOCOL_TYPE,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from kafka_async.cluster.client import Client
    from kafka_async.cluster.metadata import ClusterMetadata
    from kafka_async.config import ConsumerConfig
    from kafka_async.consumer.delivery_gate import Gate
    from kafka_async.consumer.rebalance_listener import Herald
    from kafka_async.consumer.subscription import Subscription
    from kafka_async.group.membership import Member

logger = logging.getLogger("kafka_async.consumer")

MUCH: Final = 16 * 1024
"""Bytes of all members' subscriptions above which a thread reads them: a millisecond or two."""
MANY: Final = 256
"""Partitions and members above which a thread shares them out: two or three milliseconds."""

R = TypeVar("R")
Args = TypeVarTuple("Args")
Partitions = Collection[TopicPartition]
Commit = Callable[[Partitions], Awaitable[None]]


def subscriptions_of(members: Sequence[Member]) -> dict[str, MemberSubscription]:
    """What each member has said that it wants, by its id. Raises DecodeError."""
    return {
        member.member_id: decode_subscription(member.metadata, member.group_instance_id)
        for member in members
    }


def shared_out(
    assignor: Assignor,
    partitions: Mapping[str, int],
    subscriptions: Mapping[str, MemberSubscription],
) -> dict[str, bytes]:
    """Each member's share by its id, as SyncGroup carries it."""
    shares = assignor.assign(partitions, subscriptions)
    logger.debug(
        "as the leader: %s of %s among %s: %s", assignor.name, partitions, subscriptions, shares
    )
    return {member: encode_assignment(shares.get(member, ())) for member in subscriptions}


class ConsumerProtocol:
    """A consumer's part in its group; the coordinator's task calls it (`GroupProtocol`).

    `commit(partitions)` is called before partitions are given up; `on_change()` after the
    assignment has changed.
    """

    protocol_type = PROTOCOL_TYPE

    def __init__(
        self,
        client: Client,
        config: ConsumerConfig,
        subscription: Subscription,
        gate: Gate,
        herald: Herald,
        commit: Commit,
        on_change: Callable[[], None],
    ) -> None:
        self._client = client
        self._subscription = subscription
        self._gate = gate
        self._herald = herald
        self._commit = commit
        self._on_change = on_change
        self._rack = config.client_rack or None
        self._timeout = seconds(config.request_timeout_ms)
        self._assignors: dict[str, Assignor] = {
            assignor.name: assignor for assignor in choose(config.partition_assignment_strategy)
        }
        self._cooperative = (
            rebalance_protocol(list(self._assignors.values())) is RebalanceProtocol.COOPERATIVE
        )
        self._generation = -1
        self._led: Mapping[str, int | None] = {}

    # -- GroupProtocol ----------------------------------------------------------------------------

    def protocols(self) -> Sequence[tuple[str, bytes]]:
        """This consumer's subscription, as each of its assignors wants it told."""
        topics = self._subscription.topics
        return [
            (
                name,
                encode_subscription(
                    MemberSubscription(
                        topics,
                        self._subscription.owned,
                        self._generation,
                        assignor.user_data(topics),
                        self._rack,
                    )
                ),
            )
            for name, assignor in self._assignors.items()
        ]

    async def prepare(self) -> None:
        """Give up everything, or cooperatively what is no longer subscribed to."""
        self._watch({})
        owned, topics = self._subscription.owned, self._subscription.topics
        if self._cooperative:
            owned = frozenset(p for p in owned if p.topic not in topics)
        if owned:
            await self._revoke(owned)

    async def assign(self, name: str, members: Sequence[Member]) -> Mapping[str, bytes]:
        """Everybody's share, by the assignor that the group has chosen.

        What takes milliseconds in a large group is done in a thread.
        """
        size = sum(len(member.metadata) for member in members)
        subscriptions = await self._worked_out(size > MUCH, subscriptions_of, members)
        topics = frozenset[str]().union(*(s.topics for s in subscriptions.values()))
        metadata = await self._client.refresh_metadata(topics=topics, timeout=self._timeout)
        counts = {topic: metadata.partitions(topic) for topic in topics}
        known = {topic: count for topic, count in counts.items() if count is not None}
        shares = await self._worked_out(
            sum(known.values()) + len(members) > MANY,
            shared_out,
            self._assignors[name],
            known,
            subscriptions,
        )
        self._watch(counts)
        return shares

    async def _worked_out(self, aside: bool, function: Callable[[*Args], R], *args: *Args) -> R:
        if aside:
            return await self._client.supervisor.offload(function, *args)
        return function(*args)

    async def take(self, name: str, assignment: bytes, generation: int) -> bool:
        """Give up what is not in the share, take what is new; True if something was given up."""
        share = decode_assignment(assignment)
        owned = self._subscription.owned
        gone = owned - share
        if gone:
            await self._revoke(gone)
        self._generation = generation
        await self._accept(share - owned)
        return bool(gone)

    async def lose(self) -> None:
        """Drop everything once the application asks again; until then it is fenced, not misled."""
        self._watch({})
        if not self._subscription.owned:
            return
        self._gate.hold()
        try:
            await self._gate.at_rest(patient=True)
            lost = self._subscription.owned
            self._generation = -1
            await self._herald.tell(self._herald.lost, lost, self._gate)
            self._subscription.disown(lost)
            if self._client.hooks.active:
                client_id = self._client.config.client_id
                self._client.hooks.emit(hooks.PartitionsLost(client_id, lost))
            self._on_change()
        finally:
            self._gate.release()

    async def release(self) -> None:
        """Give up everything for good."""
        self._watch({})
        if self._subscription.owned:
            await self._revoke(self._subscription.owned, patient=True)
        self._generation = -1

    def last_asked(self) -> float:
        """When the application was last seen to ask."""
        return self._gate.last_asked()

    # -- taking and giving up ---------------------------------------------------------------------

    async def _revoke(
        self, partitions: frozenset[TopicPartition], *, patient: bool = False
    ) -> None:
        self._gate.hold()
        try:
            await self._gate.at_rest(patient=patient)
            await self._commit(partitions)
            await self._herald.tell(self._herald.revoked, partitions, self._gate)
            self._subscription.disown(partitions)
            if self._client.hooks.active:
                client_id = self._client.config.client_id
                self._client.hooks.emit(hooks.PartitionsRevoked(client_id, partitions))
            self._on_change()
        finally:
            self._gate.release()

    async def _accept(self, partitions: frozenset[TopicPartition]) -> None:
        self._subscription.own(partitions)
        self._on_change()
        self._gate.hold()
        try:
            await self._herald.tell(self._herald.assigned, partitions, self._gate)
        finally:
            self._gate.release()
        self._subscription.release(partitions)
        if self._client.hooks.active:
            client_id = self._client.config.client_id
            self._client.hooks.emit(hooks.PartitionsAssigned(client_id, partitions))
        self._on_change()

    # -- the leader's watch -----------------------------------------------------------------------

    def changed(self, metadata: ClusterMetadata) -> str | None:
        """As the leader: why the group has to share out again; None if it has not."""
        for topic, count in self._led.items():
            now = metadata.partitions(topic)
            if now is not None and now != count:
                return f"topic {topic} has {now} partitions, not {count or 0}"
        return None

    def missing(self, metadata: ClusterMetadata) -> frozenset[str]:
        """Return the topics that this member assigned as the leader and metadata calls unknown.

        They may have been deleted, or the broker that answered may have just started.
        """
        return frozenset(
            topic
            for topic, count in self._led.items()
            if count is not None and isinstance(metadata.error(topic), UnknownTopicOrPartitionError)
        )

    def _watch(self, counts: Mapping[str, int | None]) -> None:
        self._client.track_topics(counts.keys() - self._led.keys())
        self._client.untrack_topics(self._led.keys() - counts.keys())
        self._led = counts
