"""The metadata loop: one task a client keeps the snapshot fresh and tells everybody.

Callers never ask a broker for metadata themselves. They leave what they want to know in the next
`Ask`, and the loop puts all of it into one request (a second one for topics that may be created by
asking). A round is repeated, with another broker if possible, until it succeeds or the client ends;
those who wait for it give up at their own deadlines. What nobody waits for (a nudge after an error,
age, a topic without leader) is asked for at most once per back-off.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kafka_async.backoff import Backoff
from kafka_async.cluster.bootstrap import RebootstrapTrigger
from kafka_async.cluster.metadata import ClusterMetadata
from kafka_async.config import seconds
from kafka_async.errors import (
    BootstrapError,
    BrokerNotAvailableError,
    InvalidMetadataError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    RebootstrapRequiredError,
    RetriableError,
    error_for,
)
from kafka_async.hooks import Rebootstrapped
from kafka_async.types import check_topic

if TYPE_CHECKING:
    from uuid import UUID

    from kafka_async.cluster.broker import Brokers
    from kafka_async.cluster.connection import Wiring
    from kafka_async.cluster.lane import Lane
    from kafka_async.protocol.messages.metadata import (
        MetadataRequest,
        MetadataRequestTopic,
        MetadataResponse,
    )
    from kafka_async.types import Node, TopicPartition

logger = logging.getLogger("kafka_async.cluster")

Listener = Callable[[ClusterMetadata], None]

MANY: Final = 1000
"""Partitions in an answer above which a thread merges it: a millisecond."""
MERGES_ASIDE: Final = 2
"""Merges in a thread that what has come meanwhile may make void; the next one is made at once."""
CONNECT_PATIENCE: Final = 1.0
"""Seconds after which another broker is tried besides the one that is being connected."""


@dataclass(slots=True)
class Ask:
    """What the next round is to find out, and who waits for it."""

    topics: set[str] = field(default_factory=set[str])
    created: set[str] = field(default_factory=set[str])
    ids: set[UUID] = field(default_factory=set["UUID"])
    everything: bool = False
    waiters: list[asyncio.Future[ClusterMetadata]] = field(
        default_factory=list["asyncio.Future[ClusterMetadata]"]
    )

    def absorb(self, other: Ask) -> None:
        """Take over another's wishes and waiters."""
        self.topics |= other.topics
        self.created |= other.created
        self.ids |= other.ids
        self.everything |= other.everything
        self.waiters += other.waiters


