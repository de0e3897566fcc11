"""Requests that every broker rejects, regardless of the cluster's state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

import pytest

from kafka_async.cluster.request_destinations import Broker
from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.protocol.api import lookup
from tests import request_checks
from tests.cluster.scripted import World
from tests.contract.masks import Names, plain
from tests.contract.runner import error_codes
from tests.embedded.harness import running_harness
from tests.embedded.raw_connection import batch
from tests.request_checks import REFUSED, RULES, violations

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
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    } | fields


LISTED: Final = [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]}]
ADDED: Final = [{"name": "t", "partitions": [0]}]
COMMITTED: Final = [{"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
TWICE: Final = [{"index": 0, "records": GOOD}, {"index": 0, "records": GOOD}]
SOFTWARE: Final = {"client_software_name": "kafka-async", "client_software_version": "1"}

ACCEPTED: Final[list[tuple[str, int, dict[str, Any], ErrorCode]]] = [
    ("Produce", 12, produce(), ErrorCode.NONE),
    (
        "Produce",
        13,
        produce(topic_data=[{"topic_id": ID, "partition_data": TWICE[:1]}]),
        ErrorCode.NONE,
    ),
    ("Produce", 12, produce(batch(b"v", producer_id=7, epoch=0, sequence=0)), ErrorCode.NONE),
    ("Produce", 7, produce(batch(b"v", compression="zstd")), ErrorCode.NONE),
    ("Fetch", 17, fetch(), ErrorCode.NONE),
    (
        "Fetch",
        12,
        fetch({"topic": "t"}, session_id=3, session_epoch=1),
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ),
    ("ListOffsets", 8, {"topics": LISTED}, ErrorCode.NONE),
    ("Metadata", 12, {"topics": None}, ErrorCode.NONE),
    ("Metadata", 12, {"topics": [{"topic_id": ID, "name": None}]}, ErrorCode.NONE),
    ("Metadata", 9, {"topics": [{"name": "t"}]}, ErrorCode.NONE),
    ("FindCoordinator", 4, {"key_type": 1, "coordinator_keys": ["x"]}, ErrorCode.NONE),
    ("JoinGroup", 9, joining(), ErrorCode.MEMBER_ID_REQUIRED),
    ("Heartbeat", 4, {"group_id": "g"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ("LeaveGroup", 5, {"group_id": "g"}, ErrorCode.NONE),
    (
        "SyncGroup",
        5,
        {"group_id": "g", "protocol_type": "consumer", "protocol_name": "range"},
        ErrorCode.UNKNOWN_MEMBER_ID,
    ),
    ("SyncGroup", 4, {"group_id": "g"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ("ApiVersions", 0, {}, ErrorCode.NONE),
    ("ApiVersions", 5, SOFTWARE | {"cluster_id": None, "node_id": -1}, ErrorCode.NONE),
    (
        "ApiVersions",
        5,
        SOFTWARE | {"cluster_id": "c", "node_id": 1},
        ErrorCode.REBOOTSTRAP_REQUIRED,
    ),
    ("InitProducerId", 5, {"transactional_id": None, "transaction_timeout_ms": -1}, ErrorCode.NONE),
    ("InitProducerId", 5, PRODUCER | {"transaction_timeout_ms": 1}, ErrorCode.NONE),
    (
        "AddPartitionsToTxn",
        3,
        {"v3_and_below_transactional_id": "x", "v3_and_below_topics": ADDED},
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ),
    ("AddPartitionsToTxn", 4, {}, ErrorCode.NONE),
    ("AddOffsetsToTxn", 3, PRODUCER | {"group_id": "g"}, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ("EndTxn", 5, PRODUCER, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    (
        "TxnOffsetCommit",
        5,
        PRODUCER | {"group_id": "g", "topics": COMMITTED},
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ),
    ("DescribeCluster", 0, {}, ErrorCode.NONE),
]


REFUSALS: Final[list[tuple[str, int, dict[str, Any], str, ErrorCode]]] = [
    ("Produce", 12, produce(acks=2), "acks is 2", ErrorCode.INVALID_REQUIRED_ACKS),
    (
        "Produce",
        12,
        produce(batch(b"v", transactional=True)),
        "without a transactional id",
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    (
        "Produce",
        12,
        produce(topic_data=[{"name": "a/b", "partition_data": TWICE[:1]}]),
        "'a/b'",
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    (
        "Produce",
        12,
        produce(topic_data=[{"name": "", "partition_data": TWICE[:1]}]),
        "called ''",
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    ("Produce", 13, produce(), str(ZERO), ErrorCode.UNKNOWN_TOPIC_ID),
    (
        "Produce",
        12,
        produce(topic_data=[{"name": "t", "partition_data": TWICE}]),
        "partitions [0, 0]",
        ErrorCode.NONE,
    ),
    ("Produce", 12, produce(None), "exactly one record batch", ErrorCode.INVALID_RECORD),
    ("Produce", 12, produce(GOOD + GOOD), "exactly one record batch", ErrorCode.INVALID_RECORD),
    ("Produce", 12, produce(GOOD[:-1] + b"\x55"), "a batch is refused", ErrorCode.CORRUPT_MESSAGE),
    (
        "Produce",
        6,
        produce(batch(b"v", compression="zstd")),
        "no ZStandard",
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ),
    (
        "Produce",
        12,
        produce(batch(b"v", producer_id=7, epoch=0)),
        "needs a sequence",
        ErrorCode.INVALID_RECORD,
    ),
    ("Fetch", 17, fetch(isolation_level=2), "isolation level 2", ErrorCode.UNKNOWN_SERVER_ERROR),
    (
        "Fetch",
        17,
        fetch(session_epoch=1),
        "without a session",
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ),
    ("Fetch", 17, fetch({"topic_id": ZERO}), str(ZERO), ErrorCode.UNKNOWN_TOPIC_ID),
    ("Fetch", 12, fetch(), "called ''", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (
        "Fetch",
        17,
        fetch(row(partition_max_bytes=-1)),
        "a negative size or offset",
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ),
    (
        "Fetch",
        17,
        fetch(row(fetch_offset=-1)),
        "a negative size or offset",
        ErrorCode.OFFSET_OUT_OF_RANGE,
    ),
    (
        "Fetch",
        17,
        fetch(row(partition=-1)),
        "partitions [-1]",
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ),
    (
        "ListOffsets",
        8,
        {"isolation_level": 3, "topics": LISTED},
        "isolation level 3",
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ),
    (
        "ListOffsets",
        8,
        {"topics": [LISTED[0] | {"partitions": LISTED[0]["partitions"] * 2}]},  # type: ignore[operator]
        "partitions [0, 0]",
        ErrorCode.INVALID_REQUEST,
    ),
    (
        "Metadata",
        12,
        {"topics": [{"name": None}]},
        "a topic without name and id",
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ),
    (
        "Metadata",
        11,
        {"topics": [{"topic_id": ID, "name": None}]},
        "by id before version 12",
        ErrorCode.INVALID_REQUEST,
    ),
    (
        "FindCoordinator",
        4,
        {"key_type": 9, "coordinator_keys": ["x"]},
        "a coordinator of kind 9",
        ErrorCode.INVALID_REQUEST,
    ),
    ("JoinGroup", 9, joining(group_id=""), "a group without an id", ErrorCode.INVALID_GROUP_ID),
    (
        "JoinGroup",
        9,
        joining(protocols=[]),
        "a member without protocols",
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ),
    (
        "JoinGroup",
        9,
        joining(protocol_type=""),
        "a member without protocols",
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ),
    ("Heartbeat", 4, {}, "a group without an id", ErrorCode.INVALID_GROUP_ID),
    ("LeaveGroup", 4, {}, "a group without an id", ErrorCode.INVALID_GROUP_ID),
    ("SyncGroup", 4, {}, "a group without an id", ErrorCode.INVALID_GROUP_ID),
    (
        "SyncGroup",
        5,
        {"group_id": "g"},
        "an assignment without its protocol",
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ),
    ("ApiVersions", 3, {}, "without a proper name", ErrorCode.INVALID_REQUEST),
    (
        "ApiVersions",
        4,
        SOFTWARE | {"client_software_version": "1 beta"},
        "without a proper name",
        ErrorCode.INVALID_REQUEST,
    ),
    (
        "ApiVersions",
        5,
        SOFTWARE | {"cluster_id": None, "node_id": -2},
        "with broker -2",
        ErrorCode.INVALID_REQUEST,
    ),
    (
        "ApiVersions",
        5,
        SOFTWARE | {"cluster_id": "c", "node_id": -1},
        "cluster c",
        ErrorCode.INVALID_REQUEST,
    ),
    (
        "InitProducerId",
        5,
        {"transactional_id": "", "transaction_timeout_ms": 1},
        "an empty transactional id",
        ErrorCode.INVALID_REQUEST,
    ),
    (
        "InitProducerId",
        5,
        PRODUCER | {"transaction_timeout_ms": 0},
        "a transaction time-out of 0 ms",
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    ),
    (
        "InitProducerId",
        5,
        {"transactional_id": None, "producer_id": -1, "producer_epoch": 3},
        "a producer id without its epoch",
        ErrorCode.INVALID_REQUEST,
    ),
    (
        "AddPartitionsToTxn",
        3,
        {"v3_and_below_topics": ADDED},
        "no transactional id",
        ErrorCode.INVALID_REQUEST,
    ),
    (
        "AddOffsetsToTxn",
        3,
        PRODUCER | {"transactional_id": ""},
        "no transactional id",
        ErrorCode.INVALID_REQUEST,
    ),
    (
        "EndTxn",
        5,
        PRODUCER | {"producer_id": -1},
        "no producer id and epoch",
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ),
    (
        "TxnOffsetCommit",
        5,
        PRODUCER | {"topics": COMMITTED},
        "a group without an id",
        ErrorCode.INVALID_GROUP_ID,
    ),
]


@pytest.mark.parametrize(("api", "version", "fields", "code"), ACCEPTED)
def test_accepts_valid_request(
    api: str, version: int, fields: dict[str, Any], code: ErrorCode
) -> None:
    assert violations(build(api, fields), version) == []


@pytest.mark.parametrize(("api", "version", "fields", "reason", "code"), REFUSALS)
def test_reports_reason_for_invalid_request(
    api: str, version: int, fields: dict[str, Any], reason: str, code: ErrorCode
) -> None:
    [found] = violations(build(api, fields), version)
    assert reason in found


SENT: Final = [*ACCEPTED, *[(api, version, row, code) for api, version, row, _, code in REFUSALS]]


@pytest.mark.asyncio
@pytest.mark.virtual_clock
@pytest.mark.parametrize(("api", "version", "fields", "code"), SENT)
async def test_embedded_cluster_applies_same_rules(
    api: str, version: int, fields: dict[str, Any], code: ErrorCode
) -> None:
    async with running_harness() as harness:
        found = harness.cluster.topics.get("t")
        assert found is not None
        request = build(api, located(fields, found.id))
        response = await (await harness.connect()).call(request, version)
    assert error_codes(plain(response, version, Names())) == ({code} if code else set())


def located(value: Any, topic_id: UUID) -> Any:
    """Return fields with the id of a topic of the cluster in place of `ID`."""
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {key: located(item, topic_id) for key, item in items}
    if isinstance(value, list):
        return [located(item, topic_id) for item in cast("list[Any]", value)]
    return topic_id if value == ID else value


def test_only_duplicate_partition_has_no_error_code() -> None:
    """Kafka ignores all but the last batch of a duplicate partition."""
    silent = [reason for *_, reason, code in REFUSALS if code is ErrorCode.NONE]
    assert silent == ["partitions [0, 0]"]


def test_each_rule_has_invalid_request() -> None:
    assert {find(api).key for api, *_ in REFUSALS} == set(RULES)


def test_double_records_invalid_request() -> None:
    request_checks.receive(build("Heartbeat", {}), None)
    noted = list(REFUSED)
    REFUSED.clear()
    assert noted == ["HeartbeatRequest: a group without an id"]


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_scripted_broker_records_invalid_request() -> None:
    world = World()
    async with world.client() as client:
        await client.request(build("Heartbeat", {}), to=Broker(1))
    noted = list(REFUSED)
    REFUSED.clear()
    assert noted == ["HeartbeatRequest: a group without an id"]
