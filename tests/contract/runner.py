"""Runs scenarios against a cluster and returns what its brokers responded, as plain data."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.routes import routes_by_api_key
from kafka_async.protocol import api
from kafka_async.protocol.header import decode_response, encode_request
from kafka_async.protocol.messages.api_versions import ApiVersionsRequest
from kafka_async.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
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
from tests.contract.wire import RESPONSE_TIMEOUT, Dial, Wire

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from kafka_async.protocol.message import Message
    from kafka_async.protocol.registry import Api

CLIENT_ID: Final = "contract"
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

    def __init__(self, dial: Dial, run: str, names: int = 1_200) -> None:
        self._dial = dial
        self._run = run
        self._size = names
        self._addresses: dict[int, tuple[str, int]] = {}
        self._pools: dict[tuple[str, bool], list[str]] = {}
        self._wires: dict[int, Wire] = {}

    async def open(self, host: str, port: int) -> None:
        """Read the brokers and wait until the coordinators respond."""
        wire = await self._dial(host, port)
        response = await call(wire, MetadataRequest(topics=[]), 9)
        wire.drop()
        self._addresses = {it.node_id: (it.host, it.port) for it in response.brokers}
        assert sorted(self._addresses) == list(range(1, BROKERS + 1))
        for kind, number in (("group", 0), ("txn", 1)):
            await self._fill_pools(kind, number)

    async def close(self) -> None:
        """Close the connections."""
        for wire in self._wires.values():
            wire.drop()

    async def connect(self, broker: int) -> Wire:
        """Open a connection to a broker."""
        return await self._dial(*self._addresses[broker])

    async def wire(self, broker: int) -> Wire:
        """Return the connection for requests that do not belong to a scenario."""
        if broker not in self._wires:
            self._wires[broker] = await self.connect(broker)
        return self._wires[broker]

    def name(self, scenario: str, name: Name) -> str:
        """Return the real name of a placeholder; groups and ids are used up."""
        if name.kind == "topic":
            return f"{self._run}.{scenario}.{name.key}"
        return self._pools[name.kind, name.on_other_broker].pop()

    async def create_topic(self, name: str, settings: Mapping[str, Any]) -> UUID:
        """Create a topic on its leader and wait until every broker has its metadata."""
        replicas = settings.get("replicas", [settings.get("leader", MAIN_BROKER)])
        request = CreateTopicsRequest(
            timeout_ms=30_000,
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=[
                        CreatableReplicaAssignment(partition_index=index, broker_ids=replicas)
                        for index in range(settings.get("partitions", 1))
                    ],
                    configs=[
                        CreatableTopicConfig(name=key, value=value)
                        for key, value in settings.get("configs", {}).items()
                    ],
                )
            ],
        )
        [created] = (await call(await self.wire(MAIN_BROKER), request, 7)).topics
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
                [found] = (await call(await self.wire(broker), request, 9)).topics
                if not found.error_code and all(it.leader_id > 0 for it in found.partitions):
                    return
                await asyncio.sleep(0.05)

    async def _fill_pools(self, kind: str, number: int) -> None:
        keys = [f"{self._run}-{kind}-{index}" for index in range(self._size)]
        request = FindCoordinatorRequest(key_type=number, coordinator_keys=keys)
        async with asyncio.timeout(RESPONSE_TIMEOUT):
            while True:
                found = (await call(await self.wire(MAIN_BROKER), request, 4)).coordinators
                if all(it.error_code == ErrorCode.NONE for it in found):
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
                    code = (await call(await self.wire(MAIN_BROKER), request, 3)).error_code
                else:
                    states = DescribeTransactionsRequest(transactional_ids=[name])
                    response = await call(await self.wire(MAIN_BROKER), states, 0)
                    code = response.transaction_states[0].error_code
                if code not in NOT_READY:
                    return
                await asyncio.sleep(0.2)


async def call(wire: Wire, request: Any, version: int) -> Any:
    """Send a request and return its response."""
    number = wire.next_id()
    data = b"".join(encode_request(request, version, number, CLIENT_ID))
    async with asyncio.timeout(RESPONSE_TIMEOUT):
        frame = await wire.send(number, data)
    assert frame is not None, f"the broker disconnected after {request}"
    return decode_response(frame, request.RESPONSE, version)[1]


@dataclass
class _SentRequest:
    """Holds a request in flight."""

    ask: SendRequest
    wire: Wire
    waiter: asyncio.Future[bytes | None]


@dataclass
class Run:
    """Runs one scenario on one cluster."""

    cluster: Cluster
    scenario: Scenario
    results: dict[str, Any] = field(default_factory=dict[str, Any])
    _names: Names = field(default_factory=Names)
    _bound: dict[Name, str] = field(default_factory=dict[Name, str])
    _topic_ids: dict[str, UUID] = field(default_factory=dict[str, "UUID"])
    _wires: dict[tuple[int, str], Wire] = field(default_factory=dict[tuple[int, str], Wire])
    _responses: dict[str, Any] = field(default_factory=dict[str, Any])
    _later: dict[str, tuple[str, _SentRequest]] = field(
        default_factory=dict[str, tuple[str, _SentRequest]]
    )

    async def play(self) -> dict[str, Any]:
        """Run all steps; return the responses by the number and name of the request."""
        try:
            for key, settings in self.scenario.topics.items():
                name = self._name(Name("topic", key))
                self._topic_ids[key] = await self.cluster.create_topic(name, settings)
                self._names.bind_id(self._topic_ids[key], f"id of {key}")
            for number, step in enumerate(self.scenario.steps, 1):
                await self._named_step(number, step)
            for label in list(self._later):
                await self._take(label)
        finally:
            for wire in self._wires.values():
                wire.drop()
        return self.results

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
            self._wires.pop((step.broker, step.connection)).drop()
        else:
            title = f"{number} {step.api} v{step.version}"
            if step.later:
                self._later[step.label] = title, await self._send(step)
            else:
                self.results[title] = await self._ask(step)

    async def _take(self, label: str) -> None:
        title, sent = self._later.pop(label)
        self.results[title] = await self._receive(sent)

    async def _ask(self, step: SendRequest) -> Any:
        async with asyncio.timeout(RESPONSE_TIMEOUT):
            while True:
                result = await self._receive(await self._send(step))
                codes = error_codes(result)
                again = step.until is not None and step.until not in codes
                text = json.dumps(result, sort_keys=True)
                again = again or step.awaiting not in text
                again = again or (step.passing is not None and step.passing in text)
                if not again and codes.isdisjoint(step.retry):
                    return result
                await asyncio.sleep(0.02)

    async def _send(self, step: SendRequest) -> _SentRequest:
        wire = await self._wire(step.broker, step.connection)
        number = wire.next_id()
        found = cast("Api", api.lookup(step.api))
        fields = self._resolve(step.fields)
        if found.versions.contains(step.version):
            request = found.request.from_dict(fields)
            data = b"".join(encode_request(request, step.version, number, CLIENT_ID))
        else:  # a version that does not exist: the body does not matter
            head = found.key.to_bytes(2, "big") + step.version.to_bytes(2, "big", signed=True)
            data = bytes(4) + head + number.to_bytes(4, "big") + b"\xff\xff\0"
        body = data[4 : len(data) - step.cut] + step.tail
        return _SentRequest(step, wire, wire.send(number, len(body).to_bytes(4, "big") + body))

    async def _receive(self, sent: _SentRequest) -> Any:
        step = sent.ask
        if step.silent and not await self._probe(sent):
            return NO_RESPONSE
        async with asyncio.timeout(RESPONSE_TIMEOUT):
            frame = await sent.waiter
        if frame is None:
            self._wires.pop((step.broker, step.connection), None)
            return DISCONNECTED
        found = cast("Api", api.lookup(step.api))
        version = step.version if found.versions.contains(step.version) else 0
        _, response = decode_response(frame, found.response, version)
        if step.label:
            self._responses[step.label] = response
        if step.own:
            self._keep_own(response)
        return plain(cast("Message", response), version, self._names)

    async def _probe(self, sent: _SentRequest) -> bool:
        """Send a request after a silent one; return True if the silent one got a response."""
        number = sent.wire.next_id()
        data = b"".join(encode_request(ApiVersionsRequest(), 0, number, CLIENT_ID))
        async with asyncio.timeout(RESPONSE_TIMEOUT):
            await sent.wire.send(number, data)
        return sent.waiter.done()

    async def _wire(self, broker: int, connection: str) -> Wire:
        key = broker, connection
        if key not in self._wires:
            self._wires[key] = await self.cluster.connect(broker)
        return self._wires[key]

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
                name = self._name(Name("topic", value.key)).encode()
                size = len(name).to_bytes(2, "big")
                return b"\0\0\0\0\0\1" + size + name + b"\xff\xff\xff\xff"
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
FEATURES: Final = frozenset({"transaction.version"})
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


async def play(cluster: Cluster, scenarios: Sequence[Scenario]) -> dict[str, dict[str, Any]]:
    """Run scenarios one after the other; returns their responses by scenario."""
    return {it.name: await Run(cluster, it).play() for it in scenarios}
