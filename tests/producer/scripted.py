"""A cluster that answers from a script: what the sender and the transactions are tested against.

`ScriptedCluster` stands where the producer expects its `Client`. Its brokers write batches into
logs, checking sequences as Apache Kafka does; a test puts answers, errors and delays before that.
"""

from __future__ import annotations

import asyncio
import copy
import dataclasses
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from kafka_async.clock import LoopClock
from kafka_async.cluster.metadata import (
    ClusterMetadata,
    LeaderHint,
    PartitionMetadata,
    TopicMetadata,
)
from kafka_async.config import ProducerConfig
from kafka_async.errors import (
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
)
from kafka_async.hooks import Hooks
from kafka_async.kernel import IMPLEMENTATION
from kafka_async.producer.preload import preload
from kafka_async.producer.producer import Producer
from kafka_async.producer.writer import RecordWriter
from kafka_async.protocol.message import Response
from kafka_async.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from kafka_async.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from kafka_async.protocol.messages.end_txn import EndTxnResponse
from kafka_async.protocol.messages.init_producer_id import InitProducerIdResponse
from kafka_async.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kafka_async.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kafka_async.records.batch import iter_batches
from kafka_async.supervisor import Supervisor
from kafka_async.types import Health, Node, TopicPartition
from tests import strict

if TYPE_CHECKING:
    from kafka_async.cluster.client import Client
    from kafka_async.cluster.destinations import CoordinatorKind

OUT_OF_ORDER = 45
STALE_EPOCH = 47

# A loop on virtual time has no threads to load these in, and may not read files either.
for _codec in ("none", "gzip", "snappy", "lz4", "zstd"):
    preload(_codec, transactional=True)
PRODUCE = 0


Recent = deque[tuple[int, int, int]]
Reply: TypeAlias = Callable[[Any], Any] | Exception | Response | None
"""What a coordinator answers next; None: as if all were well."""


class Log:
    """A partition: what was written, and what the leader remembers of idempotent producers."""

    def __init__(self) -> None:
        self.records: list[tuple[bytes | None, bytes | None]] = []
        self.batches: list[bytes] = []
        self._producers: dict[int, tuple[int, Recent]] = {}

    def append(self, frame: bytes) -> tuple[int, int]:
        """Write a batch; the error code and the base offset.

        Of a producer id that it does not know, a leader takes any sequence.
        """
        view = next(iter_batches(frame))
        header = view.header
        base, count = header.base_sequence, header.records_count
        if header.producer_id >= 0:
            epoch, recent = self._producers.get(header.producer_id, (-1, Recent()))
            if header.producer_epoch < epoch:
                return STALE_EPOCH, -1
            if header.producer_epoch > epoch:
                if epoch >= 0 and base != 0:
                    return OUT_OF_ORDER, -1
                recent = Recent(maxlen=5)
            for first, size, offset in recent:
                if (first, size) == (base, count):
                    return 0, offset
            if recent and base != (recent[-1][0] + recent[-1][1]) & 0x7FFFFFFF:
                return OUT_OF_ORDER, -1
            recent.append((base, count, len(self.records)))
            self._producers[header.producer_id] = (header.producer_epoch, recent)
        offset = len(self.records)
        self.records += [(record.key, record.value) for record in view.records()]
        self.batches.append(frame)
        return 0, offset

    @property
    def values(self) -> list[bytes | None]:
        return [value for _, value in self.records]


@dataclasses.dataclass
class Answer:
    """What to do with the next Produce request.

    `code` answers each partition with an error; `lose` drops the connection, before or after the
    records are written; `hold` keeps the answer back until it is set.
    """

    code: int = 0
    lose: bool = False
    write: bool = True
    silent: bool = False
    hold: asyncio.Event | None = None
    leader: tuple[int, int] | None = None
    message: str | None = None


