"""ACLs, SCRAM credentials of users, and delegation tokens."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, TypeVar

from kafka_async.admin.call import Results, item_error
from kafka_async.admin.security_values import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    DelegationToken,
    ScramCredential,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka_async.client.metadata.request_router import AnyBroker, Controller
from kafka_async.errors import (
    IncompleteResponseError,
    KafkaError,
    ResourceNotFoundError,
    UnsupportedByAuthenticationError,
    error_for,
    raise_for,
)
from kafka_async.foundation.arguments import instance_of, iterable, text, texts, whole_number
from kafka_async.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kafka_async.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from kafka_async.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from kafka_async.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
)
from kafka_async.protocol.messages.describe_acls import DescribeAclsRequest
from kafka_async.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from kafka_async.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from kafka_async.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from kafka_async.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from kafka_async.secrets import Secret, SecretBytes

if TYPE_CHECKING:
    from kafka_async.admin.call import Call
    from kafka_async.admin.security_values import ScramAlteration
    from kafka_async.protocol.message import Request, Response

ResponseT = TypeVar("ResponseT", bound="Response")

MECHANISM_CODES: Final = {ScramMechanism.SCRAM_SHA_256: 1, ScramMechanism.SCRAM_SHA_512: 2}
_MECHANISMS: Final = {code: mechanism for mechanism, code in MECHANISM_CODES.items()}
_HASHES: Final = {ScramMechanism.SCRAM_SHA_256: "sha256", ScramMechanism.SCRAM_SHA_512: "sha512"}
MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 1_000_000
"""Maximum iterations: bounds the time in a thread. Kafka's brokers accept up to 16,384."""
_SALT_SIZE: Final = 24
"""Bytes of a random salt."""
_SERVER_DEFAULT: Final = -1
"""Value for the period or lifetime of the broker's configuration."""


# -- ACLs -----------------------------------------------------------------------------------------


async def create_acls(call: Call, bindings: Iterable[AclBinding]) -> None:
    """Create ACLs; see `Admin.create_acls`."""

    async def attempt(pending: list[AclBinding]) -> Results[AclBinding, None]:
        request = CreateAclsRequest(creations=[_creation(binding) for binding in pending])
        response = await _ask_any(call, request)
        rows = list(response.results)
        _check_count("CreateAcls", len(rows), len(pending))
        return {
            binding: item_error(
                "ACL", str(binding), row.error_code, row.error_message, needs="ALTER"
            )
            for binding, row in zip(pending, rows, strict=True)
        }

    await call.run(map(_checked_binding, iterable(bindings, "bindings")), attempt)


async def describe_acls(call: Call, acl_filter: AclFilter | None) -> list[AclBinding]:
    """Return the ACLs that a filter selects; see `Admin.describe_acls`."""

    async def attempt(pending: list[AclFilter]) -> Results[AclFilter, list[AclBinding]]:
        results: dict[AclFilter, list[AclBinding] | KafkaError] = {}
        for one in pending:
            request = DescribeAclsRequest(
                resource_type_filter=one.resource_type,
                resource_name_filter=one.resource_name,
                pattern_type_filter=one.pattern_type,
                principal_filter=one.principal,
                host_filter=one.host,
                operation=one.operation,
                permission_type=one.permission,
            )
            response = await _ask_any(call, request)
            if response.error_code:
                results[one] = error_for(
                    response.error_code, response.error_message, needs="DESCRIBE"
                )
                continue
            results[one] = [
                AclBinding(
                    AclResourceType(resource.resource_type),
                    resource.resource_name,
                    acl.principal,
                    AclOperation(acl.operation),
                    AclPermission(acl.permission_type),
                    acl.host,
                    AclPatternType(resource.pattern_type),
                )
                for resource in response.resources
                for acl in resource.acls
            ]
        return results

    checked = AclFilter() if acl_filter is None else _checked_filter(acl_filter, "acl_filter")
    return (await call.run([checked], attempt))[checked]


