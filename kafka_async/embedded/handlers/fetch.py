"""Fetch: batches from logs, waiting for enough of them; sessions, topic ids, isolation."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from kafka_async.embedded.codes import Code, code_of
from kafka_async.embedded.context import Route
from kafka_async.embedded.handlers.leadership import led_partition, topic_name
from kafka_async.embedded.refusal import Refusal
from kafka_async.embedded.request_validation import ISOLATION_LEVELS
from kafka_async.errors import KafkaError, OffsetOutOfRangeError, UnknownServerError
from kafka_async.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from kafka_async.embedded.context import RequestContext
    from kafka_async.embedded.fetch_sessions import FetchEntry, FetchSession
    from kafka_async.embedded.partition import Partition

NO_EPOCH: Final = -1
READ_COMMITTED: Final = 1
SESSIONS_SINCE: Final = 7
BY_TOPIC_ID: Final = 13
LEADER_HINTS_SINCE: Final = 16
HINTED: Final = {Code.NOT_LEADER_OR_FOLLOWER, Code.FENCED_LEADER_EPOCH}
"""Errors with which a client is told the leader right away (KIP-951)."""


class Pass(NamedTuple):
    """One look at all partitions: the answers, their bytes, whether one must go out now."""

    answers: list[tuple[FetchEntry, PartitionData]]
    size: int
    urgent: bool


async def handle(context: RequestContext, request: FetchRequest) -> FetchResponse:
    """What there is, once it is `min_bytes` or `max_wait_ms` are over or a partition fails."""
    if request.isolation_level not in ISOLATION_LEVELS:
        return _refuse_all(context, request)
    try:
        session = context.broker.fetch_sessions.begin(request, context.version)
    except KafkaError as error:
        return FetchResponse(error_code=code_of(error))
    found = await _wait(context, request, session)
    response = FetchResponse(responses=_by_topic(session, found))
    if context.version >= SESSIONS_SINCE:
        response.session_id = session.id
    if context.version >= LEADER_HINTS_SINCE:
        response.node_endpoints = _endpoints(context, found)
    return response


def _refuse_all(context: RequestContext, request: FetchRequest) -> FetchResponse:
    """Return the response to a request that Kafka fails to read."""
    response = Refusal(context, Code.UNKNOWN_SERVER_ERROR).whole(request) or FetchResponse()
    response.error_code = Code.UNKNOWN_SERVER_ERROR
    return response


async def _wait(context: RequestContext, request: FetchRequest, session: FetchSession) -> Pass:
    deadline = context.received + request.max_wait_ms / 1000
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()
    watched = [
        partition for entry in session.entries.values() if (partition := _find(context, entry))
    ]
    for partition in watched:
        partition.watch(changed.set)
    try:
        while True:
            found = _look(context, request, session.entries.values())
            enough = found.size >= request.min_bytes or found.urgent or not session.entries
            if enough or loop.time() >= deadline:
                return found
            changed.clear()
            try:
                async with asyncio.timeout_at(deadline):
                    await changed.wait()
            except TimeoutError:
                continue
    finally:
        for partition in watched:
            partition.unwatch(changed.set)


def _look(context: RequestContext, request: FetchRequest, entries: Iterable[FetchEntry]) -> Pass:
    answers: list[tuple[FetchEntry, PartitionData]] = []
    size, urgent = 0, False
    for entry in entries:
        try:
            answer = _read(context, request, entry, size)
        except KafkaError as error:
            answer = _refused(context, entry, error)
        size += len(answer.records or b"")
        urgent = urgent or bool(answer.error_code) or answer.diverging_epoch.epoch >= 0
        answers.append((entry, answer))
    return Pass(answers, size, urgent)


def _read(
    context: RequestContext, request: FetchRequest, entry: FetchEntry, size: int
) -> PartitionData:
    """One partition's batches; `size` bytes are in the response already."""
    asked = entry.asked
    name = topic_name(context, entry.topic, entry.topic_id, by_id=context.version >= BY_TOPIC_ID)
    log = led_partition(
        context, name, asked.partition, max(asked.current_leader_epoch, NO_EPOCH)
    ).log
    answer = PartitionData(
        partition_index=asked.partition,
        high_watermark=log.end_offset,
        last_stable_offset=log.stable_offset,
        log_start_offset=log.start_offset,
        aborted_transactions=None,
        records=b"",
    )
    if asked.partition_max_bytes < 0:
        raise UnknownServerError("a partition's maximum of bytes is negative")
    if asked.last_fetched_epoch >= 0:
        end = log.end_of_epoch(asked.last_fetched_epoch)
        if end.epoch < 0:
            raise OffsetOutOfRangeError(f"epoch {asked.last_fetched_epoch} is not known")
        if end.epoch < asked.last_fetched_epoch or end.end_offset < asked.fetch_offset:
            answer.diverging_epoch = EpochEndOffset(epoch=end.epoch, end_offset=end.end_offset)
            return answer
    log.check_offset(asked.fetch_offset)
    committed = request.isolation_level == READ_COMMITTED
    data = log.read(
        asked.fetch_offset,
        max(min(asked.partition_max_bytes, request.max_bytes - size), 0),
        committed=committed,
        at_least_one=size == 0,
    )
    answer.records = data.records
    if data.aborted is not None:
        answer.aborted_transactions = [
            AbortedTransaction(producer_id=found.producer_id, first_offset=found.first_offset)
            for found in data.aborted
        ]
    return answer


def _refused(context: RequestContext, entry: FetchEntry, error: KafkaError) -> PartitionData:
    code = code_of(error)
    answer = PartitionData(
        partition_index=entry.asked.partition, error_code=code, high_watermark=-1, records=b""
    )
    partition = _find(context, entry)
    if partition is None:
        return answer
    answer.aborted_transactions = None
    if context.version >= LEADER_HINTS_SINCE and code in HINTED:
        answer.current_leader = LeaderIdAndEpoch(
            leader_id=partition.leader, leader_epoch=partition.leader_epoch
        )
    return answer


def _find(context: RequestContext, entry: FetchEntry) -> Partition | None:
    try:
        name = topic_name(
            context, entry.topic, entry.topic_id, by_id=context.version >= BY_TOPIC_ID
        )
    except KafkaError:
        return None
    return context.cluster.topics.partition(TopicPartition(name, entry.asked.partition))


def _by_topic(session: FetchSession, found: Pass) -> list[FetchableTopicResponse]:
    topics: dict[tuple[str, UUID], list[PartitionData]] = {}
    for entry, answer in found.answers:
        if session.answered(entry, answer):
            topics.setdefault((entry.topic, entry.topic_id), []).append(answer)
    return [
        FetchableTopicResponse(topic=topic, topic_id=topic_id, partitions=partitions)
        for (topic, topic_id), partitions in topics.items()
    ]


def _endpoints(context: RequestContext, found: Pass) -> list[NodeEndpoint]:
    leaders = {answer.current_leader.leader_id for _, answer in found.answers}
    return [
        NodeEndpoint(node_id=broker.id, host=broker.host, port=broker.port, rack=broker.rack)
        for broker in context.cluster.brokers.values()
        if broker.id in leaders and broker.alive
    ]


ROUTE = Route(1, 4, 18, handle)
