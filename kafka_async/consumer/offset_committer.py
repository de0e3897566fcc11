"""Committed offsets: written with OffsetCommit, read with OffsetFetch.

One commit is under way at a time, so that a later one is never overtaken by an earlier one that
had to be repeated. What each partition's answer means is the table `COMMIT` in group/state.py.
These requests do not use the membership's lane, where a JoinGroup may be parked.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from kafka_async import hooks
from kafka_async.backoff import Backoff
from kafka_async.cluster.request_destinations import CoordinatorKind, GroupCoordinator
from kafka_async.config import seconds
from kafka_async.consumer.deleted_topics import deleted_topics
from kafka_async.errors import (
    CommitFailedError,
    KafkaError,
    KafkaTimeoutError,
    RebalanceInProgressError,
    RetriableError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    error_for,
)
from kafka_async.group.state import CommitReaction, State, commit_reaction
from kafka_async.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kafka_async.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)
from kafka_async.types import GroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kafka_async.cluster.client import Client
    from kafka_async.config import ConsumerConfig
    from kafka_async.group.coordinator import GroupCoordinator as Coordinator
    from kafka_async.protocol.message import Request, Response

ResponseT = TypeVar("ResponseT", bound="Response")
logger = logging.getLogger("kafka_async.consumer")

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
_GIVING_UP = frozenset({State.PREPARING, State.TAKING, State.LEAVING, State.LOST})
"""Where the membership's own task may be the one that commits: it cannot wait for itself."""
_REPEATED = frozenset({CommitReaction.AGAIN, CommitReaction.FIND, CommitReaction.CHECK})
"""Reactions that send a request for offsets again; for any other the error is raised."""


