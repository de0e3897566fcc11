"""Client quotas: arguments and results of the admin client.

Separate from the module that sends requests, so that importing them loads no messages.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, NamedTuple


class QuotaName(enum.Enum):
    """Wildcards for the user, client id or address of a quota's entity."""

    DEFAULT = "default"
    """All names without a specific quota."""
    ANY = "any"
    """Every name, in filters of `Admin.describe_client_quotas` only."""

    def __repr__(self) -> str:
        return f"QuotaName.{self.name}"


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """The clients that a quota limits: a user, a client id, both together, or an address (KIP-546).

    Attributes:
        user: Name of the user, without "User:"; clients without authentication are "ANONYMOUS".
            Default: the entity has no user.
        client_id: The client id. Default: the entity has none.
        ip: Address of clients, for connection_creation_rate; not with the others. Default: none.
    """

    user: str | QuotaName | None = None
    client_id: str | QuotaName | None = None
    ip: str | QuotaName | None = None

    def __str__(self) -> str:
        named = (("user", self.user), ("client id", self.client_id), ("ip", self.ip))
        parts = [
            f"{kind} {name}" if isinstance(name, str) else f"{name.value} {kind}"
            for kind, name in named
            if name is not None
        ]
        return ", ".join(parts) or "no entity"


class ResolvedQuota(NamedTuple):
    """A quota that applies to a client.

    Attributes:
        value: Bytes per second, percent, partitions or connections per second.
        entity: The entity that has the quota.
    """

    value: float
    entity: QuotaEntity


UNLIMITED: Final[dict[str, float]] = {
    "producer_byte_rate": 2.0**53,
    "consumer_byte_rate": 2.0**53,
    "request_percentage": 1e9,
    "controller_mutation_rate": 1e9,
}
"""Quotas that no client reaches; `Admin.set_quota_enforcement` sets them to switch quotas off."""
UNLIMITED_CONNECTIONS: Final[dict[str, float]] = {"connection_creation_rate": 2.0**31 - 1}
"""The same for addresses."""
