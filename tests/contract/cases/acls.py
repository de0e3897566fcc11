"""The APIs of ACLs, on a cluster without an authorizer."""

from __future__ import annotations

from typing import Any, Final

from tests.contract.model import Fields, T, request, scenario, send

ALLOW, READ, TOPIC, LITERAL, ANY = 3, 3, 2, 3, 1


def acl(**changes: Any) -> Fields:
    """Return an ACL that allows a user to read the topic of a scenario."""
    return {
        "resource_type": TOPIC,
        "resource_name": T,
        "resource_pattern_type": LITERAL,
        "principal": "User:alice",
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
        **changes,
    }


def acl_filter(**changes: Any) -> Fields:
    """Return a filter that selects all ACLs."""
    return {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
        **changes,
    }


@request("CreateAcls")
def create(*acls: Fields) -> Fields:
    """Return a CreateAcls request."""
    return {"creations": list(acls)}


@request("DescribeAcls")
def describe(**changes: Any) -> Fields:
    """Return a DescribeAcls request."""
    return acl_filter(**changes)


@request("DeleteAcls")
def delete(*filters: Fields) -> Fields:
    """Return a DeleteAcls request."""
    return {"filters": list(filters)}


SCENARIOS: Final = [
    scenario(
        "acls-disabled",
        {},
        create(range(1, 4), acl(), acl(operation=99)),
        create(3),
        create(3, acl(operation=0)),
        create(3, cut=2),
        send("CreateAcls", 99),
        describe(range(1, 4)),
        describe(3, operation=99),
        describe(3, operation=0),
        describe(3, cut=2),
        send("DescribeAcls", 99),
        delete(range(1, 4), acl_filter(), acl_filter(operation=99)),
        delete(3),
        delete(3, acl_filter(pattern_type_filter=0)),
        delete(3, cut=2),
        send("DeleteAcls", 99),
    ),
]
