"""The metadata loop: one task a client keeps the snapshot fresh and tells everybody.

Callers never ask a broker for metadata themselves. They leave what they want to know in the next
`Ask`, and the loop puts all of it into one round: requests of some hundred topics each, apart for
topics that may be created by asking. A round is about what was asked for; about everything that is
tracked only when that is due, so that a client of thousands of topics that learns of one more
asks for one. It is repeated, with another broker if possible, until it succeeds or the client ends;
those who wait for it give up at their own deadlines. What nobody waits for (a nudge after an error,
age, a topic without leader) is asked for at most once per back-off.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

from kafka_async.arguments import topic_names
from kafka_async.backoff import Backoff
from kafka_async.cluster.broker_connection import CONNECT_PATIENCE
from kafka_async.cluster.metadata import ClusterMetadata
from kafka_async.cluster.outage import OutageLog
from kafka_async.cluster.rebootstrap import RebootstrapTrigger
from kafka_async.config import seconds
from kafka_async.errors import (
    BootstrapError,
    BrokerNotAvailableError,
    ClientClosedError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    RebootstrapRequiredError,
    RetriableError,
    UnknownTopicOrPartitionError,
    error_for,
)
from kafka_async.hooks import Rebootstrapped

if TYPE_CHECKING:
    from uuid import UUID

    from kafka_async.cluster.broker import Brokers
    from kafka_async.cluster.broker_connection import BrokerConnection
    from kafka_async.cluster.connection import ConnectionContext
    from kafka_async.cluster.metadata import LeaderHint
    from kafka_async.protocol.messages.metadata import (
        MetadataRequest,
        MetadataRequestTopic,
        MetadataResponse,
    )
    from kafka_async.types import Node

logger = logging.getLogger("kafka_async.cluster")

Listener = Callable[[ClusterMetadata], None]

TOPICS_A_REQUEST: Final = 125
"""More are asked for one request after the other: each is to hold the loop for a millisecond."""
MERGED_IN_LOOP: Final = 1000
"""Partitions in an answer above which a thread merges it: a millisecond."""
MERGES_ASIDE: Final = 2
"""Merges in a thread that what has come meanwhile may make void; the next one is made at once."""
REFUSALS: Final = 3
"""Refused attempts of each bootstrap server, at least, before a client gives up its start."""
HEDGE_AFTER: Final = 1.0
"""Seconds without a response after which another broker is sent the same request."""


@dataclass(slots=True)
class Ask:
    """What the next round is to find out, and who waits for it."""

    tracked: bool = False
    topics: set[str] = field(default_factory=set[str])
    created: set[str] = field(default_factory=set[str])
    ids: set[UUID] = field(default_factory=set["UUID"])
    everything: bool = False
    waiters: list[asyncio.Future[ClusterMetadata]] = field(
        default_factory=list["asyncio.Future[ClusterMetadata]"]
    )

    def absorb(self, other: Ask) -> None:
        """Take over another's wishes and waiters."""
        self.tracked |= other.tracked
        self.topics |= other.topics
        self.created |= other.created
        self.ids |= other.ids
        self.everything |= other.everything
        self.waiters += other.waiters


