"""Chooses the protocol of a consumer whose group_protocol is "auto".

It is "consumer" (KIP-848) if the brokers have that protocol and topic ids, the group has no members
or is already of that type, and no option of only the classic protocol was given; otherwise
"classic".
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from kafka_async.client.metadata.coordinator_lookup import CoordinatorKind
from kafka_async.client.metadata.request_router import CoordinatorOfGroup
from kafka_async.client.wire.requested_rows import requested_row
from kafka_async.config import seconds
from kafka_async.errors import (
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NotCoordinatorError,
    RetriableError,
    TopicAuthorizationError,
    UnsupportedVersionError,
    error_for,
)
from kafka_async.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafka_async.protocol.messages.describe_groups import DescribeGroupsRequest
from kafka_async.protocol.messages.metadata import MetadataRequest

if TYPE_CHECKING:
    from kafka_async.client.services import ClientServices
    from kafka_async.config import ConsumerConfig

logger = logging.getLogger("kafka_async.group")

GroupProtocol: TypeAlias = Literal["classic", "consumer"]
_TOPIC_IDS_SINCE: Final = 10
"""First version of Metadata with topic ids (KIP-516), which assignments consist of."""
_STATES_WITHOUT_MEMBERS: Final = frozenset({"Empty", "Dead"})


class ProtocolChoice(NamedTuple):
    """A protocol and the reason for it."""

    protocol: GroupProtocol
    reason: str


def choose(consumer_group: KafkaError | None, classic_state: str) -> ProtocolChoice:
    """Return the protocol for a group.

    Args:
        consumer_group: The error of ConsumerGroupDescribe, or None if it described the group.
        classic_state: The state that DescribeGroups returned; used if the group is not of the
            consumer protocol.
    """
    # A group whose topics are hidden from this client is one of the consumer protocol too.
    if consumer_group is None or isinstance(consumer_group, TopicAuthorizationError):
        return ProtocolChoice("consumer", "the group is of this protocol")
    if isinstance(consumer_group, UnsupportedVersionError):
        return ProtocolChoice("classic", "the brokers do not have the consumer protocol")
    if not isinstance(consumer_group, GroupIdNotFoundError):
        return ProtocolChoice("classic", f"the group cannot be described: {consumer_group}")
    if classic_state in _STATES_WITHOUT_MEMBERS:
        return ProtocolChoice("consumer", "the group has no members")
    return ProtocolChoice("classic", "the group has members of the classic protocol")


async def group_protocol_of(services: ClientServices, config: ConsumerConfig) -> GroupProtocol:
    """Return the protocol of a consumer; for "auto" describe the group and log the choice.

    Raises:
        RetriableError: The coordinator of the group was not available for default_api_timeout_ms.
    """
    # Only "auto" needs a request.
    if config.group_protocol == "consumer":
        return "consumer"
    if config.group_protocol == "classic" or config.group_id is None:
        return "classic"
    if config.classic_only_options:
        reason = f"only this protocol has {', '.join(config.classic_only_options)}"
        choice = ProtocolChoice("classic", reason)
    else:
        choice = await _describe(services, config.group_id)
    logger.info(
        "group %s: group_protocol is %s: %s", config.group_id, choice.protocol, choice.reason
    )
    return choice.protocol


async def _describe(services: ClientServices, group_id: str) -> ProtocolChoice:
    loop, backoff = services.supervisor.loop, services.retry_backoff()
    deadline = loop.time() + seconds(services.config.default_api_timeout_ms)
    # Ends with a choice, with an error that no retry cures, or at the deadline.
    while True:
        try:
            error = await _consumer_group_error(services, group_id, deadline - loop.time())
            state = ""
            # The error is the same for a group of the classic protocol and for none.
            if isinstance(error, GroupIdNotFoundError):
                state = await _classic_state(services, group_id, deadline - loop.time())
            if not isinstance(error, RetriableError):
                choice = choose(error, state)
                if choice.protocol == "classic" or await _has_topic_ids(
                    services, deadline - loop.time()
                ):
                    return choice
                return ProtocolChoice("classic", "the metadata of the brokers has no topic ids")
        except RetriableError as raised:
            error = raised
        delay = backoff.next()
        # A timeout has used up the time to the deadline.
        if isinstance(error, KafkaTimeoutError) or loop.time() + delay >= deadline:
            raise error
        await services.lifetime.sleep(delay)


async def _has_topic_ids(services: ClientServices, timeout: float) -> bool:
    """Return True if a broker's metadata has topic ids."""
    connection = services.brokers.least_loaded(services.supervisor.loop.time())
    if connection is None:
        raise KafkaConnectionError("no broker can be connected now")
    await connection.connect(timeout)
    return connection.version(MetadataRequest.API_KEY) >= _TOPIC_IDS_SINCE


async def _consumer_group_error(
    services: ClientServices, group_id: str, timeout: float
) -> KafkaError | None:
    """Return the error of ConsumerGroupDescribe; raise one that is worth a retry."""
    request = ConsumerGroupDescribeRequest(group_ids=[group_id])
    try:
        response = await services.request(request, to=CoordinatorOfGroup(group_id), timeout=timeout)
    except RetriableError:
        raise
    except KafkaError as error:
        return error
    row = requested_row(group_id, response.groups, lambda row: row.group_id)
    return _error(services, group_id, row.error_code, row.error_message)


async def _classic_state(services: ClientServices, group_id: str, timeout: float) -> str:
    request = DescribeGroupsRequest(groups=[group_id])
    response = await services.request(request, to=CoordinatorOfGroup(group_id), timeout=timeout)
    row = requested_row(group_id, response.groups, lambda row: row.group_id)
    error = _error(services, group_id, row.error_code, row.error_message)
    # Version 6 has this error for a missing group (KIP-1043), earlier versions only the state.
    if error is not None and not isinstance(error, GroupIdNotFoundError):
        raise error
    return row.group_state


def _error(
    services: ClientServices, group_id: str, code: int, message: str | None
) -> KafkaError | None:
    """Return the error of a group in a response; forget a coordinator that has moved."""
    if not code:
        return None
    error = error_for(code, message, needs="DESCRIBE", name=group_id)
    if isinstance(error, NotCoordinatorError | CoordinatorNotAvailableError):
        services.coordinators.forget(CoordinatorKind.GROUP, group_id)
    return error
