"""The authorizer of the embedded cluster, against rules that enumerate what an ACL stands for."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_async.embedded.state.acls import (
    Acl,
    AclAuthorizer,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

pytestmark = pytest.mark.one_kernel
ALICE, BOB, EVERYONE = "User:alice", "User:bob", "User:*"
HOST, OTHER_HOST = "10.0.0.1", "10.0.0.2"
TOPIC = ResourceType.TOPIC
OPERATIONS = (
    Operation.READ,
    Operation.WRITE,
    Operation.ALTER,
    Operation.DELETE,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.CREATE,
)
IMPLIED = {
    Operation.READ: {Operation.DESCRIBE},
    Operation.WRITE: {Operation.DESCRIBE},
    Operation.DELETE: {Operation.DESCRIBE},
    Operation.ALTER: {Operation.DESCRIBE},
    Operation.ALTER_CONFIGS: {Operation.DESCRIBE_CONFIGS},
    Operation.ALL: set(OPERATIONS),
}
NAMES = ["".join(name) for size in (1, 2, 3) for name in itertools.product("abc", repeat=size)]
NAMES.append("*c")  # for ACLs with the prefix *
"""Names of resources; ACLs have names of the letters a and b."""

acls = st.builds(
    Acl,
    st.sampled_from([TOPIC, ResourceType.GROUP]),
    st.one_of(st.just("*"), st.text("ab", min_size=1, max_size=2)),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from([ALICE, BOB, EVERYONE]),
    st.sampled_from(["*", HOST, OTHER_HOST]),
    st.sampled_from([Operation.ALL, *OPERATIONS]),
    st.sampled_from([Permission.ALLOW, Permission.DENY]),
)
acl_lists = st.lists(acls, max_size=8)


def names_of(acl: Acl) -> set[str]:
    """Return the names that an ACL is for."""
    if acl.pattern_type is PatternType.PREFIXED:
        return {name for name in NAMES if name[: len(acl.resource_name)] == acl.resource_name}
    return set(NAMES) if acl.resource_name == "*" else {acl.resource_name}


def permissions_of(acl: Acl) -> set[tuple[str, str, str, Operation]]:
    """Return every (name, principal, host, operation) that an ACL allows or denies."""
    operations = {acl.operation}
    if acl.permission is Permission.ALLOW or acl.operation is Operation.ALL:
        operations |= IMPLIED.get(acl.operation, set())
    principals = {ALICE, BOB} if acl.principal == EVERYONE else {acl.principal}
    hosts = {HOST, OTHER_HOST} if acl.host == "*" else {acl.host}
    return set(itertools.product(names_of(acl), principals, hosts, operations))


def expected(
    rules: list[Acl], name: str, principal: str, host: str, operation: Operation, default: bool
) -> bool:
    """Decide by enumeration, for topics."""
    rules = [acl for acl in rules if acl.resource_type is TOPIC]
    if not any(name in names_of(acl) for acl in rules):
        return default
    matching = [
        acl.permission for acl in rules if (name, principal, host, operation) in permissions_of(acl)
    ]
    return bool(matching) and all(permission is Permission.ALLOW for permission in matching)


def authorizer_of(rules: list[Acl], default: bool) -> AclAuthorizer:
    authorizer = AclAuthorizer(super_users=["User:root"], allow_everyone_if_no_acl_found=default)
    for acl in rules:
        authorizer.add(acl)
    return authorizer


@given(
    acl_lists,
    st.sampled_from(NAMES),
    st.sampled_from([ALICE, BOB]),
    st.sampled_from(OPERATIONS),
    st.booleans(),
)
def test_decides_as_the_enumeration_of_all_permissions(
    rules: list[Acl], name: str, principal: str, operation: Operation, default: bool
) -> None:
    authorizer = authorizer_of(rules, default)
    allowed = authorizer.allows(principal, HOST, operation, TOPIC, name)
    assert allowed is expected(rules, name, principal, HOST, operation, default)
    assert authorizer.allows("User:root", HOST, operation, TOPIC, name)


@given(acl_lists, st.booleans())
def test_decides_by_type_as_the_search_for_a_permitted_name(
    rules: list[Acl], default: bool
) -> None:
    authorizer = authorizer_of(rules, default)
    found = any(expected(rules, name, ALICE, HOST, Operation.WRITE, default) for name in NAMES)
    assert authorizer.allows_by_type(ALICE, HOST, Operation.WRITE, TOPIC) is found
    assert authorizer.allows_by_type("User:root", HOST, Operation.WRITE, TOPIC)


@given(acl_lists, acls, st.sampled_from([PatternType.ANY, PatternType.MATCH]))
def test_filters_find_and_remove_what_they_match(
    rules: list[Acl], acl: Acl, pattern: PatternType
) -> None:
    authorizer = authorizer_of([*rules, acl], default=False)
    exact = AclFilter(*acl)
    assert authorizer.find(exact) == [acl]
    by_name = AclFilter(
        ResourceType.ANY, acl.resource_name, pattern, None, None, Operation.ANY, Permission.ANY
    )
    found = authorizer.find(by_name)
    assert acl in found
    if pattern is PatternType.ANY:
        assert {one.resource_name for one in found} == {acl.resource_name}
    authorizer.remove(found)
    assert authorizer.find(by_name) == []
    everything = by_name._replace(resource_name=None)
    kept = {one for one in rules if one not in found}
    assert set(authorizer.find(everything)) == kept


MATCH_ABC = AclFilter(TOPIC, "abc", PatternType.MATCH, None, None, Operation.ANY, Permission.ANY)


@pytest.mark.parametrize(
    ("name", "pattern", "matches"),
    [
        ("abc", PatternType.LITERAL, True),
        ("ab", PatternType.PREFIXED, True),
        ("*", PatternType.LITERAL, True),
        ("ab", PatternType.LITERAL, False),
        ("abcd", PatternType.PREFIXED, False),
        ("*", PatternType.PREFIXED, False),
    ],
)
def test_match_filter_finds_every_acl_of_a_resource(
    name: str, pattern: PatternType, matches: bool
) -> None:
    acl = Acl(TOPIC, name, pattern, ALICE, "*", Operation.READ, Permission.ALLOW)
    assert MATCH_ABC.matches(acl) is matches
