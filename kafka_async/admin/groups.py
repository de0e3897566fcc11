"""List, describe and delete groups; list and alter their committed offsets."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kafka_async.admin.call import Results, item_error
from kafka_async.admin.cluster import readable_configs
from kafka_async.admin.values import (
    ConfigResource,
    GroupDescription,
    GroupListing,
    MemberDescription,
    ResourceType,
)
from kafka_async.client.fan_out import call_each
from kafka_async.client.metadata.coordinator_lookup import CoordinatorKind
from kafka_async.client.metadata.request_router import FoundBroker
from kafka_async.client.offset_fetch import fetch_offsets
from kafka_async.client.wire.requested_rows import requested_rows
from kafka_async.client.wire.topic_ids import LAST_VERSION_WITH_NAMES
from kafka_async.errors import (
    GroupIdNotFoundError,
    GroupNotEmptyError,
    IncompleteResponseError,
    KafkaError,
    RefreshRetriableError,
    StaleMemberEpochError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    error_for,
)
from kafka_async.foundation.arguments import (
    by_partition,
    offset_and_metadata,
    text,
    texts,
    topic_partitions,
)
from kafka_async.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafka_async.protocol.messages.consumer_group_describe import DescribedGroup as ConsumerGroup
from kafka_async.protocol.messages.consumer_group_describe import Member as ConsumerMember
from kafka_async.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from kafka_async.protocol.messages.delete_groups import DeleteGroupsRequest
from kafka_async.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from kafka_async.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kafka_async.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
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
    from collections.abc import Awaitable, Callable
    from typing import TypeVar

    from kafka_async.admin.call import Call
    from kafka_async.protocol.messages.share_group_describe import DescribedGroup as ShareGroup

    V = TypeVar("V")

GROUP_TYPES: Final = ("classic", "consumer", "share", "streams")
GROUP_STATES: Final = (
    *("Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"),
    *("Assigning", "Reconciling", "NotReady"),
)
"""States of all group types; the classic protocol does not have the last three."""
_CONSUMER = "consumer"
_CONFIGURED_TYPES: Final = frozenset({"consumer", "share"})
"""Group types whose configuration has a session time-out."""
_DEAD = "Dead"


async def list_all(
    call: Call, *, states: Sequence[str], types: Sequence[str], session_timeouts: bool
) -> dict[str, GroupListing]:
    """List the groups of all brokers; see `Admin.list_groups`."""
    states = _known(states, "states", GROUP_STATES, "state")
    types = _known(types, "types", GROUP_TYPES, "type")
    cluster = await call.services.metadata.refresh(timeout=call.left)

    async def attempt(node_ids: list[int]) -> Results[int, ListGroupsResponse]:
        request = ListGroupsRequest(states_filter=states, types_filter=types)
        responses = await call_each(
            node_ids,
            lambda node_id: call.services.request(
                request, to=FoundBroker(node_id), timeout=call.left
            ),
        )
        return {
            node_id: error_for(response.error_code) if response.error_code else response
            for node_id, response in responses.items()
        }

    responses = await call.run(cluster.brokers, attempt)
    rows = [row for response in responses.values() for row in response.groups]
    kinds = {row.group_id: row.group_type for row in rows} if session_timeouts else {}
    found = await find_session_timeouts(call, kinds)
    return {
        row.group_id: GroupListing(
            row.group_id,
            row.protocol_type,
            row.group_state,
            row.group_type,
            found.get(row.group_id),
        )
        for row in rows
    }


async def find_session_timeouts(call: Call, kinds: Mapping[str, str]) -> dict[str, int]:
    """Return session time-outs in milliseconds by group id, where known.

    Only groups whose coordinator assigns partitions have one; `kinds` are the groups' types.
    """
    resources = {
        ConfigResource(ResourceType.GROUP, group_id): f"{kind.lower()}.session.timeout.ms"
        for group_id, kind in kinds.items()
        if kind.lower() in _CONFIGURED_TYPES
    }
    found: dict[str, int] = {}
    if resources:
        for resource, options in (await readable_configs(call, resources)).items():
            entry = options.get(resources[resource])
            if entry is not None and entry.value is not None:
                found[resource.name] = int(entry.value)
    return found


async def with_session_timeouts(
    call: Call, groups: dict[str, GroupDescription]
) -> dict[str, GroupDescription]:
    """Return the descriptions with session time-outs, where known."""
    found = await find_session_timeouts(call, {name: row.type for name, row in groups.items()})
    return {name: row._replace(session_timeout_ms=found.get(name)) for name, row in groups.items()}


async def describe(
    call: Call, group_ids: Iterable[str], *, session_timeouts: bool
) -> dict[str, GroupDescription]:
    """Describe groups and their members; see `Admin.describe_groups`."""

    async def query(node_id: int, names: list[str]) -> Results[str, GroupDescription]:
        classic = names
        unsupported: UnsupportedVersionError | None = None
        results: dict[str, GroupDescription | KafkaError] = {}
        try:
            response = await call.services.request(
                ConsumerGroupDescribeRequest(group_ids=names),
                to=FoundBroker(node_id),
                timeout=call.left,
            )
        except UnsupportedVersionError as error:
            unsupported = error  # a broker without KIP-848 has only classic groups
        else:
            other = (GroupIdNotFoundError.code, UnsupportedVersionError.code)
            classic = [row.group_id for row in response.groups if row.error_code in other]
            for row in response.groups:
                results[row.group_id] = assigned_group(row, node_id, _CONSUMER)
        if classic:
            request = DescribeGroupsRequest(groups=classic)
            described = await call.services.request(
                request, to=FoundBroker(node_id), timeout=call.left
            )
            for row in described.groups:
                found = results[row.group_id] = _classic_group(row, node_id)
                if isinstance(found, GroupIdNotFoundError):
                    found.__cause__ = unsupported  # or the group uses the other protocol
        return results

    wanted = texts(group_ids, "group_ids")
    found = await call.run(wanted, lambda names: query_coordinators(call, names, query))
    return await with_session_timeouts(call, found) if session_timeouts else found


async def delete(call: Call, group_ids: Iterable[str]) -> None:
    """Delete groups; see `Admin.delete_groups`."""

    async def query(node_id: int, names: list[str]) -> Results[str, None]:
        request = DeleteGroupsRequest(groups_names=names)
        response = await call.services.request(request, to=FoundBroker(node_id), timeout=call.left)
        return {
            row.group_id: item_error(
                "group", row.group_id, row.error_code, row.error_message, needs="DELETE"
            )
            for row in response.results
        }

    wanted = texts(group_ids, "group_ids")
    final = (IncompleteResponseError,)
    await call.run(wanted, lambda names: query_coordinators(call, names, query), final=final)


async def list_group_offsets(
    call: Call,
    group_id: str,
    partitions: Iterable[TopicPartition] | None,
    *,
    require_stable: bool,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the committed offsets of a group; see `Admin.list_group_offsets`."""
    text(group_id, "group_id")
    wanted = None if partitions is None else topic_partitions(partitions)
    topics = None if wanted is None else _by_topic(wanted)

    async def query(
        node_id: int, names: list[str]
    ) -> Results[str, dict[TopicPartition, OffsetAndMetadata]]:
        def send(request: OffsetFetchRequest) -> Awaitable[OffsetFetchResponse]:
            return call.services.request(
                request,
                to=FoundBroker(node_id),
                timeout=call.left,
                max_version=LAST_VERSION_WITH_NAMES[request.API_KEY],
            )

        (name,) = names
        group = OffsetFetchRequestGroup(group_id=name, topics=topics)
        row = await fetch_offsets(send, group, require_stable=require_stable)
        return {name: _committed(row, wanted)}

    found = await call.run([group_id], lambda names: query_coordinators(call, names, query))
    return found[group_id]


