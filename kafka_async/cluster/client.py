"""The low-level client: bootstrap, metadata, routing, retries, requests.

    async with Client("localhost:9092") as client:
        response = await client.request(MetadataRequest(topics=None), to=AnyBroker())

`Client` connects its parts and holds none of their state. The parts have no reference to the
client, so that a client that was started and never stopped is garbage collected and warns.
"""

from __future__ import annotations

import asyncio
import sys
import warnings
from typing import TYPE_CHECKING, Final, TypeVar

from typing_extensions import Unpack

from kafka_async.arguments import check_timeout, function, instance_of, topic_names
from kafka_async.backoff import Backoff
from kafka_async.clock import LoopClock
from kafka_async.cluster.brokers import Brokers
from kafka_async.cluster.connection_context import ConnectionContext
from kafka_async.cluster.coordinator_lookup import CoordinatorLookup
from kafka_async.cluster.framing import ReceiveBudget
from kafka_async.cluster.kernel_notice import log_kernel
from kafka_async.cluster.lifetime import Lifetime
from kafka_async.cluster.metadata import ClusterMetadata, LeaderHint
from kafka_async.cluster.metadata_updater import MetadataUpdater, bootstrap_error
from kafka_async.cluster.request_destinations import DESTINATIONS
from kafka_async.cluster.request_router import RequestRouter
from kafka_async.cluster.transport import SocketDialer
from kafka_async.config import ClientConfig, seconds
from kafka_async.errors import (
    ClientClosedError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
)
from kafka_async.foreign_names import check_construction
from kafka_async.hooks import Hooks
from kafka_async.protocol.message import Request
from kafka_async.supervisor import Supervisor, wait_shielded
from kafka_async.types import Health

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any, Self
    from uuid import UUID

    from kafka_async.clock import Clock, Dialer
    from kafka_async.cluster.broker_connection import BrokerConnection, ConnectionKind
    from kafka_async.cluster.request_destinations import CoordinatorKind, Destination
    from kafka_async.config import ClientOptions
    from kafka_async.protocol.message import Response
    from kafka_async.types import Node, TopicPartition

ResponseT = TypeVar("ResponseT", bound="Response")

SLOW_APIS: Final = frozenset({19, 20, 21, 37, 42, 43, 45, 57})
"""APIs whose responses wait for the cluster: CreateTopics, DeleteTopics, DeleteRecords,
CreatePartitions, DeleteGroups, ElectLeaders, AlterPartitionReassignments, UpdateFeatures."""


