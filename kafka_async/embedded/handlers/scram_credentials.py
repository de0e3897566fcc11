"""DescribeUserScramCredentials and AlterUserScramCredentials (KIP-554)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.security.credentials import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    ScramCredential,
    ScramMechanism,
)
from kafka_async.embedded.state.acls import CLUSTER_NAME, Operation, ResourceType
from kafka_async.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
)
from kafka_async.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

if TYPE_CHECKING:
    from kafka_async.embedded.requests.authorization import Authorization
    from kafka_async.embedded.requests.context import RequestContext
    from kafka_async.embedded.security.credentials import Credentials
    from kafka_async.protocol.messages.alter_user_scram_credentials import (
        AlterUserScramCredentialsRequest,
        ScramCredentialUpsertion,
    )
    from kafka_async.protocol.messages.describe_user_scram_credentials import (
        DescribeUserScramCredentialsRequest,
    )


async def describe(
    credentials: Credentials,
    authorization: Authorization,
    context: RequestContext,
    request: DescribeUserScramCredentialsRequest,
) -> DescribeUserScramCredentialsResponse:
    """Return the mechanisms and iterations of some users, or all."""
    names = Counter(user.name for user in request.users or ())
    cluster = (ResourceType.CLUSTER, CLUSTER_NAME)
    if code := authorization.code(context, Operation.DESCRIBE, *cluster):
        return DescribeUserScramCredentialsResponse(
            error_code=code,
            # As in Kafka, the results do not include the users.
            results=[DescribeUserScramCredentialsResult(error_code=code) for _ in names],
        )
    if not names:
        names = Counter(credentials.scram_users())
    return DescribeUserScramCredentialsResponse(
        results=[_describe(credentials, name, count) for name, count in names.items()]
    )


def _describe(
    credentials: Credentials, name: str, count: int
) -> DescribeUserScramCredentialsResult:
    found = credentials.scram_of(name)
    if count > 1:
        code, message = ErrorCode.DUPLICATE_RESOURCE, "the request names the user twice"
    elif not found:
        code, message = ErrorCode.RESOURCE_NOT_FOUND, "the user has no SCRAM credential"
    else:
        return DescribeUserScramCredentialsResult(
            user=name,
            credential_infos=[
                CredentialInfo(mechanism=mechanism.value, iterations=credential.iterations)
                for mechanism, credential in found.items()
            ],
        )
    return DescribeUserScramCredentialsResult(
        user=name, error_code=code, error_message=f"{message}: {name}"
    )


class _Failure(NamedTuple):
    code: ErrorCode
    message: str


_TWICE = _Failure(
    ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
)


_NO_NAME = _Failure(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
_NO_MECHANISM = _Failure(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
_TOO_FEW = _Failure(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
_TOO_MANY = _Failure(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
_NOT_FOUND = _Failure(
    ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
)


async def alter(
    credentials: Credentials, context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Delete, create and replace credentials; an invalid alteration changes no credential."""
    failures: dict[str, _Failure] = {}
    deletions: dict[str, ScramMechanism] = {}
    upsertions: dict[str, tuple[ScramMechanism, ScramCredential]] = {}
    for change in (*request.deletions, *request.upsertions):
        name = change.name
        if name in failures:
            continue
        if name in deletions or name in upsertions:
            deletions.pop(name, None)
            upsertions.pop(name, None)
            failures[name] = _TWICE
            continue
        mechanism = _mechanism(change.mechanism)
        if not name:
            failures[name] = _NO_NAME
        elif mechanism is None:
            failures[name] = _NO_MECHANISM
        elif isinstance(change, ScramCredentialDeletion):
            if credentials.scram(name, mechanism) is None:
                failures[name] = _NOT_FOUND
            else:
                deletions[name] = mechanism
        elif change.iterations < MIN_ITERATIONS:
            failures[name] = _TOO_FEW
        elif change.iterations > MAX_ITERATIONS:
            failures[name] = _TOO_MANY
        else:
            upsertions[name] = mechanism, _credential(mechanism, change)
    credentials.alter_scram(
        deletions.items(),
        {(name, mechanism): credential for name, (mechanism, credential) in upsertions.items()},
    )
    return AlterUserScramCredentialsResponse(
        results=[_result(name, failures.get(name)) for name in (*deletions, *upsertions, *failures)]
    )


def _mechanism(number: int) -> ScramMechanism | None:
    try:
        return ScramMechanism(number)
    except ValueError:
        return None


def _credential(mechanism: ScramMechanism, upsertion: ScramCredentialUpsertion) -> ScramCredential:
    return ScramCredential.of_salted_password(
        mechanism,
        bytes(upsertion.salt),
        upsertion.iterations,
        bytes(upsertion.salted_password),
    )


def _result(name: str, failure: _Failure | None) -> AlterUserScramCredentialsResult:
    if failure is None:
        return AlterUserScramCredentialsResult(user=name, error_message=None)
    return AlterUserScramCredentialsResult(
        user=name, error_code=failure.code, error_message=failure.message
    )