async def alter_group_offsets(
    call: Call, group_id: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
) -> None:
    """Commit offsets to a group without members; see `Admin.alter_group_offsets`."""
    checked = by_partition(offsets, "offsets", offset_and_metadata)
    rows: defaultdict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
    for tp, committed in sorted(checked.items()):
        epoch = -1 if committed.leader_epoch is None else committed.leader_epoch
        row = OffsetCommitRequestPartition(
            partition_index=tp.partition,
            committed_offset=committed.offset,
            committed_leader_epoch=epoch,
            committed_metadata=committed.metadata,
        )
        rows[tp.topic].append(row)
    topics = [OffsetCommitRequestTopic(name=name, partitions=each) for name, each in rows.items()]

    async def commit(node_id: int, names: list[str]) -> Results[str, None]:
        request = OffsetCommitRequest(group_id=group_id, topics=topics)
        response = await call.services.request(
            request,
            to=FoundBroker(node_id),
            timeout=call.left,
            max_version=LAST_VERSION_WITH_NAMES[request.API_KEY],
        )
        codes = {
            TopicPartition(topic.name, row.partition_index): row.error_code
            for topic in response.topics
            for row in topic.partitions
        }
        errors = (
            code
            if isinstance(code, KafkaError)
            else error_for(
                code, topic=tp.topic, partition=tp.partition, needs="READ", name=group_id
            )
            for tp, code in requested_rows(checked, codes).items()
            if code
        )
        return dict.fromkeys(names, next(errors, None))

    try:
        await call.run(
            [text(group_id, "group_id")],
            lambda names: query_coordinators(call, names, commit),
            final=(UnknownTopicOrPartitionError,),
        )
    except (UnknownMemberIdError, StaleMemberEpochError) as error:
        raise GroupNotEmptyError(
            f"group {group_id} has members, which would overwrite the offsets: stop them first, "
            "or rewind() one of them. A static member that was stopped keeps its place until its "
            "session time-out; to remove it at once, send LeaveGroupRequest with its "
            "group_instance_id to CoordinatorOfGroup, by Client.request"
        ) from error