class Client:
    """A client of one cluster, which producers, consumers and admin clients can share.

    A client belongs to the event loop and the process in which it is started.

    Args:
        bootstrap_servers: Addresses of brokers, as "host:port,host:port" or a sequence.
        hooks: Receives the client's events.
        clock: Replaces the system's clocks, for tests.
        dialer: Replaces TCP connections, for tests.
        **options: Options of `ClientConfig`.
    """

    if not TYPE_CHECKING:

        def __new__(cls, *args: Any, **options: Any) -> Self:
            """Reject arguments in the form of other Kafka clients."""
            check_construction(cls, args, options)
            return super().__new__(cls)

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        hooks: Hooks | None = None,
        clock: Clock | None = None,
        dialer: Dialer | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        config = ClientConfig.create(bootstrap_servers, **options)
        self._init(config, hooks, clock, dialer)

    @classmethod
    def from_config(
        cls,
        config: ClientConfig,
        *,
        hooks: Hooks | None = None,
        clock: Clock | None = None,
        dialer: Dialer | None = None,
    ) -> Self:
        """Return a client with the options of `config`, which may be a producer's or consumer's.

        Args:
            config: The options.
            hooks: Receives the client's events.
            clock: Replaces the system's clocks, for tests.
            dialer: Replaces TCP connections, for tests.
        """
        client = cls.__new__(cls)
        client._init(config, hooks, clock, dialer)  # noqa: SLF001
        return client

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> Self:
        """Return a client with options under Java's names.

        Args:
            properties: Values by name, such as {"bootstrap.servers": "localhost:9092"}.

        Raises:
            InvalidConfigurationError: An option is unknown or its value is not allowed.
        """
        return cls.from_config(ClientConfig.from_properties(properties))

    def _init(
        self,
        config: ClientConfig,
        hooks: Hooks | None,
        clock: Clock | None,
        dialer: Dialer | None,
    ) -> None:
        self.config = config
        self.hooks = hooks or Hooks()
        self.supervisor = Supervisor(f"Client {config.client_id}", self.hooks)
        self._clock = clock
        self._dialer = dialer
        self._parts: _Parts | None = None
        self._started = False
        self._stopped = False
        self._closing: asyncio.Task[None] | None = None

    # -- start and stop ---------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect and fetch the first metadata.

        Raises:
            BootstrapError: No bootstrap server could be used within default_api_timeout_ms, or
                all have refused connections for bootstrap_refused_timeout_ms. If the failure of
                every server is permanent, it is raised at once. The message names the cause for
                each, and what to do.
        """
        log_kernel()
        await self.supervisor.start()
        dialer = self._dialer or SocketDialer(self.supervisor)
        clock = self._clock or LoopClock(self.supervisor.loop)
        parts = self._parts = _Parts(self.config, self.hooks, clock, dialer, self.supervisor)
        self.supervisor.on_failure(parts.end)
        self.supervisor.spawn(parts.updater.run, parts.brokers, name="metadata")
        try:
            await parts.updater.refresh(self._api_timeout)
        except KafkaTimeoutError as error:
            failure = bootstrap_error(parts.brokers)
            await self.stop()
            raise failure from error
        except BaseException:
            await self.stop()
            raise
        self._started = True

    async def stop(self, timeout: float | None = None) -> None:
        """Close all connections; requests in flight fail. May be called again.

        It completes even if the caller is cancelled meanwhile.

        Args:
            timeout: Maximum time for an orderly close, in seconds (default: close_timeout_ms);
                connections that are still open then are aborted. Closing takes no time unless a
                broker does not read the last bytes, and then 2 s.
        """
        check_timeout(timeout)
        self._stopped = True
        parts = self._parts
        if parts is None:
            return
        if self._closing is None:
            self._closing = self.supervisor.loop.create_task(
                self._close(parts, timeout), name=f"{self.supervisor.name} closing"
            )
        cancelled = await wait_shielded(self._closing)
        self._closing.result()
        if cancelled is not None:
            raise cancelled

    async def _close(self, parts: _Parts, timeout: float | None) -> None:
        reason = ClientClosedError(f"{self.supervisor.name} was closed")
        parts.lifetime.end(reason)
        try:
            limit = seconds(self.config.close_timeout_ms) if timeout is None else timeout
            await parts.brokers.close(reason, limit)
        finally:
            await self.supervisor.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def __del__(self) -> None:
        if getattr(self, "_parts", None) is not None and not self._stopped:
            warnings.warn(
                f"{self.supervisor.name} was started and never stopped: use `async with`, "
                "or await stop()",
                ResourceWarning,
                stacklevel=1,
                source=self,
            )

    def health(self) -> Health:
        """Return a snapshot of the client's health; no request is sent.

        This may be called at any time, also before `start` and after `stop`. The state of a running
        client is "degraded" after a connection has failed or a request has timed out, while no
        broker is connected and responding; and while a broker has not responded for 5 s to a
        request that it does not hold back: `last_error` names that broker. An idle client stays
        "running". The fields of producers and consumers keep their defaults.
        """
        from kafka_async.kernel import IMPLEMENTATION

        parts, failure = self._parts, self.supervisor.failure
        if parts is None:
            return Health(state="closed" if self._stopped else "new", kernel=IMPLEMENTATION)
        brokers = parts.brokers
        now, state = self.supervisor.loop.time(), self._state(brokers)
        running = state in ("running", "degraded")
        unresponsive = brokers.unresponsive_error(now) if running else None
        if unresponsive is not None:
            state = "degraded"
        responded_at, error = brokers.responded_at, failure or unresponsive or brokers.last_error
        age = None if responded_at is None else now - responded_at
        return Health(
            state=state,
            brokers_connected=brokers.connected_ids(),
            last_response_s=age,
            in_flight=brokers.in_flight,
            last_error=None if error is None else f"{type(error).__name__}: {error}",
            kernel=IMPLEMENTATION,
        )

    @property
    def responsive(self) -> bool:
        """True while the client runs, unless failures have left it without a broker that responds.

        An idle client is responsive; see `health`, whose 5 s limit is not applied here.
        """
        return self._parts is not None and self._state(self._parts.brokers) == "running"

    # -- requests ---------------------------------------------------------------------------------

    async def request(
        self,
        request: Request[ResponseT],
        *,
        to: Destination,
        timeout: float | None = None,
        retry: bool = True,
        max_version: int | None = None,
    ) -> ResponseT:
        """Send a request and return its response; errors in the response are not raised.

        Args:
            request: The request.
            to: The destination, such as `AnyBroker()` or `Leader(partition)`.
            timeout: Maximum time in seconds, retries included (default: default_api_timeout_ms).
            retry: Whether to send the request again after a lost connection, a timeout, or a
                top-level error after which the destination is looked up again. Use False for a
                request that must not be executed twice.
            max_version: Upper limit for the negotiated version.

        Raises:
            KafkaTimeoutError: There was no response within `timeout`.
            KafkaConnectionError: There is no connection, or it was lost.
            LeaderNotAvailableError: The partition had no leader within `timeout`.
            CoordinatorNotAvailableError: There was no coordinator within `timeout`.
            BrokerNotAvailableError: The cluster has no such broker.
            UnsupportedVersionError: The broker does not support this API.
        """
        _check_request(request, to, timeout)
        parts = self._started_parts()
        loop = self.supervisor.loop
        deadline = loop.time() + (self._api_timeout if timeout is None else timeout)
        backoff = self._new_backoff()
        while True:
            try:
                connection = await parts.router.connection(to, deadline)
                response = await self._send(parts, connection, request, deadline, max_version)
            except (KafkaConnectionError, KafkaTimeoutError) as error:
                delay = backoff.next()
                if not retry or loop.time() + delay >= deadline:
                    raise
                self.supervisor.check()
                if isinstance(error, KafkaConnectionError):
                    parts.router.forget(to)
            else:
                if not retry or not parts.router.must_reroute(to, response):
                    return response
                delay = backoff.next()
                if loop.time() + delay >= deadline:
                    return response
            await parts.lifetime.sleep(delay)

    def submit(
        self, request: Request[ResponseT], *, to: Destination, timeout: float | None = None
    ) -> asyncio.Future[ResponseT]:
        """Send a request like `request`; return a future for its response, which may be dropped.

        Args:
            request: The request.
            to: The destination.
            timeout: Maximum time in seconds, retries included (default: default_api_timeout_ms).
        """
        _check_request(request, to, timeout)
        self._started_parts()
        future: asyncio.Future[ResponseT] = self.supervisor.loop.create_future()
        self.supervisor.spawn(self._deliver, request, to, timeout, future, name="submitted request")
        return future

    def connection(
        self,
        node_id: int,
        kind: ConnectionKind,
        owner: object,
        *,
        max_frame_size: int | None = None,
        fetch_max_wait: float = 0.0,
    ) -> BrokerConnection:
        """Return a new connection to a broker, which the caller closes.

        It is opened on first use.

        Args:
            node_id: Id of the broker.
            kind: The connection's purpose.
            owner: The object that uses it; the connection's `repr` names its class.
            max_frame_size: Maximum size of a response in bytes, below the limit of its kind.
            fetch_max_wait: Time in seconds for which the broker may hold a fetch back.
        """
        name = type(owner).__name__
        return self._started_parts().brokers.connection(
            node_id, kind, name, max_frame_size, fetch_max_wait
        )

    async def coordinator(self, kind: CoordinatorKind, key: str, *, timeout: float) -> int:
        """Return the id of the broker that coordinates a group or a transactional id.

        The result is cached, see `forget_coordinator`.

        Args:
            kind: Kind of the coordinator.
            key: Group id or transactional id.
            timeout: Maximum time in seconds, retries included.

        Raises:
            CoordinatorNotAvailableError: There was no coordinator within `timeout`.
            KafkaConnectionError: No broker could be connected, or the connection was lost.
            KafkaTimeoutError: No broker responded within `timeout`.
        """
        parts = self._started_parts()
        return await parts.coordinators.find(kind, key, self.supervisor.loop.time() + timeout)

    async def coordinators(
        self, kind: CoordinatorKind, keys: Iterable[str], *, timeout: float
    ) -> dict[str, int]:
        """Return the coordinators of several keys, see `coordinator` (KIP-699)."""
        parts = self._started_parts()
        return await parts.coordinators.find_all(kind, keys, self.supervisor.loop.time() + timeout)

    def forget_coordinator(self, kind: CoordinatorKind, key: str) -> None:
        """Look a coordinator up again on its next use: it is wrong or not reachable."""
        self._started_parts().coordinators.forget(kind, key)

    async def pause(self, delay: float) -> None:
        """Wait for `delay` seconds.

        Raises:
            KafkaError: The client has stopped.
        """
        await self._started_parts().lifetime.sleep(delay)

    # -- metadata ---------------------------------------------------------------------------------

    @property
    def clock(self) -> Clock:
        """The client's clock."""
        return self._started_parts().clock

    @property
    def metadata(self) -> ClusterMetadata:
        """The current metadata, an immutable snapshot."""
        return self._started_parts().updater.snapshot

    def finalized_feature(self, name: str) -> int:
        """Return the level of a feature such as "transaction.version"; 0 if there is none."""
        return self._started_parts().brokers.features.get(name, 0)

    def track_topics(self, topics: Iterable[str]) -> None:
        """Keep the metadata of topics up to date; each call needs one of `untrack_topics`."""
        self._started_parts().updater.track(topics)

    def untrack_topics(self, topics: Iterable[str]) -> None:
        """Undo `track_topics`; has no effect on a client that was not started."""
        if self._parts is not None:
            self._parts.updater.untrack(topic_names(topics))

    def request_metadata_update(self) -> None:
        """Update the metadata of tracked topics soon; several calls result in one update."""
        self._started_parts().updater.request_update()

    async def metadata_for(
        self,
        topics: Iterable[str],
        *,
        timeout: float,
        allow_auto_create: bool = False,
        retry_unknown: bool = True,
    ) -> ClusterMetadata:
        """Return metadata that has all of these topics, updated as often as necessary.

        Args:
            topics: Names of the topics.
            timeout: Maximum time to wait, in seconds.
            allow_auto_create: Whether the cluster may create topics that do not exist.
            retry_unknown: Whether to wait for topics that do not exist.

        Raises:
            UnknownTopicOrPartitionError: A topic is still unknown after `timeout`, or after the
                first response without `retry_unknown`.
            KafkaTimeoutError: No broker responded within `timeout`.
            KafkaError: A topic cannot be used, for example because of its name or permissions.
        """
        check_timeout(timeout, may_have_passed=True)
        return await self._started_parts().updater.wait_for_topics(
            topics, timeout, create=allow_auto_create, retry_unknown=retry_unknown
        )

    async def refresh_metadata(
        self,
        *,
        topics: Iterable[str] | None = None,
        topic_ids: Iterable[UUID] = (),
        all_topics: bool = False,
        tracked: bool = True,
        timeout: float | None = None,
    ) -> ClusterMetadata:
        """Update the metadata now and return it.

        Args:
            topics: Names of topics to update besides the tracked ones.
            topic_ids: Ids of topics to update besides the tracked ones.
            all_topics: Update all topics of the cluster.
            tracked: Whether to update the tracked topics.
            timeout: Maximum time to wait, in seconds (default: default_api_timeout_ms).

        Raises:
            KafkaTimeoutError: No broker responded within `timeout`.
        """
        names = topic_names(topics or ())
        check_timeout(timeout, may_have_passed=True)
        return await self._started_parts().updater.refresh(
            self._api_timeout if timeout is None else timeout,
            tracked=tracked,
            topics=names,
            topic_ids=topic_ids,
            all_topics=all_topics,
        )

    def on_metadata(self, callback: Callable[[ClusterMetadata], None]) -> Callable[[], None]:
        """Call `callback(metadata)` after each change; return a function that removes it."""
        return self._started_parts().updater.add_listener(function(callback))

    def update_leader(
        self,
        partition: TopicPartition,
        leader_id: int,
        epoch: int,
        endpoint: Node | None = None,
    ) -> None:
        """Store a partition's leader that a response names (KIP-951), if its epoch is newer.

        Args:
            partition: The partition.
            leader_id: Id of the leader.
            epoch: The leader's epoch.
            endpoint: Address of the leader, if the response has it.
        """
        self.update_leaders([LeaderHint(partition, leader_id, epoch, endpoint)])

    def update_leaders(self, hints: Iterable[LeaderHint]) -> None:
        """Store several leaders as one change, see `update_leader`."""
        self._started_parts().updater.update_leaders(hints)

    # -- helpers ----------------------------------------------------------------------------------

    def _state(self, brokers: Brokers) -> str:
        if self.supervisor.failure is not None:
            return "failed"
        if self._stopped:
            return "stopping" if self.supervisor.hosting else "closed"
        if not self._started:
            return "starting"
        return "degraded" if brokers.degraded else "running"

    @property
    def _api_timeout(self) -> float:
        return seconds(self.config.default_api_timeout_ms)

    def _started_parts(self) -> _Parts:
        self.supervisor.check()
        if self._parts is None:
            raise ClientClosedError(f"{self.supervisor.name} is starting")
        return self._parts

    def _new_backoff(self) -> Backoff:
        return Backoff(
            seconds(self.config.retry_backoff_ms), seconds(self.config.retry_backoff_max_ms)
        )

    async def _send(
        self,
        parts: _Parts,
        connection: BrokerConnection,
        request: Request[ResponseT],
        deadline: float,
        max_version: int | None,
    ) -> ResponseT:
        if request.API_KEY in SLOW_APIS:
            connection = parts.brokers.slow(connection.node_id)
        left = deadline - self.supervisor.loop.time()
        timeout = min(left, seconds(self.config.request_timeout_ms))
        version: int | None = None
        if max_version is not None:
            await connection.connect(timeout)
            version = min(max_version, connection.version(request.API_KEY))
        return await connection.send(request, timeout=timeout, version=version)

    async def _deliver(
        self,
        request: Request[ResponseT],
        to: Destination,
        timeout: float | None,
        future: asyncio.Future[ResponseT],
    ) -> None:
        try:
            response = await self.request(request, to=to, timeout=timeout)
        except asyncio.CancelledError:
            _fail(future, ClientClosedError(f"{self.supervisor.name} was closed"))
            raise
        except KafkaError as error:
            _fail(future, error)
        else:
            if not future.done():
                future.set_result(response)