class Connection:
    """What a broker does about one connection: a request at a time, answers in order."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()
        self.turn = asyncio.Lock()


class ScriptedLane:
    """A lane to one scripted broker. As with a real one, an overdue answer ends the connection."""

    def __init__(self, cluster: ScriptedCluster, node_id: int) -> None:
        self.node_id = node_id
        self.connected = False
        self.closed = False
        self.throttled_until = 0.0
        self.connects = 0
        self.connection = Connection()
        self._cluster = cluster
        self._pending: list[asyncio.Future[Any]] = []

    @property
    def in_flight(self) -> int:
        return sum(not future.done() for future in self._pending)

    async def connect(self, timeout: float) -> None:
        self.connects += 1
        await asyncio.sleep(0)
        refusal = self._cluster.refusing.get(self.node_id)
        if refusal is not None:
            raise refusal
        self.connected = True
        self.connection = Connection()

    def version(self, api_key: int) -> int:
        return self._cluster.versions.get(api_key, 99)

    def ask(
        self,
        request: Any,
        heard: Callable[[Any], None],
        *,
        timeout: float,
        expect_response: bool = True,
        version: int | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        if not self.connected:
            raise KafkaConnectionError("not connected")
        future: asyncio.Future[Any] = loop.create_future()
        future.add_done_callback(lambda _: heard(future.exception() or future.result()))
        self._cluster.receive(self.node_id, request, version)
        if not expect_response:
            self._cluster.produced(self.node_id, request, Answer())
            future.set_result(ProduceResponse())
            return
        timer = loop.call_later(timeout, self.drop)
        future.add_done_callback(lambda _: timer.cancel())
        self._pending.append(future)
        task = loop.create_task(self._cluster.serve(self, request, future))
        self._cluster.tasks.add(task)
        task.add_done_callback(self._cluster.tasks.discard)

    async def send(self, request: Any, *, timeout: float, version: int | None = None) -> Any:
        self._cluster.receive(self.node_id, request, version)
        await asyncio.sleep(0)
        async with asyncio.timeout(timeout) as limit:
            try:
                return await self._cluster.coordinate(self.node_id, request)
            except TimeoutError:
                if limit.expired():
                    raise KafkaTimeoutError("no answer") from None
                raise

    def drop(self) -> None:
        """Lose the connection."""
        self.connected = False
        self.connection.closed.set()
        pending, self._pending = self._pending, []
        for future in pending:
            _fail(future, KafkaConnectionError("the connection was lost"))

    async def close(self, reason: KafkaError | None = None) -> None:
        self.closed = True
        self.drop()


def _joined(request: Any) -> Any:
    """Return a Produce request whose records are one buffer, as it arrives at a broker."""
    if not isinstance(request, ProduceRequest):
        return request
    decoded = copy.copy(request)
    decoded.topic_data = [copy.copy(topic) for topic in request.topic_data]
    for topic in decoded.topic_data:
        topic.partition_data = [copy.copy(data) for data in topic.partition_data]
        for data in topic.partition_data:
            pieces: Any = data.records
            data.records = pieces if pieces is None else b"".join(pieces)
    return decoded


class ScriptedCluster:
    """Topics, logs, coordinators, and the script."""

    def __init__(self, config: ProducerConfig, topics: dict[str, list[int]] | None = None) -> None:
        loop = asyncio.get_running_loop()
        self.config = config
        self.hooks = Hooks()
        self.clock = LoopClock(loop)
        self.supervisor = Supervisor("scripted client")
        self.metadata = ClusterMetadata()
        self.logs: dict[TopicPartition, Log] = {}
        self.script: deque[Answer] = deque()
        self.replies: deque[Reply] = deque()
        self.sent: list[tuple[int, Any, int | None]] = []
        self.refusing: dict[int, KafkaError] = {}
        self.versions: dict[int, int] = {PRODUCE: 12}
        self.features: dict[str, int] = {"transaction.version": 2}
        self.lanes: list[ScriptedLane] = []
        self.tracked: set[str] = set()
        self.updates = 0
        self.creatable: dict[str, list[int]] = {}
        self.refreshed: list[list[str]] = []
        self.tasks: set[asyncio.Task[None]] = set()
        self.epoch = -1
        self.learning: asyncio.Event | None = None
        self._listeners: list[Callable[[ClusterMetadata], None]] = []
        for name, leaders in (topics or {}).items():
            self.set_topic(name, leaders)

    # -- what the script does ---------------------------------------------------------------------

    def set_topic(self, name: str, leaders: list[int]) -> None:
        """Give a topic these leaders; -1 for none."""
        partitions = {n: PartitionMetadata(n, leader, 1) for n, leader in enumerate(leaders)}
        brokers = {n: Node(n, "host", 9092) for n in (*self.metadata.brokers, *leaders) if n >= 0}
        topics = {**self.metadata.topics, name: TopicMetadata(name, partitions=partitions)}
        self.set_metadata(
            dataclasses.replace(
                self.metadata, brokers=brokers, topics=topics, version=self.metadata.version + 1
            )
        )

    def set_metadata(self, metadata: ClusterMetadata) -> None:
        self.metadata = metadata
        for listener in list(self._listeners):
            listener(metadata)

    def log(self, topic: str, partition: int = 0) -> Log:
        return self.logs.setdefault(TopicPartition(topic, partition), Log())

    def requests(self, kind: type[Any]) -> list[Any]:
        return [request for _, request, _ in self.sent if isinstance(request, kind)]

    def lane_to(self, node: int) -> ScriptedLane:
        return next(lane for lane in self.lanes if lane.node_id == node and not lane.closed)

    # -- brokers ----------------------------------------------------------------------------------

    def receive(self, node: int, request: Any, version: int | None) -> None:
        """Take note of a request, by the rules that brokers have for it."""
        self.sent.append((node, request, version))
        used = self.versions.get(request.API_KEY) if version is None else version
        strict.receive(_joined(request), used)

    async def serve(self, lane: ScriptedLane, request: Any, future: asyncio.Future[Any]) -> None:
        connection = lane.connection
        answer = self.script.popleft() if self.script else Answer()
        async with connection.turn:
            if connection.closed.is_set():
                return  # the broker had not read it yet
            if answer.hold is not None:
                await answer.hold.wait()
            response = self.produced(lane.node_id, request, answer, dry=not answer.write)
            if answer.lose:
                lane.drop()
            elif answer.silent:
                await connection.closed.wait()
            elif not future.done():
                future.set_result(response)

    def produced(
        self, node: int, request: ProduceRequest, answer: Answer, *, dry: bool = False
    ) -> ProduceResponse:
        from kafka_async.protocol.messages.produce import LeaderIdAndEpoch, NodeEndpoint

        topics: list[TopicProduceResponse] = []
        for topic in request.topic_data:
            rows: list[PartitionProduceResponse] = []
            for data in topic.partition_data:
                code, offset = answer.code, -1
                pieces: Any = data.records
                if not code and not dry and pieces is not None:
                    code, offset = self.log(topic.name, data.index).append(b"".join(pieces))
                row = PartitionProduceResponse(
                    index=data.index, error_code=code, base_offset=offset
                )
                row.error_message = answer.message
                if answer.leader is not None:
                    row.current_leader = LeaderIdAndEpoch(
                        leader_id=answer.leader[0], leader_epoch=answer.leader[1]
                    )
                rows.append(row)
            topics.append(TopicProduceResponse(name=topic.name, partition_responses=rows))
        endpoints = []
        if answer.leader is not None:
            endpoints = [NodeEndpoint(node_id=answer.leader[0], host="host", port=9092)]
        return ProduceResponse(responses=topics, node_endpoints=endpoints)

    async def coordinate(self, node: int, request: Any) -> Any:
        if self.replies:
            reply: Any = self.replies.popleft()
            if callable(reply):
                reply = reply(request)
            if asyncio.iscoroutine(reply):
                reply = await reply
            if isinstance(reply, Exception):
                raise reply
            if reply is not None:
                return reply
        return self.good_reply(request)

    def good_reply(self, request: Any) -> Any:
        """What a coordinator without troubles answers."""
        name = type(request).__name__.removesuffix("Request")
        if name == "InitProducerId":
            self.epoch += 1
            return InitProducerIdResponse(producer_id=7, producer_epoch=self.epoch)
        if name == "EndTxn" and self.features.get("transaction.version", 0) >= 2:
            self.epoch += 1
            return EndTxnResponse(producer_id=7, producer_epoch=self.epoch)
        if name == "AddPartitionsToTxn":
            return add_partitions_response(request, 0)
        if name == "TxnOffsetCommit":
            return offsets_response(request, 0)
        return {"EndTxn": EndTxnResponse, "AddOffsetsToTxn": AddOffsetsToTxnResponse}[name]()

    # -- what the producer calls ------------------------------------------------------------------

    async def request(self, request: Any, *, to: Any, timeout: float | None = None) -> Any:
        self.sent.append((-1, request, None))
        return await self.coordinate(-1, request)

    def lane(self, node_id: int, kind: Any, owner: object) -> ScriptedLane:
        lane = ScriptedLane(self, node_id)
        self.lanes.append(lane)
        return lane

    @property
    def responsive(self) -> bool:
        return True

    def health(self) -> Health:
        return Health(state="running", kernel=IMPLEMENTATION)

    async def coordinator(self, kind: CoordinatorKind, key: str, *, timeout: float) -> int:
        await asyncio.sleep(0)
        return 100 + kind

    def forget_coordinator(self, kind: CoordinatorKind, key: str) -> None:
        self.updates += 1

    def finalized_feature(self, name: str) -> int:
        return self.features.get(name, 0)

    def track_topics(self, topics: Iterable[str]) -> None:
        self.tracked |= set(topics)

    def untrack_topics(self, topics: Iterable[str]) -> None:
        self.tracked -= set(topics)

    def on_metadata(self, callback: Callable[[ClusterMetadata], None]) -> Callable[[], None]:
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback)

    def request_metadata_update(self) -> None:
        self.updates += 1

    def note_leaders(self, hints: Iterable[LeaderHint]) -> None:
        self.set_metadata(self.metadata.with_leaders(hints))

    async def metadata_for(
        self, topics: Iterable[str], *, timeout: float, allow_auto_create: bool = False
    ) -> ClusterMetadata:
        if self.learning is not None:
            await self.learning.wait()
        topics = list(topics)
        for name in topics:
            if self.metadata.topic(name) is None and name in self.creatable:
                self.set_topic(name, self.creatable[name])
        for name in topics:
            if self.metadata.topic(name) is None:
                errors = {**self.metadata.errors, name: 3}
                version = self.metadata.version + 1
                self.set_metadata(
                    dataclasses.replace(self.metadata, errors=errors, version=version)
                )
                await asyncio.sleep(timeout)
                raise UnknownTopicOrPartitionError(topic=name)
        return self.metadata

    async def refresh_metadata(
        self, *, topics: Iterable[str], tracked: bool, timeout: float
    ) -> ClusterMetadata:
        self.refreshed.append(list(topics))
        if self.learning is not None:
            async with asyncio.timeout(timeout):
                await self.learning.wait()
        for name in self.refreshed[-1]:
            if name in self.creatable:
                self.set_topic(name, self.creatable[name])
        return self.metadata


def add_partitions_response(request: Any, code: int) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=number, partition_error_code=code
                    )
                    for number in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )


def offsets_response(request: Any, code: int) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=row.partition_index, error_code=code
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()


class Bench:
    """A producer on a scripted cluster: `async with Bench({"clicks": [1]}) as bench`."""

    def __init__(self, topics: dict[str, list[int]] | None = None, **options: Any) -> None:
        self.config = ProducerConfig.create("host:9092", **{"linger_ms": 0, **options})
        self.features: dict[str, int] | None = None
        self.replies: list[Reply] = []
        self._topics = topics

    async def __aenter__(self) -> Bench:
        self.cluster = ScriptedCluster(self.config, self._topics)
        await self.cluster.supervisor.start()
        self.cluster.replies += self.replies
        if self.features is not None:
            self.cluster.features = self.features
        self.renew()
        try:
            await self.producer.start()
        except BaseException:
            await self.cluster.supervisor.stop()
            raise
        return self

    def renew(self) -> None:
        """Another producer on the same cluster, not started, takes the place of the first."""
        self.producer: Producer = Producer.__new__(Producer)
        RecordWriter.__init__(self.producer)
        client = cast("Client", self.cluster)
        self.producer._init(self.config, client, owned=False)  # pyright: ignore[reportPrivateUsage]  # as its constructors do

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.producer.stop(0)
        except KafkaError:
            pass  # what a test leaves undelivered is its own business
        for task in list(self.cluster.tasks):
            task.cancel()
        await self.cluster.supervisor.stop()


async def turns(count: int = 20) -> None:
    """Let everything that can run do so."""
    for _ in range(count):
        await asyncio.sleep(0)
