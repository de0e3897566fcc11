"""The low-level client: starting and stopping, requests, health.

    async with Client("localhost:9092") as client:
        response = await client.request(MetadataRequest(topics=None), to=AnyBroker())

The parts of a started client are in `services.py`; producers, consumers and admin clients use them.
"""

from __future__ import annotations

import asyncio
import logging
import os
from functools import cache, partial
from typing import TYPE_CHECKING, TypeVar, cast

from typing_extensions import Unpack

from kafka_async.client import client_quotas
from kafka_async.client.connection.transport import SocketDialer
from kafka_async.client.metadata.metadata_updater import bootstrap_error
from kafka_async.client.metadata.request_router import REROUTE_ERRORS, Leader
from kafka_async.client.request_handle import RequestHandle
from kafka_async.client.security.authentication import authenticator_for
from kafka_async.client.services import ClientServices
from kafka_async.config import (
    ClientConfig,
    ConfigT,
    hide_secret,
    hide_secrets,
    resolve_config,
    seconds,
)
from kafka_async.config.spelling import spell
from kafka_async.errors import (
    ClientClosedError,
    ClusterAuthorizationError,
    InvalidConfigurationError,
    KafkaTimeoutError,
    UnsupportedVersionError,
)
from kafka_async.foundation.arguments import MAX_INT16, check_timeout, instance_of, whole_number
from kafka_async.foundation.clock import LoopClock
from kafka_async.foundation.start_guard import StartGuard
from kafka_async.foundation.supervisor import Supervisor, wait_shielded
from kafka_async.foundation.thread_reads import readable_in_any_thread
from kafka_async.hooks import Hooks, emit_task_died
from kafka_async.kernel import IMPLEMENTATION
from kafka_async.protocol.message import Request
from kafka_async.types import Health, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Self

    from kafka_async.client.connection.brokers import Brokers
    from kafka_async.client.metadata.request_router import Destination
    from kafka_async.config import ClientOptions
    from kafka_async.foundation.clock import Clock, Dialer
    from kafka_async.protocol.message import Response
    from kafka_async.secrets import Secret

ResponseT = TypeVar("ResponseT", bound="Response")
kernel_logger = logging.getLogger("kafka_async.kernel")