def _fail(future: asyncio.Future[Any], error: KafkaError) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # marks it as retrieved: the caller may drop the future


class _Parts:
    """The parts of a started client."""

    def __init__(
        self,
        config: ClientConfig,
        hooks: Hooks,
        clock: Clock,
        dialer: Dialer,
        supervisor: Supervisor,
    ) -> None:
        self.clock = clock
        self.lifetime = Lifetime()
        self._supervisor = supervisor
        self._config = config
        self._ssl_context: ssl.SSLContext | None = config.ssl_context
        context = ConnectionContext(
            config=config,
            hooks=hooks,
            dialer=dialer,
            budget=ReceiveBudget(config.receive_buffer_memory),
            lifetime=self.lifetime,
            software_version=_software_version(),
            tls=self._tls,
            offload=supervisor.offload,
        )
        self.updater = MetadataUpdater(context)
        self.brokers = Brokers(
            context,
            supervisor,
            self._nodes,
            on_disconnected=self.updater.request_update,
            on_wrong_broker=self.updater.request_rebootstrap,
        )
        self.coordinators = CoordinatorLookup(context, self.brokers, self.updater)
        self.router = RequestRouter(context, self.brokers, self.updater, self.coordinators)
        self.updater.on_rebootstrap = self.coordinators.forget_all

    def end(self, error: KafkaError) -> None:
        """Fail all waits and requests with `error`."""
        self.lifetime.end(error)
        self.brokers.end(error)

    def _nodes(self) -> Mapping[int, Node]:
        return self.updater.snapshot.brokers

    async def _tls(self) -> ssl.SSLContext | None:
        if self._config.security_protocol != "SSL":
            return None
        if self._ssl_context is None:
            from ssl import create_default_context  # the default context reads files

            self._ssl_context = await self._supervisor.offload(create_default_context)
        return self._ssl_context


def _check_request(request: object, to: object, timeout: object) -> None:
    instance_of(request, Request, "request")
    if not isinstance(to, DESTINATIONS):
        raise TypeError(f"to must be a destination, as AnyBroker() or Broker(1), not {to!r:.60}")
    check_timeout(timeout, may_have_passed=True)


def _software_version() -> str:
    return getattr(sys.modules["kafka_async"], "__version__", "unknown")
