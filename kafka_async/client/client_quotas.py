"""Finds the quotas that apply to a client: the entries of a cluster, in Kafka's precedence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from kafka_async.client.metadata.request_router import AnyBroker
from kafka_async.errors import raise_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kafka_async.client.services import ClientServices
    from kafka_async.protocol.messages.describe_client_quotas import ComponentData

EntityNames: TypeAlias = "frozenset[tuple[str, str | None]]"
"""Pairs of an entity's type ("user", "client-id" or "ip") and name; None is the default."""
QuotaEntries: TypeAlias = "dict[EntityNames, dict[str, float]]"

EXACT: Final = 0
DEFAULT: Final = 1
ANY: Final = 2
"""Types of matches in a filter of DescribeClientQuotas."""


async def describe(
    services: ClientServices, components: Iterable[ComponentData], *, strict: bool, timeout: float
) -> QuotaEntries:
    """Return the quotas of the entities that match all components of a filter."""
    from kafka_async.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest

    request = DescribeClientQuotasRequest(components=list(components), strict=strict)
    response = await services.request(request, to=AnyBroker(), timeout=timeout)
    raise_for(response.error_code, response.error_message, needs="DESCRIBE_CONFIGS")
    return {
        frozenset((each.entity_type, each.entity_name) for each in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in response.entries or ()
    }


async def describe_candidates(
    services: ClientServices, names: Mapping[str, str], *, timeout: float
) -> QuotaEntries:
    """Return the quotas that may apply to a client, or to an address with the name "ip"."""
    from kafka_async.protocol.messages.describe_client_quotas import ComponentData

    def component(kind: str, match: str | None) -> ComponentData:
        match_type = DEFAULT if match is None else EXACT
        return ComponentData(entity_type=kind, match_type=match_type, match=match)

    loop = services.supervisor.loop
    deadline = loop.time() + timeout
    found: QuotaEntries = {}
    # Two queries per entity type, since a filter component matches one name or the default.
    for kind, name in names.items():
        for match in (name, None):
            # An entry with a user is found by the user, whatever its client id.
            found |= await describe(
                services,
                [component(kind, match)],
                strict=kind == "client-id",
                timeout=max(0.0, deadline - loop.time()),
            )
    return found


def resolve(
    entries: Mapping[EntityNames, Mapping[str, float]], names: Mapping[str, str]
) -> dict[str, tuple[float, EntityNames]]:
    """Return the value of each quota that applies, and the entity that it comes from. Pure."""
    found: dict[str, tuple[float, EntityNames]] = {}
    # The first entity with a value for a key wins; entities are not merged.
    for entity in precedence(names):
        for key, value in entries.get(entity, {}).items():
            found.setdefault(key, (value, entity))
    return found


def precedence(names: Mapping[str, str]) -> list[EntityNames]:
    """Return the entities that may apply, in the order of precedence. Pure."""
    if "ip" in names:
        return [frozenset({("ip", names["ip"])}), frozenset({("ip", None)})]
    users: list[str | None] = [names["user"], None] if "user" in names else []
    clients: list[str | None] = [names["client-id"], None] if "client-id" in names else []
    found: list[EntityNames] = []
    # Kafka's order (KIP-55): for the user, then the default user, each with the client id, with the
    # default client id, and alone; then the client id without a user.
    for user in users:
        found += [frozenset({("user", user), ("client-id", client)}) for client in clients]
        found.append(frozenset({("user", user)}))
    return found + [frozenset({("client-id", client)}) for client in clients]
