"""Runs scenarios against a cluster and returns what its brokers responded, as plain data."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.handlers.routes import routes_by_api_key
from kafka_async.protocol import api
from kafka_async.protocol.header import decode_response
from kafka_async.protocol.message import Request, Response
from kafka_async.protocol.messages.api_versions import ApiVersionsRequest
from kafka_async.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kafka_async.protocol.messages.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
)
from kafka_async.protocol.messages.consumer_protocol_assignment import (
    TopicPartition as AssignedTopic,
)
from kafka_async.protocol.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
)
from kafka_async.protocol.messages.consumer_protocol_subscription import (
    TopicPartition as OwnedTopic,
)
from kafka_async.protocol.messages.create_topics import CreateTopicsRequest
from kafka_async.protocol.messages.describe_transactions import DescribeTransactionsRequest
from kafka_async.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafka_async.protocol.messages.heartbeat import HeartbeatRequest
from kafka_async.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafka_async.records.batch import RecordBatch
from kafka_async.records.checksum import load_crc32c
from kafka_async.types import ProducerRecord
from tests.contract.masks import Names, plain
from tests.contract.model import (
    BROKERS,
    MAIN_BROKER,
    Assignment,
    AwaitResponse,
    Batch,
    CloseConnection,
    Joined,
    Name,
    Reply,
    Scenario,
    SendRequest,
    Subscription,
    TopicId,
)
from tests.raw_connection import RawConnection

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from kafka_async.foundation.memory_network import MemoryNetwork
    from kafka_async.protocol.message import Message
    from kafka_async.protocol.registry import Api

R = TypeVar("R", bound=Response)
ConnectionKey: TypeAlias = tuple[int, str, Name | None]
"""Id of the broker, name and client id of a connection."""

RESPONSE_TIMEOUT: Final = 15.0
"""Seconds to wait for a response before the run fails."""
CRC_AT, ATTRIBUTES_AT = 17, 21
NOT_READY: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
DISCONNECTED: Final = {"disconnected": True}
NO_RESPONSE: Final = {"no_response": True}


class Cluster:
    """Connects to a cluster and finds names by their coordinator."""

    def __init__(self, run: str, names: int = 1_200, network: MemoryNetwork | None = None) -> None:
        self._network = network
        self._run = run
        self._size = names
        self._addresses: dict[int, tuple[str, int]] = {}
        self._pools: dict[tuple[str, bool], list[str]] = {}
        self._connections: dict[int, RawConnection] = {}

    async def open(self, bootstrap_servers: str) -> None:
        """Read the brokers and wait until the coordinators respond."""
        host, _, port = bootstrap_servers.split(",")[0].rpartition(":")
        connection = await RawConnection.dial(host, int(port), self._network)
        response = await connection.call(MetadataRequest(topics=[]), 9)
        connection.drop()
        self._addresses = {it.node_id: (it.host, it.port) for it in response.brokers}
        assert sorted(self._addresses) == list(range(1, BROKERS + 1))
        for kind, number in (("group", 0), ("txn", 1)):
            await self._fill_pools(kind, number)

    async def close(self) -> None:
        """Close the connections."""
        for connection in self._connections.values():
            connection.drop()

    async def connect(self, broker: int, client_id: str = "contract") -> RawConnection:
        """Open a connection to a broker."""
        return await RawConnection.dial(*self._addresses[broker], self._network, client_id)

    async def call(self, broker: int, request: Request[R], version: int) -> R:
        """Send a request that does not belong to a scenario."""
        if broker not in self._connections:
            self._connections[broker] = await self.connect(broker)
        async with asyncio.timeout(RESPONSE_TIMEOUT):
            return await self._connections[broker].call(request, version)

    def name(self, scenario: str, name: Name) -> str:
        """Return the real name of a placeholder; groups and ids are used up."""
        if name.kind == "topic":
            return f"{self._run}.{scenario}.{name.key}"
        return self._pools[name.kind, name.on_other_broker].pop()

    async def create_topic(self, name: str, settings: Mapping[str, Any]) -> UUID:
        """Create a topic on its leader and wait until every broker has its metadata."""
        replicas = settings.get("replicas", [settings.get("leader", MAIN_BROKER)])
        count = settings.get("partitions", 1)
        topic = {
            "name": name,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [
                {"partition_index": index, "broker_ids": replicas} for index in range(count)
            ],
            "configs": [
                {"name": key, "value": value} for key, value in settings.get("configs", {}).items()
            ],
        }
        request = CreateTopicsRequest.from_dict({"timeout_ms": 30_000, "topics": [topic]})
        [created] = (await self.call(MAIN_BROKER, request, 7)).topics
        assert created.error_code == ErrorCode.NONE, created
        for broker in self._addresses:
            await self.wait_for_topic(broker, name)
        return created.topic_id

    async def wait_for_topic(self, broker: int, name: str) -> None:
        """Wait until a broker has the metadata of a topic with all leaders."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
        )
        async with asyncio.timeout(RESPONSE_TIMEOUT):
            while True:
                [found] = (await self.call(broker, request, 9)).topics
                if not found.error_code and all(it.leader_id > 0 for it in found.partitions):
                    return
                await asyncio.sleep(0.05)

    async def wait_for_group_coordinator(self, topic: str) -> None:
        """Wait until the main broker assigns a topic to a member of a consumer group."""
        group_id = self._pools["group", False].pop()
        request = ConsumerGroupHeartbeatRequest(
            group_id=group_id,
            member_id="first",
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=[topic],
            topic_partitions=[],
        )
        async with asyncio.timeout(RESPONSE_TIMEOUT):
            while True:
                response = await self.call(MAIN_BROKER, request, 1)
                if response.assignment is not None and response.assignment.topic_partitions:
                    break
                await asyncio.sleep(0.02)
            leaves = ConsumerGroupHeartbeatRequest(
                group_id=group_id, member_id="first", member_epoch=-1
            )
            await self.call(MAIN_BROKER, leaves, 1)

    async def _fill_pools(self, kind: str, number: int) -> None:
        keys = [f"{self._run}-{kind}-{index}" for index in range(self._size)]
        request = FindCoordinatorRequest(key_type=number, coordinator_keys=keys)
        async with asyncio.timeout(RESPONSE_TIMEOUT):
            while True:
                found = (await self.call(MAIN_BROKER, request, 4)).coordinators
                known = all(it.error_code == ErrorCode.NONE for it in found)
                if known and any(it.node_id == MAIN_BROKER for it in found):
                    break
                await asyncio.sleep(0.2)
        pools: dict[bool, list[str]] = {False: [], True: []}
        for row in found:
            pools[row.node_id != MAIN_BROKER].append(row.key)
        for on_other_broker, names in pools.items():
            self._pools[kind, on_other_broker] = names
        await self._warm_up(kind, pools[False][0])

    async def _warm_up(self, kind: str, name: str) -> None:
        """Wait until the coordinator has loaded."""
        async with asyncio.timeout(RESPONSE_TIMEOUT):
            while True:
                if kind == "group":
                    request = HeartbeatRequest(group_id=name, member_id="none")
                    code = (await self.call(MAIN_BROKER, request, 3)).error_code
                else:
                    states = DescribeTransactionsRequest(transactional_ids=[name])
                    response = await self.call(MAIN_BROKER, states, 0)
                    code = response.transaction_states[0].error_code
                if code not in NOT_READY:
                    return
                await asyncio.sleep(0.2)


