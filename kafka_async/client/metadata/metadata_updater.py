"""Keeps the metadata snapshot of one client up to date.

Callers never request metadata from a broker themselves. They add to the next `PendingUpdate`, and
one task per client, the metadata loop, sends the requests: each for up to 125 topics, with separate
requests for topics that may be created. An update covers the topics that callers wait for. All
tracked topics are covered only when they are due: a client with thousands of topics that needs one
more requests only that one. A failed update is retried, with another broker if possible, until it
succeeds or the client stops; callers stop waiting at their own deadlines. Updates without a waiting
caller (after an error, for age, or for a topic without a leader) run at most once per backoff.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

from kafka_async.client.connection.broker_connection import CONNECT_HEDGE_AFTER
from kafka_async.client.connection.diagnosis import sasl_required
from kafka_async.client.metadata.metadata import (
    LEADER_NOT_AVAILABLE,
    TOPIC_OPERATION,
    ClusterMetadata,
)
from kafka_async.client.metadata.outage import OutageLog, RebootstrapTrigger
from kafka_async.client.security.token_errors import (
    TokenEndpointUnreachableError,
    TokenTimeoutError,
)
from kafka_async.config import seconds
from kafka_async.config.spelling import spell
from kafka_async.errors import (
    AuthenticationError,
    BootstrapError,
    BrokerNotAvailableError,
    ClientClosedError,
    IllegalSaslStateError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    RebootstrapRequiredError,
    RetriableError,
    SaslAuthenticationError,
    SslAuthenticationError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    error_for,
)
from kafka_async.foundation.fairness import MAX_PARTITIONS_MERGED_IN_LOOP, MAX_TOPICS_PER_REQUEST
from kafka_async.foundation.listeners import Listeners
from kafka_async.hooks import Rebootstrapped

if TYPE_CHECKING:
    from uuid import UUID

    from kafka_async.client.connection.broker_connection import BrokerConnection
    from kafka_async.client.connection.brokers import Brokers
    from kafka_async.client.connection.connection_context import ConnectionContext
    from kafka_async.client.metadata.metadata import LeaderHint
    from kafka_async.protocol.messages.metadata import (
        MetadataRequest,
        MetadataRequestTopic,
        MetadataResponse,
    )
    from kafka_async.types import Node

logger = logging.getLogger("kafka_async.cluster")


MIN_REJECTIONS: Final = 2
"""Rejections of the credentials in a row that are reported; brokers apply a new password at
different times."""
MAX_OFFLOADED_MERGES: Final = 2
"""Merges of a response in a thread that concurrent changes invalidate, before one in the loop."""
MIN_REFUSALS_PER_SERVER: Final = 3
"""Refused attempts of each bootstrap server before `Client.start` fails."""
WARN_OF_BOOTSTRAP_AFTER: Final = 1.0
"""Seconds of a start after which a failure of all bootstrap servers is logged."""
HEDGE_AFTER: Final = 1.0
"""Seconds without a response after which another broker is sent the same request."""


@dataclass(slots=True)
class PendingUpdate:
    """The topics of the next metadata update and the callers that wait for it.

    Attributes:
        tracked: Update all tracked topics.
        topics: Further topics to update.
        auto_create: Topics that the cluster may create on request.
        topic_ids: Further topics by id.
        waiters: Futures whose result is the new snapshot.
    """

    tracked: bool = False
    topics: set[str] = field(default_factory=set[str])
    auto_create: set[str] = field(default_factory=set[str])
    topic_ids: set[UUID] = field(default_factory=set["UUID"])
    all_topics: bool = False
    waiters: list[asyncio.Future[ClusterMetadata]] = field(
        default_factory=list["asyncio.Future[ClusterMetadata]"]
    )

    def merge(self, other: PendingUpdate) -> None:
        """Add the topics and waiters of another update."""
        self.tracked |= other.tracked
        self.topics |= other.topics
        self.auto_create |= other.auto_create
        self.topic_ids |= other.topic_ids
        self.all_topics |= other.all_topics
        self.waiters += other.waiters


class MetadataUpdater:
    """Owns the metadata snapshot of one client and keeps it up to date.

    Only the metadata loop `run`, and leaders or brokers in other responses (KIP-951), replace the
    snapshot.

    Attributes:
        change_listeners: Called with the snapshot after each change.
        cluster_listeners: Called when another cluster responds, before any request to its brokers.
        rejection_listeners: Called with the error at each rejection of the credentials in a row,
            except the first.
    """

    def __init__(self, context: ConnectionContext) -> None:
        # What users read and follow.
        self.snapshot = ClusterMetadata()
        self.on_rebootstrap: Callable[[], None] = _nothing
        # Parts of the client, and its options.
        self._context = context
        self._loop = asyncio.get_running_loop()
        config = context.config
        self._max_age = seconds(config.metadata_max_age_ms)
        self._created_at = self._loop.time()
        self._refused_timeout = seconds(config.bootstrap_refused_timeout_ms)
        self._backoff = context.retry_backoff()
        self._rebootstrap = RebootstrapTrigger(
            enabled=config.metadata_recovery_strategy == "rebootstrap",
            after=seconds(config.metadata_recovery_rebootstrap_trigger_ms),
        )
        # Topics: counts of `track` calls, ends of the interest in topics that were requested once,
        # and tracked topics without a leader.
        self._tracked: dict[str, int] = {}
        self._recent: dict[str, float] = {}
        self._leaderless: set[str] = set()  # tracked topics only
        self.change_listeners = Listeners[ClusterMetadata]()
        self.cluster_listeners = Listeners[()]()
        self.rejection_listeners = Listeners[AuthenticationError]()
        # Ends the wait for a broker's backoff when the credentials are replaced.
        self._replacement: asyncio.Future[None] | None = None
        self._rejections = 0
        # The next update: its topics and callers, whether all tracked topics are due, and the times
        # before which and at which it starts without a caller.
        self._pending = PendingUpdate()
        self._update_requested = False
        self._wakeup: asyncio.Future[None] | None = None
        self._not_before = 0.0
        self._expires_at = 0.0
        # For errors and warnings.
        self._failure: KafkaError | None = None
        self._outage = OutageLog()
        self._warned = ""

    # -- for callers ------------------------------------------------------------------------------

    def track(self, topics: Iterable[str]) -> None:
        """Keep topics up to date until each is untracked as often as it was tracked."""
        tracked, known = self._tracked, self.snapshot.topics
        for topic in topics:
            count = tracked.get(topic, 0)
            tracked[topic] = count + 1
            if count:
                continue
            if topic not in known:
                self._pending.topics.add(topic)
            elif self.snapshot.lacks_leaders(topic):
                self._leaderless.add(topic)
        if self._pending.topics:
            self._wake()

    def untrack(self, topics: Iterable[str]) -> None:
        """Undo `track`."""
        tracked = self._tracked
        for topic in topics:
            count = tracked.pop(topic, 0)
            # Users track the same topic independently.
            if count > 1:
                tracked[topic] = count - 1
            else:
                self._leaderless.discard(topic)

    def request_update(self) -> None:
        """Update the tracked topics soon; several calls result in one update."""
        self._update_requested = True
        self._wake()

    def request_rebootstrap(self, reason: str) -> None:
        """Bootstrap again with the next update, unless metadata_recovery_strategy="none"."""
        self._rebootstrap.request(reason)
        self.request_update()

    def on_credentials_replaced(self) -> None:
        """Forget the rejections of the former credentials, and the backoff after them."""
        self._rejections = 0
        if self._replacement is not None and not self._replacement.done():
            self._replacement.set_result(None)

    async def refresh(
        self,
        timeout: float | None = None,
        *,
        tracked: bool = True,
        topics: Iterable[str] = (),
        auto_create: Iterable[str] = (),
        topic_ids: Iterable[UUID] = (),
        all_topics: bool = False,
    ) -> ClusterMetadata:
        """Wait for an update that starts now or later; return its snapshot.

        See `PendingUpdate` for the other arguments. Raises KafkaTimeoutError, whose message
        includes the cause, after `timeout` seconds (default: default_api_timeout_ms).
        """
        if timeout is None:
            timeout = seconds(self._context.config.default_api_timeout_ms)
        deadline = self._loop.time() + timeout
        topics, auto_create, topic_ids = set(topics), set(auto_create), set(topic_ids)
        # Ends with a snapshot or an error. A rejection of credentials that were replaced since is
        # retried.
        while True:
            waiter: asyncio.Future[ClusterMetadata] = self._loop.create_future()
            # Sets are copied: the loop changes those of an update.
            self._pending.merge(
                PendingUpdate(
                    tracked, set(topics), set(auto_create), set(topic_ids), all_topics, [waiter]
                )
            )
            self._wake()
            try:
                return await self._context.lifetime.wait(waiter, deadline)
            except TimeoutError as error:
                # An error of the update or of the stopped client, not the deadline above.
                if isinstance(error, KafkaError):
                    raise
                cause = "" if self._failure is None else f": {self._failure}"
                text = f"no metadata within {timeout:.3g} s{cause}"
                raise KafkaTimeoutError(text) from self._failure
            except SaslAuthenticationError as error:
                # The credentials may have been replaced since the update has failed.
                if not self._context.is_outdated(error):
                    raise

    async def wait_for_topics(
        self,
        topics: Iterable[str],
        timeout: float,
        *,
        allow_auto_create: bool = False,
        retry_unknown: bool = True,
    ) -> ClusterMetadata:
        """Return a snapshot that has all topics; update the snapshot as often as necessary.

        With `allow_auto_create` the cluster may create missing topics; with `retry_unknown` this
        waits for them. `timeout` is in seconds and limits every wait.

        Raises:
            UnknownTopicOrPartitionError: A topic is still unknown after `timeout`, or after the
                first response without `retry_unknown`.
            KafkaTimeoutError: No broker responded within `timeout`.
            KafkaError: A topic cannot be used, for example because of its name or permissions.
        """
        wanted = set(topics)
        deadline = self._loop.time() + timeout
        backoff = self._context.retry_backoff()
        # Each pass updates what is missing. Errors that are not retriable are raised at once; the
        # last retriable one at the deadline.
        while True:
            missing = [topic for topic in wanted if topic not in self.snapshot.topics]
            if not missing:
                return self.snapshot
            left = deadline - self._loop.time()
            auto_create = missing if allow_auto_create else ()
            snapshot = await self.refresh(
                left, tracked=False, topics=missing, auto_create=auto_create
            )
            # One error per code: thousands of topics may fail with the same one.
            codes = {snapshot.errors[name]: name for name in missing if name in snapshot.errors}
            errors = [
                error_for(code, topic=name, needs=TOPIC_OPERATION) for code, name in codes.items()
            ]
            for error in errors:
                unknown = isinstance(error, UnknownTopicOrPartitionError)
                if unknown and not retry_unknown:
                    raise UnknownTopicOrPartitionError(
                        "the topic does not exist: create it, or check its name", topic=error.topic
                    )
                if not isinstance(error, RetriableError):
                    raise error
            if not errors:
                continue
            # A cluster needs time to create a topic and elect leaders.
            delay = backoff.next()
            if self._loop.time() + delay >= deadline:
                raise errors[0]
            await self._context.lifetime.sleep(delay)

    def update_leaders(self, hints: Iterable[LeaderHint]) -> None:
        """Store the leaders in other responses (KIP-951) if their epochs are newer."""
        self._replace_snapshot(self.snapshot.with_leaders(hints))

    def update_broker(self, node: Node) -> None:
        """Store a broker's address from another response."""
        self._replace_snapshot(self.snapshot.with_broker(node))

    # -- the metadata loop ------------------------------------------------------------------------

    async def run(self, brokers: Brokers) -> None:
        """Run updates until the client stops."""
        try:
            while True:
                await self._wait_until_due()
                update = self._due_update()
                while not await self._try_update(brokers, update):
                    pass
        # The end of the client is no failure of the loop.
        except KafkaError as error:
            if error is not self._context.lifetime.ended:
                raise

    def _due_update(self) -> PendingUpdate:
        """Return the update that is due now, apart from waiting callers."""
        now = self._loop.time()
        allowed = self._not_before <= now
        if self._expires_at <= now or (self._update_requested and allowed):
            return PendingUpdate(tracked=True)
        # Topics without a leader are requested alone, so that a large client does not repeat
        # everything.
        return PendingUpdate(topics=set(self._leaderless) if allowed else set())

    async def _wait_until_due(self) -> None:
        # Returns for a caller, a new topic, an expired snapshot, or after the backoff if an update
        # was requested or topics lack leaders.
        while not (self._pending.waiters or self._pending.topics):
            soon = self._update_requested or self._leaderless
            due = min(self._expires_at, self._not_before) if soon else self._expires_at
            if due <= self._loop.time():
                return
            self._wakeup = self._loop.create_future()
            try:
                await self._context.lifetime.wait(self._wakeup, due)
            except TimeoutError:
                continue
            finally:
                self._wakeup = None

    async def _try_update(self, brokers: Brokers, update: PendingUpdate) -> bool:
        """Make one attempt, for new callers too; return True if it succeeded."""
        # Callers that came during an earlier attempt are served by this one.
        update.merge(self._pending)
        self._pending = PendingUpdate()
        if update.tracked or self._tracked.keys() <= update.topics:
            self._update_requested = False
        now = self._loop.time()
        self._rebootstrap.record_attempt(now)
        # KIP-1102: nothing that is known may be right any more, so everything is requested.
        if self._rebootstrap_if_due(brokers, now):
            update.tracked = True
        connection = brokers.least_loaded(now)
        if connection is None:
            await self._wait_until_available(brokers)
            return False
        try:
            await self._update_from(brokers, connection, update)
        except RebootstrapRequiredError as error:
            self._on_failure(brokers, update, error)
            self._rebootstrap.request(str(error))
        except KafkaConnectionError as error:
            # No backoff here: the backoff of the connection limits the attempts.
            self._on_failure(brokers, update, error)
            return False
        except KafkaError as error:
            self._on_failure(brokers, update, error)
        else:
            self._on_success(brokers, update)
            return True
        # A broker that responds with errors has no connection backoff to limit the attempts.
        await self._context.lifetime.sleep(self._backoff.next())
        return False

    async def _wait_until_available(self, brokers: Brokers) -> None:
        """Wait until the backoff of a broker has ended or the credentials were replaced."""
        self._replacement = self._loop.create_future()
        try:
            await self._context.lifetime.wait(self._replacement, brokers.available_at())
        except TimeoutError:
            pass
        finally:
            self._replacement = None

    async def _update_from(
        self, brokers: Brokers, connection: BrokerConnection, update: PendingUpdate
    ) -> None:
        # A broker that is slow to connect continues connecting while others are tried.
        await connection.connect(CONNECT_HEDGE_AFTER)
        before = self.snapshot
        try:
            for request in _requests(update, self._refreshed_topics() if update.tracked else set()):
                connection, response = await self._first_response(brokers, connection, request)
                all_topics = request.topics is None
                # A topic without a row would otherwise be missing without an error.
                self._add_missing_topics(request, response)
                # In a request by ids, only the response has the names.
                if update.topic_ids and not all_topics:
                    update.topics.update(
                        row.name for row in response.topics if row.name is not None
                    )
                await self._merge_response(response, all_topics=all_topics)
            end = self._loop.time() + self._max_age
            recent = (update.topics | update.auto_create).difference(self._tracked)
            # Topics that were requested once stay up to date for metadata_max_age_ms.
            self._recent.update(dict.fromkeys(recent, end))
            if update.tracked and not update.all_topics:
                await asyncio.sleep(0)  # the next call iterates over all topics
                self._drop_unused_topics()
        finally:
            if self.snapshot is not before:
                self.change_listeners.notify(
                    self.snapshot
                )  # once per update: a listener looks at all its topics

    def _add_missing_topics(self, request: MetadataRequest, response: MetadataResponse) -> None:
        """Add a retriable error for each requested topic that a response and the snapshot lack."""
        from kafka_async.protocol.messages.metadata import MetadataResponseTopic

        known = {row.name for row in response.topics} | self.snapshot.topics.keys()
        missing = [row.name for row in request.topics or () if row.name and row.name not in known]
        if missing:
            rows = [
                MetadataResponseTopic(error_code=LEADER_NOT_AVAILABLE, name=name)
                for name in missing
            ]
            response.topics = [*response.topics, *rows]

    async def _first_response(
        self, brokers: Brokers, connection: BrokerConnection, request: MetadataRequest
    ) -> tuple[BrokerConnection, MetadataResponse]:
        """Send a request, after HEDGE_AFTER to another broker too; return the first response.

        A frozen broker, which accepts requests and does not respond, delays metadata by at most
        HEDGE_AFTER if another broker is available.
        """
        timeout = seconds(self._context.config.request_timeout_ms)
        attempts: dict[asyncio.Task[MetadataResponse], BrokerConnection] = {}

        def send_to(connection: BrokerConnection) -> None:
            sending = connection.send(
                request, timeout=timeout, offload=self._context.supervisor.offload
            )
            attempts[asyncio.create_task(sending, name="metadata request")] = connection

        send_to(connection)
        # Ends with the first response, or when all attempts have failed, with the first error.
        failure: BaseException | None = None
        try:
            done, _ = await asyncio.wait(attempts, timeout=HEDGE_AFTER)
            if not done:
                other = brokers.least_loaded(self._loop.time(), exclude=connection)
                if other is not None:
                    send_to(other)
            while attempts:
                done, _ = await asyncio.wait(attempts, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    connection, error = attempts.pop(task), task.exception()
                    if error is None:
                        return connection, task.result()
                    failure = failure or error
        # A response that is not needed any more must not be reported as never retrieved.
        finally:
            for task in attempts:
                task.cancel()
                task.add_done_callback(_ignore_result)
        assert failure is not None
        raise failure

    async def _merge_response(self, response: MetadataResponse, *, all_topics: bool) -> None:
        if response.error_code:
            error = error_for(response.error_code)
            # A SASL listener responds with this error to a client that does not authenticate.
            protocol = self._context.config.security_protocol
            if isinstance(error, IllegalSaslStateError) and not protocol.startswith("SASL_"):
                raise AuthenticationError(sasl_required(protocol)) from error
            raise error
        if not response.brokers:
            # Without brokers the client could not send another request.
            raise BrokerNotAvailableError("the metadata response of a broker names no brokers")
        self._check_cluster(response.cluster_id)
        self._rebootstrap.reset()
        self._context.cluster_id = response.cluster_id or self._context.cluster_id
        partitions = sum([len(topic.partitions) for topic in response.topics])
        # Merging takes about 1 us per partition.
        if partitions <= MAX_PARTITIONS_MERGED_IN_LOOP:
            merged, leaderless = _merged(self.snapshot, response, all_topics=all_topics)
        # In a thread, which must not change the snapshot. If another response has changed it in the
        # meantime, the result is out of date.
        else:
            for _ in range(MAX_OFFLOADED_MERGES):
                before = self.snapshot
                merging = partial(_merged, before, response, all_topics=all_topics)
                merged, leaderless = await self._context.supervisor.offload(merging)
                if self.snapshot is before:  # else another response has named a new leader
                    break
            else:
                merged, leaderless = _merged(self.snapshot, response, all_topics=all_topics)
        self.snapshot = merged
        covered = self._tracked if all_topics else [row.name for row in response.topics if row.name]
        self._leaderless.difference_update(covered)
        self._leaderless.update(name for name in leaderless if name in self._tracked)

    def _check_cluster(self, cluster_id: str | None) -> None:
        """Follow another cluster, as after a DNS failover, once no former broker is known.

        Raises RebootstrapRequiredError while former brokers are known: all connections must be
        closed first.
        """
        former = self.snapshot.cluster_id
        if former is None or cluster_id is None or cluster_id == former:
            return
        if self.snapshot.brokers and self._rebootstrap.enabled:
            raise RebootstrapRequiredError(f"cluster {cluster_id} responds, not {former}")
        logger.warning(
            "cluster %s responds, not %s: the client follows it without the producer ids, topic "
            "ids, positions and memberships of the former one; check %s if that is not intended",
            cluster_id,
            former,
            spell("bootstrap_servers"),
        )
        # Before the listeners, which read it.
        self.snapshot = self.snapshot.rebootstrapped(keep_ids=False)
        self.on_rebootstrap()
        self.cluster_listeners.notify()

    def _drop_unused_topics(self) -> None:
        """Remove topics that are neither tracked nor recently requested."""
        tracked, recent, snapshot = self._tracked, self._recent, self.snapshot
        known = chain(snapshot.topics, snapshot.errors)
        unused = {name for name in known if name not in tracked and name not in recent}
        if unused:
            self.snapshot = snapshot.without(unused)

    def _on_success(self, brokers: Brokers, update: PendingUpdate) -> None:
        now = self._loop.time()
        self._failure = None
        self._rejections = 0
        self._warned = ""
        outage = self._outage.record_reachable(now)
        if outage is not None:
            logger.warning("the cluster can be reached again, after %.0f s", outage)
        # Only then are all tracked topics new.
        if update.tracked or update.all_topics:
            self._expires_at = now + self._max_age
        # Bootstrap servers are not needed once real addresses are known.
        brokers.retain(self.snapshot.brokers)
        if not self._leaderless:
            self._backoff.reset()
        # Otherwise a series of small updates would postpone the next update of all tracked topics.
        if update.tracked or self._not_before <= now:
            pause = self._backoff.next() if self._leaderless else self._backoff.initial
            self._not_before = now + pause
        for waiter in update.waiters:
            if not waiter.done():
                waiter.set_result(self.snapshot)

    def _on_failure(self, brokers: Brokers, update: PendingUpdate, error: KafkaError) -> None:
        # The next attempt uses the new credentials.
        if self._context.is_outdated(error):
            return
        self._failure = error
        logger.debug("no metadata: %s", error)
        # Before the first response, errors may end the start of the client; later ones are retried.
        never_connected = self.snapshot.version == 0
        failure: KafkaError | None = _rejection(error)
        if isinstance(error, UnsupportedVersionError):
            failure = error  # the broker is too old for what the client needs
        if never_connected and (failure is None or isinstance(failure, SslAuthenticationError)):
            failure = brokers.rejection()
            # Each of these will not be resolved within the time of a start.
            if self._no_token() or brokers.all_failures_permanent() or self._all_refused(brokers):
                failure = failure or bootstrap_error(brokers)
            elif failure is None and brokers.all_failed():
                message = bootstrap_error(brokers).message
                self._warn_of_bootstrap_failure(message, refused=brokers.refusals() > 0)
        if failure is not None:
            # At the start, a second attempt for callers that came during this one would only count
            # against the user name at the broker.
            for waiting in (update, self._pending) if never_connected else (update,):
                _fail_waiters(waiting, failure)
        if isinstance(failure, AuthenticationError):
            self._on_rejection(failure)
        # While the client has never been connected, `start` reports the failures.
        outage = not never_connected and not isinstance(error, ClientClosedError)
        if outage and brokers.all_unreachable():
            self._warn_of_outage(error)

    def _on_rejection(self, error: AuthenticationError) -> None:
        self._rejections += 1
        if self._rejections >= MIN_REJECTIONS:
            self.rejection_listeners.notify(error)

    def _warn_of_outage(self, error: KafkaError) -> None:
        duration = self._outage.record_unreachable(self._loop.time())
        if duration is not None:
            logger.warning(
                "no broker of the cluster can be reached%s: %s; the client keeps retrying",
                f" for {duration:.0f} s" if duration else "",
                error,
            )

    def _no_token(self) -> bool:
        """Return True if the token provider has failed for long enough to fail `start`."""
        tokens = self._context.tokens
        failure = None if tokens is None else tokens.failure
        if isinstance(failure, TokenEndpointUnreachableError):
            waited = self._loop.time() - self._created_at
            return failure.permanent or waited >= self._refused_timeout
        return isinstance(failure, TokenTimeoutError)

    def _all_refused(self, brokers: Brokers) -> bool:
        """Return True if every bootstrap server has refused for long enough to fail `start`."""
        # A server may just be starting: both a time and a number of attempts must have passed.
        waited = self._loop.time() - self._created_at
        return waited >= self._refused_timeout and brokers.refusals() >= MIN_REFUSALS_PER_SERVER

    def _warn_of_bootstrap_failure(self, failure: str, *, refused: bool) -> None:
        """Log a failure that delays the start of the client, once.

        Not immediately, since some failures are found to be permanent after a few connections.
        """
        waited = self._loop.time() - self._created_at
        if failure == self._warned or waited < WARN_OF_BOOTSTRAP_AFTER:
            return
        self._warned = failure
        limit = seconds(self._context.config.default_api_timeout_ms)
        if refused:
            limit = min(limit, self._refused_timeout)
        logger.warning(
            "%s; the client retries for up to %.0f s more", failure, max(1.0, limit - waited)
        )

    def _rebootstrap_if_due(self, brokers: Brokers, now: float) -> bool:
        # Only bootstrap servers are known: it is one already.
        if not self.snapshot.brokers:
            return False
        reason = self._rebootstrap.reason(now, available=brokers.available(now))
        if reason is None:
            return False
        logger.info("bootstrapping again: %s", reason)
        self._rebootstrap.reset()
        # Unset, so that any cluster may respond.
        self._context.cluster_id = None
        brokers.disconnect(KafkaConnectionError(f"the client bootstraps again: {reason}"))
        self._replace_snapshot(self.snapshot.rebootstrapped())
        self.on_rebootstrap()
        if self._context.hooks.active:
            self._context.hooks.emit(Rebootstrapped(self._context.config.client_id, reason))
        return True

    # -- helpers ----------------------------------------------------------------------------------

    def _refreshed_topics(self) -> set[str]:
        """Return the tracked topics and those that were requested recently."""
        now = self._loop.time()
        self._recent = {topic: end for topic, end in self._recent.items() if end > now}
        return set(self._tracked) | set(self._recent)

    def _replace_snapshot(self, snapshot: ClusterMetadata) -> None:
        if snapshot is self.snapshot:
            return
        self.snapshot = snapshot
        self.change_listeners.notify(snapshot)

    def _wake(self) -> None:
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)


