"""Transactions in states and times that the contract with Kafka cannot reach."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.types import TopicPartition
from tests.contract.cases.groups import committed_by
from tests.contract.cases.transactions import (
    add,
    add_offsets,
    begin,
    describe,
    end,
    init,
    offset,
    write,
)
from tests.contract.model import GROUP, TXN, send
from tests.embedded.harness import Session, running_session

if TYPE_CHECKING:
    from kafka_async.protocol.messages.api_versions import ApiVersionsResponse
    from kafka_async.protocol.messages.describe_transactions import TransactionState
    from kafka_async.protocol.messages.offset_fetch import OffsetFetchResponse
    from tests.contract.model import SendRequest

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

V1, V2 = 1, 2


async def write_record(it: Session, generation: int = V2, sequence: int = 0) -> ErrorCode:
    """Write a record in the transaction; with transactions v1 add the partition first."""
    if generation == V2:
        return await it.code(write(12, sequence))
    code = await it.code(add(3))
    return await it.code(write(11, sequence)) if code is ErrorCode.NONE else code


def end_and_bump(commit: bool = True) -> SendRequest:
    """Return an EndTxn request whose response has the producer's next epoch."""
    return end(5, commit, label="p")


async def described(it: Session) -> TransactionState:
    """Return the description of the transactional id, from its coordinator."""
    it.broker = it.coordinator(TXN.key)
    return (await it.ask(describe(0, TXN))).transaction_states[0]


async def state(it: Session) -> str:
    return (await described(it)).transaction_state


def last_stable_offset(it: Session) -> int:
    return it.partition().log.last_stable_offset


async def committed_offset(it: Session, *, stable: bool = True) -> tuple[ErrorCode, int]:
    response: OffsetFetchResponse = await it.ask(committed_by(9, require_stable=stable))
    row = response.groups[0].topics[0].partitions[0]
    return ErrorCode(row.error_code), row.committed_offset


# -- markers --------------------------------------------------------------------------------------


async def test_end_txn_responds_before_markers_are_written() -> None:
    async with running_session(transaction_marker_delay_ms=100) as it:
        await it.ask(begin(5))
        assert await write_record(it) is ErrorCode.NONE
        assert await it.code(offset(5)) is ErrorCode.NONE
        assert await it.code(end_and_bump()) is ErrorCode.NONE
        assert await state(it) == "PrepareCommit"
        assert last_stable_offset(it) == 0
        assert await committed_offset(it) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
        assert await committed_offset(it, stable=False) == (ErrorCode.NONE, -1)
        await asyncio.sleep(0.1)
        assert await state(it) == "CompleteCommit"
        assert last_stable_offset(it) == 2  # the record and the marker
        assert await committed_offset(it) == (ErrorCode.NONE, 7)


@pytest.mark.parametrize("generation", [V1, V2])
async def test_requests_before_marker_are_concurrent_transactions(generation: int) -> None:
    async with running_session(transaction_marker_delay_ms=100) as it:
        await it.ask(begin(5))
        await write_record(it, generation)
        await it.ask(end(4) if generation == V1 else end_and_bump())
        sequence = 1 if generation == V1 else 0
        concurrent = ErrorCode.CONCURRENT_TRANSACTIONS
        assert await write_record(it, generation, sequence) is concurrent
        assert await it.code(init(5)) is concurrent
        await asyncio.sleep(0.1)
        assert await write_record(it, generation, sequence) is ErrorCode.NONE


async def test_late_v1_write_to_ending_transaction_is_retriable() -> None:
    async with running_session(transaction_marker_delay_ms=100) as it:
        await it.ask(begin(5))
        await write_record(it, V1)
        await it.ask(end(4))
        # Clients of that version do not retry CONCURRENT_TRANSACTIONS.
        assert await it.code(write(11, 1)) is ErrorCode.NOT_ENOUGH_REPLICAS
        await asyncio.sleep(0.1)
        assert await it.code(write(11, 1)) is ErrorCode.TRANSACTION_ABORTABLE


CONCURRENT, INVALID = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_TXN_STATE
FENCED = ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("second", [True, False])
@pytest.mark.parametrize(
    ("version", "bumped", "same", "opposite"),
    [
        (4, False, CONCURRENT, INVALID),
        (5, False, CONCURRENT, INVALID),
        (5, True, FENCED, FENCED),
    ],
    ids=["v1", "v2-same-epoch", "v2-next-epoch"],
)
async def test_end_txn_while_markers_are_pending(
    version: int, bumped: bool, same: ErrorCode, opposite: ErrorCode, first: bool, second: bool
) -> None:
    async with running_session(transaction_marker_delay_ms=100) as it:
        await it.ask(begin(5))
        await write_record(it, V1 if version == 4 else V2)
        assert await it.code(end_and_bump(first) if bumped else end(version, first)) == 0
        assert await it.code(end(version, second)) is (same if first == second else opposite)
        await asyncio.sleep(0.1)
        assert await state(it) == ("CompleteCommit" if first else "CompleteAbort")


async def test_marker_waits_for_leader() -> None:
    async with running_session(2, default_replication_factor=1) as it:
        partition = it.partition()
        coordinating = it.broker = it.coordinator(TXN.key)
        leader = 3 - coordinating
        await it.embedded.move_leader(partition.tp, leader)
        partition.replicas = (leader,)
        await it.ask(begin(5))
        await it.ask(add(3))
        it.broker = leader
        assert await it.code(write(11, 0)) is ErrorCode.NONE
        await it.embedded.stop_broker(leader)
        it.broker = coordinating
        assert await it.code(end(5)) is ErrorCode.NONE
        await asyncio.sleep(1)
        assert await state(it) == "PrepareCommit"
        assert last_stable_offset(it) == 0
        await it.embedded.start_broker(leader)
        assert await state(it) == "CompleteCommit"
        assert last_stable_offset(it) == 2