class Client:
    """A client of one cluster, which producers, consumers and admin clients can share.

    A client belongs to the event loop and the process in which it is started.

    Args:
        servers: Addresses of brokers, as "host:port,host:port" or a sequence; may also be given as
            `bootstrap_servers`.
        config: The options as an object, which may be a producer's or a consumer's; without other
            options.
        hooks: Receives the client's events.
        clock: Replaces the system's clocks, for tests.
        dialer: Replaces TCP connections, for tests.
        **options: Options of `ClientConfig`.

    Raises:
        InvalidConfigurationError: An option is unknown or its value is not allowed.
        TypeError: `hooks` is not an object of the class Hooks.
    """

    def __init__(
        self,
        servers: str | Sequence[str] | None = None,
        /,
        *,
        config: ClientConfig | None = None,
        hooks: Hooks | None = None,
        clock: Clock | None = None,
        dialer: Dialer | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        # Wrapped before anything can fail: tracebacks may show local variables.
        servers, options = hide_secrets(servers), hide_secrets(options)
        self.config = resolve_config(ClientConfig, servers, config, options)
        # Checked now, so that wrong SASL options raise in the constructor and not in `start()`.
        self._authenticator = authenticator_for(self.config)
        if hooks is not None and not isinstance(cast("object", hooks), Hooks):
            raise TypeError(
                f"hooks must be Hooks, not {type(hooks).__name__}: create "
                "kafka_async.hooks.Hooks(), and add functions with its method listen"
            )
        self.hooks = hooks or Hooks()
        name = f"Client {self.config.client_id}"
        self._supervisor = Supervisor(name, partial(emit_task_died, self.hooks))
        self._start_guard = StartGuard(name)
        self._clock = clock
        self._dialer = dialer
        # Life cycle. `_services` exists from the start on, and after the stop for statistics and
        # health.
        self._services: ClientServices | None = None
        self._started = False
        self._stopped = False
        self._closing: asyncio.Task[None] | None = None

    # -- start and stop ---------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect and fetch the first metadata.

        Raises:
            BootstrapError: No bootstrap server could be used within default_api_timeout_ms, or
                all have refused connections for bootstrap_refused_timeout_ms. If the failure of
                every server is permanent, it is raised at once. The message has the cause for each
                server, and the remedy.
            InvalidConfigurationError: A certificate or key that an option names cannot be used.
            SslAuthenticationError: The client does not accept a broker's certificate, or a broker
                not the client's; raised at once, as every AuthenticationError.
            ClientClosedError: The client was stopped during the start.
            IllegalStateError: The client was started before.
        """
        _log_kernel()
        async with self._start_guard.starting():
            self._stopped = False
            await self._start()

    async def _start(self) -> None:
        await self._supervisor.start()
        dialer = self._dialer or SocketDialer(self._supervisor)
        clock = self._clock or LoopClock(self._supervisor.loop)
        services = ClientServices(
            self.config, self.hooks, clock, dialer, self._supervisor, self._authenticator
        )
        self._services = services
        # If a task of the client dies, no request may wait until its deadline.
        self._supervisor.on_failure(services.end)
        try:
            # In order: certificates are checked before the first connection, and the first metadata
            # proves that a server can be used.
            await services.tls()
            self._supervisor.spawn(services.metadata.run, services.brokers, name="metadata")
            await services.metadata.refresh(tracked=False)
        # The deadline of the start is over: the failures of all servers are more useful than that.
        except KafkaTimeoutError as error:
            failure = bootstrap_error(services.brokers)
            await self._stop(None)
            raise failure from error
        except BaseException:
            await self._stop(None)
            raise
        self._started = True

    async def stop(self, timeout: float | None = None) -> None:
        """Close all connections; requests in flight fail. May be called again.

        It completes even if the caller is cancelled. A start in progress is cancelled,
        and raises ClientClosedError.

        Args:
            timeout: Maximum time for an orderly close, in seconds (default: close_timeout_ms);
                connections that are still open then are aborted. Closing waits only for brokers
                that have not read the last bytes, for at most 2 s.

        Raises:
            IllegalStateError: The client was started in another event loop or process.
        """
        timeout = check_timeout(timeout)
        if not await self._start_guard.end():
            self._stopped = True  # until it is started
            return
        await self._stop(timeout)

    async def _stop(self, timeout: float | None) -> None:
        self._supervisor.check_event_loop(self._closing)
        services = self._services
        self._stopped = True
        if services is None:
            return
        # One task for all callers, since cancelling a caller must not stop it halfway.
        if self._closing is None:
            self._closing = self._supervisor.loop.create_task(
                self._close(services, timeout), name=f"{self._supervisor.name} closing"
            )
        cancelled = await wait_shielded(self._closing)
        self._closing.result()
        if cancelled is not None:
            raise cancelled

    async def _close(self, services: ClientServices, timeout: float | None) -> None:
        reason = ClientClosedError(f"{self._supervisor.name} was closed")
        # Before the connections are closed, so that calls that wait raise this reason.
        services.lifetime.end(reason)
        try:
            limit = seconds(self.config.close_timeout_ms) if timeout is None else timeout
            await services.brokers.close(reason, limit)
        finally:
            await self._supervisor.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def __del__(self) -> None:
        if getattr(self, "_services", None) is not None and not self._stopped:
            self._supervisor.warn_never_stopped(self)

    @readable_in_any_thread
    def health(self) -> Health:
        """Return a snapshot of the client's health; no request is sent.

        This may be called in any thread at any time, also before `start` and after `stop`. The
        state of a running client is "degraded" after a connection has failed or a request has timed
        out, while no broker is connected and responding. It is also "degraded" while a broker has
        not responded for 5 s to a request that it does not hold back: `last_error` then has that
        broker. An idle client stays "running". The fields of producers and consumers keep their
        defaults.
        """
        services, failure = self._services, self._supervisor.failure
        if services is None:
            return Health(state="closed" if self._stopped else "new", kernel=IMPLEMENTATION)
        brokers = services.brokers
        now, state = self._supervisor.loop.time(), self._state(brokers)
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

    async def reload_certificates(self) -> bool:
        """Read the files of ssl_cafile, ssl_certfile and ssl_keyfile again.

        This happens automatically at the next connection after the modification time of a file has
        changed. New connections use the new certificates; open connections are not closed.

        Returns:
            False if the files cannot be used: the old certificates stay in use, and a warning
            contains the cause.

        Raises:
            InvalidConfigurationError: The client does not use TLS, or was given an ssl_context.
            ClientClosedError: The client was not started, or is closed.
        """
        return await self._started_services().reload_certificates()

    async def set_sasl_credentials(self, username: str, password: str | Secret) -> None:
        """Authenticate with another user name and password from now on.

        New connections use them, and open ones at their next authentication, before their session
        ends (KIP-368). A connection whose user changes is then replaced by a new one. Open
        connections whose session has no end keep their user until they are closed.

        Later calls raise no error of the former credentials, unless they report records or a
        transaction that failed earlier. Attempts to connect do not wait for the reconnect backoff
        of rejected attempts. Setting equal credentials changes nothing.

        Args:
            username: The user name, or a delegation token's id.
            password: The password, or a delegation token's HMAC; it is never shown.

        Raises:
            InvalidConfigurationError: The client does not authenticate with a user name and a
                password, or these cannot be sent.
            IllegalStateError: The client was started in another event loop or process.
        """
        password = hide_secret("password", password)
        self._supervisor.check_event_loop(self._closing)
        if self._authenticator is None:
            raise InvalidConfigurationError(
                f"{spell('security_protocol')} is {self.config.security_protocol}, which does not "
                f"authenticate: make a client with {spell('security_protocol', 'SASL_SSL')}",
                option="security_protocol",
            )
        # Equal credentials leave errors and backoffs as they are.
        replaced = self._authenticator.set_credentials(username, password)
        if replaced and self._services is not None:
            self._services.on_credentials_replaced()

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

        A Produce request with acks=0 has no response: the call returns an empty one after the
        request was written. The broker may or may not receive it.

        A response that requires the client to bootstrap again (KIP-1102) is handled as a lost
        connection.

        Args:
            request: The request.
            to: The destination, such as `AnyBroker()` or `Leader(partition)`.
            timeout: Maximum time in seconds, retries included (default: default_api_timeout_ms).
            retry: Whether to send the request again after a lost connection, a timeout, or a
                top-level error after which the destination is looked up again (default: True). Use
                False for a request that must not be executed twice.
            max_version: Upper limit for the negotiated version.

        Raises:
            KafkaTimeoutError: There was no response within `timeout`.
            KafkaConnectionError: There is no connection, or it was lost.
            UnknownTopicOrPartitionError: The partition did not exist within `timeout`.
            LeaderNotAvailableError: The partition had no leader within `timeout`.
            CoordinatorNotAvailableError: There was no coordinator within `timeout`.
            AuthenticationError: The broker refuses the credentials.
            BrokerNotAvailableError: The cluster has no such broker.
            UnsupportedVersionError: The broker does not support this API.
        """
        _check_request(request, to, max_version)
        timeout = check_timeout(timeout, may_have_passed=True)
        return await self._started_services().request(
            request, to=to, timeout=timeout, retry=retry, max_version=max_version
        )

    def submit(
        self,
        request: Request[ResponseT],
        *,
        to: Destination,
        timeout: float | None = None,
        retry: bool = True,
        max_version: int | None = None,
    ) -> RequestHandle[ResponseT]:
        """Start a request and return its handle, without waiting.

        It is retried as by `request`, even if the handle is dropped. Requests that are submitted
        one after another may be sent in another order, since a connection or a leader may have to
        be found first.

        Args:
            request: The request, which must not be changed before it is done.
            to: The destination, such as `AnyBroker()` or `Leader(partition)`.
            timeout: Maximum time in seconds, retries included (default: default_api_timeout_ms).
            retry: Whether to send the request again, as in `request`.
            max_version: Upper limit for the negotiated version.

        Returns:
            A handle, which can be awaited and then raises the errors of `request`.

        Raises:
            ClientClosedError: The client was not started, or is closed.
        """
        _check_request(request, to, max_version)
        timeout = check_timeout(timeout, may_have_passed=True)
        send = partial(
            self._started_services().request,
            request,
            to=to,
            timeout=timeout,
            retry=retry,
            max_version=max_version,
        )
        return RequestHandle(self._supervisor, send)

    async def quota_usage(
        self, *, timeout: float | None = None
    ) -> dict[tuple[int, str], float | None]:
        """Return the fraction of its quotas that this client uses, by broker and kind (KIP-13).

        The fraction is the client's rate over 11 s, divided by the quota that applies to its user
        and client id; a broker throttles it at 1. It is too low if other clients share the quota.
        The kinds are "produce" and "fetch": a client cannot measure request_percentage. Brokers
        without any produce or fetch request are left out.

        `statistics()` of producers and consumers uses the quotas that the last call has found.

        Args:
            timeout: Maximum time to look up the quotas, in seconds (default:
                default_api_timeout_ms).

        Returns:
            By (broker id, kind), a number from 0 to 1, and 0 without a quota. It is None if the
            quotas are unknown: the client may not DESCRIBE_CONFIGS of the cluster, the cluster has
            no such API, or the client has no user name, as with a certificate.

        Raises:
            KafkaTimeoutError: There was no response within `timeout`.
        """
        timeout = check_timeout(timeout)
        services = self._started_services()
        quotas: dict[str, float] | None = None
        user = self._quota_user()
        if user is not None:
            names = {"user": user, "client-id": self.config.client_id}
            limit = seconds(self.config.default_api_timeout_ms) if timeout is None else timeout
            try:
                entries = await client_quotas.describe_candidates(services, names, timeout=limit)
            # Not an error of the call: the rates are known, and the quotas are not.
            except (ClusterAuthorizationError, UnsupportedVersionError):
                pass
            else:
                resolved = client_quotas.resolve(entries, names)
                quotas = {key: value for key, (value, _) in resolved.items()}
        services.quota_usage.set_quotas(quotas)
        return services.quota_usage.fractions(self._supervisor.loop.time())

    def _quota_user(self) -> str | None:
        """Return the user name that brokers see, or None if it is unknown."""
        if self._authenticator is not None:
            return self._authenticator.username
        return "ANONYMOUS" if self.config.security_protocol == "PLAINTEXT" else None

    def _started_services(self) -> ClientServices:
        self._supervisor.check()
        # The services appear in the middle of `start`.
        if self._services is None:
            raise ClientClosedError(f"{self._supervisor.name} is starting")
        return self._services

    def _state(self, brokers: Brokers) -> str:
        if self._supervisor.failure is not None:
            return "failed"
        if self._stopped:
            return "stopping" if self._supervisor.hosting else "closed"
        if not self._started:
            # The event loop of the start is running, but no metadata has arrived.
            return "starting"
        return "degraded" if brokers.degraded else "running"


def services_of(client: Client) -> ClientServices:
    """Return the parts of a started client.

    Raises:
        ClientClosedError: The client was not started, or is closed.
        IllegalStateError: The client belongs to another event loop or process.
        TaskDiedError: A task of the client has raised.
    """
    # Not a method: applications see the client without its parts.
    return client._started_services()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def connect_with(
    client: Client | str | Sequence[str] | None,
    role: type[ConfigT],
    config: ConfigT | None,
    options: Mapping[str, Any],
    *,
    hooks: Hooks | None,
    clock: Clock | None,
    dialer: Dialer | None,
) -> tuple[ConfigT, Client, bool]:
    """Return the configuration of a producer, consumer or admin client, and its `Client`.

    The third result is False if the `Client` is shared: its owner closes it.
    """
    if not isinstance(client, Client):
        config = resolve_config(role, client, config, options)
        return config, Client(config=config, hooks=hooks, clock=clock, dialer=dialer), True
    if hooks is not None or clock is not None or dialer is not None:
        raise InvalidConfigurationError(
            "hooks, clock and dialer belong to the shared Client: give them to it"
        )
    return resolve_config(role, None, config, options, shared=client.config), client, False


def _check_request(request: object, to: object, max_version: object) -> None:
    instance_of(request, Request, "request")
    if type(to) not in REROUTE_ERRORS:
        raise TypeError(f"to must be a destination, as AnyBroker() or Broker(1), not {to!r:.60}")
    if isinstance(to, Leader):
        instance_of(cast("object", to.partition), TopicPartition, "the partition of Leader")
    if max_version is not None:
        whole_number(max_version, "max_version", low=0, high=MAX_INT16)


@cache
def _log_kernel() -> None:
    """Log the kernel in use, on the first call only.

    An installer hides the output of the build, so this is the only sign that the build had no
    compiler.
    """
    if IMPLEMENTATION == "c":
        kernel_logger.info("the compiled kernel is in use")
    elif os.environ.get("KAFKA_ASYNC_KERNEL") == "python":
        kernel_logger.info(
            "the kernel in plain Python is in use, as KAFKA_ASYNC_KERNEL=python demands"
        )
    else:
        kernel_logger.warning(
            "the kernel in plain Python is in use, which is several times slower: the installation "
            "has no compiled one. Install a C compiler and reinstall kafka-async without pip's "
            "cache (KAFKA_ASYNC_KERNEL=c makes a failing build an error), or set "
            "KAFKA_ASYNC_KERNEL=python to use this one without a warning"
        )
