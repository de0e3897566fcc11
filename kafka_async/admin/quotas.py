"""Client quotas: describe, alter and resolve them, and switch them off and on (KIP-546)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from kafka_async.admin.call import Results, item_error
from kafka_async.admin.quota_values import (
    UNLIMITED,
    UNLIMITED_CONNECTIONS,
    QuotaEntity,
    QuotaName,
    ResolvedQuota,
)
from kafka_async.client import client_quotas
from kafka_async.client.metadata.request_router import AnyBroker
from kafka_async.foundation.arguments import instance_of, mapping, text
from kafka_async.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from kafka_async.protocol.messages.describe_client_quotas import ComponentData

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafka_async.admin.call import Call
    from kafka_async.client.client_quotas import EntityNames
    from kafka_async.errors import KafkaError

ANONYMOUS: Final = "ANONYMOUS"
"""User name of clients without authentication."""
_WHOLE: Final = {
    "producer_byte_rate": 2.0**63,
    "consumer_byte_rate": 2.0**63,
    "connection_creation_rate": 2.0**31 - 1,
}
"""Maximum values of the quotas that are whole numbers."""
_TYPES: Final = (("user", "user"), ("client-id", "client_id"), ("ip", "ip"))


async def describe(
    call: Call, entity: QuotaEntity | None, *, strict: bool
) -> dict[QuotaEntity, dict[str, float]]:
    """Return quotas by entity; see `Admin.describe_client_quotas`."""
    chosen = QuotaEntity() if entity is None else instance_of(entity, QuotaEntity, "entity")
    names = {} if chosen == QuotaEntity() else _names(chosen, filtering=True)
    components = [
        ComponentData(entity_type=kind, match_type=_match_type(name), match=_exact(name))
        for kind, name in names.items()
    ]
    found = await client_quotas.describe(
        call.services, components, strict=strict, timeout=call.left
    )
    return {_entity(each): values for each, values in found.items()}


async def alter(
    call: Call,
    entries: Mapping[QuotaEntity, Mapping[str, float | None]],
    *,
    validate_only: bool,
) -> None:
    """Set and remove quotas; see `Admin.alter_client_quotas`."""
    checked: dict[QuotaEntity, dict[str, float | None]] = {}
    for key, changes in mapping(entries, "entries").items():
        entity = instance_of(key, QuotaEntity, "each key of entries")
        checked[entity] = _checked_changes(entity, changes)

    async def attempt(pending: list[QuotaEntity]) -> Results[QuotaEntity, None]:
        request = AlterClientQuotasRequest(
            entries=[_alteration(each, checked[each]) for each in pending],
            validate_only=validate_only,
        )
        response = await call.services.request(request, to=AnyBroker(), timeout=call.left)
        results: dict[QuotaEntity, KafkaError | None] = {}
        for row in response.entries:
            entity = _entity(frozenset((e.entity_type, e.entity_name) for e in row.entity))
            results[entity] = item_error(
                "quotas of", str(entity), row.error_code, row.error_message, needs="ALTER_CONFIGS"
            )
        return results

    await call.run(checked, attempt)


async def resolve(call: Call, entity: QuotaEntity) -> dict[str, ResolvedQuota]:
    """Return the quotas that apply to a client; see `Admin.resolve_client_quotas`."""
    names = _names(instance_of(entity, QuotaEntity, "entity"))
    exact = {kind: name for kind, name in names.items() if isinstance(name, str)}
    if exact != names:
        raise ValueError(f"resolve_client_quotas needs the names of one client, not {entity}")
    if "ip" not in exact:
        exact.setdefault("user", ANONYMOUS)
    found = await client_quotas.describe_candidates(call.services, exact, timeout=call.left)
    return {
        key: ResolvedQuota(value, _entity(source))
        for key, (value, source) in sorted(client_quotas.resolve(found, exact).items())
    }


async def own_quotas(call: Call, entity: QuotaEntity) -> dict[str, float]:
    """Return the quotas of exactly this entity."""
    _names(instance_of(entity, QuotaEntity, "entity"))
    return (await describe(call, entity, strict=True)).get(entity, {})


def unlimited(entity: QuotaEntity) -> dict[str, float]:
    """Return quotas for an entity that no client reaches."""
    return UNLIMITED if entity.ip is None else UNLIMITED_CONNECTIONS


# -- entities and values --------------------------------------------------------------------------


def _names(entity: QuotaEntity, *, filtering: bool = False) -> dict[str, str | QuotaName]:
    """Return an entity's names by Kafka's entity types; raise unless Kafka allows the entity."""
    names: dict[str, str | QuotaName] = {}
    for kind, field in _TYPES:
        value: object = getattr(entity, field)
        if value is None:
            continue
        if isinstance(value, QuotaName):
            if value is QuotaName.ANY and not filtering:
                raise ValueError(f"QuotaName.ANY is for describe_client_quotas only: {entity}")
            names[kind] = value
            continue
        names[kind] = text(value, f"the {field} of a QuotaEntity")
    if not names:
        raise ValueError("a QuotaEntity needs a user, a client_id or an ip")
    if "ip" in names and len(names) > 1:
        raise ValueError(f"a QuotaEntity with an ip has no user and no client_id: {entity}")
    return names


def _checked_changes(entity: QuotaEntity, changes: object) -> dict[str, float | None]:
    _names(entity)
    allowed = unlimited(entity)
    checked: dict[str, float | None] = {}
    for key, value in mapping(changes, "each value of entries").items():
        if not isinstance(key, str) or key not in allowed:
            raise ValueError(
                f"there is no quota {key!r:.60} of {entity}, only {', '.join(allowed)}"
            )
        if value is None:
            checked[key] = None
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{key} must be a number or None, not {value!r:.60}")
        if not math.isfinite(value) or value <= 0:
            raise ValueError(f"{key} must be greater than 0, not {value}: None removes a quota")
        if key in _WHOLE and (value != int(value) or value > _WHOLE[key]):
            raise ValueError(f"{key} must be a whole number up to {_WHOLE[key]:.0f}, not {value}")
        checked[key] = float(value)
    return checked


def _alteration(
    entity: QuotaEntity, changes: Mapping[str, float | None]
) -> AlterClientQuotasRequestEntryData:
    return AlterClientQuotasRequestEntryData(
        entity=[
            AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=_exact(name))
            for kind, name in _names(entity).items()
        ],
        ops=[
            OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in changes.items()
        ],
    )


def _match_type(name: str | QuotaName) -> int:
    if isinstance(name, str):
        return client_quotas.EXACT
    return client_quotas.DEFAULT if name is QuotaName.DEFAULT else client_quotas.ANY


def _exact(name: str | QuotaName) -> str | None:
    return name if isinstance(name, str) else None


def _entity(names: EntityNames) -> QuotaEntity:
    values = {kind: QuotaName.DEFAULT if name is None else name for kind, name in names}
    return QuotaEntity(values.get("user"), values.get("client-id"), values.get("ip"))
