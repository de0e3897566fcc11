"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken, DescribeDelegationToken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.security.principals import ANONYMOUS, USER, split_principal
from kafka_async.embedded.state.acls import Operation, ResourceType
from kafka_async.protocol.messages.create_delegation_token import CreateDelegationTokenResponse
from kafka_async.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenResponse,
)
from kafka_async.protocol.messages.expire_delegation_token import ExpireDelegationTokenResponse
from kafka_async.protocol.messages.renew_delegation_token import RenewDelegationTokenResponse
from kafka_async.secrets import SecretBytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_async.embedded.requests.authorization import Authorization
    from kafka_async.embedded.requests.context import RequestContext
    from kafka_async.embedded.security.delegation_tokens import DelegationToken, DelegationTokens
    from kafka_async.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
    from kafka_async.protocol.messages.describe_delegation_token import (
        DescribeDelegationTokenRequest,
    )
    from kafka_async.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
    from kafka_async.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest

REQUESTER_MIN_VERSION: Final = 3
NO_TIMESTAMP: Final = -1


async def create(
    tokens: DelegationTokens,
    authorization: Authorization,
    now_ms: Callable[[], int],
    context: RequestContext,
    request: CreateDelegationTokenRequest,
) -> CreateDelegationTokenResponse:
    """Create a token of the client, or of another owner."""
    owner = context.principal
    if request.owner_principal_name:
        owner = f"{request.owner_principal_type or ''}:{request.owner_principal_name}"
    response = CreateDelegationTokenResponse()
    response.principal_type, response.principal_name = split_principal(owner)
    if context.version >= REQUESTER_MIN_VERSION:
        (
            response.token_requester_principal_type,
            response.token_requester_principal_name,
        ) = split_principal(context.principal)
    code = _check(context)
    if not code and not (
        owner == context.principal
        or authorization.allows(context, Operation.CREATE_TOKENS, ResourceType.USER, owner)
    ):
        code = ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    if not code and any(renewer.principal_type != USER for renewer in request.renewers):
        code = ErrorCode.INVALID_PRINCIPAL_TYPE
    if code:  # Kafka's brokers check these errors, its controller the others.
        response.issue_timestamp_ms = NO_TIMESTAMP
        response.expiry_timestamp_ms = response.max_timestamp_ms = NO_TIMESTAMP
    elif not tokens.enabled:
        code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    if code:
        response.error_code = code
        return response
    renewers = [f"{one.principal_type}:{one.principal_name}" for one in request.renewers]
    token = tokens.create(owner, context.principal, renewers, request.max_lifetime_ms, now_ms())
    response.token_id = token.id
    response.hmac = token.hmac.reveal()
    response.issue_timestamp_ms = token.issued_ms
    response.expiry_timestamp_ms = token.expiry_ms
    response.max_timestamp_ms = token.max_ms
    return response


async def renew(
    tokens: DelegationTokens,
    now_ms: Callable[[], int],
    context: RequestContext,
    request: RenewDelegationTokenRequest,
) -> RenewDelegationTokenResponse:
    """Extend the life of a token."""
    code, expiry = _check(context), NO_TIMESTAMP
    if not code and not tokens.enabled:
        code, expiry = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, 0
    if not code:
        token_hmac = SecretBytes(bytes(request.hmac))
        code, expiry = tokens.renew(
            token_hmac, context.principal, request.renew_period_ms, now_ms()
        )
    return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expiry)


async def expire(
    tokens: DelegationTokens,
    now_ms: Callable[[], int],
    context: RequestContext,
    request: ExpireDelegationTokenRequest,
) -> ExpireDelegationTokenResponse:
    """Set a token's expiry time."""
    code, expiry = _check(context), NO_TIMESTAMP
    if not code and not tokens.enabled:
        code, expiry = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, 0
    if not code:
        token_hmac, period = SecretBytes(bytes(request.hmac)), request.expiry_time_period_ms
        code, expiry = tokens.expire(token_hmac, context.principal, period, now_ms())
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expiry)


async def describe(
    tokens: DelegationTokens,
    authorization: Authorization,
    context: RequestContext,
    request: DescribeDelegationTokenRequest,
) -> DescribeDelegationTokenResponse:
    """Return the tokens of some owners, or all tokens; an empty list of owners selects no token."""
    code = _check(context)
    if not code and not tokens.enabled:
        code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    if code:
        return DescribeDelegationTokenResponse(error_code=code)
    owners = None
    if request.owners is not None:
        owners = [f"{one.principal_type}:{one.principal_name}" for one in request.owners]
    found = [
        _described(context, token)
        for token in tokens.all()
        if (owners is None or any(token.concerns(owner) for owner in owners))
        and _may_describe(authorization, context, token)
    ]
    return DescribeDelegationTokenResponse(tokens=found)


def _check(context: RequestContext) -> ErrorCode:
    """Return the error for a connection that may not manage tokens, or NONE."""
    without_certificate = context.security_protocol == "SSL" and context.principal == ANONYMOUS
    if context.by_token or context.security_protocol == "PLAINTEXT" or without_certificate:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return ErrorCode.NONE


def _may_describe(
    authorization: Authorization, context: RequestContext, token: DelegationToken
) -> bool:
    """Return True for a token of the client, or with an ACL for the token or its owner."""
    return (
        token.concerns(context.principal)
        or authorization.allows(
            context, Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.id
        )
        or authorization.allows(context, Operation.DESCRIBE_TOKENS, ResourceType.USER, token.owner)
    )


def _described(context: RequestContext, token: DelegationToken) -> DescribedDelegationToken:
    kind, name = split_principal(token.owner)
    described = DescribedDelegationToken(
        principal_type=kind,
        principal_name=name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expiry_ms,
        max_timestamp=token.max_ms,
        token_id=token.id,
        hmac=token.hmac.reveal(),
        renewers=[_renewer(renewer) for renewer in token.renewers],
    )
    if context.version >= REQUESTER_MIN_VERSION:
        kind, name = split_principal(token.requester)
        described.token_requester_principal_type = kind
        described.token_requester_principal_name = name
    return described


def _renewer(principal: str) -> DescribedDelegationTokenRenewer:
    kind, name = split_principal(principal)
    return DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