def _known(values: Sequence[str], name: str, known: Sequence[str], kind: str) -> list[str]:
    """Return the values; raise ValueError for an unknown one, which matches no group."""
    checked, folded = texts(values, name), {each.lower(): each for each in known}
    for value in checked:
        if value.lower() not in folded:
            near = difflib.get_close_matches(value.lower(), folded, 1)
            hint = f"did you mean {folded[near[0]]!r}?" if near else f"known are {', '.join(known)}"
            raise ValueError(f"{name} has {value!r:.60}, which is no {kind} of groups: {hint}")
    return checked


# -- helpers --------------------------------------------------------------------------------------


async def query_coordinators(
    call: Call,
    names: list[str],
    query: Callable[[int, list[str]], Awaitable[Results[str, V]]],
) -> Results[str, V]:
    """Query each group's coordinator; drop a cached coordinator that is wrong or unreachable."""
    coordinators = await call.services.coordinators.find_all(
        CoordinatorKind.GROUP, names, timeout=call.left
    )
    results = await call.query_brokers({name: coordinators[name] for name in names}, query)
    for name, error in results.items():
        if isinstance(error, RefreshRetriableError):
            call.services.coordinators.forget(CoordinatorKind.GROUP, name)
    return results


def assigned_group(
    row: ConsumerGroup | ShareGroup, node_id: int, kind: str
) -> GroupDescription | KafkaError:
    """Return the description of a group whose coordinator assigns the partitions."""
    if error := item_error(
        "group", row.group_id, row.error_code, row.error_message, needs="DESCRIBE"
    ):
        return error
    members = [
        MemberDescription(
            member.member_id,
            member.instance_id if isinstance(member, ConsumerMember) else None,
            member.client_id,
            member.client_host,
            frozenset(
                TopicPartition(topic.topic_name, partition)
                for topic in member.assignment.topic_partitions
                for partition in topic.partitions
            ),
        )
        for member in row.members
    ]
    return GroupDescription(
        row.group_id,
        kind,
        row.group_state,
        kind,
        row.assignor_name,
        node_id,
        tuple(members),
    )


def _classic_group(row: DescribedGroup, node_id: int) -> GroupDescription | KafkaError:
    if error := item_error(
        "group", row.group_id, row.error_code, row.error_message, needs="DESCRIBE"
    ):
        return error
    if row.group_state == _DEAD:  # a missing group, before KIP-1043
        return GroupIdNotFoundError(f"group {row.group_id}: there is no such group")
    members = [
        MemberDescription(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            _assignment(row.protocol_type, member.member_assignment),
        )
        for member in row.members
    ]
    return GroupDescription(
        row.group_id,
        "classic",
        row.group_state,
        row.protocol_type,
        row.protocol_data,
        node_id,
        tuple(members),
    )


def _assignment(protocol_type: str, data: bytes) -> frozenset[TopicPartition]:
    if protocol_type != _CONSUMER or len(data) < 2:
        return frozenset()
    version = int.from_bytes(data[:2], "big")
    known = ConsumerProtocolAssignment.VERSIONS.max
    # Newer versions only append fields, so decode them as the newest supported version.
    found, _ = ConsumerProtocolAssignment.decode_from(data, 2, min(version, known))
    return frozenset(
        TopicPartition(topic.topic, partition)
        for topic in found.assigned_partitions
        for partition in topic.partitions
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> list[OffsetFetchRequestTopics]:
    topics: dict[str, list[int]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition.partition)
    return [
        OffsetFetchRequestTopics(name=name, partition_indexes=rows) for name, rows in topics.items()
    ]


def _committed(
    row: OffsetFetchResponseGroup, wanted: Iterable[TopicPartition] | None
) -> dict[TopicPartition, OffsetAndMetadata] | KafkaError:
    """Return the offsets of the wanted partitions (None: all), or the first error."""
    if error := item_error("group", row.group_id, row.error_code, needs="DESCRIBE"):
        return error
    rows = {
        TopicPartition(topic.name, partition.partition_index): partition
        for topic in row.topics
        for partition in topic.partitions
    }
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for tp, partition in requested_rows(rows if wanted is None else wanted, rows).items():
        if isinstance(partition, KafkaError):
            return partition
        if partition.error_code:
            # A partition with pending offsets of an open transaction (KIP-447) has a retriable
            # error.
            return error_for(
                partition.error_code, topic=tp.topic, partition=tp.partition, needs="DESCRIBE"
            )
        if partition.committed_offset >= 0:
            epoch = partition.committed_leader_epoch
            found[tp] = OffsetAndMetadata(
                partition.committed_offset,
                None if epoch < 0 else epoch,
                partition.metadata or "",
            )
    return found
