"""IncrementalAlterConfigs: sets, deletes, appends and subtracts topic configurations (KIP-339)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from kafka_async.embedded.configs import check_configs, is_list
from kafka_async.embedded.context import Route
from kafka_async.embedded.error_codes import error_code_of
from kafka_async.embedded.topics import validate_topic_name
from kafka_async.errors import (
    InvalidConfigError,
    InvalidRequestError,
    KafkaError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
)
from kafka_async.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from kafka_async.embedded.context import RequestContext

TOPIC: Final = 2
SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3


async def handle(
    context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Change each resource completely or not at all; errors are per resource."""
    counts = Counter((it.resource_type, it.resource_name) for it in request.resources)
    return IncrementalAlterConfigsResponse(
        responses=[
            _resource(
                context,
                resource,
                dry_run=request.validate_only,
                duplicate=counts[resource.resource_type, resource.resource_name] > 1,
            )
            for resource in request.resources
        ]
    )


def _resource(
    context: RequestContext, resource: AlterConfigsResource, *, dry_run: bool, duplicate: bool
) -> AlterConfigsResourceResponse:
    response = AlterConfigsResourceResponse(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        error_message=None,
    )
    try:
        if duplicate:
            raise InvalidRequestError("Each resource must appear at most once.")
        _alter(context, resource, dry_run=dry_run)
    except KafkaError as error:
        response.error_code = error_code_of(error)
        failed = isinstance(error, UnknownServerError)
        response.error_message = None if failed else error.message
    return response


def _alter(context: RequestContext, resource: AlterConfigsResource, *, dry_run: bool) -> None:
    topics = context.cluster.topics
    if resource.resource_type != TOPIC:
        raise InvalidRequestError("only topic configurations can be changed here")
    validate_topic_name(resource.resource_name)
    if len({change.name for change in resource.configs}) < len(resource.configs):
        raise InvalidRequestError("Error due to duplicate config keys")
    topic = topics.get(resource.resource_name)
    if topic is None:
        raise UnknownTopicOrPartitionError(f"Topic '{resource.resource_name}' does not exist.")
    configs, effective = dict(topic.configs), topics.configs(topic)
    for change in resource.configs:
        value = _new_value(change, effective.get(change.name, ""))
        if value is None:
            configs.pop(change.name, None)
        else:
            configs[change.name] = value
    check_configs(configs)
    if not dry_run:
        topics.configure(topic, configs)


def _new_value(change: AlterableConfig, current: str) -> str | None:
    """Return a configuration's new value; None for the default."""
    operation, value = change.config_operation, change.value
    if operation == DELETE:
        return None
    if value is None:
        raise InvalidRequestError(f"Null value not supported for : {change.name}")
    if operation == SET:
        return value
    if operation not in (APPEND, SUBTRACT):
        raise UnknownServerError(f"there is no operation {operation}")
    if not is_list(change.name):
        operation_name = "APPEND" if operation == APPEND else "SUBTRACT"
        raise InvalidConfigError(
            f"Can't {operation_name} to key {change.name} because its type is not LIST."
        )
    items = [item for item in current.split(",") if item]
    if operation == APPEND:
        return ",".join(dict.fromkeys([*items, *value.split(",")]))
    return ",".join(item for item in items if item not in value.split(","))


ROUTE = Route(44, 0, 1, handle)