def bootstrap_error(brokers: Brokers) -> BootstrapError:
    """Return an error with the failure of each bootstrap server, one per line."""
    lines = brokers.server_failures()
    if len(lines) == 1:
        return BootstrapError(f"cannot bootstrap from {lines[0]}")
    return BootstrapError("cannot bootstrap:" + "".join(f"\n  {line}" for line in lines))


def _rejection(error: KafkaError) -> AuthenticationError | None:
    """Return the error if retries fail until the credentials are changed."""
    return error if isinstance(error, AuthenticationError) else None


def _fail_waiters(update: PendingUpdate, error: KafkaError) -> None:
    """End the waiting calls with an error; the update itself is retried."""
    waiters, update.waiters = update.waiters, []
    for waiter in waiters:
        if not waiter.done():
            waiter.set_exception(error)


def _merged(
    before: ClusterMetadata, response: MetadataResponse, *, all_topics: bool
) -> tuple[ClusterMetadata, list[str]]:
    """Return the snapshot after a response, and the topics of the response without a leader."""
    after = before.merged(response, all_topics=all_topics)
    names = [row.name for row in response.topics if row.name]
    return after, [name for name in names if after.lacks_leaders(name)]


def _requests(update: PendingUpdate, tracked: set[str]) -> Iterator[MetadataRequest]:
    """Yield the requests of an update, separate ones for topics to create and for topic ids."""
    from kafka_async.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

    empty = True
    for rows in _topic_rows(update.auto_create):
        yield MetadataRequest(topics=rows, allow_auto_topic_creation=True)
        empty = False
    if update.topic_ids:
        rows = [MetadataRequestTopic(topic_id=key, name=None) for key in update.topic_ids]
        yield MetadataRequest(topics=rows, allow_auto_topic_creation=False)
        empty = False
    if update.all_topics:
        yield MetadataRequest(topics=None, allow_auto_topic_creation=False)
        # All topics include the others.
        return
    for rows in _topic_rows((tracked | update.topics) - update.auto_create):
        yield MetadataRequest(topics=rows, allow_auto_topic_creation=False)
        empty = False
    # An empty list requests the brokers alone.
    if empty:
        yield MetadataRequest(topics=[], allow_auto_topic_creation=False)


def _topic_rows(topics: set[str]) -> Iterator[list[MetadataRequestTopic]]:
    from kafka_async.protocol.messages.metadata import MetadataRequestTopic

    # Sorted, so that equal updates send equal requests.
    remaining = iter(sorted(topics))
    while names := list(islice(remaining, MAX_TOPICS_PER_REQUEST)):
        yield [MetadataRequestTopic(name=name) for name in names]


def _ignore_result(task: asyncio.Task[Any]) -> None:
    """Mark the exception of a task as retrieved: its result is not needed."""
    if not task.cancelled():
        task.exception()


def _nothing(*_: Any) -> None:
    pass
