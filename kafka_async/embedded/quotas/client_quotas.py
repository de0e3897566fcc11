"""The quotas of users, client ids and addresses: validation, changes, filters, precedence. Pure.

An entity maps "user", "client-id" or "ip" to a name; None is the default for all names without a
quota (KIP-546).
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
PRODUCE: Final = "producer_byte_rate"
FETCH: Final = "consumer_byte_rate"
REQUEST: Final = "request_percentage"
CONTROLLER_MUTATION: Final = "controller_mutation_rate"
CONNECTION: Final = "connection_creation_rate"

Entity: TypeAlias = frozenset[tuple[str, str | None]]
"""(type, name) pairs."""

CLIENT_KEYS: Final = (CONTROLLER_MUTATION, REQUEST, PRODUCE, FETCH)
_MAXIMUMS: Final = {PRODUCE: 2.0**63, FETCH: 2.0**63, CONNECTION: 2.0**31 - 1}
"""Maximum values of the quotas that are whole numbers."""


class InvalidQuotaError(Exception):
    """A request about quotas is not valid; the message is the response's."""


class ClientQuotas:
    """The quotas of all entities. Changes apply at once.

    Attributes:
        version: Number of changes.
    """

    def __init__(self) -> None:
        self.version = 0
        self._values: dict[Entity, dict[str, float]] = {}

    def entries(self) -> Mapping[Entity, Mapping[str, float]]:
        """Return quotas by entity, without entities that have no quota."""
        return MappingProxyType(self._values)

    def alter(self, entity: Entity, changes: Mapping[str, float | None]) -> None:
        """Set quotas of an entity; a value of None removes a quota."""
        self.version += 1
        values = self._values.setdefault(entity, {})
        for key, value in changes.items():
            if value is None:
                values.pop(key, None)
            else:
                values[key] = value
        if not values:
            del self._values[entity]

    def find(self, key: str, user: str, client_id: str) -> tuple[Entity, float] | None:
        """Return the entity whose quota of this kind applies to a client, and its value.

        Return None if the client has no such quota.
        """
        for entity in candidates(user, client_id):
            value = self._values.get(entity, {}).get(key)
            if value is not None:
                return entity, value
        return None

    def connection_rate(self, host: str) -> float | None:
        """Return the connections per second that an address may open, or None."""
        for name in (host, None):
            value = self._values.get(frozenset({(IP, name)}), {}).get(CONNECTION)
            if value is not None:
                return value
        return None


def candidates(user: str, client_id: str) -> list[Entity]:
    """Return the entities whose quotas may apply to a client, in order of precedence."""
    pairs: list[tuple[tuple[str, str | None], ...]] = [
        ((USER, user), (CLIENT_ID, client_id)),
        ((USER, user), (CLIENT_ID, None)),
        ((USER, user),),
        ((USER, None), (CLIENT_ID, client_id)),
        ((USER, None), (CLIENT_ID, None)),
        ((USER, None),),
        ((CLIENT_ID, client_id),),
        ((CLIENT_ID, None),),
    ]
    return [frozenset(each) for each in pairs]


def validate(entity: Mapping[str, str | None], changes: Mapping[str, float | None]) -> None:
    """Check an alteration as Kafka's controller does; raise InvalidQuotaError."""
    _validate_entity(entity)
    keys = (CONNECTION,) if IP in entity else CLIENT_KEYS
    for key, value in changes.items():
        if value is None:
            continue
        if key not in keys:
            raise InvalidQuotaError(f"Invalid configuration key {key}")
        if not math.isfinite(value):
            raise InvalidQuotaError(f"Quota {key} must be a finite number")
        if value <= 0:
            raise InvalidQuotaError(f"Quota {key} must be greater than 0")
        maximum = _MAXIMUMS.get(key)
        if maximum is None:
            continue
        if value > maximum:
            kind = "an INT" if key == CONNECTION else "a LONG"
            raise InvalidQuotaError(f"Proposed value for {key} is too large for {kind}.")
        if abs(value - float(int(value))) > 1e-6:
            raise InvalidQuotaError(f"{key} cannot be a fractional value.")


def _validate_entity(entity: Mapping[str, str | None]) -> None:
    if not entity:
        raise InvalidQuotaError("Invalid empty client quota entity")
    for kind, name in entity.items():
        if kind not in (USER, CLIENT_ID, IP):
            raise InvalidQuotaError(f"Unhandled client quota entity type: {kind}")
        if name is not None and not name:
            raise InvalidQuotaError(f"Empty {kind} not supported")
    if IP in entity:
        if len(entity) > 1:
            raise InvalidQuotaError(
                "Invalid quota entity combination, IP entity shouldnot be combined with User or "
                "ClientId"
            )
        if entity[IP] is not None and not _is_address(entity[IP] or ""):
            raise InvalidQuotaError(f"{entity[IP]} is not a valid IP or resolvable host.")


def _is_address(text: str) -> bool:
    if text == "localhost":
        return True
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
