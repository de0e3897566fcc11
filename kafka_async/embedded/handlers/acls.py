"""CreateAcls, DescribeAcls and DeleteAcls (KIP-140, KIP-290)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.error_codes import ErrorCode, error_code_of
from kafka_async.embedded.requests.context import Disconnect
from kafka_async.embedded.state.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from kafka_async.errors import InvalidRequestError, KafkaError
from kafka_async.protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from kafka_async.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from kafka_async.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

if TYPE_CHECKING:
    from kafka_async.embedded.requests.authorization import Authorization
    from kafka_async.embedded.requests.context import RequestContext
    from kafka_async.embedded.state.acls import AclAuthorizer

NO_AUTHORIZER: Final = "No Authorizer is configured on the broker"


async def describe_acls(
    authorization: Authorization, context: RequestContext, request: DescribeAclsRequest
) -> DescribeAclsResponse:
    """Return the ACLs that a filter selects, by resource pattern."""
    _reject_unknown(
        request.resource_type_filter,
        request.pattern_type_filter,
        request.operation,
        request.permission_type,
    )
    authorizer = authorization.authorizer
    if authorizer is None:
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED,
            error_message=NO_AUTHORIZER,
        )
    selected = _filter(request)
    by_pattern: dict[tuple[ResourceType, str, PatternType], list[AclDescription]] = {}
    for acl in () if selected is None else authorizer.find(selected):
        pattern = acl.resource_type, acl.resource_name, acl.pattern_type
        by_pattern.setdefault(pattern, []).append(
            AclDescription(
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
        )
    return DescribeAclsResponse(
        error_message=None,
        resources=[
            DescribeAclsResource(
                resource_type=resource_type, resource_name=name, pattern_type=pattern, acls=acls
            )
            for (resource_type, name, pattern), acls in by_pattern.items()
        ],
    )


async def create_acls(
    authorization: Authorization, context: RequestContext, request: CreateAclsRequest
) -> CreateAclsResponse:
    """Add the valid ACLs; errors are per ACL."""
    for creation in request.creations:
        _reject_unknown(
            creation.resource_type,
            creation.resource_pattern_type,
            creation.operation,
            creation.permission_type,
        )
    authorizer = authorization.authorizer
    if authorizer is None:
        results = [
            AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
            for _ in request.creations
        ]
        return CreateAclsResponse(results=results)
    return CreateAclsResponse(
        results=[_create_acl(authorizer, creation) for creation in request.creations]
    )


def _create_acl(authorizer: AclAuthorizer, creation: AclCreation) -> AclCreationResult:
    try:
        authorizer.add(_acl(creation))
    except KafkaError as error:
        return AclCreationResult(error_code=error_code_of(error), error_message=error.message)
    return AclCreationResult(error_message=None)


def _acl(creation: AclCreation) -> Acl:
    """Return the ACL to create; raise InvalidRequestError if it is not valid."""
    try:
        acl = Acl(
            ResourceType(creation.resource_type),
            creation.resource_name,
            PatternType(creation.resource_pattern_type),
            creation.principal,
            creation.host,
            Operation(creation.operation),
            Permission(creation.permission_type),
        )
    except ValueError as error:
        raise InvalidRequestError(f"Invalid ACL: {error}") from error
    indefinite = (
        acl.resource_type is ResourceType.ANY,
        acl.pattern_type in (PatternType.ANY, PatternType.MATCH),
        acl.operation is Operation.ANY,
        acl.permission is Permission.ANY,
    )
    if any(indefinite):
        raise InvalidRequestError("An ACL needs a resource type, pattern, operation and permission")
    if not acl.resource_name:
        raise InvalidRequestError("Invalid empty resource name")
    if acl.resource_type is ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise InvalidRequestError(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    return acl


async def delete_acls(
    authorization: Authorization, context: RequestContext, request: DeleteAclsRequest
) -> DeleteAclsResponse:
    """Delete the ACLs that filters select; an ACL may be in the results of several filters."""
    for requested in request.filters:
        _reject_unknown(
            requested.resource_type_filter,
            requested.pattern_type_filter,
            requested.operation,
            requested.permission_type,
        )
    authorizer = authorization.authorizer
    if authorizer is None:
        disabled = [
            DeleteAclsFilterResult(
                error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER
            )
            for _ in request.filters
        ]
        return DeleteAclsResponse(filter_results=disabled)
    results: list[DeleteAclsFilterResult] = []
    deleted: list[Acl] = []
    for requested in request.filters:
        selected = _filter(requested)
        if selected is None:
            results.append(DeleteAclsFilterResult(error_code=ErrorCode.INVALID_REQUEST))
            continue
        found = authorizer.find(selected)
        deleted += found
        matching = [_matching_acl(acl) for acl in found]
        results.append(DeleteAclsFilterResult(error_message=None, matching_acls=matching))
    authorizer.remove(deleted)
    return DeleteAclsResponse(filter_results=results)


def _matching_acl(acl: Acl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _filter(requested: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter | None:
    """Return the filter of a request, or None for an unknown code."""
    try:
        return AclFilter(
            ResourceType(requested.resource_type_filter),
            requested.resource_name_filter,
            PatternType(requested.pattern_type_filter),
            requested.principal_filter,
            requested.host_filter,
            Operation(requested.operation),
            Permission(requested.permission_type),
        )
    except ValueError:
        return None


def _reject_unknown(*codes: int) -> None:
    """Reset the connection if a field is UNKNOWN: Kafka cannot parse such a request."""
    if 0 in codes:
        raise Disconnect("a request has an UNKNOWN element")