async def delete_acls(
    call: Call, filters: Iterable[AclFilter]
) -> dict[AclFilter, list[AclBinding]]:
    """Delete the ACLs that filters select; see `Admin.delete_acls`."""

    async def attempt(pending: list[AclFilter]) -> Results[AclFilter, list[AclBinding]]:
        request = DeleteAclsRequest(
            filters=[
                DeleteAclsFilter(
                    resource_type_filter=one.resource_type,
                    resource_name_filter=one.resource_name,
                    pattern_type_filter=one.pattern_type,
                    principal_filter=one.principal,
                    host_filter=one.host,
                    operation=one.operation,
                    permission_type=one.permission,
                )
                for one in pending
            ]
        )
        response = await _ask_any(call, request)
        rows = list(response.filter_results)
        _check_count("DeleteAcls", len(rows), len(pending))
        return {one: _deleted(row) for one, row in zip(pending, rows, strict=True)}

    checked = [_checked_filter(one, "each of filters") for one in iterable(filters, "filters")]
    return await call.run(checked, attempt)


def _creation(binding: AclBinding) -> AclCreation:
    return AclCreation(
        resource_type=binding.resource_type,
        resource_name=binding.resource_name,
        resource_pattern_type=binding.pattern_type,
        principal=binding.principal,
        host=binding.host,
        operation=binding.operation,
        permission_type=binding.permission,
    )


def _deleted(result: DeleteAclsFilterResult) -> list[AclBinding] | KafkaError:
    if result.error_code:
        return error_for(result.error_code, result.error_message, needs="ALTER")
    found: list[AclBinding] = []
    for row in result.matching_acls:
        binding = AclBinding(
            AclResourceType(row.resource_type),
            row.resource_name,
            row.principal,
            AclOperation(row.operation),
            AclPermission(row.permission_type),
            row.host,
            AclPatternType(row.pattern_type),
        )
        if error := item_error(
            "ACL", str(binding), row.error_code, row.error_message, needs="ALTER"
        ):
            return error
        found.append(binding)
    return found


def _checked_binding(value: object) -> AclBinding:
    """Return the binding; raise unless it has one resource pattern, operation and permission."""
    binding = instance_of(value, AclBinding, "each of bindings")
    definite = (
        (binding.resource_type, AclResourceType, _INDEFINITE_TYPES, "resource_type"),
        (binding.operation, AclOperation, _INDEFINITE_OPERATIONS, "operation"),
        (binding.permission, AclPermission, _INDEFINITE_PERMISSIONS, "permission"),
        (binding.pattern_type, AclPatternType, _INDEFINITE_PATTERNS, "pattern_type"),
    )
    for given, kind, indefinite, name in definite:
        if instance_of(given, kind, f"the {name} of an AclBinding") in indefinite:
            raise ValueError(f"an AclBinding cannot have the {name} {given.name}")
    text(binding.resource_name, "the resource_name of an AclBinding")
    text(binding.host, "the host of an AclBinding")
    _principal(binding.principal, "the principal of an AclBinding")
    return binding


_INDEFINITE_TYPES: Final = {AclResourceType.UNKNOWN, AclResourceType.ANY}
_INDEFINITE_OPERATIONS: Final = {AclOperation.UNKNOWN, AclOperation.ANY}
_INDEFINITE_PERMISSIONS: Final = {AclPermission.UNKNOWN, AclPermission.ANY}
_INDEFINITE_PATTERNS: Final = {AclPatternType.UNKNOWN, AclPatternType.ANY, AclPatternType.MATCH}


def _checked_filter(value: object, name: str) -> AclFilter:
    """Return the filter; raise for a wrong type or the value UNKNOWN."""
    acl_filter = instance_of(value, AclFilter, name)
    for given, kind, field in (
        (acl_filter.resource_type, AclResourceType, "resource_type"),
        (acl_filter.operation, AclOperation, "operation"),
        (acl_filter.permission, AclPermission, "permission"),
        (acl_filter.pattern_type, AclPatternType, "pattern_type"),
    ):
        if instance_of(given, kind, f"the {field} of an AclFilter").value == 0:
            raise ValueError(f"an AclFilter cannot have the {field} UNKNOWN")
    for given, field in (
        (acl_filter.resource_name, "resource_name"),
        (acl_filter.principal, "principal"),
        (acl_filter.host, "host"),
    ):
        if given is not None:
            text(given, f"the {field} of an AclFilter")
    return acl_filter