class Commits:
    """Reads and writes the offsets of one group."""

    def __init__(
        self,
        client: Client,
        config: ConsumerConfig,
        coordinator: Coordinator | None,
        on_committed: Callable[[Offsets], None],
    ) -> None:
        assert config.group_id is not None
        self.count = 0
        self._client = client
        self._config = config
        self._group_id = config.group_id
        self._coordinator = coordinator
        self._on_committed = on_committed
        self._patience = seconds(min(config.request_timeout_ms, config.session_timeout_ms))
        self._turn = asyncio.Lock()
        self._warned: set[str] = set()  # deleted topics that a warning was logged for

    def group_metadata(self) -> GroupMetadata:
        """Who commits: the member, or a consumer that is in no group but has its id."""
        if self._coordinator is None:
            return GroupMetadata(self._group_id)
        return self._coordinator.metadata

    async def next_generation(self, former: GroupMetadata, timeout: float) -> GroupMetadata | None:
        """Wait until this member has joined the generation after `former`'s.

        Returns None if it is no member any more, or not within `timeout` seconds.
        """
        if self._coordinator is None:
            return None
        try:
            async with asyncio.timeout(timeout):
                return await self._coordinator.next_generation(former)
        except TimeoutError:
            return None

    # -- writing ----------------------------------------------------------------------------------

    async def commit(
        self,
        offsets: Offsets,
        timeout: float,
        *,
        owned: Callable[[TopicPartition], bool],
        patient: bool = True,
        named: bool = False,
    ) -> None:
        """Commit, asking as often as it takes.

        A commit that meets a rebalance waits until it is over, unless not `patient`, and is
        repeated for what is still `owned`. Offsets of topics that were deleted are dropped with a
        warning, unless the application `named` the offsets itself.

        Raises:
            UnknownTopicOrPartitionError: the application named a topic that does not exist.
            CommitFailedError: the group has given the partitions to somebody else.
            KafkaTimeoutError: the coordinator did not take it within `timeout` seconds.
            KafkaError: it never will.
        """
        left = dict(offsets)
        deadline = self._now() + timeout
        backoff = self._new_backoff()
        while left:
            reaction, error = await self._commit_some(left, deadline)
            if reaction is CommitReaction.CHECK:
                await self._drop_deleted(left, deadline, named=named)
            if not left or error is None:
                continue
            if reaction is CommitReaction.FIND:
                self._client.forget_coordinator(CoordinatorKind.GROUP, self._group_id)
            elif reaction is CommitReaction.WAIT:
                await self._until_settled(error, deadline, patient=patient)
                self._refuse_lost(left, error, owned)
            delay = backoff.next()
            if self._now() + delay >= deadline:
                raise KafkaTimeoutError(f"not committed within {timeout:g} s: {error}") from error
            await asyncio.sleep(delay)

    async def _commit_some(
        self, left: dict[TopicPartition, OffsetAndMetadata], deadline: float
    ) -> tuple[CommitReaction, KafkaError | None]:
        """Send one request; remove what was committed from `left`, return what hinders the rest.

        Offsets of topics that metadata does not know are not sent: they must not delay the others.
        """
        metadata = self._client.metadata
        unknown = {p.topic for p in left if metadata.topic(p.topic) is None}
        sent = {p: offset for p, offset in left.items() if p.topic not in unknown}
        worst: tuple[CommitReaction, KafkaError | None] = (CommitReaction.AGAIN, None)
        if sent:
            worst = await self._commit_known(sent, left, deadline)
        if unknown and worst[1] is None:
            topic = min(unknown)
            error = metadata.error(topic) or UnknownTopicOrPartitionError(topic=topic)
            worst = CommitReaction.CHECK, error
        return worst

    async def _commit_known(
        self, sent: Offsets, left: dict[TopicPartition, OffsetAndMetadata], deadline: float
    ) -> tuple[CommitReaction, KafkaError | None]:
        async with self._turn:
            names = self._topic_names(sent)
            try:
                answer = await self._request(self._commit_request(sent), deadline)
            except RetriableError as error:
                return commit_reaction(error), error
            worst: tuple[CommitReaction, KafkaError | None] = (CommitReaction.AGAIN, None)
            taken: dict[TopicPartition, OffsetAndMetadata] = {}
            for partition, code in _codes(answer, names):
                if not code:
                    if partition in left:
                        taken[partition] = left.pop(partition)
                    continue
                worst = self._hindrance(partition, code)
        if taken:
            self.count += 1
            self._warned.difference_update(partition.topic for partition in taken)
            self._on_committed(taken)
            self._tell(taken)
        lacking = [partition for partition in sent if partition in left]
        if lacking and worst[1] is None:
            worst = (
                CommitReaction.AGAIN,
                UnknownServerError("the response lacks " + ", ".join(map(str, lacking))),
            )
        return worst

    async def _drop_deleted(
        self, left: dict[TopicPartition, OffsetAndMetadata], deadline: float, *, named: bool
    ) -> None:
        """Remove offsets of deleted topics from `left`, with a warning, or raise if `named`."""
        deleted = await deleted_topics(self._client, {p.topic for p in left}, deadline)
        if not deleted:
            return
        if named:
            raise UnknownTopicOrPartitionError(
                "offsets of a topic that does not exist cannot be committed", topic=min(deleted)
            )
        dropped = {p: left.pop(p).offset for p in list(left) if p.topic in deleted}
        if not deleted <= self._warned:
            self._warned |= deleted
            logger.warning(
                "group %s: the topics of these offsets do not exist any more, so they are not "
                "committed: %s",
                self._group_id,
                ", ".join(f"{partition}: {offset}" for partition, offset in dropped.items()),
            )

    def _hindrance(self, partition: TopicPartition, code: int) -> tuple[CommitReaction, KafkaError]:
        error = error_for(code, topic=partition.topic, partition=partition.partition)
        reaction = commit_reaction(error)
        if reaction is CommitReaction.RAISE:
            raise error
        if reaction is CommitReaction.FAIL:
            raise CommitFailedError(
                f"the group has moved on ({error.name}), and the partition may be another's: the "
                "coordinator got no heartbeat for session_timeout_ms, or the application asked for "
                "no records for max_poll_interval_ms",
                topic=partition.topic,
                partition=partition.partition,
            ) from error
        return reaction, error

    async def _until_settled(self, error: KafkaError, deadline: float, *, patient: bool) -> None:
        coordinator = self._coordinator
        if coordinator is None or not patient or coordinator.state in _GIVING_UP:
            raise error
        try:
            async with asyncio.timeout_at(deadline):
                await coordinator.wait_settled()
        except TimeoutError:
            raise RebalanceInProgressError("the rebalance has not ended in time") from error

    def _refuse_lost(
        self, left: Offsets, error: KafkaError, owned: Callable[[TopicPartition], bool]
    ) -> None:
        lost = sorted(partition for partition in left if not owned(partition))
        if lost:
            raise CommitFailedError(
                "the group has given these partitions to somebody else: "
                + ", ".join(map(str, lost))
            ) from error

    def _commit_request(self, offsets: Offsets) -> OffsetCommitRequest:
        member = self.group_metadata()
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
                    name=topic, topic_id=self._client.metadata.topic_id(topic), partitions=rows
                )
                for topic, rows in topics.items()
            ],
        )

    def _tell(self, offsets: Offsets) -> None:
        if self._client.hooks.active:
            rows = tuple((partition, offset.offset) for partition, offset in offsets.items())
            client_id = self._client.config.client_id
            self._client.hooks.emit(hooks.Committed(client_id, self._group_id, rows))

    # -- reading ----------------------------------------------------------------------------------

    async def fetch(
        self,
        partitions: Iterable[TopicPartition],
        timeout: float,
        *,
        known_only: bool = False,
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The group's offsets; None where it has none. Waits for those that a transaction holds.

        With `known_only`, partitions of topics that do not exist, or that metadata does not know
        yet, are left out of the result: they must not delay the others.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist.
            KafkaTimeoutError: they are not known within `timeout` seconds; it says why.
            KafkaError: they cannot be asked for.
        """
        wanted = set(partitions)
        if known_only:
            wanted = self._known(wanted)
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}
        deadline = self._now() + timeout
        backoff = self._new_backoff()
        while missing := wanted - found.keys():
            error = await self._fetch_some(self._known(missing), found, deadline)
            reaction = CommitReaction.CHECK if error is None else commit_reaction(error)
            if reaction is CommitReaction.CHECK and (missing := wanted - found.keys()):
                topics = {partition.topic for partition in missing}
                deleted = await deleted_topics(self._client, topics, deadline)
                if deleted and not known_only:
                    raise UnknownTopicOrPartitionError(topic=min(deleted))
                wanted = {partition for partition in wanted if partition.topic not in deleted}
                error = error or self._client.metadata.error(min(topics))
            elif reaction is CommitReaction.FIND:
                self._client.forget_coordinator(CoordinatorKind.GROUP, self._group_id)
            if not wanted - found.keys():
                break
            delay = backoff.next()
            if self._now() + delay >= deadline:
                raise KafkaTimeoutError(
                    f"no committed offsets within {timeout:g} s: {error}"
                ) from error
            await asyncio.sleep(delay)
        return {partition: found[partition] for partition in wanted}

    async def _fetch_some(
        self,
        partitions: Collection[TopicPartition],
        found: dict[TopicPartition, OffsetAndMetadata | None],
        deadline: float,
    ) -> KafkaError | None:
        """Send one request; add what was answered to `found`, return what hinders the rest."""
        if not partitions:
            return None
        names = self._topic_names(partitions)
        try:
            answer = await self._ask(sorted(partitions), deadline)
        except RetriableError as hindrance:
            return hindrance
        error = self._read(answer, names, found)
        if error is None:
            found.update(dict.fromkeys(set(partitions) - found.keys()))
        return error

    def _known(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        metadata = self._client.metadata
        return {p for p in partitions if metadata.topic(p.topic) is not None}

    async def _ask(
        self, partitions: Iterable[TopicPartition], deadline: float
    ) -> OffsetFetchResponse:
        topics: defaultdict[str, list[int]] = defaultdict(list)
        for topic, partition in partitions:
            topics[topic].append(partition)
        rows = [
            OffsetFetchRequestTopics(
                name=topic,
                topic_id=self._client.metadata.topic_id(topic),
                partition_indexes=indexes,
            )
            for topic, indexes in topics.items()
        ]
        group = OffsetFetchRequestGroup(group_id=self._group_id, topics=rows)
        request = OffsetFetchRequest(groups=[group], require_stable=True)
        try:
            return await self._request(request, deadline)
        except UnsupportedVersionError:  # a broker before 3.0 knows one group a request
            old = [
                OffsetFetchRequestTopic(name=topic, partition_indexes=indexes)
                for topic, indexes in topics.items()
            ]
            request = OffsetFetchRequest(group_id=self._group_id, topics=old, require_stable=True)
            return await self._request(request, deadline)

    def _read(
        self,
        answer: OffsetFetchResponse,
        names: Mapping[object, str],
        found: dict[TopicPartition, OffsetAndMetadata | None],
    ) -> KafkaError | None:
        """Put the answer's rows into `found`; what hinders the others. Raises what always will."""
        codes = [answer.error_code, *(group.error_code for group in answer.groups)]
        rows: list[tuple[str, OffsetFetchResponsePartition | OffsetFetchResponsePartitions]] = [
            (topic.name, row) for topic in answer.topics for row in topic.partitions
        ]
        rows += [
            (topic.name or names.get(topic.topic_id, ""), row)
            for group in answer.groups
            for topic in group.topics
            for row in topic.partitions
        ]
        hindrance: KafkaError | None = None
        for code in filter(None, codes):
            hindrance = self._again(error_for(code))
        for topic, row in rows:
            partition = TopicPartition(topic, row.partition_index)
            if row.error_code:
                hindrance = self._again(
                    error_for(row.error_code, topic=topic, partition=row.partition_index)
                )
            elif row.committed_offset >= 0:
                epoch = None if row.committed_leader_epoch < 0 else row.committed_leader_epoch
                found[partition] = OffsetAndMetadata(
                    row.committed_offset, epoch, row.metadata or ""
                )
            else:
                found[partition] = None
        return hindrance

    def _again(self, error: KafkaError) -> KafkaError:
        if commit_reaction(error) in _REPEATED:
            return error
        raise error

    async def _request(self, request: Request[ResponseT], deadline: float) -> ResponseT:
        """Send a request to the coordinator, once; a frozen one costs a session time-out at most.

        Raises:
            RetriableError: No coordinator, no connection or no response; look it up again.
        """
        return await self._client.request(
            request,
            to=GroupCoordinator(self._group_id),
            timeout=max(0.001, min(deadline - self._now(), self._patience)),
            retry=False,
        )

    # -- small things -----------------------------------------------------------------------------

    def _topic_names(self, partitions: Iterable[TopicPartition]) -> Mapping[object, str]:
        """Topic names by id: new versions of these requests know topics by their id alone."""
        metadata = self._client.metadata
        return {metadata.topic_id(topic): topic for topic in {p.topic for p in partitions}}

    def _new_backoff(self) -> Backoff:
        return Backoff(
            seconds(self._config.retry_backoff_ms), seconds(self._config.retry_backoff_max_ms)
        )

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def _codes(
    answer: OffsetCommitResponse, names: Mapping[object, str]
) -> Iterable[tuple[TopicPartition, int]]:
    for topic in answer.topics:
        name = topic.name or names.get(topic.topic_id, "")
        for row in topic.partitions:
            yield TopicPartition(name, row.partition_index), row.error_code