@dataclass
class _SentRequest:
    """Holds a request in flight."""

    step: SendRequest
    connection: RawConnection
    frame: asyncio.Future[bytes]


@dataclass
class Run:
    """Runs one scenario on one cluster.

    Attributes:
        results: responses by the number and name of the request.
        frames: well-formed requests, without their size fields, by number and name.
    """

    cluster: Cluster
    scenario: Scenario
    results: dict[str, Any] = field(default_factory=dict[str, Any])
    frames: dict[str, bytes] = field(default_factory=dict[str, bytes])
    _names: Names = field(default_factory=Names)
    _bound: dict[Name, str] = field(default_factory=dict[Name, str])
    _topic_ids: dict[str, UUID] = field(default_factory=dict[str, "UUID"])
    _connections: dict[ConnectionKey, RawConnection] = field(
        default_factory=dict["ConnectionKey", RawConnection]
    )
    _responses: dict[str, Any] = field(default_factory=dict[str, Any])
    _later: dict[str, tuple[str, _SentRequest]] = field(
        default_factory=dict[str, tuple[str, _SentRequest]]
    )

    async def play(self) -> Run:
        """Run all steps."""
        try:
            for key, settings in self.scenario.topics.items():
                name = self._name(Name("topic", key))
                self._topic_ids[key] = await self.cluster.create_topic(name, settings)
                self._names.bind_id(self._topic_ids[key], f"id of {key}")
                if self.scenario.has_server_assignors:
                    await self.cluster.wait_for_group_coordinator(name)
            for number, step in enumerate(self.scenario.steps, 1):
                await self._named_step(number, step)
            for label in list(self._later):
                await self._take(label)
        finally:
            for connection in self._connections.values():
                connection.drop()
        return self

    async def _named_step(
        self, number: int, step: SendRequest | AwaitResponse | CloseConnection
    ) -> None:
        try:
            await self._step(number, step)
        except Exception as error:
            error.add_note(f"{self.scenario.name}, step {number}: {step}")
            raise

    async def _step(self, number: int, step: SendRequest | AwaitResponse | CloseConnection) -> None:
        if isinstance(step, AwaitResponse):
            await self._take(step.label)
        elif isinstance(step, CloseConnection):
            self._connections.pop((step.broker, step.connection, None)).drop()
        else:
            title = f"{number} {step.api} v{step.version}"
            if step.later:
                self._later[step.label] = title, await self._send(title, step)
            else:
                self.results[title] = await self._ask(title, step)

    async def _take(self, label: str) -> None:
        title, sent = self._later.pop(label)
        self.results[title] = await self._receive(sent)

    async def _ask(self, title: str, step: SendRequest) -> Any:
        async with asyncio.timeout(RESPONSE_TIMEOUT):
            while True:
                result = await self._receive(await self._send(title, step))
                codes = error_codes(result)
                again = step.until is not None and step.until not in codes
                text = json.dumps(result, sort_keys=True)
                again = again or step.awaiting not in text
                again = again or (step.passing is not None and step.passing in text)
                if not again and codes.isdisjoint(step.retry):
                    return result
                await asyncio.sleep(0.02)

    async def _send(self, title: str, step: SendRequest) -> _SentRequest:
        connection = await self._connection((step.broker, step.connection, step.client_id))
        found = cast("Api", api.lookup(step.api))
        fields = self._resolve(step.fields)
        if found.versions.contains(step.version):
            body = connection.encode(found.request.from_dict(fields), step.version)
            if not step.cut:
                self.frames[title] = body
        else:  # a version that does not exist: the body does not matter
            head = found.key.to_bytes(2) + step.version.to_bytes(2, signed=True)
            body = head + connection.next_id().to_bytes(4) + b"\xff\xff\0"
        return _SentRequest(step, connection, connection.submit(body[: len(body) - step.cut]))

    async def _receive(self, sent: _SentRequest) -> Any:
        step = sent.step
        if step.silent and not await self._has_response(sent):
            return NO_RESPONSE
        try:
            async with asyncio.timeout(RESPONSE_TIMEOUT):
                frame = await sent.frame
        except ConnectionResetError:
            self._connections.pop((step.broker, step.connection, step.client_id), None)
            return DISCONNECTED
        found = cast("Api", api.lookup(step.api))
        version = step.version if found.versions.contains(step.version) else 0
        _, response = decode_response(frame, found.response, version)
        if step.label:
            self._responses[step.label] = response
        if step.own:
            self._keep_own(response)
        return plain(cast("Message", response), version, self._names)

    async def _has_response(self, sent: _SentRequest) -> bool:
        """Send a request after a silent one; return True unless only that gets a response."""
        with suppress(ConnectionResetError):
            async with asyncio.timeout(RESPONSE_TIMEOUT):
                await sent.connection.call(ApiVersionsRequest(), 0)
        return sent.frame.done()

    async def _connection(self, key: ConnectionKey) -> RawConnection:
        if key not in self._connections:
            broker, _, client_id = key
            name = {} if client_id is None else {"client_id": self._name(client_id)}
            self._connections[key] = await self.cluster.connect(broker, **name)
        return self._connections[key]

    # -- placeholders -----------------------------------------------------------------------------

    def _name(self, name: Name) -> str:
        if name not in self._bound:
            self._bound[name] = self.cluster.name(self.scenario.name, name)
            self._names.bind(self._bound[name], name.key)
        return self._bound[name]

    def _resolve(self, value: Any) -> Any:
        match value:
            case dict():
                items = cast("dict[str, Any]", value).items()
                return {key: self._resolve(item) for key, item in items}
            case list():
                return [self._resolve(item) for item in cast("list[Any]", value)]
            case Name():
                return self._name(value)
            case TopicId():
                return self._topic_ids[value.key]
            case Reply():
                return self._reply(value)
            case Joined():
                return b"".join(self._resolve(part) for part in value.parts)
            case Subscription():
                name = self._name(Name("topic", value.key))
                owned = [OwnedTopic(topic=name, partitions=value.owned)] if value.owned else []
                subscription = ConsumerProtocolSubscription(topics=[name], owned_partitions=owned)
                return value.version.to_bytes(2) + subscription.encode(value.version)
            case Assignment():
                name = self._name(Name("topic", value.key))
                assigned = AssignedTopic(topic=name, partitions=value.partitions)
                return b"\0\0" + ConsumerProtocolAssignment(assigned_partitions=[assigned]).encode(
                    0
                )
            case Batch():
                return self._batch(value)
            case _:
                return value

    def _reply(self, value: Reply) -> Any:
        found = self._responses[value.label]
        for part in value.path:
            found = found[part] if isinstance(part, int) else getattr(found, part)
        return found + value.plus if value.plus else found

    def _batch(self, batch: Batch) -> bytes:
        now = int(time.time() * 1000) if batch.timestamp is None else batch.timestamp
        records = [ProducerRecord("", value, timestamp=now) for value in batch.values]
        data = bytearray(
            RecordBatch.build(records, batch.compression).frame(
                producer_id=self._resolve(batch.producer_id),
                producer_epoch=self._resolve(batch.epoch),
                base_sequence=batch.sequence,
                transactional=batch.transactional,
            )
        )
        for at, patch in batch.patches:
            data[at : at + len(patch)] = patch
        if batch.patches and batch.good_crc:
            crc = load_crc32c()(bytes(data[ATTRIBUTES_AT:]))
            data[CRC_AT:ATTRIBUTES_AT] = crc.to_bytes(4, "big")
        return bytes(data)

    def _keep_own(self, response: Any) -> None:
        """Drop elements that another scenario's name identifies, or an internal topic's."""
        mine = set(self._bound.values())
        for spec in response.SPEC.fields:
            items = getattr(response, spec.name)
            if isinstance(items, list | tuple):
                kept = [it for it in cast("list[Any]", items) if _identity(it) in (None, *mine)]
                setattr(response, spec.name, kept)


SUPPORTED: Final = frozenset(routes_by_api_key({}))
"""Keys of the APIs that the embedded cluster has; other rows of ApiVersions are left out."""
FEATURES: Final = frozenset({"group.version", "share.version", "transaction.version"})
"""Features that the embedded cluster has finalized as Apache Kafka has."""


def _identity(item: Any) -> str | None:
    if getattr(item, "name", None) in FEATURES:
        return None
    if hasattr(item, "api_key"):
        return None if item.api_key in SUPPORTED else ""
    for name in ("group_id", "transactional_id", "name"):
        if hasattr(item, name):
            return getattr(item, name)
    return None


def error_codes(result: Any) -> set[int]:
    """Return the error codes in a response; a disconnection is -2."""
    if isinstance(result, dict):
        found = cast("dict[str, Any]", result)
        codes = {found[name] for name in ("error_code", "partition_error_code") if name in found}
        if found == DISCONNECTED:
            codes.add(-2)
        return codes.union(*map(error_codes, found.values()))
    if isinstance(result, list):
        return set[int]().union(*map(error_codes, cast("list[Any]", result)))
    return set()
