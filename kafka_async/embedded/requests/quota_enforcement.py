"""Applies client quotas to requests: measures them, and builds throttled responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafka_async.embedded.quotas.client_quotas import FETCH, PRODUCE, REQUEST
from kafka_async.protocol.header import encode_response, response_header_version
from kafka_async.protocol.messages.fetch import FetchRequest, FetchResponse
from kafka_async.protocol.messages.produce import ProduceRequest

if TYPE_CHECKING:
    from kafka_async.embedded.quotas.quota_manager import QuotaManager
    from kafka_async.embedded.requests.context import RequestContext

_EXEMPT_APIS: Final = frozenset({17, 36})
"""SaslHandshake and SaslAuthenticate, which a broker handles before the client is authenticated."""
FIRST_EPOCHS: Final = frozenset({-1, 0})
"""Epochs of fetch requests that continue no session."""


class QuotaEnforcement:
    """Measures the requests of a cluster's clients and mutes those over their quota.

    Args:
        manager: The quotas and sensors.
        seed: Delay consumers before the read, as with the formula "seed", instead of after it.
        request_time: Seconds of a broker's thread per request.
    """

    def __init__(self, manager: QuotaManager, *, seed: bool, request_time: float) -> None:
        self._manager = manager
        self._seed = seed
        self._request_percent = request_time * 100

    def before(self, context: RequestContext, request: Any, now: float) -> tuple[Any, float]:
        """Prepare a request; return the response and throttle time if it must not be handled.

        The response is None if the handler must be called.
        """
        manager = self._manager
        if not manager.active or not isinstance(request, FetchRequest):
            return None, 0.0
        broker, client = context.broker.id, context.quota_client
        if (limit := manager.max_in_window(FETCH, client)) is not None:
            request.max_bytes = min(request.max_bytes, int(limit))
        if self._seed and not manager.check(broker, FETCH, client, now):
            throttle = manager.on_response(broker, FETCH, client, 0, now)
            return _throttled_fetch(context, request), throttle
        return None, 0.0

    def after(
        self, context: RequestContext, request: Any, response: Any, size: int, now: float
    ) -> tuple[Any, float]:
        """Record a request of `size` bytes that was handled.

        Returns:
            The response to send, and the seconds for which the connection is muted.
        """
        manager = self._manager
        if not manager.active:
            return response, 0.0
        broker, client = context.broker.id, context.quota_client
        throttle = 0.0 if response is None else response_throttle(response)
        if self._request_percent and context.api_key not in _EXEMPT_APIS:
            percent = self._request_percent
            throttle = max(throttle, manager.on_response(broker, REQUEST, client, percent, now))
        if isinstance(request, ProduceRequest):
            bandwidth = manager.on_response(broker, PRODUCE, client, size, now)
            throttle = max(throttle, bandwidth)
        elif isinstance(request, FetchRequest) and isinstance(response, FetchResponse):
            received = fetch_response_size(response, context.version)
            bandwidth = manager.on_response(broker, FETCH, client, received, now)
            if self._seed:  # delay the next fetch instead
                return response, throttle
            if bandwidth > throttle:
                manager.unrecord(broker, FETCH, client, received, now)
            throttle = max(throttle, bandwidth)
            if throttle:
                response = _throttled_fetch(context, request)
        return response, throttle


def response_throttle(response: Any) -> float:
    """Return the throttle time that a handler has set, in seconds."""
    return getattr(response, "throttle_time_ms", 0) / 1000


def fetch_response_size(response: FetchResponse, version: int) -> int:
    """Return the size that Kafka counts: the body of the response and four bytes."""
    header = 4 + response_header_version(response.API_KEY, version)
    return sum(len(part) for part in encode_response(response, version, 0)) - header


def _throttled_fetch(context: RequestContext, request: FetchRequest) -> FetchResponse:
    """Return a response without records, which does not change the fetch session."""
    session = 0 if request.session_epoch in FIRST_EPOCHS else request.session_id
    return FetchResponse(session_id=session if context.version >= 7 else 0)
