"""Fetches the committed offsets of a group, in a form that its coordinator supports.

Brokers before Kafka 3.0 take the fields of one group, not a list of groups (version 7). Brokers
before 2.5 do not wait for the end of transactions (version 6, KIP-447).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from kafka_async.client.wire.requested_rows import requested_row
from kafka_async.errors import EncodeError, UnsupportedVersionError

if TYPE_CHECKING:
    from kafka_async.protocol.messages.offset_fetch import (
        OffsetFetchRequest,
        OffsetFetchRequestGroup,
        OffsetFetchResponse,
        OffsetFetchResponseGroup,
    )


async def fetch_offsets(
    send: Callable[[OffsetFetchRequest], Awaitable[OffsetFetchResponse]],
    group: OffsetFetchRequestGroup,
    *,
    require_stable: bool,
) -> OffsetFetchResponseGroup:
    """Return the group of the response to the newest request that the coordinator supports.

    `send` raises UnsupportedVersionError for a request that it cannot encode; this function raises
    it for the oldest form. Raises IncompleteResponseError if the group is missing.
    """
    from kafka_async.protocol.messages import offset_fetch

    request = offset_fetch.OffsetFetchRequest(groups=[group], require_stable=require_stable)
    try:
        response = await send(request)
    # From the newest form to the oldest; most brokers take the first.
    except UnsupportedVersionError:
        pass
    else:
        return requested_row(group.group_id, response.groups, lambda row: row.group_id)
    topics = group.topics
    request = offset_fetch.OffsetFetchRequest(
        group_id=group.group_id,
        topics=None
        if topics is None
        else [
            offset_fetch.OffsetFetchRequestTopic(
                name=topic.name, partition_indexes=topic.partition_indexes
            )
            for topic in topics
        ],
        require_stable=require_stable,
    )
    try:
        response = await send(request)
    except UnsupportedVersionError:
        # Nothing older can be tried.
        if not require_stable:
            raise
        # The broker would return offsets before their transaction ends; older brokers offer no
        # better.
        request.require_stable = False
        response = await send(request)
    except EncodeError as error:
        raise UnsupportedVersionError(
            f"group {group.group_id}: brokers before Kafka 0.10.2 do not list all offsets of a "
            "group: name the partitions"
        ) from error
    return offset_fetch.OffsetFetchResponseGroup(
        group_id=group.group_id,
        error_code=response.error_code,
        topics=[
            offset_fetch.OffsetFetchResponseTopics(
                name=topic.name,
                partitions=[
                    offset_fetch.OffsetFetchResponsePartitions(
                        partition_index=row.partition_index,
                        committed_offset=row.committed_offset,
                        committed_leader_epoch=row.committed_leader_epoch,
                        metadata=row.metadata,
                        error_code=row.error_code,
                    )
                    for row in topic.partitions
                ],
            )
            for topic in response.topics
        ],
    )
