"""Delegation tokens (KIP-48, KIP-373): their table, and the rules of their lifetimes. Pure."""

from __future__ import annotations

import base64
import hmac
import secrets
import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.security.credentials import scram_credentials_of
from kafka_async.secrets import Secret, SecretBytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafka_async.embedded.security.credentials import ScramCredential, ScramMechanism
    from kafka_async.embedded.settings import Settings

MAX_TIMESTAMP: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationToken:
    """Holds a delegation token; times are milliseconds since the epoch.

    `owner`, `requester` and `renewers` are principals.
    """

    id: str
    hmac: SecretBytes
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    max_ms: int
    expiry_ms: int
    credentials: Mapping[ScramMechanism, ScramCredential] = field(repr=False)

    def is_expired(self, now_ms: int) -> bool:
        """Return True if the token or its maximum lifetime has ended."""
        return self.max_ms < now_ms or self.expiry_ms < now_ms

    def may_be_renewed_by(self, principal: str) -> bool:
        """Return True if a principal may renew or expire the token."""
        return principal == self.owner or principal in self.renewers

    def concerns(self, principal: str) -> bool:
        """Return True if a principal is owner, requester or renewer."""
        return principal == self.requester or self.may_be_renewed_by(principal)


class DelegationTokens:
    """Holds the tokens of a cluster. Callers pass the time in milliseconds since the epoch."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._key = SecretBytes(secrets.token_bytes())
        self._by_id: dict[str, DelegationToken] = {}
        self._ids_by_hmac: dict[SecretBytes, str] = {}

    @property
    def enabled(self) -> bool:
        """True if the cluster issues tokens."""
        return self._settings.delegation_token_auth_enabled

    def by_id(self, token_id: str) -> DelegationToken | None:
        """Return a token, or None."""
        return self._by_id.get(token_id)

    def all(self) -> list[DelegationToken]:
        """Return all tokens in the order of creation."""
        return list(self._by_id.values())

    def create(
        self, owner: str, requester: str, renewers: Sequence[str], lifetime_ms: int, now_ms: int
    ) -> DelegationToken:
        """Create a token; a lifetime of 0 or less stands for the maximum."""
        max_lifetime = self._settings.delegation_token_max_lifetime_ms
        if lifetime_ms > 0:
            max_lifetime = min(max_lifetime, lifetime_ms)
        max_ms = _sum(now_ms, max_lifetime)
        expiry = min(max_ms, _sum(now_ms, self._settings.delegation_token_expiry_time_ms))
        token_id = _random_id()
        token_hmac = SecretBytes(hmac.digest(self._key.reveal(), token_id.encode(), "sha512"))
        password = Secret(base64.b64encode(token_hmac.reveal()).decode())
        token = DelegationToken(
            id=token_id,
            hmac=token_hmac,
            owner=owner,
            requester=requester,
            renewers=tuple(renewers),
            issued_ms=now_ms,
            max_ms=max_ms,
            expiry_ms=expiry,
            credentials=scram_credentials_of(password),
        )
        self._by_id[token_id] = token
        self._ids_by_hmac[token_hmac] = token_id
        return token

    def renew(
        self, token_hmac: SecretBytes, principal: str, period_ms: int, now_ms: int
    ) -> tuple[ErrorCode, int]:
        """Extend a token's life; return the error code and the new expiry time."""
        token = self._by_hmac(token_hmac)
        if token is None:
            return ErrorCode.DELEGATION_TOKEN_NOT_FOUND, 0
        if token.is_expired(now_ms):
            return ErrorCode.DELEGATION_TOKEN_EXPIRED, 0
        if not token.may_be_renewed_by(principal):
            return ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, 0
        period = self._settings.delegation_token_expiry_time_ms
        if period_ms > 0:
            period = min(period, period_ms)
        return self._set_expiry(token, _sum(now_ms, period))

    def expire(
        self, token_hmac: SecretBytes, principal: str, period_ms: int, now_ms: int
    ) -> tuple[ErrorCode, int]:
        """Set the expiry time, or remove the token at once if the period is negative."""
        token = self._by_hmac(token_hmac)
        if token is None:
            return ErrorCode.DELEGATION_TOKEN_NOT_FOUND, 0
        if not token.may_be_renewed_by(principal):
            return ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, 0
        if period_ms < 0:
            self._remove(token)
            return ErrorCode.NONE, now_ms
        if token.is_expired(now_ms):
            return ErrorCode.DELEGATION_TOKEN_EXPIRED, 0
        return self._set_expiry(token, _sum(now_ms, period_ms))

    def remove_expired(self, now_ms: int) -> None:
        """Remove the tokens that have expired."""
        for token in self.all():
            if token.is_expired(now_ms):
                self._remove(token)

    def _by_hmac(self, token_hmac: SecretBytes) -> DelegationToken | None:
        return self._by_id.get(self._ids_by_hmac.get(token_hmac, ""))

    def _set_expiry(self, token: DelegationToken, expiry_ms: int) -> tuple[ErrorCode, int]:
        expiry = min(token.max_ms, expiry_ms)
        self._by_id[token.id] = replace(token, expiry_ms=expiry)
        return ErrorCode.NONE, expiry

    def _remove(self, token: DelegationToken) -> None:
        del self._by_id[token.id]
        del self._ids_by_hmac[token.hmac]


def _sum(now_ms: int, duration_ms: int) -> int:
    return min(now_ms + duration_ms, MAX_TIMESTAMP)


def _random_id() -> str:
    """Return a UUID in Kafka's format."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