# -- SCRAM credentials ----------------------------------------------------------------------------


async def describe_user_scram_credentials(
    call: Call, users: Iterable[str] | None
) -> dict[str, tuple[ScramCredential, ...]]:
    """Return the credentials of users; see `Admin.describe_user_scram_credentials`."""
    found: dict[str, tuple[ScramCredential, ...]] = {}

    async def attempt(names: list[str]) -> Results[str, None]:
        # An empty list selects all users, as null does. To null, Kafka 4.4 sends no response if the
        # principal lacks the permission: building the error raises a NullPointerException.
        request = DescribeUserScramCredentialsRequest(
            users=[] if users is None else [UserName(name=name) for name in names]
        )
        response = await _ask_any(call, request)
        if response.error_code:
            error = error_for(response.error_code, response.error_message, needs="DESCRIBE")
            return dict.fromkeys(names, error)
        results: dict[str, KafkaError | None] = {} if users is not None else dict.fromkeys(names)
        for row in response.results:
            if users is not None and row.user not in names:
                continue
            results[row.user] = None
            error = item_error("user", row.user, row.error_code, row.error_message)
            if error is None:
                found[row.user] = tuple(
                    ScramCredential(
                        _MECHANISMS.get(info.mechanism, ScramMechanism.UNKNOWN), info.iterations
                    )
                    for info in row.credential_infos
                )
            elif users is not None or not isinstance(error, ResourceNotFoundError):
                results[row.user] = error
        return results

    # Without user names, a single item stands for the whole request.
    await call.run([""] if users is None else texts(users, "users"), attempt)
    return found


async def alter_user_scram_credentials(call: Call, alterations: Iterable[ScramAlteration]) -> None:
    """Set and delete credentials; see `Admin.alter_user_scram_credentials`."""
    by_user: dict[str, list[ScramAlteration]] = {}
    for alteration in map(_checked_alteration, iterable(alterations, "alterations")):
        by_user.setdefault(alteration.user, []).append(alteration)
    salts = {
        id(one): one.salt or SecretBytes(os.urandom(_SALT_SIZE))
        for rows in by_user.values()
        for one in rows
        if isinstance(one, UserScramCredentialUpsertion)
    }
    salted: dict[int, SecretBytes] = {}
    for rows in by_user.values():
        for one in rows:
            if isinstance(one, UserScramCredentialUpsertion):
                salted[id(one)] = await call.services.supervisor.offload(
                    salted_password, one.mechanism, one.password, salts[id(one)], one.iterations
                )

    async def attempt(users: list[str]) -> Results[str, None]:
        rows = [one for user in users for one in by_user[user]]
        request = AlterUserScramCredentialsRequest(
            deletions=[
                ScramCredentialDeletion(name=one.user, mechanism=MECHANISM_CODES[one.mechanism])
                for one in rows
                if isinstance(one, UserScramCredentialDeletion)
            ],
            upsertions=[
                ScramCredentialUpsertion(
                    name=one.user,
                    mechanism=MECHANISM_CODES[one.mechanism],
                    iterations=one.iterations,
                    salt=salts[id(one)].reveal(),
                    salted_password=salted[id(one)].reveal(),
                )
                for one in rows
                if isinstance(one, UserScramCredentialUpsertion)
            ],
        )
        response = await call.services.request(request, to=Controller(), timeout=call.left)
        return {
            row.user: item_error("user", row.user, row.error_code, row.error_message, needs="ALTER")
            for row in response.results
        }

    await call.run(by_user, attempt)


def salted_password(
    mechanism: ScramMechanism, password: Secret, salt: SecretBytes, iterations: int
) -> SecretBytes:
    """Return the salted password of a SCRAM mechanism (RFC 5802, `Hi`); takes milliseconds."""
    return SecretBytes(
        hashlib.pbkdf2_hmac(
            _HASHES[mechanism], password.reveal().encode(), salt.reveal(), iterations
        )
    )


