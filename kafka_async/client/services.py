"""The parts of a started client, which producers, consumers, members and admin calls use.

The parts have no reference to the `Client`, so that a client that was started and never stopped is
garbage collected and warns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from kafka_async.client.connection.brokers import Brokers
from kafka_async.client.connection.connection_context import ConnectionContext
from kafka_async.client.metadata.coordinator_lookup import CoordinatorLookup
from kafka_async.client.metadata.metadata_updater import MetadataUpdater
from kafka_async.client.metadata.request_router import RequestRouter
from kafka_async.config import seconds
from kafka_async.errors import KafkaConnectionError, KafkaTimeoutError, RebootstrapRequiredError
from kafka_async.foundation.listeners import Listeners

if TYPE_CHECKING:
    from kafka_async.client.metadata.request_router import Destination
    from kafka_async.client.security.authentication import Authenticator
    from kafka_async.config import ClientConfig
    from kafka_async.errors import KafkaError
    from kafka_async.foundation.clock import Clock, Dialer
    from kafka_async.foundation.supervisor import Supervisor
    from kafka_async.hooks import Hooks
    from kafka_async.protocol.message import Request, Response

ResponseT = TypeVar("ResponseT", bound="Response")


class ClientServices(ConnectionContext):
    """The parts of a started client, and the context that they share.

    Attributes:
        metadata: Keeps the metadata snapshot up to date.
        brokers: The connections to each broker.
        coordinators: Finds the coordinators of groups and transactions.
        credentials_listeners: Called after the credentials were replaced, when `is_outdated(error)`
            is true for rejections of the former ones.
    """

    def __init__(
        self,
        config: ClientConfig,
        hooks: Hooks,
        clock: Clock,
        dialer: Dialer,
        supervisor: Supervisor,
        authenticator: Authenticator | None = None,
    ) -> None:
        super().__init__(config, hooks, dialer, supervisor, clock, authenticator)
        # A lambda, since brokers and metadata need each other. Metadata is requested by several
        # events.
        self.metadata = MetadataUpdater(self)
        self.brokers = Brokers(
            self,
            lambda: self.metadata.snapshot.brokers,
            on_disconnected=self.metadata.request_update,
            on_overdue=self.metadata.request_update,
            on_wrong_broker=self.metadata.request_rebootstrap,
        )
        self.coordinators = CoordinatorLookup(self, self.brokers, self.metadata)
        self._router = RequestRouter(self, self.brokers, self.metadata, self.coordinators)
        # Coordinators of before a rebootstrap may be brokers of another cluster.
        self.metadata.on_rebootstrap = self.coordinators.forget_all
        self.metadata.cluster_listeners.add(self.brokers.on_cluster_changed)
        self.credentials_listeners = Listeners[()]()

    @property
    def responsive(self) -> bool:
        """True while the client runs, unless failures have left it without a responding broker.

        An idle client is responsive; see `Client.health`, whose 5 s limit is not applied here.
        """
        return self.lifetime.ended is None and not self.brokers.degraded

    async def request(
        self,
        request: Request[ResponseT],
        *,
        to: Destination,
        timeout: float | None = None,
        retry: bool = True,
        max_version: int | None = None,
    ) -> ResponseT:
        """Send a request and return its response; see `Client.request`."""
        self.supervisor.check()
        config, loop, router = self.config, self.supervisor.loop, self._router
        if timeout is None:
            timeout = seconds(config.default_api_timeout_ms)
        deadline = loop.time() + timeout
        backoff = self.retry_backoff()
        # Ends with a response, with an error that retries do not cure, or when the next attempt
        # would come after the deadline. `retry=False` makes one attempt.
        while True:
            try:
                connection = await router.connection(to, request.API_KEY, deadline)
                limit = min(deadline - loop.time(), seconds(config.request_timeout_ms))
                version: int | None = None
                # Without a limit `send` negotiates the version itself.
                if max_version is not None:
                    await connection.connect(limit)
                    version = connection.version(request.API_KEY, max_version)
                response = await connection.send(request, timeout=limit, version=version)
                self._check_for_rebootstrap(response, to)
            except (KafkaConnectionError, KafkaTimeoutError) as error:
                delay = backoff.next()
                if not retry or loop.time() + delay >= deadline:
                    raise
                # A client that died in the meantime must not wait for the next attempt.
                self.supervisor.check()
                # After a timeout the destination may be right and only slow.
                if isinstance(error, KafkaConnectionError):
                    router.forget(to)
            else:
                if not retry or not router.must_reroute(to, response):
                    return response
                # An error in the response is returned, not raised, even at the deadline.
                delay = backoff.next()
                if loop.time() + delay >= deadline:
                    return response
            await self.lifetime.sleep(delay)

    def _check_for_rebootstrap(self, response: Response, to: Destination) -> None:
        """Raise KafkaConnectionError, and bootstrap again, if a broker requires it (KIP-1102)."""
        if getattr(response, "error_code", 0) != RebootstrapRequiredError.code:
            return
        cause = RebootstrapRequiredError()
        self.metadata.request_rebootstrap(str(cause))
        raise KafkaConnectionError(f"{to} requires the client to bootstrap again") from cause

    def on_credentials_replaced(self) -> None:
        """Forget the rejections of the former credentials, and call the listeners."""
        self.brokers.on_credentials_replaced()
        self.metadata.on_credentials_replaced()
        self.credentials_listeners.notify()

    def end(self, error: KafkaError) -> None:
        """Fail all waits and requests with `error`."""
        self.lifetime.end(error)
        self.brokers.end(error)
