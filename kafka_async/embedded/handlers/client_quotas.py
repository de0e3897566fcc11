"""DescribeClientQuotas and AlterClientQuotas (KIP-546)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.quotas.client_quotas import (
    CLIENT_ID,
    IP,
    USER,
    InvalidQuotaError,
    validate,
)
from kafka_async.embedded.state.acls import CLUSTER_NAME, Operation, ResourceType
from kafka_async.protocol.messages.alter_client_quotas import (
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData,
    AlterClientQuotasResponseEntryData,
)
from kafka_async.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafka_async.embedded.quotas.client_quotas import ClientQuotas, Entity
    from kafka_async.embedded.requests.authorization import Authorization
    from kafka_async.embedded.requests.context import RequestContext
    from kafka_async.protocol.messages.alter_client_quotas import (
        AlterClientQuotasRequest,
        AlterClientQuotasRequestEntryData,
    )
    from kafka_async.protocol.messages.describe_client_quotas import (
        ComponentData,
        DescribeClientQuotasRequest,
    )

EXACT: Final = 0
DEFAULT: Final = 1
ANY: Final = 2

_CLUSTER: Final = (ResourceType.CLUSTER, CLUSTER_NAME)


async def describe(
    quotas: ClientQuotas,
    authorization: Authorization,
    context: RequestContext,
    request: DescribeClientQuotasRequest,
) -> DescribeClientQuotasResponse:
    """Return the quotas of the entities that match the filter."""
    if code := authorization.code(context, Operation.DESCRIBE_CONFIGS, *_CLUSTER):
        return DescribeClientQuotasResponse(error_code=code, error_message=None, entries=None)
    try:
        components = _components(request.components)
    except _UnsupportedTypeError as error:
        return DescribeClientQuotasResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=str(error), entries=None
        )
    except InvalidQuotaError as error:
        return DescribeClientQuotasResponse(
            error_code=ErrorCode.INVALID_REQUEST, error_message=str(error), entries=None
        )
    return DescribeClientQuotasResponse(
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                values=[ValueData(key=key, value=value) for key, value in values.items()],
            )
            for entity, values in quotas.entries().items()
            if _matches(components, entity, strict=request.strict)
        ],
    )


class _UnsupportedTypeError(InvalidQuotaError):
    """A filter contains an unknown entity type."""


def _components(components: Sequence[ComponentData]) -> dict[str, ComponentData]:
    """Return the components of a filter by type, checked as Kafka does."""
    found: dict[str, ComponentData] = {}
    for each in components:
        kind = each.entity_type
        if not kind:
            raise InvalidQuotaError("Invalid empty entity type.")
        if kind in found:
            raise InvalidQuotaError(
                f"Entity type {kind} cannot appear more than once in the filter."
            )
        if kind not in (USER, CLIENT_ID, IP):
            raise _UnsupportedTypeError(f"Unsupported entity type {kind}")
        if each.match_type == EXACT:
            if each.match is None:
                raise InvalidQuotaError(
                    "Request specified MATCH_TYPE_EXACT, but set match string to null."
                )
        elif each.match_type not in _MATCH_NAMES:
            raise InvalidQuotaError(f"Unknown match type {each.match_type}")
        elif each.match is not None:
            name = _MATCH_NAMES[each.match_type]
            raise InvalidQuotaError(f"Request specified {name}, but also specified a match string.")
        found[kind] = each
    if IP in found and len(found) > 1:
        raise InvalidQuotaError(
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component."
        )
    return found


_MATCH_NAMES: Final = {DEFAULT: "MATCH_TYPE_DEFAULT", ANY: "MATCH_TYPE_SPECIFIED"}


def _matches(components: Mapping[str, ComponentData], entity: Entity, *, strict: bool) -> bool:
    names = dict(entity)
    if strict and len(names) != len(components):
        return False
    for kind, component in components.items():
        if kind not in names:
            return False
        name = names[kind]
        if component.match_type == EXACT and name != component.match:
            return False
        if component.match_type == DEFAULT and name is not None:
            return False
    return True


async def alter(
    quotas: ClientQuotas,
    authorization: Authorization,
    context: RequestContext,
    request: AlterClientQuotasRequest,
) -> AlterClientQuotasResponse:
    """Set and remove quotas; an invalid entry is skipped, the others apply."""
    if code := authorization.code(context, Operation.ALTER_CONFIGS, *_CLUSTER):
        entities = [
            frozenset((each.entity_type, each.entity_name) for each in entry.entity)
            for entry in request.entries
        ]
        return AlterClientQuotasResponse(
            entries=[_result(entity, _DENIED, code) for entity in entities]
        )
    results: dict[Entity, str | None] = {}
    for entry in request.entries:
        named = {each.entity_type: each.entity_name for each in entry.entity}
        entity = frozenset(named.items())
        results[entity] = _alter(
            quotas, entity, named, entry, seen=entity in results, dry_run=request.validate_only
        )
    return AlterClientQuotasResponse(
        entries=[_result(entity, message) for entity, message in results.items()]
    )


def _alter(
    quotas: ClientQuotas,
    entity: Entity,
    named: Mapping[str, str | None],
    entry: AlterClientQuotasRequestEntryData,
    *,
    seen: bool,
    dry_run: bool,
) -> str | None:
    """Apply one entry; return the error message, or None."""
    if seen:
        return f"Ignoring duplicate entity {_shown(named)}"
    changes: dict[str, float | None] = {}
    for operation in entry.ops:
        changes[operation.key] = None if operation.remove else operation.value
    try:
        validate(named, changes)
    except InvalidQuotaError as error:
        return str(error)
    if not dry_run:
        quotas.alter(entity, changes)
    return None


def _shown(entity: Mapping[str, str | None]) -> str:
    entries = ", ".join(f"{kind}={name}" for kind, name in entity.items()).replace("None", "null")
    return f"ClientQuotaEntity(entries={{{entries}}})"


_DENIED: Final = "Cluster authorization failed."


def _result(
    entity: Entity, message: str | None, code: ErrorCode = ErrorCode.INVALID_REQUEST
) -> AlterClientQuotasResponseEntryData:
    return AlterClientQuotasResponseEntryData(
        error_code=ErrorCode.NONE if message is None else code,
        error_message=message,
        entity=[
            AlterClientQuotasResponseEntityData(entity_type=kind, entity_name=name)
            for kind, name in entity
        ],
    )
