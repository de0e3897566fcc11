"""Decodes requests, applies fault rules, calls the API's handler and encodes the response."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.network import ResponseFrame
from kafka_async.embedded.requests.context import Disconnect, RequestContext
from kafka_async.embedded.requests.error_responses import ErrorResponseBuilder, error_response
from kafka_async.embedded.requests.quota_enforcement import QuotaEnforcement
from kafka_async.embedded.security.sasl_server_authenticator import Action
from kafka_async.errors import DecodeError, EncodeError, UnsupportedVersionError
from kafka_async.protocol.header import decode_request, decode_request_header, encode_response
from kafka_async.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from kafka_async.secrets import SecretBytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kafka_async.embedded.failures import FailureList
    from kafka_async.embedded.faults import FaultRule, FaultRules
    from kafka_async.embedded.handlers.routes import Handler, Parts, Route
    from kafka_async.embedded.requests.session import ClientSession
    from kafka_async.embedded.security.sasl_server_authenticator import SaslServerAuthenticator
    from kafka_async.embedded.state.topics import TopicTable
    from kafka_async.protocol.wire import BytesLike

API_VERSIONS = 18


def _api_key(frame: BytesLike) -> int | None:
    """Return the API key of a request, or None if its header is malformed."""
    try:
        return decode_request_header(frame)[0].api_key
    except (DecodeError, UnsupportedVersionError):
        return None


class KafkaApis:
    """Handles every request of every broker of a cluster."""

    def __init__(
        self, routes: Mapping[int, Route], parts: Parts, faults: FaultRules, failures: FailureList
    ) -> None:
        self._routes = routes
        self._handlers: dict[int, Handler] = {
            key: parts.authorization.guard(key, route.bind(parts)) for key, route in routes.items()
        }
        self._topics: TopicTable = parts.topics
        self._faults = faults
        self._failures = failures
        self._now_ms = parts.now_ms
        settings = parts.settings
        self._quotas = QuotaEnforcement(
            parts.quotas,
            seed=settings.quota_formula == "seed",
            request_time=settings.quota_request_time_ms / 1000,
        )
        self._failure_delay = parts.settings.connection_failed_authentication_delay_ms / 1000

    async def handle_request(self, session: ClientSession, frame: BytesLike) -> ResponseFrame:
        """Return the response; raise Disconnect to reset the connection."""
        try:
            return await self._handle_request(session, frame)
        except (DecodeError, UnsupportedVersionError) as error:
            raise Disconnect(str(error)) from error
        except Disconnect:
            raise
        except Exception as error:
            self._failures.record(f"a request at broker {session.broker.id}", error)
            raise Disconnect("the cluster failed") from error

    async def _handle_request(self, session: ClientSession, frame: BytesLike) -> ResponseFrame:
        authenticator, now = session.authenticator, asyncio.get_running_loop().time()
        if authenticator is not None and authenticator.expects_bare_message:
            return self._authenticate_bare(authenticator, frame, now)
        action = Action.SERVE
        if authenticator is not None:
            action = authenticator.admit(_api_key(frame), now)
        if action is Action.CLOSE:
            raise Disconnect("the client is not authenticated")
        if action is Action.FAIL:
            return self._last_response(None)
        header, body_offset = decode_request_header(frame)
        route = self._routes.get(header.api_key)
        if route is None or not route.lowest <= header.api_version <= route.highest:
            return ResponseFrame(
                self._unsupported_version(header.api_key, header.api_version, header.correlation_id)
            )
        header, request = decode_request(frame)
        context = RequestContext(
            broker=session.broker,
            api_key=header.api_key,
            version=header.api_version,
            client_id=header.client_id,
            client_host=session.client_host,
            received=now,
            principal=session.principal,
            listener=session.listener,
            security_protocol=session.security_protocol,
            by_token=session.by_token,
            authenticator=authenticator if action is Action.AUTHENTICATE else None,
            session=session,
        )
        if action is Action.FAIL_WITH_RESPONSE:
            response = error_response(context, ErrorCode.ILLEGAL_SASL_STATE, request)
            return self._last_response(self._encode(context, response, header.correlation_id))
        fault = self._faults.match(context, request)
        response, throttle = self._quotas.before(context, request, now)
        if response is None:
            if fault is None:
                response = await self._call_handler(context, request)
            else:
                response = await self._apply_fault(fault, context, request)
                throttle = fault.effect.throttle
            size = len(frame) - body_offset
            handled_at = asyncio.get_running_loop().time()
            response, delay = self._quotas.after(context, request, response, size, handled_at)
            throttle = max(throttle, delay)
        if response is None:
            return self._throttled(context, None, throttle)
        if throttle and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = round(throttle * 1000)
        parts = self._encode(context, response, header.correlation_id)
        if authenticator is not None and authenticator.failed:
            return self._last_response(parts)
        return self._throttled(context, parts, throttle)

    def _throttled(
        self, context: RequestContext, parts: Sequence[BytesLike] | None, throttle: float
    ) -> ResponseFrame:
        """Return the frame of a response after which the connection is muted."""
        return ResponseFrame(parts, throttle, client_id=context.client_id, api_key=context.api_key)

    def _encode(
        self, context: RequestContext, response: Any, correlation_id: int
    ) -> Sequence[BytesLike] | None:
        if response is None:
            return None
        try:
            return encode_response(response, context.version, correlation_id)
        except (EncodeError, UnsupportedVersionError) as error:
            self._failures.record(f"the response to {context.describe()}", error)
            raise Disconnect("the response cannot be encoded") from error

    def _last_response(self, parts: Sequence[BytesLike] | None) -> ResponseFrame:
        """Return the delayed last response of a connection whose authentication failed."""
        return ResponseFrame(parts, closes=True, delay_seconds=self._failure_delay)

    def _authenticate_bare(
        self, authenticator: SaslServerAuthenticator, frame: BytesLike, now: float
    ) -> ResponseFrame:
        """Return the response, without a header, to a message after SaslHandshake v0."""
        result = authenticator.authenticate(SecretBytes(bytes(frame)), now, self._now_ms())
        if authenticator.failed:
            return self._last_response(None)
        return ResponseFrame([len(result.message).to_bytes(4), result.message])

    def _unsupported_version(
        self, key: int, version: int, correlation_id: int
    ) -> Sequence[BytesLike]:
        """Return the response to ApiVersions of an unsupported version, in version 0 (KIP-511).

        For other APIs raise Disconnect.
        """
        route = self._routes.get(API_VERSIONS)
        if key != API_VERSIONS or route is None:
            raise Disconnect(f"API {key} version {version} is not supported")
        response = ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            api_keys=[ApiVersion(api_key=key, min_version=route.lowest, max_version=route.highest)],
        )
        return encode_response(response, 0, correlation_id)

    async def _call_handler(self, context: RequestContext, request: Any) -> Any:
        """Return the handler's response; UNKNOWN_SERVER_ERROR if the handler raises."""
        try:
            return await self._handlers[context.api_key](context, request)
        except Disconnect:
            raise
        except Exception as error:
            self._failures.record(context.describe(), error)
            response = error_response(context, ErrorCode.UNKNOWN_SERVER_ERROR, request)
            if response is None:
                message = f"{context.describe()} has no field for an error code"
                raise Disconnect(message) from error
            return response

    async def _apply_fault(self, fault: FaultRule, context: RequestContext, request: Any) -> Any:
        effect = fault.effect
        if not effect.applied:
            await fault.apply_delay()
        if effect.disconnect == "before":
            raise Disconnect("a fault rule")
        if effect.error is None:
            response = await self._call_handler(context, request)
        else:
            errors = ErrorResponseBuilder(context, effect.error, self._topics, fault.target.selects)
            if effect.applied:
                response = errors.overwrite(await self._call_handler(context, request))
            else:
                response = await self._respond_with_error(errors, context, request)
        if effect.change is not None and response is not None:
            effect.change(response)
        if effect.applied:
            await fault.apply_delay()
        if effect.disconnect == "after":
            raise Disconnect("a fault rule")
        return response

    async def _respond_with_error(
        self, errors: ErrorResponseBuilder, context: RequestContext, request: Any
    ) -> Any:
        """Return the error response for the part that the rule selects, and handle the rest."""
        response, rest = errors.split(request)
        if response is None:
            message = f"a fault rule: {context.describe()} has no field for an error code"
            raise Disconnect(message)
        if rest is None:
            return response
        return errors.merge(await self._call_handler(context, rest), response)
