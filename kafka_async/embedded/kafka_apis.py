"""From a frame to the handler of its API and back; where faults are put in and bugs come out."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from kafka_async.embedded.codes import Code
from kafka_async.embedded.context import RequestContext
from kafka_async.embedded.network import Answer, Disconnect
from kafka_async.embedded.refusal import Refusal
from kafka_async.errors import DecodeError, EncodeError, UnsupportedVersionError
from kafka_async.protocol.header import decode_request, decode_request_header, encode_response
from kafka_async.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafka_async.embedded.broker import Broker
    from kafka_async.embedded.cluster import EmbeddedCluster
    from kafka_async.embedded.context import Route
    from kafka_async.embedded.faults import Fault
    from kafka_async.protocol.wire import BytesLike

logger = logging.getLogger("kafka_async.embedded")

API_VERSIONS = 18


class Dispatcher:
    """Answers every request of every broker of a cluster."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster

    async def answer(self, broker: Broker, frame: BytesLike, client_host: str) -> Answer:
        """Return the response; raises Disconnect."""
        try:
            return await self._answer(broker, frame, client_host)
        except (DecodeError, UnsupportedVersionError) as error:
            raise Disconnect(str(error)) from error
        except Disconnect:
            raise
        except Exception as error:
            self._cluster.record_failure(f"a request at broker {broker.id}", error)
            raise Disconnect("the cluster failed") from error

    async def _answer(self, broker: Broker, frame: BytesLike, client_host: str) -> Answer:
        header, _ = decode_request_header(frame)
        route = self._cluster.routes.get(header.api_key)
        if route is None or not route.lowest <= header.api_version <= route.highest:
            return Answer(
                self._unsupported(header.api_key, header.api_version, header.correlation_id)
            )
        header, request = decode_request(frame)
        context = RequestContext(
            cluster=self._cluster,
            broker=broker,
            api_key=header.api_key,
            version=header.api_version,
            client_id=header.client_id,
            client_host=client_host,
            received=self._cluster.loop.time(),
        )
        fault = self._cluster.faults.take(context, request)
        if fault is None:
            response = await self._handle(route, context, request)
        else:
            response = await self._handle_with(fault, route, context, request)
        throttle = 0.0 if fault is None else fault.effect.throttle
        if response is None:
            return Answer(None, throttle)
        if throttle:
            response.throttle_time_ms = round(throttle * 1000)
        try:
            parts = encode_response(response, header.api_version, header.correlation_id)
            return Answer(parts, throttle)
        except (EncodeError, UnsupportedVersionError) as error:
            self._cluster.record_failure(f"the answer to {context.describe()}", error)
            raise Disconnect("the answer cannot be written") from error

    def _unsupported(self, key: int, version: int, correlation_id: int) -> Sequence[BytesLike]:
        """Only ApiVersions of an unknown version is answered, with version 0 (KIP-511)."""
        route = self._cluster.routes.get(API_VERSIONS)
        if key != API_VERSIONS or route is None:
            raise Disconnect(f"API {key} version {version} is not supported")
        response = ApiVersionsResponse(
            error_code=Code.UNSUPPORTED_VERSION,
            api_keys=[ApiVersion(api_key=key, min_version=route.lowest, max_version=route.highest)],
        )
        return encode_response(response, 0, correlation_id)

    async def _handle(self, route: Route, context: RequestContext, request: Any) -> Any:
        """The handler's response; UNKNOWN_SERVER_ERROR, and a noted failure, if it raises."""
        try:
            return await route.handle(context, request)
        except Disconnect:
            raise
        except Exception as error:
            self._cluster.record_failure(context.describe(), error)
            refused = Refusal(context, Code.UNKNOWN_SERVER_ERROR).whole(request)
            if refused is None:
                raise Disconnect(f"{context.describe()} has no room for an error") from error
            return refused

    async def _handle_with(
        self, fault: Fault, route: Route, context: RequestContext, request: Any
    ) -> Any:
        effect = fault.effect
        if not effect.applied:
            await fault.hold()
        if effect.disconnect == "before":
            raise Disconnect("a fault")
        if effect.error is None:
            response = await self._handle(route, context, request)
        else:
            refusal = Refusal(context, effect.error, fault.target.concerns)
            if effect.applied:
                response = refusal.overwrite(await self._handle(route, context, request))
            else:
                response = await self._refuse(refusal, route, context, request)
        if effect.applied:
            await fault.hold()
        if effect.disconnect == "after":
            raise Disconnect("a fault")
        return response

    async def _refuse(
        self, refusal: Refusal, route: Route, context: RequestContext, request: Any
    ) -> Any:
        refused, rest = refusal.split(request)
        if refused is None:
            raise Disconnect(f"a fault: {context.describe()} has no room for an error")
        if rest is None:
            return refused
        return refusal.merge(await self._handle(route, context, rest), refused)