class MetadataUpdater:
    """Owner of the snapshot; only the loop task `run`, and hints (KIP-951), replace it."""

    def __init__(self, wiring: ConnectionContext) -> None:
        self.snapshot = ClusterMetadata()
        self.on_rebootstrap: Callable[[], None] = _nothing
        self._wiring = wiring
        self._loop = asyncio.get_running_loop()
        config = wiring.config
        self._max_age = seconds(config.metadata_max_age_ms)
        self._made_at = self._loop.time()
        self._refused_after = seconds(config.bootstrap_refused_timeout_ms)
        self._backoff = self._new_backoff()
        self._trigger = RebootstrapTrigger(
            enabled=config.metadata_recovery_strategy == "rebootstrap",
            after=seconds(config.metadata_recovery_rebootstrap_trigger_ms),
        )
        self._tracked: dict[str, int] = {}
        self._recent: dict[str, float] = {}
        self._lacking: set[str] = set()  # tracked, and without a leader
        self._listeners: list[Listener] = []
        self._ask = Ask()
        self._nudged = False
        self._called: asyncio.Future[None] | None = None
        self._not_before = 0.0
        self._expires = 0.0
        self._failure: KafkaError | None = None
        self._outage = OutageLog()
        self._warned = ""

    # -- what callers use -------------------------------------------------------------------------

    def track(self, topics: Iterable[str]) -> None:
        """Keep topics fresh until they are untracked as often as they were tracked."""
        tracked, known = self._tracked, self.snapshot.topics
        for topic in topic_names(topics):
            count = tracked.get(topic, 0)
            tracked[topic] = count + 1
            if count:
                continue
            if topic not in known:
                self._ask.topics.add(topic)
            elif self.snapshot.lacks_leaders(topic):
                self._lacking.add(topic)
        if self._ask.topics:
            self._call()

    def untrack(self, topics: Iterable[str]) -> None:
        """Undo `track`."""
        tracked = self._tracked
        for topic in topics:
            count = tracked.pop(topic, 0)
            if count > 1:
                tracked[topic] = count - 1
            else:
                self._lacking.discard(topic)

    def nudge(self) -> None:
        """Renew soon what is tracked; many nudges are one."""
        self._nudged = True
        self._call()

    def demand_rebootstrap(self, reason: str) -> None:
        """Bootstrap again in the next round, which is due soon; ignored if that is switched off."""
        self._trigger.demanded(reason)
        self.nudge()

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener(snapshot)` after each change; returns how to undo it."""
        self._listeners.append(listener)

        def remove() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return remove

    async def update(
        self,
        timeout: float,
        *,
        tracked: bool = False,
        topics: Iterable[str] = (),
        created: Iterable[str] = (),
        ids: Iterable[UUID] = (),
        everything: bool = False,
    ) -> ClusterMetadata:
        """The snapshot after a round that begins now or later, about brokers and these topics.

        `tracked`: and about all that are tracked. `created` are topics that the cluster may create
        when it is asked for them.

        Raises:
            KafkaTimeoutError: there was no answer within `timeout` seconds; it says why.
        """
        waiter: asyncio.Future[ClusterMetadata] = self._loop.create_future()
        self._ask.absorb(Ask(tracked, set(topics), set(created), set(ids), everything, [waiter]))
        self._call()
        try:
            return await self._wiring.lifetime.wait(waiter, self._loop.time() + timeout)
        except TimeoutError as error:
            if isinstance(error, KafkaError):
                raise
            why = "" if self._failure is None else f": {self._failure}"
            raise KafkaTimeoutError(f"no metadata within {timeout:.3g} s{why}") from self._failure

    async def known(
        self,
        topics: Iterable[str],
        timeout: float,
        *,
        create: bool = False,
        retry_unknown: bool = True,
    ) -> ClusterMetadata:
        """A snapshot in which all these topics are, asking as often as it takes.

        Raises:
            UnknownTopicOrPartitionError: one is still unknown after `timeout` seconds, or after the
                first response without `retry_unknown`.
            KafkaTimeoutError: no broker answered in that time.
            KafkaError: one cannot be used, as for its name or its permissions.
        """
        wanted = topic_names(topics)
        deadline = self._loop.time() + timeout
        backoff = self._new_backoff()
        while True:
            missing = [topic for topic in wanted if topic not in self.snapshot.topics]
            if not missing:
                return self.snapshot
            left = deadline - self._loop.time()
            created = missing if create else ()
            snapshot = await self.update(left, topics=missing, created=created)
            # One error a code: thousands of topics may lack the same.
            codes = {snapshot.errors[name]: name for name in missing if name in snapshot.errors}
            errors = [error_for(code, topic=name) for code, name in codes.items()]
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
            delay = backoff.next()
            if self._loop.time() + delay >= deadline:
                raise errors[0]
            await self._wiring.lifetime.sleep(delay)

    def hint_leaders(self, hints: Iterable[LeaderHint]) -> None:
        """Brokers said who leads partitions now (KIP-951); taken in only if newer."""
        self._replace(self.snapshot.with_leaders(hints))

    def update_broker(self, node: Node) -> None:
        """A broker said where another one is."""
        self._replace(self.snapshot.with_broker(node))

    # -- the loop ---------------------------------------------------------------------------------

    async def run(self, brokers: Brokers) -> None:
        """The task: rounds until the client ends."""
        try:
            while True:
                await self._wait_until_due()
                ask = self._due()
                while not await self._round(brokers, ask):
                    pass
        except KafkaError as error:
            if error is not self._wiring.lifetime.ended:
                raise

    def _due(self) -> Ask:
        """What is to be renewed now, whether or not somebody asks."""
        now = self._loop.time()
        soon = self._not_before <= now
        if self._expires <= now or (self._nudged and soon):
            return Ask(tracked=True)
        return Ask(topics=set(self._lacking) if soon else set())

    async def _wait_until_due(self) -> None:
        while not (self._ask.waiters or self._ask.topics):
            hurry = self._nudged or self._lacking
            due = min(self._expires, self._not_before) if hurry else self._expires
            if due <= self._loop.time():
                return
            self._called = self._loop.create_future()
            try:
                await self._wiring.lifetime.wait(self._called, due)
            except TimeoutError:
                continue
            finally:
                self._called = None

    async def _round(self, brokers: Brokers, ask: Ask) -> bool:
        """One attempt; whether `ask` is answered. What was asked for meanwhile joins it."""
        ask.absorb(self._ask)
        self._ask = Ask()
        if ask.tracked or self._tracked.keys() <= ask.topics:
            self._nudged = False
        now = self._loop.time()
        self._trigger.attempted(now)
        if self._rebootstrap_if_due(brokers, now):
            ask.tracked = True
        connection = brokers.least_loaded(now)
        if connection is None:
            await self._wiring.lifetime.sleep(max(0.0, brokers.available_at() - now))
            return False
        try:
            await self._ask_broker(brokers, connection, ask)
        except RebootstrapRequiredError as error:
            self._failed(brokers, ask, error)
            self._trigger.demanded(str(error))
        except KafkaConnectionError as error:
            self._failed(brokers, ask, error)  # the lane's own back-off keeps this from spinning
            return False
        except KafkaError as error:
            self._failed(brokers, ask, error)
        else:
            self._succeeded(brokers, ask)
            return True
        await self._wiring.lifetime.sleep(self._backoff.next())
        return False

    async def _ask_broker(self, brokers: Brokers, connection: BrokerConnection, ask: Ask) -> None:
        # A broker that takes long to connect goes on connecting while others are tried.
        await connection.connect(CONNECT_PATIENCE)
        before = self.snapshot
        try:
            for request in _requests(ask, self._wanted() if ask.tracked else set()):
                connection, answer = await self._first_response(brokers, connection, request)
                whole = request.topics is None
                if ask.ids and not whole:
                    ask.topics.update(row.name for row in answer.topics if row.name is not None)
                await self._take(answer, whole=whole)
            end = self._loop.time() + self._max_age
            recent = (ask.topics | ask.created).difference(self._tracked)
            self._recent.update(dict.fromkeys(recent, end))
            if ask.tracked and not ask.everything:
                await asyncio.sleep(0)  # what comes now looks at all topics
                self._forget()
        finally:
            if self.snapshot is not before:
                self._tell()  # once a round: listeners look at all that is theirs

    async def _first_response(
        self, brokers: Brokers, connection: BrokerConnection, request: MetadataRequest
    ) -> tuple[BrokerConnection, MetadataResponse]:
        """Send a request, after HEDGE_AFTER to another broker too; return the first response.

        A frozen broker, which accepts requests and does not respond, costs no more than that.
        """
        timeout = seconds(self._wiring.config.request_timeout_ms)
        attempts: dict[asyncio.Task[MetadataResponse], BrokerConnection] = {}

        def begin(connection: BrokerConnection) -> None:
            sending = connection.send(request, timeout=timeout, offload=self._wiring.offload)
            attempts[asyncio.create_task(sending, name="metadata request")] = connection

        begin(connection)
        failure: BaseException | None = None
        try:
            done, _ = await asyncio.wait(attempts, timeout=HEDGE_AFTER)
            if not done:
                other = brokers.least_loaded(self._loop.time(), besides=connection)
                if other is not None:
                    begin(other)
            while attempts:
                done, _ = await asyncio.wait(attempts, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    connection, error = attempts.pop(task), task.exception()
                    if error is None:
                        return connection, task.result()
                    failure = failure or error
        finally:
            for task in attempts:
                task.cancel()
                task.add_done_callback(_discard)
        assert failure is not None
        raise failure

    async def _take(self, answer: MetadataResponse, *, whole: bool) -> None:
        if answer.error_code:
            raise error_for(answer.error_code)
        if not answer.brokers:
            raise BrokerNotAvailableError("a broker answers that it knows of no brokers yet")
        self._trigger.answered(len(answer.brokers))
        self._wiring.cluster_id = answer.cluster_id or self._wiring.cluster_id
        if sum([len(topic.partitions) for topic in answer.topics]) <= MERGED_IN_LOOP:
            merged, lacking = _merged(self.snapshot, answer, whole=whole)
        else:
            for _ in range(MERGES_ASIDE):
                before = self.snapshot
                merging = partial(_merged, before, answer, whole=whole)
                merged, lacking = await self._wiring.offload(merging)
                if self.snapshot is before:  # else a broker's hint has come meanwhile
                    break
            else:
                merged, lacking = _merged(self.snapshot, answer, whole=whole)
        self.snapshot = merged
        about = self._tracked if whole else [row.name for row in answer.topics if row.name]
        self._lacking.difference_update(about)
        self._lacking.update(name for name in lacking if name in self._tracked)

    def _forget(self) -> None:
        """Drop what nobody wants any more: neither tracked, nor asked for of late."""
        tracked, recent, snapshot = self._tracked, self._recent, self.snapshot
        known = chain(snapshot.topics, snapshot.errors)
        unwanted = {name for name in known if name not in tracked and name not in recent}
        if unwanted:
            self.snapshot = snapshot.without(unwanted)

    def _succeeded(self, brokers: Brokers, ask: Ask) -> None:
        now = self._loop.time()
        self._failure = None
        self._warned = ""
        lasted = self._outage.reached(now)
        if lasted is not None:
            logger.warning("the cluster can be reached again, after %.0f s", lasted)
        if ask.tracked or ask.everything:
            self._expires = now + self._max_age
        brokers.follow(self.snapshot.brokers)
        if not self._lacking:
            self._backoff.reset()
        if ask.tracked or self._not_before <= now:  # else many small rounds would put it off
            pause = self._backoff.next() if self._lacking else self._backoff.initial
            self._not_before = now + pause
        for waiter in ask.waiters:
            if not waiter.done():
                waiter.set_result(self.snapshot)

    def _failed(self, brokers: Brokers, ask: Ask, error: KafkaError) -> None:
        self._failure = error
        logger.debug("no metadata: %s", error)
        if self.snapshot.version == 0 and (brokers.hopeless() or self._refused(brokers)):
            failure = bootstrap_error(brokers)
            for waiter in ask.waiters:
                if not waiter.done():
                    waiter.set_exception(failure)
        elif self.snapshot.version == 0:
            if brokers.all_failed():
                self._warn(bootstrap_error(brokers).message)
        elif brokers.all_unreachable() and not isinstance(error, ClientClosedError):
            self._warn_of_outage(error)

    def _warn_of_outage(self, error: KafkaError) -> None:
        lasted = self._outage.unreachable(self._loop.time())
        if lasted is not None:
            logger.warning(
                "no broker of the cluster can be reached%s: %s; the client keeps retrying",
                f" for {lasted:.0f} s" if lasted else "",
                error,
            )

    def _refused(self, brokers: Brokers) -> bool:
        """Return whether every bootstrap server has refused for long enough to fail `start`."""
        waited = self._loop.time() - self._made_at
        return waited >= self._refused_after and brokers.refusals() >= REFUSALS

    def _warn(self, failure: str) -> None:
        """Say in the log what keeps the client from starting, while it goes on trying; once."""
        if failure != self._warned:
            self._warned = failure
            logger.warning("%s; the client goes on trying", failure)

    def _rebootstrap_if_due(self, brokers: Brokers, now: float) -> bool:
        if not self.snapshot.brokers:
            return False
        reason = self._trigger.reason(now, available=brokers.available(now))
        if reason is None:
            return False
        logger.info("bootstrapping again: %s", reason)
        self._trigger.done()
        self._wiring.cluster_id = None
        brokers.disconnect(KafkaConnectionError(f"the client bootstraps again: {reason}"))
        self._replace(self.snapshot.rebootstrapped())
        self.on_rebootstrap()
        if self._wiring.hooks.active:
            self._wiring.hooks.emit(Rebootstrapped(self._wiring.config.client_id, reason))
        return True

    # -- pieces -----------------------------------------------------------------------------------

    def _wanted(self) -> set[str]:
        now = self._loop.time()
        self._recent = {topic: end for topic, end in self._recent.items() if end > now}
        return set(self._tracked) | set(self._recent)

    def _replace(self, snapshot: ClusterMetadata) -> None:
        if snapshot is self.snapshot:
            return
        self.snapshot = snapshot
        self._tell()

    def _tell(self) -> None:
        snapshot = self.snapshot
        for listener in list(self._listeners):
            listener(snapshot)

    def _call(self) -> None:
        if self._called is not None and not self._called.done():
            self._called.set_result(None)

    def _new_backoff(self) -> Backoff:
        config = self._wiring.config
        return Backoff(seconds(config.retry_backoff_ms), seconds(config.retry_backoff_max_ms))


def bootstrap_error(brokers: Brokers) -> BootstrapError:
    """Why no bootstrap server could be used: a line for each."""
    lines = brokers.server_failures()
    if len(lines) == 1:
        return BootstrapError(f"cannot bootstrap from {lines[0]}")
    return BootstrapError("cannot bootstrap:" + "".join(f"\n  {line}" for line in lines))


def _merged(
    before: ClusterMetadata, answer: MetadataResponse, *, whole: bool
) -> tuple[ClusterMetadata, list[str]]:
    """The snapshot after an answer, and what lacks a leader in it; what is tracked may change."""
    after = before.merged(answer, whole=whole)
    names = [row.name for row in answer.topics if row.name]
    return after, [name for name in names if after.lacks_leaders(name)]


def _requests(ask: Ask, tracked: set[str]) -> Iterator[MetadataRequest]:
    """What to ask: apart for topics that may be created, and for ids, which do not mix."""
    from kafka_async.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

    nothing = True
    for rows in _named(ask.created):
        yield MetadataRequest(topics=rows, allow_auto_topic_creation=True)
        nothing = False
    if ask.ids:
        rows = [MetadataRequestTopic(topic_id=key, name=None) for key in ask.ids]
        yield MetadataRequest(topics=rows, allow_auto_topic_creation=False)
        nothing = False
    if ask.everything:
        yield MetadataRequest(topics=None, allow_auto_topic_creation=False)
        return
    for rows in _named((tracked | ask.topics) - ask.created):
        yield MetadataRequest(topics=rows, allow_auto_topic_creation=False)
        nothing = False
    if nothing:
        yield MetadataRequest(topics=[], allow_auto_topic_creation=False)


def _named(topics: set[str]) -> Iterator[list[MetadataRequestTopic]]:
    from kafka_async.protocol.messages.metadata import MetadataRequestTopic

    names = iter(sorted(topics))
    while some := list(islice(names, TOPICS_A_REQUEST)):
        yield [MetadataRequestTopic(name=name) for name in some]


def _discard(task: asyncio.Task[Any]) -> None:
    """Mark the exception of a task as seen: its result is not needed any more."""
    if not task.cancelled():
        task.exception()


def _nothing(*_: Any) -> None:
    pass
