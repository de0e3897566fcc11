"""SaslHandshake and SaslAuthenticate, during and after the authentication of a connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from kafka_async.protocol.messages.sasl_handshake import SaslHandshakeResponse
from kafka_async.secrets import SecretBytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_async.embedded.requests.context import RequestContext
    from kafka_async.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
    from kafka_async.protocol.messages.sasl_handshake import SaslHandshakeRequest


async def sasl_handshake(
    context: RequestContext, request: SaslHandshakeRequest
) -> SaslHandshakeResponse:
    """Select a mechanism; after the authentication, or without SASL, return an error."""
    authenticator = context.authenticator
    if authenticator is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    code = authenticator.handshake(request.mechanism, context.version)
    return SaslHandshakeResponse(error_code=code, mechanisms=authenticator.mechanisms)


async def sasl_authenticate(
    now_ms: Callable[[], int], context: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    """Pass a message to the mechanism; see `sasl_handshake` for errors."""
    authenticator = context.authenticator
    if authenticator is None:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received after successful authentication",
        )
    message = SecretBytes(bytes(request.auth_bytes))
    result = authenticator.authenticate(message, context.received, now_ms())
    return SaslAuthenticateResponse(
        error_code=result.error_code,
        error_message=result.error_message,
        auth_bytes=result.message,
        session_lifetime_ms=result.session_lifetime_ms,
    )
