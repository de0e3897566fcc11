"""Commits offsets (OffsetCommit) and fetches committed offsets (OffsetFetch).

One commit is in flight at a time. A commit that is retried leaves out the partitions that a later
one has committed in the meantime, so that it cannot overwrite a later offset. The action
for each partition's error is a row of `COMMIT_ERRORS` in `commit_errors.py`. The requests do
not use the membership's connection, where a JoinGroup may delay them.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import defaultdict
from collections.abc import Awaitable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from kafka_async import hooks
from kafka_async.client.metadata.coordinator_lookup import CoordinatorKind
from kafka_async.client.metadata.metadata import NO_ID
from kafka_async.client.metadata.request_router import CoordinatorOfGroup
from kafka_async.client.offset_fetch import fetch_offsets
from kafka_async.client.wire.requested_rows import missing_row
from kafka_async.client.wire.topic_ids import max_version_for
from kafka_async.config import seconds
from kafka_async.consumer.deleted_topics import deleted_topics
from kafka_async.consumer.group.commit_errors import CommitErrorAction, commit_error_action
from kafka_async.errors import (
    CommitFailedError,
    FencedMemberEpochError,
    IllegalGenerationError,
    KafkaError,
    KafkaTimeoutError,
    RebalanceInProgressError,
    RetriableError,
    StaleMemberEpochError,
    UnknownMemberIdError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    error_for,
)
from kafka_async.group.member import explain_duplicate
from kafka_async.group.member_states import MemberState
from kafka_async.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kafka_async.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from kafka_async.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from kafka_async.client.services import ClientServices
    from kafka_async.config import ConsumerConfig
    from kafka_async.consumer.delivery.delivery_gate import DeliveryGate
    from kafka_async.consumer.interceptors import ConsumerInterceptors
    from kafka_async.consumer.subscription import Subscription
    from kafka_async.group.membership import GroupMembership
    from kafka_async.protocol.message import Request, Response

ResponseT = TypeVar("ResponseT", bound="Response")
logger = logging.getLogger("kafka_async.consumer")

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
_REVOKING_STATES = frozenset(
    {
        MemberState.PREPARING_REBALANCE,
        MemberState.ASSIGNING,
        MemberState.LEAVING,
        MemberState.LOST,
        MemberState.FATAL,
    }
)
"""States in which the membership task itself may commit; it cannot wait for itself."""
# The generation is over for the coordinator, but the member keeps its partitions and will rejoin.
_JOINING_STATES = frozenset({MemberState.JOINING, MemberState.SYNCING})
_RETRIED = frozenset(
    {CommitErrorAction.RETRY, CommitErrorAction.FIND_COORDINATOR, CommitErrorAction.CHECK_TOPIC}
)
"""Actions that retry the request for offsets. All others raise the error."""
_OUTDATED_MEMBER = (FencedMemberEpochError, StaleMemberEpochError, UnknownMemberIdError)


class OffsetCommitter:
    """Commits and fetches the offsets of one group."""

    def __init__(
        self,
        services: ClientServices,
        config: ConsumerConfig,
        membership: GroupMembership,
        subscription: Subscription,
        gate: DeliveryGate,
        interceptors: ConsumerInterceptors | None,
    ) -> None:
        assert config.group_id is not None
        # For statistics.
        self.commit_count = 0
        # Parts of the consumer. The membership has the generation that each commit must contain.
        self._services = services
        self._config = config
        self._group_id = config.group_id
        self._membership = membership
        self._subscription = subscription
        self._gate = gate
        self._interceptors = interceptors
        # A request that waits longer than the session lasts cannot succeed: the member is out by
        # then.
        self._request_timeout = seconds(min(config.request_timeout_ms, config.session_timeout_ms))
        self._now = asyncio.get_running_loop().time
        # One commit is in flight at a time, and each has a number, in the order of the calls.
        self._commit_lock = asyncio.Lock()
        self._numbers = itertools.count()
        self._newest: dict[TopicPartition, int] = {}  # number of the last commit that succeeded
        self._warned: set[tuple[str, UUID]] = set()  # deleted topics that were logged

    # -- committing -------------------------------------------------------------------------------

    async def commit(
        self,
        offsets: Offsets,
        timeout: float,
        *,
        wait_for_rebalance: bool = True,
        named: bool = False,
    ) -> None:
        """Commit offsets, with retries; see `Consumer.commit` for the errors.

        After a rebalance in progress it commits what is still owned, unless it must not wait.
        Offsets of deleted topics are dropped with a warning, unless the application passed them
        itself (`named`).
        """
        pending, number = dict(offsets), next(self._numbers)
        topic_ids = self._topic_ids(offsets)
        # A partition that is owned now and lost later fails the commit.
        owned = self._subscription.assignment.intersection(offsets)
        started_in, cluster_id = self._membership.state, self._cluster_id
        deadline = self._now() + timeout
        backoff = self._services.retry_backoff()
        # Each pass sends one request for what is not committed yet. Without an error the next pass
        # follows at once; otherwise the action decides what happens before the back-off.
        while pending:
            self._check_cluster(cluster_id)  # first: another cluster has other topic ids
            self._drop_former(pending, topic_ids, named=named)
            action, error = await self._commit_once(
                pending, number, topic_ids, cluster_id, deadline
            )
            if action is CommitErrorAction.CHECK_TOPIC:
                await self._drop_deleted(pending, topic_ids, deadline, named=named)
            if not pending or error is None:
                continue
            if action is CommitErrorAction.FIND_COORDINATOR:
                self._services.coordinators.forget(CoordinatorKind.GROUP, self._group_id)
            elif action is CommitErrorAction.WAIT_FOR_REBALANCE:
                if not wait_for_rebalance or self._may_block_rebalance(started_in):
                    raise error
                await self._wait_for_rebalance(error, deadline, owned.intersection(pending))
                self._refuse_lost(pending, error, owned)
            elif action is CommitErrorAction.RETRY_OWNED:
                self._refuse_lost(pending, error, owned)
            delay = backoff.next()
            if self._now() + delay >= deadline:
                raise KafkaTimeoutError(f"not committed within {timeout:g} s: {error}") from error
            await asyncio.sleep(delay)

    async def _commit_once(
        self,
        pending: dict[TopicPartition, OffsetAndMetadata],
        number: int,
        topic_ids: Mapping[str, UUID],
        cluster_id: str | None,
        deadline: float,
    ) -> tuple[CommitErrorAction, KafkaError | None]:
        """Send one request; remove what was committed from `pending`, return the error of the rest.

        Offsets of topics without metadata are not sent: they must not delay the others.
        """
        metadata = self._services.metadata.snapshot
        unknown = {p.topic for p in pending if metadata.topic(p.topic) is None}
        sent = {p: offset for p, offset in pending.items() if p.topic not in unknown}
        failure: tuple[CommitErrorAction, KafkaError | None] = (CommitErrorAction.RETRY, None)
        if sent:
            failure = await self._commit_known(
                sent, pending, number, topic_ids, cluster_id, deadline
            )
        if unknown and failure[1] is None:
            # One of them is enough for the error; all are checked.
            topic = min(unknown)
            error = metadata.error(topic) or UnknownTopicOrPartitionError(topic=topic)
            failure = CommitErrorAction.CHECK_TOPIC, error
        return failure

    async def _commit_known(
        self,
        sent: Offsets,
        pending: dict[TopicPartition, OffsetAndMetadata],
        number: int,
        topic_ids: Mapping[str, UUID],
        cluster_id: str | None,
        deadline: float,
    ) -> tuple[CommitErrorAction, KafkaError | None]:
        async with self._commit_lock:
            # A later commit of these partitions has succeeded while this one waited for the lock.
            for partition in [p for p in sent if self._newest.get(p, number) > number]:
                del pending[partition]
            sent = {p: offset for p, offset in sent.items() if p in pending}
            if not sent:
                return CommitErrorAction.RETRY, None
            try:
                # Looked up first, since the generation must be read just before the request is
                # sent.
                await self._services.coordinators.find(
                    CoordinatorKind.GROUP, self._group_id, self._time_left(deadline)
                )
                self._check_cluster(cluster_id)
                names: Mapping[object, str] = {id_: topic for topic, id_ in topic_ids.items()}
                # Read before the request: by the response the member may have joined the next
                # generation.
                generation = self._membership.metadata.generation_id
                request = self._commit_request(sent, topic_ids)
                ids = [topic.topic_id for topic in request.topics]
                response = await self._send(request, ids, deadline)
            except RetriableError as error:
                return commit_error_action(error), error
            failure: tuple[CommitErrorAction, KafkaError | None] = (CommitErrorAction.RETRY, None)
            committed: dict[TopicPartition, OffsetAndMetadata] = {}
            # An error that is not retriable is raised at once; the last retriable one decides about
            # the rest.
            for partition, code in _error_codes(response, names):
                if partition not in sent:
                    continue
                if not code:
                    # A row may be repeated.
                    if partition in pending:
                        committed[partition] = pending.pop(partition)
                    continue
                failure = self._commit_error(partition, code, generation)
            self._newest |= dict.fromkeys(committed, number)
        if committed:
            self.commit_count += 1
            self._warned.difference_update((p.topic, topic_ids[p.topic]) for p in committed)
            # Committed under an id that the topic no longer has: not a position of the present
            # topic.
            former = self._former_topics(committed, topic_ids)
            self.on_committed({p: committed[p] for p in committed if p.topic not in former})
            self._emit_committed(committed)
        # A response without a row for a requested partition is retried.
        missing = [partition for partition in sent if partition in pending]
        if missing and failure[1] is None:
            failure = CommitErrorAction.RETRY, missing_row(min(missing))
        return failure

    def _check_cluster(self, cluster_id: str | None) -> None:
        """Raise if the offsets are of another cluster than the client follows now."""
        if self._cluster_id != cluster_id:
            raise CommitFailedError(
                "the client follows another cluster, which does not have these records"
            )

    def _topic_ids(self, partitions: Iterable[TopicPartition]) -> dict[str, UUID]:
        """Return the topic ids that offsets belong to; zero UUIDs where unknown."""
        metadata, states = self._services.metadata.snapshot, self._subscription.states
        return {
            # The id that was current when the records were read, not the latest.
            p.topic: states[p].topic_id if p in states else metadata.topic_id(p.topic)
            for p in partitions
        }

    def _former_topics(
        self, partitions: Iterable[TopicPartition], topic_ids: Mapping[str, UUID]
    ) -> frozenset[str]:
        """Return the topics that now have another id: they were deleted and created again."""
        metadata = self._services.metadata.snapshot
        return frozenset(
            topic
            for topic in {p.topic for p in partitions}
            if topic_ids[topic].int and metadata.topic_id(topic) not in (topic_ids[topic], NO_ID)
        )

    def _drop_former(
        self,
        pending: dict[TopicPartition, OffsetAndMetadata],
        topic_ids: dict[str, UUID],
        *,
        named: bool,
    ) -> None:
        """Remove offsets of topics that were created again, with a warning, or raise if `named`."""
        for topic, topic_id in topic_ids.items():
            # Metadata was missing when the commit began.
            if not topic_id.int:
                topic_ids[topic] = self._services.metadata.snapshot.topic_id(topic)
        former = self._former_topics(pending, topic_ids)
        if former and named:
            raise UnknownTopicIdError(
                "the topic was deleted and created again, and offsets of the former topic cannot "
                "be committed",
                topic=min(former),
            )
        self._drop(pending, topic_ids, former, "were deleted and created again")

    def note_warning(self, topic: str, topic_id: UUID) -> None:
        """Note that a warning was logged for a deleted topic, which `commit` does not repeat."""
        self._warned.add((topic, topic_id))

    def _drop(
        self,
        pending: dict[TopicPartition, OffsetAndMetadata],
        topic_ids: Mapping[str, UUID],
        topics: Collection[str],
        reason: str,
    ) -> None:
        """Remove the offsets of some topics, with one warning per topic."""
        dropped = {p: pending.pop(p).offset for p in list(pending) if p.topic in topics}
        new = {(topic, topic_ids[topic]) for topic in topics} - self._warned
        if new:
            self._warned |= new
            logger.warning(
                "group %s: the topics of these offsets %s, so they are not committed: %s",
                self._group_id,
                reason,
                ", ".join(
                    f"{p}: {dropped[p]}" for p in dropped if (p.topic, topic_ids[p.topic]) in new
                ),
            )

    async def _drop_deleted(
        self,
        pending: dict[TopicPartition, OffsetAndMetadata],
        topic_ids: Mapping[str, UUID],
        deadline: float,
        *,
        named: bool,
    ) -> None:
        """Remove offsets of deleted topics from `pending`, with a warning, or raise if `named`."""
        # A topic without metadata is not necessarily deleted: brokers learn of new topics one by
        # one.
        deleted = await deleted_topics(self._services, {p.topic for p in pending}, deadline)
        if deleted and named:
            raise UnknownTopicOrPartitionError(
                "offsets of a topic that does not exist cannot be committed", topic=min(deleted)
            )
        self._drop(pending, topic_ids, deleted, "do not exist any more")

    def _commit_error(
        self, partition: TopicPartition, code: int, generation: int
    ) -> tuple[CommitErrorAction, KafkaError]:
        error = error_for(
            code,
            topic=partition.topic,
            partition=partition.partition,
            needs="READ",
            name=self._group_id,
        )
        action = commit_error_action(error)
        if action is CommitErrorAction.RAISE:
            instance_id = self._membership.metadata.group_instance_id
            raise explain_duplicate(error, self._group_id, instance_id)
        # Before the table's action: this generation has ended, but the member is about to join the
        # next.
        if isinstance(error, IllegalGenerationError) and self._joins_after(generation):
            return CommitErrorAction.WAIT_FOR_REBALANCE, error
        if action is CommitErrorAction.RAISE_COMMIT_FAILED:
            raise CommitFailedError(
                f"the group has moved on ({error.name}), and the partition may belong to "
                "another member: the coordinator got no heartbeat for session_timeout_ms, or the "
                "application did not poll for max_poll_interval_ms",
                topic=partition.topic,
                partition=partition.partition,
            ) from error
        return action, error

    def _joins_after(self, generation: int) -> bool:
        """Return True if the member joins the generation after one, or has joined it.

        Until then a member keeps its partitions, unless it is eager. Those that the new assignment
        gives to another member are not owned after the rebalance.
        """
        state = self._membership.state
        later = self._membership.metadata.generation_id > generation
        joined = state in (MemberState.ASSIGNING, MemberState.STABLE)
        return state in _JOINING_STATES or (joined and later)

    def _may_block_rebalance(self, started_in: MemberState) -> bool:
        """Return True if the membership task may wait for a commit that started in `started_in`."""
        state = self._membership.state
        # In ASSIGNING a commit that began before is not part of the listener's call, and can wait.
        assigning = MemberState.ASSIGNING
        return state in _REVOKING_STATES and (state is not assigning or started_in is assigning)

    async def _wait_for_rebalance(
        self, error: KafkaError, deadline: float, owned: frozenset[TopicPartition]
    ) -> None:
        """Wait until partitions can be committed, or are no longer owned.

        A new assignment makes that possible as long as they are owned: a rebalance that revokes
        them waits for handlers, and a handler may wait for this commit.
        """
        states = self._subscription.states
        try:
            async with asyncio.timeout_at(deadline):
                await self._membership.wait_for_rebalance(lambda: states.keys() >= owned)
        except TimeoutError:
            raise RebalanceInProgressError("the rebalance has not ended in time") from error

    def _refuse_lost(
        self, pending: Offsets, error: KafkaError, owned: Collection[TopicPartition]
    ) -> None:
        """Raise if a partition is no longer owned; others may be committed."""
        lost = sorted(p for p in pending if p in owned and p not in self._subscription.states)
        if lost:
            raise CommitFailedError(
                "the group has assigned these partitions to another member: "
                + ", ".join(map(str, lost))
            ) from error

    def _commit_request(
        self, offsets: Offsets, topic_ids: Mapping[str, UUID]
    ) -> OffsetCommitRequest:
        member = self._membership.metadata
        topics: defaultdict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
        for (topic, partition), offset in offsets.items():
            topics[topic].append(
                OffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=offset.offset,
                    committed_leader_epoch=-1
                    if offset.leader_epoch is None
                    else offset.leader_epoch,
                    committed_metadata=offset.metadata,
                )
            )
        return OffsetCommitRequest(
            group_id=self._group_id,
            generation_id_or_member_epoch=member.generation_id,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    topic_id=topic_ids[topic],
                    partitions=rows,
                )
                for topic, rows in topics.items()
            ],
        )

    def on_committed(self, offsets: Offsets) -> None:
        """Record committed offsets."""
        for partition, offset in offsets.items():
            # A partition that is not assigned can be committed, but has no position here.
            state = self._subscription.states.get(partition)
            if state is not None:
                state.on_committed(offset.offset)
        # A commit ends the processing of its records, for which a rebalance may wait.
        self._gate.on_processed()

    def _emit_committed(self, offsets: Offsets) -> None:
        if self._interceptors is not None:
            self._interceptors.on_commit(offsets)
        if self._services.hooks.active:
            rows = tuple((partition, offset.offset) for partition, offset in offsets.items())
            client_id = self._services.config.client_id
            self._services.hooks.emit(hooks.Committed(client_id, self._group_id, rows))

    # -- fetching ---------------------------------------------------------------------------------

    async def fetch_committed(
        self,
        partitions: Iterable[TopicPartition],
        timeout: float,
        *,
        known_only: bool = False,
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Fetch the group's offsets, None for partitions without one; waits for open transactions.

        With `known_only`, partitions of topics without metadata are left out, so that they do not
        delay the others. See `Consumer.committed` for the errors.
        """
        wanted = set(partitions)
        if known_only:
            wanted = self._known(wanted)
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}
        deadline = self._now() + timeout
        backoff = self._services.retry_backoff()
        # Each pass requests what is missing and has metadata, then leaves out deleted topics,
        # forgets the coordinator, or waits for the back-off. Errors that are not retriable are
        # raised on the way.
        while missing := wanted - found.keys():
            error = await self._fetch_once(self._known(missing), found, deadline)
            # No error, but partitions are missing: their topics have no metadata.
            action = CommitErrorAction.CHECK_TOPIC if error is None else commit_error_action(error)
            if action is CommitErrorAction.CHECK_TOPIC and (missing := wanted - found.keys()):
                topics = {partition.topic for partition in missing}
                deleted = await deleted_topics(self._services, topics, deadline)
                if deleted and not known_only:
                    raise UnknownTopicOrPartitionError(topic=min(deleted))
                wanted = {partition for partition in wanted if partition.topic not in deleted}
                error = error or self._services.metadata.snapshot.error(min(topics))
            elif action is CommitErrorAction.FIND_COORDINATOR:
                self._services.coordinators.forget(CoordinatorKind.GROUP, self._group_id)
            if not wanted - found.keys():
                break
            delay = backoff.next()
            if self._now() + delay >= deadline:
                raise KafkaTimeoutError(
                    f"no committed offsets within {timeout:g} s: {error}"
                ) from error
            await asyncio.sleep(delay)
        return {partition: found[partition] for partition in wanted}

    async def _fetch_once(
        self,
        partitions: Collection[TopicPartition],
        found: dict[TopicPartition, OffsetAndMetadata | None],
        deadline: float,
    ) -> KafkaError | None:
        """Send one request, add the offsets to `found`, and return the error of the rest."""
        if not partitions:
            return None
        names = self._topic_names(partitions)
        try:
            group = await self._send_offset_fetch(sorted(partitions), deadline)
        except RetriableError as error:
            return error
        error = self._read_offsets(group, names, partitions, found)
        if error is None and (missing := set(partitions) - found.keys()):
            error = missing_row(min(missing))
        return error

    def _known(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        metadata = self._services.metadata.snapshot
        return {p for p in partitions if metadata.topic(p.topic) is not None}

    async def _send_offset_fetch(
        self, partitions: Iterable[TopicPartition], deadline: float
    ) -> OffsetFetchResponseGroup:
        topics: defaultdict[str, list[int]] = defaultdict(list)
        for topic, partition in partitions:
            topics[topic].append(partition)
        ids = {topic: self._services.metadata.snapshot.topic_id(topic) for topic in topics}
        rows = [
            OffsetFetchRequestTopics(name=topic, topic_id=ids[topic], partition_indexes=indexes)
            for topic, indexes in topics.items()
        ]
        group = OffsetFetchRequestGroup(group_id=self._group_id, topics=rows)
        member = self._membership.metadata
        # Only members with epochs are checked by the coordinator (KIP-848); in the classic protocol
        # any client may fetch offsets.
        if self._membership.has_epochs and member.generation_id > 0:
            group.member_id, group.member_epoch = member.member_id, member.generation_id

        def send(request: OffsetFetchRequest) -> Awaitable[OffsetFetchResponse]:
            return self._send(request, ids.values(), deadline)

        # Stable: offsets of open transactions are waited for (KIP-447).
        return await fetch_offsets(send, group, require_stable=True)

    def _read_offsets(
        self,
        group: OffsetFetchResponseGroup,
        names: Mapping[object, str],
        partitions: Collection[TopicPartition],
        found: dict[TopicPartition, OffsetAndMetadata | None],
    ) -> KafkaError | None:
        """Add the group's offsets to `found`; return a retriable error, raise others."""
        error: KafkaError | None = None
        if group.error_code:
            error = self._retriable_or_raise(
                error_for(group.error_code, needs="DESCRIBE", name=self._group_id)
            )
        rows = [
            (topic.name or names.get(topic.topic_id, ""), row)
            for topic in group.topics
            for row in topic.partitions
        ]
        for topic, row in rows:
            partition = TopicPartition(topic, row.partition_index)
            if partition not in partitions:
                continue
            if row.error_code:
                error = self._retriable_or_raise(
                    error_for(
                        row.error_code,
                        topic=topic,
                        partition=row.partition_index,
                        needs="DESCRIBE",
                    )
                )
            elif row.committed_offset >= 0:
                epoch = None if row.committed_leader_epoch < 0 else row.committed_leader_epoch
                found[partition] = OffsetAndMetadata(
                    row.committed_offset, epoch, row.metadata or ""
                )
            # -1: the group has committed nothing for this partition.
            else:
                found[partition] = None
        return error

    def _retriable_or_raise(self, error: KafkaError) -> KafkaError:
        # A member with an epoch may have another one, or has joined again, by the next attempt.
        outdated = self._membership.has_epochs and isinstance(error, _OUTDATED_MEMBER)
        if outdated or commit_error_action(error) in _RETRIED:
            return error
        raise error

    async def _send(
        self, request: Request[ResponseT], topic_ids: Iterable[UUID], deadline: float
    ) -> ResponseT:
        """Send a request about topics to the coordinator, once.

        Waits for the session timeout at most.
        """
        return await self._services.request(
            request,
            to=CoordinatorOfGroup(self._group_id),
            timeout=self._time_left(deadline),
            # `commit` and `fetch_committed` retry themselves, with another generation or
            # coordinator.
            retry=False,
            max_version=max_version_for(request.API_KEY, topic_ids),
        )

    # -- helpers ----------------------------------------------------------------------------------

    @property
    def _cluster_id(self) -> str | None:
        """Id of the cluster that the client follows."""
        return self._services.metadata.snapshot.cluster_id

    def _time_left(self, deadline: float) -> float:
        """Return the seconds for one request."""
        # At least a millisecond, so that the request itself reports the timeout.
        return max(0.001, min(deadline - self._now(), self._request_timeout))

    def _topic_names(self, partitions: Iterable[TopicPartition]) -> Mapping[object, str]:
        """Return topic names by id: new versions of these requests have no names."""
        metadata = self._services.metadata.snapshot
        return {metadata.topic_id(topic): topic for topic in {p.topic for p in partitions}}


def _error_codes(
    response: OffsetCommitResponse, names: Mapping[object, str]
) -> Iterable[tuple[TopicPartition, int]]:
    for topic in response.topics:
        name = topic.name or names.get(topic.topic_id, "")
        for row in topic.partitions:
            yield TopicPartition(name, row.partition_index), row.error_code
