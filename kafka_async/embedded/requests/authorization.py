"""Authorizes the operations of clients, and checks whole requests before their handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.requests.error_responses import error_response_to_whole
from kafka_async.embedded.state.acls import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    Operation,
    ResourceType,
)
from kafka_async.errors import for_code

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafka_async.embedded.requests.context import RequestContext
    from kafka_async.embedded.state.acls import AclAuthorizer

Handler: TypeAlias = "Callable[[RequestContext, Any], Awaitable[Any]]"

AUTHORIZATION_ERRORS: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
SYNC_PROTOCOL_MIN_VERSION: Final = 5


def _always(context: RequestContext, request: Any) -> bool:
    return True


def _has_protocol(context: RequestContext, request: Any) -> bool:
    """Return whether SyncGroup has its protocol: a missing one is the error then (KIP-559)."""
    return context.version < SYNC_PROTOCOL_MIN_VERSION or None not in (
        request.protocol_type,
        request.protocol_name,
    )


class Check(NamedTuple):
    """An operation without which a request fails as a whole.

    `field` contains the resource's name; it is empty for the cluster.
    """

    operation: Operation
    resource_type: ResourceType
    field: str = ""
    applies: Callable[[RequestContext, Any], bool] = _always


def _has_group(context: RequestContext, request: Any) -> bool:
    """Return whether a request has a group: a missing one is the error then."""
    return request.group_id is not None


_MEMBER: Final = Check(Operation.READ, ResourceType.GROUP, "group_id")
_TRANSACTION: Final = Check(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "transactional_id")

CHECKS: Final[Mapping[int, tuple[Check, ...]]] = {
    8: (_MEMBER,),
    11: (_MEMBER,),
    12: (_MEMBER,),
    13: (_MEMBER,),
    14: (_MEMBER._replace(applies=_has_protocol),),
    25: (_TRANSACTION, _MEMBER),
    26: (_TRANSACTION,),
    28: (_TRANSACTION, _MEMBER),
    29: (Check(Operation.DESCRIBE, ResourceType.CLUSTER),),
    30: (Check(Operation.ALTER, ResourceType.CLUSTER),),
    31: (Check(Operation.ALTER, ResourceType.CLUSTER),),
    47: (Check(Operation.DELETE, ResourceType.GROUP, "group_id"),),
    68: (_MEMBER,),
    76: (_MEMBER,),
    78: (_MEMBER._replace(applies=_has_group),),
    79: (_MEMBER._replace(applies=_has_group),),
    91: (_MEMBER,),
    92: (Check(Operation.DELETE, ResourceType.GROUP, "group_id"),),
    51: (Check(Operation.ALTER, ResourceType.CLUSTER),),
}
"""Operations required for a whole request, by API key; handlers check single topics and groups."""


class Authorization:
    """Authorizes clients' operations; without an authorizer, all are allowed."""

    def __init__(self, authorizer: AclAuthorizer | None = None) -> None:
        self.authorizer = authorizer

    def allows(
        self,
        context: RequestContext,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        """Return whether a client may do an operation on a resource."""
        return self.authorizer is None or self.authorizer.allows(
            context.principal, context.client_host, operation, resource_type, name
        )

    def allows_topic(self, context: RequestContext, operation: Operation, name: str) -> bool:
        """Return whether a client may do an operation on a topic."""
        return self.allows(context, operation, ResourceType.TOPIC, name)

    def allows_cluster(self, context: RequestContext, operation: Operation) -> bool:
        """Return whether a client may do an operation on the cluster."""
        return self.allows(context, operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def allows_some_topic(self, context: RequestContext, operation: Operation) -> bool:
        """Return whether a client may do an operation on at least one topic, even a missing one."""
        return self.authorizer is None or self.authorizer.allows_by_type(
            context.principal, context.client_host, operation, ResourceType.TOPIC
        )

    def code(
        self,
        context: RequestContext,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> ErrorCode:
        """Return the error code for an operation on a resource; NONE if it is allowed."""
        if self.allows(context, operation, resource_type, name):
            return ErrorCode.NONE
        return AUTHORIZATION_ERRORS[resource_type]

    def require(
        self,
        context: RequestContext,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> None:
        """Raise the error for a type of resource unless a client may do an operation."""
        if code := self.code(context, operation, resource_type, name):
            raise for_code(code)

    def require_topic(self, context: RequestContext, operation: Operation, name: str) -> None:
        """Raise TopicAuthorizationError unless a client may do an operation on a topic."""
        self.require(context, operation, ResourceType.TOPIC, name)

    def operations(self, context: RequestContext, resource_type: ResourceType, name: str) -> int:
        """Return the operations that a client may do on a resource as bits (KIP-430)."""
        return sum(
            1 << operation
            for operation in SUPPORTED_OPERATIONS[resource_type]
            if self.allows(context, operation, resource_type, name)
        )

    def cluster_operations(self, context: RequestContext) -> int:
        """Return the operations on the cluster as bits, or 0 without DESCRIBE."""
        if not self.allows_cluster(context, Operation.DESCRIBE):
            return 0
        return self.operations(context, ResourceType.CLUSTER, CLUSTER_NAME)

    def guard(self, api_key: int, handler: Handler) -> Handler:
        """Return a handler that responds with an error unless all `CHECKS` of the API pass."""
        checks = CHECKS.get(api_key)
        if checks is None or self.authorizer is None:
            return handler

        async def handle(context: RequestContext, request: Any) -> Any:
            for check in checks:
                if not check.applies(context, request):
                    continue
                name = getattr(request, check.field) if check.field else CLUSTER_NAME
                code = self.code(context, check.operation, check.resource_type, name)
                if code is not ErrorCode.NONE:
                    response = error_response_to_whole(context, code, request)
                    assert response is not None, "an API with checks has error codes"
                    return response
            return await handler(context, request)

        return handle