def _checked_alteration(value: object) -> ScramAlteration:
    if not isinstance(value, UserScramCredentialUpsertion | UserScramCredentialDeletion):
        raise TypeError(
            "each of alterations must be UserScramCredentialUpsertion or "
            f"UserScramCredentialDeletion, not {type(value).__name__}"
        )
    text(value.user, f"the user of a {type(value).__name__}")
    if value.mechanism not in MECHANISM_CODES:
        raise ValueError(f"the mechanism of user {value.user} must be SCRAM-SHA-256 or -512")
    if isinstance(value, UserScramCredentialUpsertion):
        name = f"iterations of user {value.user}"
        whole_number(value.iterations, name, low=MIN_ITERATIONS, high=MAX_ITERATIONS)
        if not value.password:
            raise ValueError(f"the password of user {value.user} must not be empty")
        if not _is_utf8(value.password):
            raise ValueError(f"the password of user {value.user} has characters that UTF-8 lacks")
    return value


def _is_utf8(password: Secret) -> bool:
    """Return whether UTF-8 can encode a password; a UnicodeEncodeError would contain it."""
    return not any("\ud800" <= character <= "\udfff" for character in password.reveal())


# -- delegation tokens ----------------------------------------------------------------------------


async def create_delegation_tokens(
    call: Call,
    owners: Iterable[str] | None,
    *,
    renewers: Iterable[str],
    max_lifetime_ms: int | None,
) -> list[DelegationToken]:
    """Create delegation tokens; see `Admin.create_delegation_tokens`."""
    renewed_by = [_principal(one, "each of renewers") for one in texts(renewers, "renewers")]
    lifetime = _period(max_lifetime_ms, "max_lifetime_ms")
    wanted: dict[str, tuple[str, str] | tuple[None, None]] = {"": (None, None)}
    if owners is not None:
        wanted = {name: _principal(name, "each of owners") for name in texts(owners, "owners")}

    async def attempt(names: list[str]) -> Results[str, DelegationToken]:
        results: dict[str, DelegationToken | KafkaError] = {}
        for name in names:
            kind, user = wanted[name]
            request = CreateDelegationTokenRequest(
                owner_principal_type=kind,
                owner_principal_name=user,
                renewers=[
                    CreatableRenewers(principal_type=kind, principal_name=user)
                    for kind, user in renewed_by
                ],
                max_lifetime_ms=lifetime,
            )
            response = await _ask_any(call, request)
            error = _token_error(response.error_code, f"of {name or 'this client'}")
            results[name] = error or _created_token(response, tuple(_joined(renewed_by)))
        return results

    return list((await call.run(wanted, attempt)).values())


async def renew_delegation_tokens(
    call: Call, tokens: Iterable[DelegationToken | SecretBytes], *, renew_period_ms: int | None
) -> list[int]:
    """Renew tokens; see `Admin.renew_delegation_tokens`."""
    period = _period(renew_period_ms, "renew_period_ms")

    async def attempt(hmacs: list[SecretBytes]) -> Results[SecretBytes, int]:
        results: dict[SecretBytes, int | KafkaError] = {}
        for hmac in hmacs:
            request = RenewDelegationTokenRequest(hmac=hmac.reveal(), renew_period_ms=period)
            response = await _ask_any(call, request)
            error = _token_error(response.error_code, wanted[hmac])
            results[hmac] = error or response.expiry_timestamp_ms
        return results

    wanted = _hmacs(tokens)
    return list((await call.run(wanted, attempt)).values())


async def expire_delegation_tokens(
    call: Call, tokens: Iterable[DelegationToken | SecretBytes], *, expiry_period_ms: int | None
) -> list[int]:
    """Change when tokens expire; see `Admin.expire_delegation_tokens`."""
    period = _period(expiry_period_ms, "expiry_period_ms")

    async def attempt(hmacs: list[SecretBytes]) -> Results[SecretBytes, int]:
        results: dict[SecretBytes, int | KafkaError] = {}
        for hmac in hmacs:
            request = ExpireDelegationTokenRequest(hmac=hmac.reveal(), expiry_time_period_ms=period)
            response = await _ask_any(call, request)
            error = _token_error(response.error_code, wanted[hmac])
            results[hmac] = error or response.expiry_timestamp_ms
        return results

    wanted = _hmacs(tokens)
    return list((await call.run(wanted, attempt)).values())


