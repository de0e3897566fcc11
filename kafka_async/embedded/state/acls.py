"""ACLs and the authorizer, with the rules of Kafka's StandardAuthorizer. Pure."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

WILDCARD: Final = "*"
"""Stands for every resource in a LITERAL ACL, and for every host."""
WILDCARD_PRINCIPAL: Final = "User:*"
CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""
_ANY_NAME: Final = "hardcode"
"""The name with which StandardAuthorizer checks for access to any resource of a type."""


class ResourceType(enum.IntEnum):
    """Resource types, with their codes in requests."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(enum.IntEnum):
    """Interpretations of a resource name, with their codes in requests."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(enum.IntEnum):
    """Operations, with their codes in requests."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(enum.IntEnum):
    """Effects of ACLs, with their codes in requests."""

    ANY = 1
    DENY = 2
    ALLOW = 3


SUPPORTED_OPERATIONS: Final = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
}
"""Operations per resource type in the response field `authorized_operations` (KIP-430)."""
IMPLYING_OPERATIONS: Final = {
    Operation.DESCRIBE: frozenset(
        {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
"""By operation: the operations whose ALLOW implies it."""


class Acl(NamedTuple):
    """Allows or denies an operation on the resources that match a name."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def covers(self, resource_type: ResourceType, name: str) -> bool:
        """Return whether the ACL is for a resource."""
        if self.resource_type is not resource_type:
            return False
        if self.pattern_type is PatternType.PREFIXED:
            return name.startswith(self.resource_name)
        return self.resource_name in (name, WILDCARD)

    def is_for_client(self, principal: str, host: str) -> bool:
        """Return whether the ACL is for a principal at a host."""
        return self.principal in (principal, WILDCARD_PRINCIPAL) and self.host in (host, WILDCARD)

    def is_for_operation(self, operation: Operation) -> bool:
        """Return whether the ACL is for an operation; an ALLOW includes implied operations."""
        if self.operation in (operation, Operation.ALL):
            return True
        implying = IMPLYING_OPERATIONS.get(operation, frozenset[Operation]())
        return self.permission is Permission.ALLOW and self.operation in implying


class AclFilter(NamedTuple):
    """Selects ACLs as in DescribeAcls and DeleteAcls; None matches any name, principal or host."""

    resource_type: ResourceType
    resource_name: str | None
    pattern_type: PatternType
    principal: str | None
    host: str | None
    operation: Operation
    permission: Permission

    def matches(self, acl: Acl) -> bool:
        """Return whether the filter selects an ACL."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_name(self, acl: Acl) -> bool:
        any_pattern = (PatternType.ANY, PatternType.MATCH, acl.pattern_type)
        if self.pattern_type not in any_pattern:
            return False
        if self.resource_name is None:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return self.resource_name == acl.resource_name
        return acl.covers(acl.resource_type, self.resource_name)


class AclAuthorizer:
    """Authorizes operations by ACLs, as Kafka's StandardAuthorizer.

    Args:
        super_users: Principals that may do every operation, such as "User:admin".
        allow_everyone_if_no_acl_found: Whether every operation is allowed on a resource without
            ACLs (Kafka's `allow.everyone.if.no.acl.found`).
    """

    def __init__(
        self, *, super_users: Iterable[str] = (), allow_everyone_if_no_acl_found: bool = False
    ) -> None:
        self.super_users = frozenset(super_users)
        self.allow_everyone_if_no_acl_found = allow_everyone_if_no_acl_found
        self._acls: dict[Acl, None] = {}

    def add(self, acl: Acl) -> None:
        """Add an ACL unless it exists."""
        self._acls[acl] = None

    def find(self, acl_filter: AclFilter) -> list[Acl]:
        """Return the ACLs that a filter selects."""
        return [acl for acl in self._acls if acl_filter.matches(acl)]

    def remove(self, acls: Iterable[Acl]) -> None:
        """Remove ACLs; missing ones are ignored."""
        for acl in acls:
            self._acls.pop(acl, None)

    def allows(
        self,
        principal: str,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        """Return whether a principal at a host may do an operation on a resource.

        A DENY has precedence over every ALLOW, and a super user over every DENY.
        """
        if principal in self.super_users:
            return True
        of_resource = [acl for acl in self._acls if acl.covers(resource_type, name)]
        if not of_resource:
            return self.allow_everyone_if_no_acl_found
        permissions = {
            acl.permission
            for acl in of_resource
            if acl.is_for_client(principal, host) and acl.is_for_operation(operation)
        }
        return Permission.ALLOW in permissions and Permission.DENY not in permissions

    def allows_by_type(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Return whether a principal may do an operation on any resource of a type.

        Implied operations do not count, nor does an ALLOW that a DENY covers completely.
        """
        if self.allows(principal, host, operation, resource_type, _ANY_NAME):
            return True
        acls = [
            acl
            for acl in self._acls
            if acl.resource_type is resource_type
            and acl.is_for_client(principal, host)
            and acl.operation in (operation, Operation.ALL)
        ]
        denied = [acl for acl in acls if acl.permission is Permission.DENY]
        allowed = [acl for acl in acls if acl.permission is Permission.ALLOW]
        if any(_is_wildcard(deny) for deny in denied):
            return False
        return any(
            _is_wildcard(allow) or not any(_denies_all_of(deny, allow) for deny in denied)
            for allow in allowed
        )


def _is_wildcard(acl: Acl) -> bool:
    return acl.pattern_type is PatternType.LITERAL and acl.resource_name == WILDCARD


def _denies_all_of(deny: Acl, allow: Acl) -> bool:
    """Return whether a DENY covers every resource that an ALLOW covers."""
    if deny.pattern_type is PatternType.PREFIXED:
        return allow.resource_name.startswith(deny.resource_name)
    return allow.pattern_type is PatternType.LITERAL and allow.resource_name == deny.resource_name