async def test_deleted_topic_needs_no_marker() -> None:
    async with running_session() as it:
        await it.ask(begin(5))
        await write_record(it)
        await it.embedded.delete_topic("t")
        assert await it.code(end(5)) is ErrorCode.NONE
        await asyncio.sleep(0.01)
        assert await state(it) == "CompleteCommit"


# -- versions -------------------------------------------------------------------------------------


async def test_cluster_without_v2_limits_versions() -> None:
    async with running_session(transaction_version=1) as it:
        ranges: ApiVersionsResponse = await it.ask(send("ApiVersions", 0))
        highest = {row.api_key: row.max_version for row in ranges.api_keys}
        assert (highest[0], highest[26], highest[28]) == (11, 4, 4)
        await it.ask(begin(5, timeout=10_000))
        await write_record(it, V1)
        await asyncio.sleep(11)  # the timeout fences by a new epoch
        found = await described(it)
        assert (found.transaction_state, found.producer_epoch) == ("CompleteAbort", 1)


async def test_v1_producer_without_state_begins_with_any_sequence() -> None:
    async with running_session() as it:
        await it.ask(begin(5))
        assert await write_record(it, V1, 17) is ErrorCode.NONE


async def test_add_partitions_adds_none_if_one_is_unknown() -> None:
    async with running_session() as it:
        await it.ask(begin(5))
        await it.ask(add(3, topics=[{"name": "t", "partitions": [0, 9]}]))
        found = await described(it)
        assert (found.transaction_state, found.topics) == ("Empty", ())


# -- timeouts and expiration ----------------------------------------------------------------------


@pytest.mark.parametrize("generation", [V1, V2])
async def test_timed_out_transaction_is_aborted(generation: int) -> None:
    async with running_session() as it:
        await it.ask(begin(5, timeout=10_000))
        await write_record(it, generation)
        await it.ask(add_offsets(3))
        await it.ask(offset(4))
        assert await committed_offset(it) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
        await asyncio.sleep(9.9)
        assert await state(it) == "Ongoing"
        await asyncio.sleep(0.2)
        assert await state(it) == "CompleteAbort"
        assert await committed_offset(it) == (ErrorCode.NONE, -1)
        fenced = FENCED if generation == V1 else ErrorCode.INVALID_PRODUCER_EPOCH
        assert await write_record(it, generation, 1) is fenced


async def test_ended_transaction_is_not_aborted_later() -> None:
    async with running_session() as it:
        await it.ask(begin(5, timeout=10_000))
        for _ in range(2):
            await write_record(it)
            await asyncio.sleep(9)
            assert await state(it) == "Ongoing"
            assert await it.code(end_and_bump()) is ErrorCode.NONE
            await asyncio.sleep(0.5)
        await asyncio.sleep(60)
        assert await state(it) == "CompleteCommit"


async def test_duration_filter_lists_only_older_transactions() -> None:
    async with running_session() as it:
        await it.ask(begin(5))
        await it.ask(add(3))
        older = send("ListTransactions", 1, duration_filter=5_000)
        assert list((await it.ask(older)).transaction_states) == []
        await asyncio.sleep(6)
        [found] = (await it.ask(older)).transaction_states
        assert found.transactional_id == TXN.key


async def test_transactional_id_expires() -> None:
    async with running_session(transactional_id_expiration_ms=60_000) as it:
        await it.ask(begin(5))
        await asyncio.sleep(61)
        assert await it.code(describe(0, TXN)) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert await write_record(it) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


# -- coordinators ---------------------------------------------------------------------------------


async def test_offsets_topic_has_number_of_partitions_of_settings() -> None:
    async with running_session(offsets_topic_num_partitions=3) as it:
        await it.ask(begin(5))
        await it.ask(send("FindCoordinator", 6, coordinator_keys=[GROUP]))
        assert await it.code(offset(5)) is ErrorCode.NONE
        metadata = it.embedded.transactions.get(TXN.key)
        assert metadata is not None
        assert metadata.partitions == {TopicPartition("__consumer_offsets", ord(GROUP.key) % 3)}
        created = it.embedded.topics.get("__consumer_offsets")
        assert created is not None
        assert len(created.partitions) == 3


async def test_any_broker_allocates_producer_ids() -> None:
    ids: set[int] = set()
    async with running_session(3) as it:
        for broker_id in it.embedded.brokers:
            it.broker = broker_id
            for request in init(range(6), None):
                found = await it.ask(request)
                assert (found.error_code, found.producer_epoch) == (ErrorCode.NONE, 0)
                ids.add(found.producer_id)
    assert len(ids) == 18


async def test_transaction_survives_stop_of_coordinator() -> None:
    async with running_session(3, coordinator_load_time_ms=1_000) as it:
        it.broker = it.coordinator(TXN.key)
        await it.ask(begin(5))
        assert await it.code(add(3)) is ErrorCode.NONE
        await it.embedded.stop_broker(it.broker)
        it.broker = it.coordinator(TXN.key)
        assert await it.code(end(5)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await asyncio.sleep(1)
        assert await it.code(end(5)) is ErrorCode.NONE
        await asyncio.sleep(0.01)
        assert await state(it) == "CompleteCommit"
