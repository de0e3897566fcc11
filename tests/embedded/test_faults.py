"""Fault rules and internal errors, over raw connections."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.embedded.error_codes import ErrorCode, error_code_of
from kafka_async.embedded.handlers.routes import routes_by_api_key
from kafka_async.embedded.requests.context import RequestContext
from kafka_async.embedded.requests.error_responses import error_response
from kafka_async.errors import (
    IllegalStateError,
    InvalidConfigurationError,
    NotCoordinatorError,
    UnsupportedVersionError,
)
from kafka_async.protocol.api import lookup
from kafka_async.protocol.messages.metadata import MetadataRequest
from kafka_async.protocol.messages.produce import ProduceRequest
from tests.contract.cases.admin import create, drop, metadata, row
from tests.contract.cases.log import fetch
from tests.contract.model import SendRequest, send
from tests.embedded.harness import Session
from tests.raw_connection import batch

if TYPE_CHECKING:
    from tests.embedded.conftest import StartHarness
    from tests.embedded.harness import ClusterHarness
    from tests.raw_connection import RawConnection

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

METADATA_REQUEST = MetadataRequest(topics=[])


async def produce(
    connection: RawConnection, harness: ClusterHarness, version: int = 11
) -> dict[int, int]:
    """Write one record to each partition of `t`; return the error codes by partition."""
    topic = harness.cluster.topics.get("t")
    assert topic is not None
    rows = [{"index": index, "records": batch(b"v")} for index in (0, 1)]
    data = [{"name": "t", "topic_id": topic.id, "partition_data": rows}]
    request = ProduceRequest.from_dict({"acks": -1, "topic_data": data})
    [found] = (await connection.call(request, version)).responses
    return {entry.index: entry.error_code for entry in found.partition_responses}


def end_offsets(harness: ClusterHarness) -> list[int]:
    return [harness.partition(index).log.end_offset for index in (0, 1)]


async def test_error_replaces_handling(harness: ClusterHarness) -> None:
    connection = await harness.connect()
    fault = harness.cluster.faults.add(api="Produce", error="NOT_ENOUGH_REPLICAS")
    assert await produce(connection, harness) == {0: 19, 1: 19}
    assert end_offsets(harness) == [0, 0]
    assert await produce(connection, harness) == {0: 0, 1: 0}
    assert fault.hits == 1
    assert fault.exhausted


async def test_error_after_handling(harness: ClusterHarness) -> None:
    connection = await harness.connect()
    harness.cluster.faults.add(api="Produce", error=ErrorCode.REQUEST_TIMED_OUT, applied=True)
    assert await produce(connection, harness) == {0: 7, 1: 7}
    assert end_offsets(harness) == [1, 1]


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("version", [11, 13])
async def test_only_selected_partition_fails(
    harness: ClusterHarness, applied: bool, version: int
) -> None:
    connection = await harness.connect()
    harness.cluster.faults.add(
        api=0, topic="t", partition=1, error="NOT_ENOUGH_REPLICAS", applied=applied
    )
    assert await produce(connection, harness, version) == {0: 0, 1: 19}
    assert end_offsets(harness) == [1, 1 if applied else 0]


async def test_other_topic_or_partition_is_not_affected(harness: ClusterHarness) -> None:
    connection = await harness.connect()
    faults = [
        harness.cluster.faults.add(api="Produce", topic="u", error=1),
        harness.cluster.faults.add(api="Produce", partition=2, error=1),
        harness.cluster.faults.add(api="Fetch", error=1),
    ]
    assert await produce(connection, harness) == {0: 0, 1: 0}
    assert [fault.hits for fault in faults] == [0, 0, 0]


async def test_rule_skips_and_counts_requests(harness: ClusterHarness) -> None:
    connection = await harness.connect()
    harness.cluster.faults.add(api="Produce", partition=0, error=7, skip=1, count=2)
    codes = [(await produce(connection, harness))[0] for _ in range(5)]
    assert codes == [0, 7, 7, 0, 0]


async def test_rule_without_effect_counts_requests(harness: ClusterHarness) -> None:
    connection = await harness.connect()
    fault = harness.cluster.faults.add(api="Produce", count=None)
    for _ in range(3):
        await produce(connection, harness)
    await connection.call(METADATA_REQUEST, 12)
    assert fault.hits == 3
    assert not fault.exhausted
    fault.remove()
    await produce(connection, harness)
    assert fault.hits == 3


async def test_request_is_handled_after_a_wait_for_its_rule_was_cancelled(
    harness: ClusterHarness,
) -> None:
    connection = await harness.connect()
    fault = harness.cluster.faults.add(api="Produce", count=None)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await fault.wait()
    assert await produce(connection, harness) == {0: 0, 1: 0}
    await fault.wait()
    assert fault.hits == 1


async def test_rule_selects_by_broker_and_predicate(start_harness: StartHarness) -> None:
    harness = await start_harness(2)
    first, second = await harness.connect(1), await harness.connect(2)

    def selects(context: RequestContext, request: Any) -> bool:
        return context.client_id == "me" and context.version == 12

    by_broker = harness.cluster.faults.add(broker=2, count=None)
    by_predicate = harness.cluster.faults.add(when=selects, count=None)
    second.client_id = "me"
    await second.call(METADATA_REQUEST, 12)
    await first.call(METADATA_REQUEST, 12)
    first.client_id = "me"
    await first.call(METADATA_REQUEST, 11)
    await first.call(METADATA_REQUEST, 12)
    assert (by_broker.hits, by_predicate.hits) == (1, 1)


async def test_delay_holds_request(harness: ClusterHarness) -> None:
    connection = await harness.connect()
    loop = asyncio.get_running_loop()
    harness.cluster.faults.add(delay=2.5)
    began = loop.time()
    await connection.call(METADATA_REQUEST, 12)
    assert loop.time() - began == pytest.approx(2.5)


async def test_hanging_request_continues_after_release(harness: ClusterHarness) -> None:
    connection = await harness.connect()
    fault = harness.cluster.faults.add(hang=True, count=2)
    waiting = connection.send(METADATA_REQUEST, 12)
    await fault.wait()
    await asyncio.sleep(1_000)
    assert not waiting.done()
    fault.release()
    assert (await waiting).brokers
    await connection.call(METADATA_REQUEST, 12)  # later requests do not hang
    assert fault.hits == 2


async def test_clear_releases_hanging_requests(harness: ClusterHarness) -> None:
    connection = await harness.connect()
    fault = harness.cluster.faults.add(hang=True)
    waiting = connection.send(METADATA_REQUEST, 12)
    await fault.wait()
    harness.cluster.faults.clear()
    assert (await waiting).brokers


async def test_applied_rule_holds_only_response(harness: ClusterHarness) -> None:
    connection = await harness.connect()
    loop = asyncio.get_running_loop()
    harness.cluster.faults.add(api="Produce", applied=True, delay=2.5)
    fault = harness.cluster.faults.add(api="Produce", applied=True, hang=True, error=7)
    began = loop.time()
    writing = asyncio.ensure_future(produce(connection, harness))
    await asyncio.sleep(1)
    assert end_offsets(harness) == [1, 1]
    await writing
    assert loop.time() - began == pytest.approx(2.5)
    writing = asyncio.ensure_future(produce(connection, harness))
    await fault.wait()
    await asyncio.sleep(100)
    assert end_offsets(harness) == [2, 2]
    assert not writing.done()
    fault.release()
    assert await writing == {0: 7, 1: 7}


@pytest.mark.parametrize(("when", "written"), [("before", 0), ("after", 1)])
async def test_connection_is_reset_before_or_after_handling(
    harness: ClusterHarness, when: Any, written: int
) -> None:
    connection = await harness.connect()
    harness.cluster.faults.add(api="Produce", disconnect=when)
    with pytest.raises(ConnectionResetError):
        await produce(connection, harness)
    assert end_offsets(harness) == [written, written]


async def test_error_without_field_resets_connection(harness: ClusterHarness) -> None:
    connection = await harness.connect()
    harness.cluster.faults.add(api="Metadata", error=-1)
    with pytest.raises(ConnectionResetError):
        await connection.call(MetadataRequest(topics=None), 12)


async def test_invalid_rule_is_rejected(harness: ClusterHarness) -> None:
    with pytest.raises(InvalidConfigurationError, match="NOSUCH"):
        harness.cluster.faults.add(error="NOSUCH")
    with pytest.raises(UnsupportedVersionError):
        harness.cluster.faults.add(api="NoSuchApi")


# -- error fields by API --------------------------------------------------------------------------


async def test_error_of_selected_topic(harness: ClusterHarness) -> None:
    it, faults = Session(harness), harness.cluster.faults
    faults.add(api="Metadata", topic="t", error="LEADER_NOT_AVAILABLE", count=2)
    response = await it.ask(metadata(12, "t", "u"))
    assert {row.name: row.error_code for row in response.topics} == {"t": 5, "u": 3}
    response = await it.ask(metadata(12, "t"))
    assert [row.error_code for row in response.topics] == [5]
    assert [row.node_id for row in response.brokers] == [*harness.cluster.brokers]

    faults.add(api="CreateTopics", topic="a", error="POLICY_VIOLATION")
    created = await it.ask(create(7, topics=[row("a"), row("b")]))
    assert {row.name: row.error_code for row in created.topics} == {"a": 44, "b": 0}

    faults.add(api="DeleteTopics", topic="t", error="TOPIC_DELETION_DISABLED")
    deleted = await it.ask(drop(3, "t", "b"))
    assert {row.name: row.error_code for row in deleted.responses} == {"t": 73, "b": 0}


@pytest.mark.parametrize(
    ("request_", "error", "applied"),
    [
        (send("FindCoordinator", 3, key="g"), "COORDINATOR_NOT_AVAILABLE", False),
        (send("FindCoordinator", 4, coordinator_keys=["g"]), "COORDINATOR_NOT_AVAILABLE", False),
        (send("ListGroups", 4), "COORDINATOR_NOT_AVAILABLE", False),
        (send("ApiVersions", 0), "REBOOTSTRAP_REQUIRED", True),
        (send("Fetch", 12, session_id=5, session_epoch=3), "FETCH_SESSION_ID_NOT_FOUND", False),
    ],
)
async def test_error_of_whole_response(
    harness: ClusterHarness, request_: SendRequest, error: str, applied: bool
) -> None:
    harness.cluster.faults.add(api=request_.api, error=error, applied=applied)
    assert await Session(harness).code(request_) is ErrorCode[error]


async def test_error_of_a_coordinator_names_its_key(harness: ClusterHarness) -> None:
    harness.cluster.faults.add(api="FindCoordinator", error="COORDINATOR_NOT_AVAILABLE")
    request_ = send("FindCoordinator", 4, coordinator_keys=["g"])
    [found] = (await Session(harness).ask(request_)).coordinators
    assert (found.key, found.error_code) == ("g", ErrorCode.COORDINATOR_NOT_AVAILABLE)


async def test_fetch_error_has_no_watermark(harness: ClusterHarness) -> None:
    harness.cluster.faults.add(api="Fetch", error="NOT_LEADER_OR_FOLLOWER")
    response = await Session(harness).ask(fetch(12, 3, index=1))
    [partition] = response.responses[0].partitions
    assert (partition.partition_index, partition.error_code, partition.high_watermark) == (1, 6, -1)


async def test_error_response_exists_for_apis_with_error_field(harness: ClusterHarness) -> None:
    without: set[str] = set()
    for key, route in routes_by_api_key({}).items():
        for version in range(route.lowest, route.highest + 1):
            api = lookup(key)
            context = RequestContext(harness.cluster.brokers[1], key, version, None, "", 0.0)
            if error_response(context, 7, api.request()) is None:
                without.add(api.name)
    # These APIs have error codes per topic or partition, and the requests are empty.
    assert without >= {"Produce", "Metadata", "ListOffsets", "OffsetCommit"}
    assert without.isdisjoint({"JoinGroup", "SyncGroup", "Heartbeat", "InitProducerId", "EndTxn"})


async def test_error_without_code_is_unknown_server_error() -> None:
    assert error_code_of(NotCoordinatorError("moved")) == ErrorCode.NOT_COORDINATOR
    assert error_code_of(IllegalStateError("no code")) == ErrorCode.UNKNOWN_SERVER_ERROR


# -- internal errors ------------------------------------------------------------------------------


async def test_exception_of_handler_is_recorded_and_returned(
    start_harness: StartHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = await start_harness()
    await harness.cluster.create_topic("t", 2)
    connection = await harness.connect()

    def broken(records: object) -> float:
        return 1 / 0

    monkeypatch.setattr(harness.partition().log, "validate_size_and_crc", broken)
    assert set((await produce(connection, harness)).values()) == {-1}
    (failure,) = harness.cluster.failures
    assert failure.where == "Produce v11 at broker 1"
    assert isinstance(failure.error, ZeroDivisionError)
    harness.cluster.failures.clear()
    assert (await connection.call(METADATA_REQUEST, 12)).brokers


async def test_exception_of_predicate_resets_connection(start_harness: StartHarness) -> None:
    harness = await start_harness()

    def broken(context: RequestContext, request: Any) -> bool:
        raise ZeroDivisionError

    fault = harness.cluster.faults.add(when=broken)
    one, two = await harness.connect(), await harness.connect()
    with pytest.raises(ConnectionResetError):
        await one.call(METADATA_REQUEST, 12)
    fault.remove()
    harness.cluster.faults.clear()
    assert (await two.call(METADATA_REQUEST, 12)).brokers
    (failure,) = harness.cluster.failures
    assert isinstance(failure.error, ZeroDivisionError)
    harness.cluster.failures.clear()


async def test_response_that_cannot_be_encoded_resets_connection(
    start_harness: StartHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = await start_harness()
    connection = await harness.connect()
    monkeypatch.setattr(harness.cluster.brokers[1], "host", None)
    with pytest.raises(ConnectionResetError):
        await connection.call(METADATA_REQUEST, 12)
    (failure,) = harness.cluster.failures
    assert failure.where == "the response to Metadata v12 at broker 1"
    harness.cluster.failures.clear()


async def test_exception_of_timer_is_recorded(start_harness: StartHarness) -> None:
    harness = await start_harness()
    harness.cluster.scheduler.call_later(1, lambda: 1 / 0)
    await asyncio.sleep(2)
    (failure,) = harness.cluster.failures
    assert isinstance(failure.error, ZeroDivisionError)
    harness.cluster.failures.clear()


async def test_throttled_response_mutes_only_its_connection(harness: ClusterHarness) -> None:
    connection, other = await harness.connect(), await harness.connect()
    harness.cluster.faults.add(api="Metadata", throttle=2.5)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    assert (await connection.call(METADATA_REQUEST, 13)).throttle_time_ms == 2500
    assert loop.time() == begun
    assert (await other.call(METADATA_REQUEST, 13)).throttle_time_ms == 0
    assert loop.time() == begun
    assert (await connection.call(METADATA_REQUEST, 13)).throttle_time_ms == 0
    assert loop.time() - begun == pytest.approx(2.5)


async def test_muted_connection_ends_when_client_disconnects(harness: ClusterHarness) -> None:
    connection = await harness.connect()
    harness.cluster.faults.add(api="Metadata", throttle=1000.0)
    await connection.call(METADATA_REQUEST, 13)
    await connection.close()
    loop = asyncio.get_running_loop()
    begun = loop.time()
    async with asyncio.timeout(10):
        while harness.cluster.brokers[1].connections:  # noqa: ASYNC110  # virtual time
            await asyncio.sleep(0)
    assert loop.time() == begun
