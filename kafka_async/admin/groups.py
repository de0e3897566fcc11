"""List, describe and delete groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kafka_async.admin.call import ItemResults, item_error
from kafka_async.admin.values import GroupDescription, GroupListing, MemberDescription
from kafka_async.arguments import texts
from kafka_async.cluster.request_destinations import Broker, CoordinatorKind
from kafka_async.errors import (
    GroupIdNotFoundError,
    KafkaConnectionError,
    KafkaError,
    RefreshRetriableError,
    UnsupportedVersionError,
    error_for,
)
from kafka_async.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
)
from kafka_async.protocol.messages.consumer_group_describe import (
    DescribedGroup as ConsumerGroup,
)
from kafka_async.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from kafka_async.protocol.messages.delete_groups import DeleteGroupsRequest
from kafka_async.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from kafka_async.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kafka_async.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import TypeVar

    from kafka_async.admin.call import Call

    V = TypeVar("V")

_CONSUMER = "consumer"
_DEAD = "Dead"


async def list_all(
    call: Call, *, states: Sequence[str], types: Sequence[str]
) -> dict[str, GroupListing]:
    """List the groups of all brokers; see `Admin.list_groups`."""
    states, types = texts(states, "states"), texts(types, "types")
    cluster = await call.client.refresh_metadata(timeout=call.left)

    async def attempt(node_ids: list[int]) -> ItemResults[int, ListGroupsResponse]:
        request = ListGroupsRequest(states_filter=states, types_filter=types)
        responses = {
            node_id: call.client.submit(request, to=Broker(node_id), timeout=call.left)
            for node_id in node_ids
        }
        results: ItemResults[int, ListGroupsResponse] = ItemResults()
        for node_id, future in responses.items():
            response = await future
            if response.error_code:
                results.errors[node_id] = error_for(response.error_code)
            else:
                results.values[node_id] = response
        return results

    responses = await call.run(cluster.brokers, attempt)
    return {
        row.group_id: GroupListing(row.group_id, row.protocol_type, row.group_state, row.group_type)
        for response in responses.values()
        for row in response.groups
    }


async def describe(call: Call, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
    """Describe groups and their members; see `Admin.describe_groups`."""

    async def query(
        node_id: int, names: list[str], results: ItemResults[str, GroupDescription]
    ) -> None:
        classic = names
        try:
            response = await call.client.request(
                ConsumerGroupDescribeRequest(group_ids=names), to=Broker(node_id), timeout=call.left
            )
        except UnsupportedVersionError:
            pass  # a broker without KIP-848 has only classic groups
        else:
            other = (GroupIdNotFoundError.code, UnsupportedVersionError.code)
            classic = [row.group_id for row in response.groups if row.error_code in other]
            for row in response.groups:
                if row.group_id not in classic:
                    _add_consumer_group(row, node_id, results)
        if not classic:
            return
        request = DescribeGroupsRequest(groups=classic)
        described = await call.client.request(request, to=Broker(node_id), timeout=call.left)
        for row in described.groups:
            _add_classic_group(row, node_id, results)

    wanted = texts(group_ids, "group_ids")
    return await call.run(wanted, lambda names: _by_coordinator(call, names, query))


async def delete(call: Call, group_ids: Iterable[str]) -> None:
    """Delete groups; see `Admin.delete_groups`."""

    async def query(node_id: int, names: list[str], results: ItemResults[str, None]) -> None:
        request = DeleteGroupsRequest(groups_names=names)
        response = await call.client.request(request, to=Broker(node_id), timeout=call.left)
        for row in response.results:
            if row.error_code:
                results.errors[row.group_id] = item_error(
                    row.error_code, "group", row.group_id, row.error_message
                )
            else:
                results.values[row.group_id] = None

    wanted = texts(group_ids, "group_ids")
    await call.run(wanted, lambda names: _by_coordinator(call, names, query))


# -- helpers --------------------------------------------------------------------------------------


async def _by_coordinator(
    call: Call,
    names: list[str],
    query: Callable[[int, list[str], ItemResults[str, V]], Awaitable[None]],
) -> ItemResults[str, V]:
    """Query each group's coordinator; a coordinator that is wrong or not reachable is forgotten."""
    coordinators = await call.client.coordinators(CoordinatorKind.GROUP, names, timeout=call.left)
    nodes: dict[int, list[str]] = {}
    for name in names:
        nodes.setdefault(coordinators[name], []).append(name)
    results: ItemResults[str, V] = ItemResults()
    for node_id, groups in nodes.items():
        try:
            await query(node_id, groups, results)
        except KafkaConnectionError as error:
            results.errors.update(dict.fromkeys(groups, error))
    for name, error in results.errors.items():
        if isinstance(error, RefreshRetriableError):
            call.client.forget_coordinator(CoordinatorKind.GROUP, name)
    return results


def _add_consumer_group(
    row: ConsumerGroup, node_id: int, results: ItemResults[str, GroupDescription]
) -> None:
    if row.error_code:
        error = item_error(row.error_code, "group", row.group_id, row.error_message)
        results.errors[row.group_id] = error
        return
    members = [
        MemberDescription(
            member.member_id,
            member.instance_id,
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
    results.values[row.group_id] = GroupDescription(
        row.group_id,
        _CONSUMER,
        row.group_state,
        _CONSUMER,
        row.assignor_name,
        node_id,
        tuple(members),
    )


def _add_classic_group(
    row: DescribedGroup, node_id: int, results: ItemResults[str, GroupDescription]
) -> None:
    error: KafkaError | None = None
    if row.error_code:
        error = item_error(row.error_code, "group", row.group_id, row.error_message)
    elif row.group_state == _DEAD:  # a missing group, before KIP-1043
        error = GroupIdNotFoundError(f"group {row.group_id}: there is no such group")
    if error is not None:
        results.errors[row.group_id] = error
        return
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
    results.values[row.group_id] = GroupDescription(
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
    # A newer version only appends fields, so it is decoded as the newest known version.
    found, _ = ConsumerProtocolAssignment.decode_from(data, 2, min(version, known))
    return frozenset(
        TopicPartition(topic.topic, partition)
        for topic in found.assigned_partitions
        for partition in topic.partitions
    )
