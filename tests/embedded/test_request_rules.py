"""Requests that every broker refuses, whatever the state of its cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

import pytest

from kafka_async.cluster.destinations import Broker
from kafka_async.embedded.request_rules import RULES, violations
from kafka_async.protocol.api import lookup
from tests import strict
from tests.cluster.scripted import World
from tests.embedded.wire import batch
from tests.strict import REFUSED

if TYPE_CHECKING:
    from kafka_async.protocol.message import Request
    from kafka_async.protocol.registry import Api

GOOD: Final = batch(b"v")
ID: Final = UUID(int=7)
ZERO: Final = UUID(int=0)
PRODUCER: Final = {"transactional_id": "x", "producer_id": 7, "producer_epoch": 0}


def find(api: str) -> Api:
    return cast("Api", lookup(api))


def build(api: str, fields: dict[str, Any]) -> Request[Any]:
    return find(api).request.from_dict(fields)


def produce(records: bytes | None = GOOD, /, **fields: Any) -> dict[str, Any]:
    rows = [{"index": 0, "records": records}]
    return {"acks": -1, "topic_data": [{"name": "t", "partition_data": rows}]} | fields


def fetch(topic: dict[str, Any] | None = None, /, **fields: Any) -> dict[str, Any]:
    rows = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}]
    where = {"topic_id": ID, "partitions": rows} | (topic or {})
    return {"session_epoch": -1, "topics": [where]} | fields


def row(**fields: Any) -> dict[str, Any]:
    return {"partitions": [{"partition": 0, "fetch_offset": 0, **fields}]}


def joining(**fields: Any) -> dict[str, Any]:
    return {
        "group_id": "g",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    } | fields


LISTED: Final = [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]}]
TWICE: Final = [{"index": 0, "records": GOOD}, {"index": 0, "records": GOOD}]
SOFTWARE: Final = {"client_software_name": "kafka-async", "client_software_version": "1"}

ACCEPTED: Final[list[tuple[str, int, dict[str, Any]]]] = [
    ("Produce", 12, produce()),
    ("Produce", 13, produce(topic_data=[{"topic_id": ID, "partition_data": TWICE[:1]}])),
    ("Produce", 12, produce(batch(b"v", producer_id=7, epoch=0, sequence=0))),
    ("Produce", 7, produce(batch(b"v", compression="zstd"))),
    ("Fetch", 17, fetch()),
    ("Fetch", 12, fetch({"topic": "t"}, session_id=3, session_epoch=1)),
    ("ListOffsets", 8, {"topics": LISTED}),
    ("Metadata", 12, {"topics": None}),
    ("Metadata", 12, {"topics": [{"topic_id": ID, "name": None}]}),
    ("Metadata", 9, {"topics": [{"name": "t"}]}),
    ("FindCoordinator", 4, {"key_type": 1, "coordinator_keys": ["x"]}),
    ("JoinGroup", 9, joining()),
    ("Heartbeat", 4, {"group_id": "g"}),
    ("LeaveGroup", 5, {"group_id": "g"}),
    ("SyncGroup", 5, {"group_id": "g", "protocol_type": "consumer", "protocol_name": "range"}),
    ("SyncGroup", 4, {"group_id": "g"}),
    ("ApiVersions", 0, {}),
    ("ApiVersions", 5, SOFTWARE | {"cluster_id": None, "node_id": -1}),
    ("ApiVersions", 5, SOFTWARE | {"cluster_id": "c", "node_id": 1}),
    ("InitProducerId", 5, {"transactional_id": None, "transaction_timeout_ms": -1}),
    ("InitProducerId", 5, PRODUCER | {"transaction_timeout_ms": 1}),
    ("AddPartitionsToTxn", 3, {"v3_and_below_transactional_id": "x"}),
    ("AddPartitionsToTxn", 4, {}),
    ("AddOffsetsToTxn", 3, PRODUCER | {"group_id": "g"}),
    ("EndTxn", 5, PRODUCER),
    ("TxnOffsetCommit", 5, PRODUCER | {"group_id": "g"}),
    ("DescribeCluster", 0, {}),
]


@pytest.mark.parametrize(("api", "version", "fields"), ACCEPTED)
def test_accepts_a_request_that_some_cluster_accepts(
    api: str, version: int, fields: dict[str, Any]
) -> None:
    assert violations(build(api, fields), version) == []


REFUSALS: Final[list[tuple[str, int, dict[str, Any], str]]] = [
    ("Produce", 12, produce(acks=2), "acks is 2"),
    ("Produce", 12, produce(batch(b"v", transactional=True)), "without a transactional id"),
    ("Produce", 12, produce(topic_data=[{"name": "a/b", "partition_data": []}]), "'a/b'"),
    ("Produce", 12, produce(topic_data=[{"name": "", "partition_data": []}]), "called ''"),
    ("Produce", 13, produce(), str(ZERO)),
    (
        "Produce",
        12,
        produce(topic_data=[{"name": "t", "partition_data": TWICE}]),
        "partitions [0, 0]",
    ),
    ("Produce", 12, produce(None), "exactly one record batch"),
    ("Produce", 12, produce(GOOD + GOOD), "exactly one record batch"),
    ("Produce", 12, produce(GOOD[:-1] + b"\x55"), "a batch is refused"),
    ("Produce", 6, produce(batch(b"v", compression="zstd")), "no ZStandard"),
    ("Produce", 12, produce(batch(b"v", producer_id=7, epoch=0)), "needs a sequence"),
    ("Fetch", 17, fetch(isolation_level=2), "isolation level 2"),
    ("Fetch", 17, fetch(session_epoch=1), "without a session"),
    ("Fetch", 17, fetch({"topic_id": ZERO}), str(ZERO)),
    ("Fetch", 12, fetch(), "called ''"),
    ("Fetch", 17, fetch(row(partition_max_bytes=-1)), "a negative size or offset"),
    ("Fetch", 17, fetch(row(fetch_offset=-1)), "a negative size or offset"),
    ("Fetch", 17, fetch(row(partition=-1)), "partitions [-1]"),
    ("ListOffsets", 8, {"isolation_level": 3, "topics": LISTED}, "isolation level 3"),
    (
        "ListOffsets",
        8,
        {"topics": [LISTED[0] | {"partitions": LISTED[0]["partitions"] * 2}]},  # type: ignore[operator]
        "partitions [0, 0]",
    ),
    ("Metadata", 12, {"topics": [{"name": None}]}, "a topic without name and id"),
    ("Metadata", 11, {"topics": [{"topic_id": ID, "name": None}]}, "by id before version 12"),
    ("FindCoordinator", 4, {"key_type": 9}, "a coordinator of kind 9"),
    ("JoinGroup", 9, joining(group_id=""), "a group without an id"),
    ("JoinGroup", 9, joining(protocols=[]), "a member without protocols"),
    ("JoinGroup", 9, joining(protocol_type=""), "a member without protocols"),
    ("Heartbeat", 4, {}, "a group without an id"),
    ("LeaveGroup", 4, {}, "a group without an id"),
    ("SyncGroup", 4, {}, "a group without an id"),
    ("SyncGroup", 5, {"group_id": "g"}, "an assignment without its protocol"),
    ("ApiVersions", 3, {}, "without a proper name"),
    ("ApiVersions", 4, SOFTWARE | {"client_software_version": "1 beta"}, "without a proper name"),
    ("ApiVersions", 5, SOFTWARE | {"cluster_id": None, "node_id": -2}, "with broker -2"),
    ("ApiVersions", 5, SOFTWARE | {"cluster_id": "c", "node_id": -1}, "cluster c"),
    (
        "InitProducerId",
        5,
        {"transactional_id": "", "transaction_timeout_ms": 1},
        "an empty transactional id",
    ),
    (
        "InitProducerId",
        5,
        PRODUCER | {"transaction_timeout_ms": 0},
        "a transaction time-out of 0 ms",
    ),
    (
        "InitProducerId",
        5,
        {"transactional_id": None, "producer_id": -1, "producer_epoch": 3},
        "a producer id without its epoch",
    ),
    ("AddPartitionsToTxn", 3, {}, "no transactional id"),
    ("AddOffsetsToTxn", 3, PRODUCER | {"transactional_id": ""}, "no transactional id"),
    ("EndTxn", 5, PRODUCER | {"producer_id": -1}, "no producer id and epoch"),
    ("TxnOffsetCommit", 5, PRODUCER, "a group without an id"),
]


@pytest.mark.parametrize(("api", "version", "fields", "reason"), REFUSALS)
def test_names_what_every_broker_refuses(
    api: str, version: int, fields: dict[str, Any], reason: str
) -> None:
    [found] = violations(build(api, fields), version)
    assert reason in found


def test_each_rule_has_a_request_that_breaks_it() -> None:
    assert {find(api).key for api, *_ in REFUSALS} == set(RULES)


def test_a_double_notes_what_it_would_have_refused() -> None:
    strict.receive(build("Heartbeat", {}), None)
    noted = list(REFUSED)
    REFUSED.clear()
    assert noted == ["HeartbeatRequest: a group without an id"]


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_a_scripted_broker_notes_what_it_would_have_refused() -> None:
    world = World()
    async with world.client() as client:
        await client.request(build("Heartbeat", {}), to=Broker(1))
    noted = list(REFUSED)
    REFUSED.clear()
    assert noted == ["HeartbeatRequest: a group without an id"]