class MetadataUpdater:
    """Owner of the snapshot; only the loop task `run`, and hints (KIP-951), replace it."""

    def __init__(self, wiring: Wiring) -> None:
        self.snapshot = ClusterMetadata()
        self.on_rebootstrap: Callable[[], None] = _nothing
        self._wiring = wiring
        self._loop = asyncio.get_running_loop()
        config = wiring.config
        self._max_age = seconds(config.metadata_max_age_ms)
        self._backoff = self._new_backoff()
        self._trigger = RebootstrapTrigger(
            enabled=config.metadata_recovery_strategy == "rebootstrap",
            after=seconds(config.metadata_recovery_rebootstrap_trigger_ms),
        )
        self._tracked: Counter[str] = Counter()
        self._recent: dict[str, float] = {}
        self._listeners: list[Listener] = []
        self._ask = Ask()
        self._nudged = False
        self._called: asyncio.Future[None] | None = None
        self._not_before = 0.0
        self._expires = 0.0
        self._failure: KafkaError | None = None

    # -- what callers use -------------------------------------------------------------------------

    def track(self, topics: Iterable[str]) -> None:
        """Keep topics fresh until they are untracked as often as they were tracked."""
        new = [topic for topic in _checked(topics) if not self._count(topic, 1)]
        unknown = {topic for topic in new if topic not in self.snapshot.topics}
        if unknown:
            self._ask.topics |= unknown
            self._call()

    def untrack(self, topics: Iterable[str]) -> None:
        """Undo `track`."""
        for topic in topics:
            self._count(topic, -1)

    def nudge(self) -> None:
        """Renew soon what is tracked; many nudges are one."""
        self._nudged = True
        self._call()

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
        topics: Iterable[str] = (),
        created: Iterable[str] = (),
        ids: Iterable[UUID] = (),
        everything: bool = False,
    ) -> ClusterMetadata:
        """The snapshot after a round that begins now or later, about these topics and the tracked.

        `created` are topics that the cluster may create when it is asked for them.

        Raises:
            KafkaTimeoutError: there was no answer within `timeout` seconds; it says why.
        """
        waiter: asyncio.Future[ClusterMetadata] = self._loop.create_future()
        self._ask.absorb(Ask(set(topics), set(created), set(ids), everything, [waiter]))
        self._call()
        try:
            return await self._wiring.lifetime.wait(waiter, self._loop.time() + timeout)
        except TimeoutError as error:
            if isinstance(error, KafkaError):
                raise
            why = "" if self._failure is None else f": {self._failure}"
            raise KafkaTimeoutError(f"no metadata within {timeout:.3g} s{why}") from self._failure

    async def known(
        self, topics: Iterable[str], timeout: float, *, create: bool = False
    ) -> ClusterMetadata:
        """A snapshot in which all these topics are, asking as often as it takes.

        Raises:
            UnknownTopicOrPartitionError: one is still unknown after `timeout` seconds.
            KafkaTimeoutError: no broker answered in that time.
            KafkaError: one cannot be used, as for its name or its permissions.
        """
        wanted = frozenset(_checked(topics))
        deadline = self._loop.time() + timeout
        backoff = self._new_backoff()
        while True:
            missing = [topic for topic in wanted if topic not in self.snapshot.topics]
            if not missing:
                return self.snapshot
            left = deadline - self._loop.time()
            created = missing if create else ()
            snapshot = await self.update(left, topics=missing, created=created)
            errors = [error for topic in missing if (error := snapshot.error(topic)) is not None]
            for error in errors:
                if not isinstance(error, RetriableError):
                    raise error
            if not errors:
                continue
            delay = backoff.next()
            if self._loop.time() + delay >= deadline:
                raise errors[0]
            await self._wiring.lifetime.sleep(delay)

    def hint_leader(
        self, partition: TopicPartition, leader_id: int, epoch: int, endpoint: Node | None
    ) -> None:
        """A broker said who leads a partition now (KIP-951); taken in only if newer."""
        self._replace(self.snapshot.with_leader(partition, leader_id, epoch, endpoint))

    def hint_broker(self, node: Node) -> None:
        """A broker said where another one is."""
        self._replace(self.snapshot.with_broker(node))

    # -- the loop ---------------------------------------------------------------------------------

    async def run(self, brokers: Brokers) -> None:
        """The task: rounds until the client ends."""
        try:
            while True:
                await self._wait_until_due()
                self._nudged = False
                ask = Ask()
                while not await self._round(brokers, ask):
                    pass
        except KafkaError as error:
            if error is not self._wiring.lifetime.ended:
                raise

    async def _wait_until_due(self) -> None:
        while not (self._ask.waiters or self._ask.topics):
            due = min(self._expires, self._not_before) if self._nudged else self._expires
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
        now = self._loop.time()
        self._trigger.attempted(now)
        self._rebootstrap_if_due(brokers, now)
        lane = brokers.least_loaded(now)
        if lane is None:
            await self._wiring.lifetime.sleep(max(0.0, brokers.available_at() - now))
            return False
        try:
            await self._ask_broker(lane, ask)
        except RebootstrapRequiredError as error:
            self._failure = error
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

    async def _ask_broker(self, lane: Lane, ask: Ask) -> None:
        # A broker that takes long to connect goes on connecting while others are tried.
        await lane.connect(CONNECT_PATIENCE)
        timeout = seconds(self._wiring.config.request_timeout_ms)
        for request in _requests(ask, self._wanted() | ask.topics):
            answer = await lane.send(request, timeout=timeout, offload=self._wiring.offload)
            whole = request.topics is None
            if not whole:
                ask.topics.update(row.name for row in answer.topics if row.name is not None)
            await self._take(answer, ask, whole=whole)

    async def _take(self, answer: MetadataResponse, ask: Ask, *, whole: bool) -> None:
        if answer.error_code:
            raise error_for(answer.error_code)
        if not answer.brokers:
            raise BrokerNotAvailableError("a broker answers that it knows of no brokers yet")
        self._trigger.answered(len(answer.brokers))
        self._wiring.cluster_id = answer.cluster_id or self._wiring.cluster_id
        keep = self._wanted() | ask.topics
        if sum(len(topic.partitions) for topic in answer.topics) <= MANY:
            self._replace(self.snapshot.merged(answer, whole=whole, keep=keep))
            return
        for _ in range(MERGES_ASIDE):
            before, keep = self.snapshot, self._wanted() | ask.topics
            merging = partial(before.merged, answer, whole=whole, keep=keep)
            merged = await self._wiring.offload(merging)
            # Again if a broker's hint has come meanwhile, or a topic is wanted that was not.
            if self.snapshot is before and self._wanted() <= keep:
                break
        else:
            merged = self.snapshot.merged(answer, whole=whole, keep=self._wanted() | ask.topics)
        self._replace(merged)

    def _succeeded(self, brokers: Brokers, ask: Ask) -> None:
        now = self._loop.time()
        self._failure = None
        self._expires = now + self._max_age
        self._recent.update(dict.fromkeys(ask.topics | ask.created, self._expires))
        brokers.follow(self.snapshot.brokers)
        if self._incomplete():
            self._nudged = True
            self._not_before = now + self._backoff.next()
        else:
            self._backoff.reset()
            self._not_before = now + self._backoff.initial
        for waiter in ask.waiters:
            if not waiter.done():
                waiter.set_result(self.snapshot)

    def _failed(self, brokers: Brokers, ask: Ask, error: KafkaError) -> None:
        self._failure = error
        logger.debug("no metadata: %s", error)
        if self.snapshot.version == 0 and brokers.hopeless():
            failure = bootstrap_error(brokers)
            for waiter in ask.waiters:
                if not waiter.done():
                    waiter.set_exception(failure)

    def _rebootstrap_if_due(self, brokers: Brokers, now: float) -> None:
        if not self.snapshot.brokers:
            return
        reason = self._trigger.reason(now, available=brokers.available(now))
        if reason is None:
            return
        logger.info("bootstrapping again: %s", reason)
        self._trigger.done()
        self._wiring.cluster_id = None
        brokers.disconnect(KafkaConnectionError(f"the client bootstraps again: {reason}"))
        self._replace(self.snapshot.rebootstrapped())
        self.on_rebootstrap()
        if self._wiring.hooks.active:
            self._wiring.hooks.emit(Rebootstrapped(self._wiring.config.client_id, reason))

    # -- pieces -----------------------------------------------------------------------------------

    def _wanted(self) -> set[str]:
        now = self._loop.time()
        self._recent = {topic: end for topic, end in self._recent.items() if end > now}
        return set(self._tracked) | set(self._recent)

    def _incomplete(self) -> bool:
        """Whether something tracked is missing that will be there soon, as elections end."""
        for topic in self._tracked:
            error = self.snapshot.error(topic)
            if isinstance(error, InvalidMetadataError):
                return True
            found = self.snapshot.topic(topic)
            if found is not None and any(p.leader_id < 0 for p in found.partitions.values()):
                return True
        return False

    def _count(self, topic: str, by: int) -> int:
        before = self._tracked[topic]
        if before + by > 0:
            self._tracked[topic] = before + by
        else:
            del self._tracked[topic]
        return before

    def _replace(self, snapshot: ClusterMetadata) -> None:
        if snapshot is self.snapshot:
            return
        self.snapshot = snapshot
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


def _requests(ask: Ask, keep: set[str]) -> Iterator[MetadataRequest]:
    """What to ask: apart for topics that may be created, and for ids, which do not mix."""
    from kafka_async.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

    if ask.created:
        yield MetadataRequest(topics=_named(ask.created), allow_auto_topic_creation=True)
    if ask.ids:
        rows = [MetadataRequestTopic(topic_id=key, name=None) for key in ask.ids]
        yield MetadataRequest(topics=rows, allow_auto_topic_creation=False)
    topics = None if ask.everything else _named(keep - ask.created)
    yield MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def _named(topics: set[str]) -> list[MetadataRequestTopic]:
    from kafka_async.protocol.messages.metadata import MetadataRequestTopic

    return [MetadataRequestTopic(name=name) for name in sorted(topics)]


def _nothing(*_: Any) -> None:
    pass


def _checked(topics: Iterable[str]) -> list[str]:
    """The names, all of them looked at before any is used; TypeError for one that is no str."""
    names = list(topics)
    for name in names:
        check_topic(name)
    return names
