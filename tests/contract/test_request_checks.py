"""The requests that scripted brokers refuse are those that Apache Kafka refuses."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import pytest

from kafka_async.client.metadata.request_router import Broker
from kafka_async.protocol import api
from kafka_async.protocol.header import decode_request
from kafka_async.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafka_async.protocol.messages.heartbeat import HeartbeatRequest
from tests.client.scripted import World
from tests.contract.compare import play, read_record
from tests.contract.runner import error_codes
from tests.contract.scenarios import SCENARIOS
from tests.embedded_client import settle
from tests.raw_connection import RawConnection
from tests.request_checks import REFUSED, RULES, violations

REASONS: Final[dict[str, list[str]]] = {
    "Produce": [
        "acks is ",
        "without a transactional id",
        "a topic called ",
        "partitions [",
        "exactly one record batch",
        "no ZStandard",
        "CRC",
        "which does not exist",
        "is not accepted",
        "Unknown compression type",
        "control records",
        "the last offset delta",
        "the base offset",
        "needs a sequence",
        "cannot be read",
    ],
    "Fetch": [
        "isolation level ",
        "without a session",
        "a topic called ",
        "a negative size or offset",
    ],
    "ListOffsets": ["isolation level ", "partitions ["],
    "Metadata": ["a topic without name and id", "by id before version 12"],
    "FindCoordinator": ["a coordinator of kind "],
    "JoinGroup": ["a group without an id", "a member without protocols"],
    "Heartbeat": ["a group without an id"],
    "LeaveGroup": ["a group without an id"],
    "SyncGroup": ["a group without an id", "an assignment without its protocol"],
    "ApiVersions": ["without a proper name", "with broker "],
    "InitProducerId": [
        "an empty transactional id",
        "a transaction time-out of ",
        "a producer id without its epoch",
    ],
    "AddPartitionsToTxn": ["no transactional id"],
    "AddOffsetsToTxn": ["no transactional id"],
    "EndTxn": ["no transactional id", "no producer id and epoch"],
    "TxnOffsetCommit": ["a group without an id", "no transactional id"],
}
"""Parts of the reasons that `violations` returns for the requests of the contract."""
IGNORED_BY_KAFKA: Final = {("order-log", "3 Produce v9"), ("fetch-replicas", "19 Fetch v12")}
"""Kafka ignores all but the last batch of a duplicate partition, and the size of a partition for
which the leader names a closer replica."""


def reasons_by_request(number: int) -> dict[str, list[str]]:
    """Return the reasons to refuse the requests of a scenario."""
    found: dict[str, list[str]] = {}
    for title, frame in play(number).frames.items():
        header, request = decode_request(frame)
        if reasons := violations(request, header.api_version):
            found[title] = reasons
    return found


@pytest.mark.parametrize("number", range(len(SCENARIOS)), ids=[it.name for it in SCENARIOS])
def test_kafka_refuses_what_scripted_brokers_refuse(number: int) -> None:
    name, record = SCENARIOS[number].name, read_record()
    accepted = {
        (name, title)
        for title in reasons_by_request(number)
        if error_codes(record[name][title]) <= {0}
    }
    assert accepted <= IGNORED_BY_KAFKA


def test_scripted_brokers_refuse_for_each_reason() -> None:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for number in range(len(SCENARIOS)):
        for title, reasons in reasons_by_request(number).items():
            found[title.split()[1]] += reasons
    assert set(found) == set(REASONS) == {api.lookup(key).name for key in RULES}
    for name, parts in REASONS.items():
        assert [part for part in parts if not any(part in it for it in found[name])] == []
        assert [it for it in found[name] if not any(part in it for part in parts)] == []


@pytest.mark.parametrize(
    ("scenario", "title"),
    [
        ("join-refused", "8 JoinGroup v9"),
        ("join-refused", "9 JoinGroup v9"),
        ("fetch-versions", "24 Fetch v12"),
        ("fetch-refused", "5 Fetch v12"),
    ],
)
def test_scripted_brokers_refuse_each_condition_of_a_reason(scenario: str, title: str) -> None:
    [number] = [number for number, it in enumerate(SCENARIOS) if it.name == scenario]
    assert title in reasons_by_request(number)


def test_scripted_brokers_refuse_negative_partition_of_fetch() -> None:
    topic = FetchTopic(topic="t", partitions=[FetchPartition(partition=-1)])
    assert violations(FetchRequest(topics=[topic]), 12) == ["partitions [-1]"]


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_scripted_broker_records_invalid_request() -> None:
    world = World()
    async with world.client() as client:
        await client.request(HeartbeatRequest(), to=Broker(1))
    noted = list(REFUSED)
    REFUSED.clear()
    assert noted == ["HeartbeatRequest: a group without an id"]


HEAD = b"\0\x12\0\0\0\0\0\x07\xff\xff"
"""ApiVersions 0 with correlation id 7."""


@pytest.mark.asyncio
@pytest.mark.virtual_clock
@pytest.mark.parametrize(
    ("sent", "reason", "closes"),
    [
        (b"\xff\xff\xff\xff", "a frame of -1 bytes", True),
        (b"\0\0\0\x0b" + HEAD[:2] + b"\0\x63" + HEAD[4:] + b"\0", "99", True),
        (b"\0\0\0\x02" + HEAD[:2], "", True),
        ((b"\0\0\0\x0a" + HEAD) * 2, "correlation id 7 again", False),
    ],
    ids=["size", "version", "truncated", "order"],
)
async def test_scripted_broker_records_invalid_frame(
    sent: bytes, reason: str, closes: bool
) -> None:
    world = World()
    connection = await RawConnection.dial("b1", 9092, world.network)
    connection.write(sent)
    await settle()
    noted = list(REFUSED)
    REFUSED.clear()
    assert len(noted) == 1
    assert reason in noted[0]
    assert world.brokers[1].connections == (0 if closes else 1)
    connection.drop()
    await settle()