async def describe_delegation_tokens(
    call: Call, owners: Iterable[str] | None
) -> list[DelegationToken]:
    """Return delegation tokens; see `Admin.describe_delegation_tokens`."""
    wanted: list[DescribeDelegationTokenOwner] | None = None
    if owners is not None:
        wanted = [
            DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
            for kind, name in (_principal(one, "each of owners") for one in texts(owners, "owners"))
        ]
        if not wanted:
            return []
    response = await _ask_any(call, DescribeDelegationTokenRequest(owners=wanted))
    raise_for(response.error_code)
    return [_described_token(row) for row in response.tokens]


def _created_token(
    row: CreateDelegationTokenResponse, renewers: tuple[str, ...]
) -> DelegationToken:
    owner = f"{row.principal_type}:{row.principal_name}"
    requester = f"{row.token_requester_principal_type}:{row.token_requester_principal_name}"
    return DelegationToken(
        row.token_id,
        SecretBytes(row.hmac),
        owner,
        owner if requester == ":" else requester,
        renewers,
        row.issue_timestamp_ms,
        row.expiry_timestamp_ms,
        row.max_timestamp_ms,
    )


def _described_token(row: DescribedDelegationToken) -> DelegationToken:
    owner = f"{row.principal_type}:{row.principal_name}"
    requester = f"{row.token_requester_principal_type}:{row.token_requester_principal_name}"
    return DelegationToken(
        row.token_id,
        SecretBytes(row.hmac),
        owner,
        owner if requester == ":" else requester,
        tuple(_joined((each.principal_type, each.principal_name) for each in row.renewers)),
        row.issue_timestamp,
        row.expiry_timestamp,
        row.max_timestamp,
    )


def _joined(principals: Iterable[tuple[str, str]]) -> Iterable[str]:
    return (f"{kind}:{name}" for kind, name in principals)


def _hmacs(tokens: Iterable[DelegationToken | SecretBytes]) -> dict[SecretBytes, str]:
    """Return each token's name in error messages, by HMAC."""
    found: dict[SecretBytes, str] = {}
    for number, one in enumerate(iterable(tokens, "tokens")):
        if isinstance(one, DelegationToken):
            found[one.hmac] = one.token_id
        elif isinstance(one, SecretBytes):
            found[one] = f"number {number}"
        else:
            raise TypeError(
                f"each of tokens must be DelegationToken or SecretBytes, not {type(one).__name__}"
            )
    return found


def _token_error(code: int, name: str) -> KafkaError | None:
    """Return the error of a response, or None."""
    message = None
    if code == UnsupportedByAuthenticationError.code:
        message = (
            "this connection may not ask for delegation tokens: authenticate with SASL or a client "
            "certificate, and not with a delegation token"
        )
    return item_error("delegation token", name, code, message, needs="CREATE_TOKENS")


def _period(value: int | None, name: str) -> int:
    """Return milliseconds for a request; None is the broker's default."""
    return _SERVER_DEFAULT if value is None else whole_number(value, name, low=0)


# -- helpers --------------------------------------------------------------------------------------


async def _ask_any(call: Call, request: Request[ResponseT]) -> ResponseT:
    return await call.services.request(request, to=AnyBroker(), timeout=call.left)


def _principal(value: object, name: str) -> tuple[str, str]:
    """Return type and name of a principal such as "User:alice"; raise if it is malformed."""
    kind, _, user = text(value, name).partition(":")
    if not kind or not user:
        raise ValueError(f'{name} must be a principal such as "User:alice", not {value!r:.60}')
    return kind, user


def _check_count(api: str, got: int, expected: int) -> None:
    """Raise unless a response has a result for each item of its request."""
    if got != expected:
        raise IncompleteResponseError(
            f"the broker's {api} response has {got} of {expected} results: they may have been "
            "applied"
        )
