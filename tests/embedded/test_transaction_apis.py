"""Transaction APIs over raw connections in virtual time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.groups.offset_metadata_manager import offsets_partition_for
from kafka_async.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafka_async.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kafka_async.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    TransactionState,
)
from kafka_async.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from kafka_async.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafka_async.protocol.messages.init_producer_id import InitProducerIdRequest
from kafka_async.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafka_async.protocol.messages.list_transactions import ListTransactionsRequest
from kafka_async.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kafka_async.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kafka_async.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kafka_async.records.batch import iter_batches
from kafka_async.types import TopicPartition
from tests.embedded.harness import ClusterHarness, running_harness
from tests.embedded.raw_connection import RawConnection, batch

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

V1 = 1
V2 = 2
both = pytest.mark.parametrize("generation", [V1, V2], ids=["v1", "v2"])


@dataclass
class Producer:
    """Sends the requests of a transactional producer, with transactions v1 or v2."""

    client: RawConnection
    generation: int = V2
    producer_id: int = -1
    epoch: int = -1
    sequence: int = 0

    async def init(self, **fields: Any) -> int:
        """Send InitProducerId and store id and epoch; return the error code."""
        chosen: dict[str, Any] = {"transactional_id": "tx", "transaction_timeout_ms": 10_000}
        request = InitProducerIdRequest(**{**chosen, **fields})
        response = await self.client.call(request, 5)
        if response.error_code == ErrorCode.NONE:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self.sequence = 0
        return response.error_code

    async def add(self, partition: int = 0) -> int:
        """Send AddPartitionsToTxn as clients of transactions v1 do."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="tx",
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[partition])],
        )
        [topic] = (await self.client.call(request, 3)).results_by_topic_v3_and_below
        return topic.results_by_partition[0].partition_error_code

    async def write(self, value: bytes = b"x", version: int | None = None) -> int:
        """Produce one record to partition 0; with v1 add the partition first."""
        if (
            self.generation == V1
            and version is None
            and (code := await self.add()) != ErrorCode.NONE
        ):
            return code
        data = batch(
            value,
            producer_id=self.producer_id,
            epoch=self.epoch,
            sequence=self.sequence,
            transactional=True,
            timestamp=int(
                time.time() * 1000
            ),  # as the marker's, which would begin a segment otherwise
        )
        partition = PartitionProduceData(index=0, records=data)
        request = ProduceRequest(
            transactional_id="tx",
            acks=-1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name="t", partition_data=[partition])],
        )
        response = await self.client.call(request, version or (11 if self.generation == V1 else 12))
        code = response.responses[0].partition_responses[0].error_code
        self.sequence += code == ErrorCode.NONE
        return code

    async def commit_offset(self, offset: int, version: int | None = None, **fields: Any) -> int:
        """Send TxnOffsetCommit for partition 0 of group `g`; with v1 add the group first."""
        if self.generation == V1 and version is None:
            add = AddOffsetsToTxnRequest(
                transactional_id="tx",
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id="g",
            )
            code = (await self.client.call(add)).error_code
            if code != ErrorCode.NONE:
                return code
        partition = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id="tx",
            group_id="g",
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[partition])],
            **fields,
        )
        chosen = version or (4 if self.generation == V1 else 5)
        response = await self.client.call(request, chosen)
        return response.topics[0].partitions[0].error_code

    async def end(self, commit: bool = True) -> int:
        """Send EndTxn; with v2 store the epoch of the response."""
        response = await self.send_end(commit)
        if response.error_code == ErrorCode.NONE and self.generation == V2:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self.sequence = 0
        return response.error_code

    async def send_end(self, commit: bool = True) -> EndTxnResponse:
        """Send EndTxn and return the response, without storing the epoch."""
        request = EndTxnRequest(
            transactional_id="tx",
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        return await self.client.call(request, 4 if self.generation == V1 else 5)


async def producer(it: ClusterHarness, generation: int = V2) -> Producer:
    started = Producer(await it.connect(), generation)
    assert await started.init() == ErrorCode.NONE
    return started


def last_stable_offset(it: ClusterHarness) -> int:
    partition = it.cluster.topics.partition(TopicPartition("t", 0))
    assert partition is not None
    return partition.log.last_stable_offset


async def committed_values(it: ClusterHarness) -> list[bytes | None]:
    """Return the values that a read_committed consumer gets from partition 0."""
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1_000_000,
        isolation_level=1,
        topics=[
            FetchTopic(
                topic="t",
                partitions=[
                    FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000_000)
                ],
            )
        ],
    )
    response = await (await it.connect()).call(request, 12)
    data = response.responses[0].partitions[0]
    aborted = {(entry.producer_id, entry.first_offset) for entry in data.aborted_transactions or ()}
    values: list[bytes | None] = []
    dropped: set[int] = set()
    for view in iter_batches(data.records or b"", topic="t", partition=0):
        if view.is_control:
            dropped.discard(view.producer_id)
            continue
        if (view.producer_id, view.base_offset) in aborted:
            dropped.add(view.producer_id)
        if view.producer_id not in dropped:
            values += [record.value for record in view.records()]
    return values


async def described(it: ClusterHarness) -> TransactionState:
    client = await it.connect(it.cluster.coordinator_for("tx"))
    request = DescribeTransactionsRequest(transactional_ids=["tx"])
    return (await client.call(request)).transaction_states[0]


async def committed_offset(it: ClusterHarness, *, stable: bool = True) -> tuple[int, int]:
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)], require_stable=stable
    )
    client = await it.connect(it.cluster.coordinator_for("g"))
    partition = (await client.call(request, 9)).groups[0].topics[0].partitions[0]
    return partition.error_code, partition.committed_offset


# -- commit and abort -----------------------------------------------------------------------------


@both
async def test_records_are_visible_after_marker(generation: int) -> None:
    async with running_harness(transaction_marker_delay_ms=100) as it:
        one = await producer(it, generation)
        assert await one.write(b"a") == await one.write(b"b") == ErrorCode.NONE
        assert (await described(it)).transaction_state == "Ongoing"
        assert await committed_values(it) == []
        assert await one.end() == ErrorCode.NONE
        assert (await described(it)).transaction_state == "PrepareCommit"
        assert last_stable_offset(it) == 0
        await asyncio.sleep(0.1)
        assert (await described(it)).transaction_state == "CompleteCommit"
        assert await committed_values(it) == [b"a", b"b"]
        assert last_stable_offset(it) == 3  # two records and the marker


@both
async def test_aborted_records_are_never_visible(generation: int) -> None:
    async with running_harness() as it:
        one = await producer(it, generation)
        await one.write(b"lost")
        assert await one.end(commit=False) == ErrorCode.NONE
        await asyncio.sleep(0)
        await one.write(b"kept")
        assert await one.end() == ErrorCode.NONE
        await asyncio.sleep(0.01)
        assert await committed_values(it) == [b"kept"]
        assert (await described(it)).transaction_state == "CompleteCommit"


@both
async def test_requests_before_marker_are_concurrent_transactions(generation: int) -> None:
    async with running_harness(transaction_marker_delay_ms=100) as it:
        one = await producer(it, generation)
        await one.write()
        await one.end()
        assert await one.write() == ErrorCode.CONCURRENT_TRANSACTIONS
        assert await one.init() == ErrorCode.CONCURRENT_TRANSACTIONS
        await asyncio.sleep(0.1)
        assert await one.write() == ErrorCode.NONE


async def test_v2_write_adds_partition() -> None:
    async with running_harness() as it:
        one = await producer(it)
        await one.write()
        state = await described(it)
        assert [(topic.topic, list(topic.partitions)) for topic in state.topics] == [("t", [0])]
        assert state.transaction_timeout_ms == 10_000
        assert (state.producer_id, state.producer_epoch) == (one.producer_id, one.epoch)


@pytest.mark.parametrize(
    ("version", "code"), [(10, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)]
)
async def test_v1_requires_added_partition(version: int, code: ErrorCode) -> None:
    async with running_harness() as it:
        one = await producer(it, V1)
        assert await one.write(version=version) == code
        assert await one.add() == ErrorCode.NONE
        assert await one.write(version=version) == ErrorCode.NONE


@pytest.mark.parametrize(
    ("generation", "codes"),
    [
        (V1, [ErrorCode.NONE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]),
        (V2, [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.NONE]),
    ],
)
async def test_new_producer_begins_with_any_sequence_in_v1_and_0_in_v2(
    generation: int, codes: list[ErrorCode]
) -> None:
    async with running_harness() as it:
        one = await producer(it, generation)
        responses: list[int] = []
        for one.sequence in (1, 0):
            responses.append(await one.write())
        assert responses == codes


async def test_late_v1_write_to_ending_transaction_is_retriable() -> None:
    async with running_harness(transaction_marker_delay_ms=100) as it:
        one = await producer(it, V1)
        await one.write()
        await one.end()
        # Clients of that version do not retry CONCURRENT_TRANSACTIONS.
        assert await one.write(version=11) == ErrorCode.NOT_ENOUGH_REPLICAS
        await asyncio.sleep(0.1)
        assert await one.write(version=11) == ErrorCode.TRANSACTION_ABORTABLE


@pytest.mark.parametrize(
    ("generation", "again", "codes"),
    [
        # Codes of: commit after commit, abort after commit, commit after abort, abort after abort.
        (V1, True, "concurrent invalid invalid concurrent"),
        (V2, True, "concurrent invalid invalid concurrent"),
        (V2, False, "fenced fenced fenced fenced"),
    ],
    ids=["v1", "v2-same-epoch", "v2-next-epoch"],
)
async def test_end_txn_while_markers_are_pending(generation: int, again: bool, codes: str) -> None:
    meant = {
        "concurrent": ErrorCode.CONCURRENT_TRANSACTIONS,
        "invalid": ErrorCode.INVALID_TXN_STATE,
        "fenced": ErrorCode.PRODUCER_FENCED,
    }
    ends = [(True, True), (True, False), (False, True), (False, False)]
    for (first, second), word in zip(ends, codes.split(), strict=True):
        async with running_harness(transaction_marker_delay_ms=100) as it:
            one = await producer(it, generation)
            await one.write()
            if again:
                assert (await one.send_end(first)).error_code == ErrorCode.NONE
            else:
                assert await one.end(first) == ErrorCode.NONE
            assert (await one.send_end(second)).error_code == meant[word]
            await asyncio.sleep(0.1)
            state = "CompleteCommit" if first else "CompleteAbort"
            assert (await described(it)).transaction_state == state


async def test_end_txn_can_be_retried_after_lost_response() -> None:
    async with running_harness() as it:
        one = await producer(it)
        await one.write()
        first = await one.send_end()
        await asyncio.sleep(0.01)
        second = await one.send_end()
        assert first.error_code == second.error_code == ErrorCode.NONE
        assert (second.producer_id, second.producer_epoch) == (one.producer_id, one.epoch + 1)
        assert (await one.send_end(commit=False)).error_code == ErrorCode.INVALID_TXN_STATE
        assert last_stable_offset(it) == 2  # one record, one marker


async def test_cluster_without_v2_limits_versions() -> None:
    async with running_harness(transaction_version=1) as it:
        assert it.cluster.routes[0].highest == 11
        assert it.cluster.routes[26].highest == 4
        assert it.cluster.routes[28].highest == 4
        one = await producer(it, V1)
        await one.write()
        await one.end()
        await asyncio.sleep(0.01)
        assert (await described(it)).producer_epoch == one.epoch == 0
        assert await committed_values(it) == [b"x"]


@both
async def test_marker_waits_for_leader(generation: int) -> None:
    async with running_harness(2, default_replication_factor=1) as it:
        partition = it.cluster.topics.partition(TopicPartition("t", 0))
        assert partition is not None
        coordinating = it.cluster.coordinator_for("tx")
        assert coordinating is not None
        other = 3 - coordinating
        await it.cluster.move_leader(partition.tp, other)
        partition.replicas = (other,)
        coordinator, leader = (
            Producer(await it.connect(coordinating), generation),
            await it.connect(other),
        )
        await coordinator.init()
        await coordinator.add()
        writer = Producer(leader, generation, coordinator.producer_id, coordinator.epoch)
        assert await writer.write(version=11) == ErrorCode.NONE
        await it.cluster.stop_broker(other)
        assert await coordinator.end() == ErrorCode.NONE
        await asyncio.sleep(1)
        assert (await described(it)).transaction_state == "PrepareCommit"
        assert partition.log.last_stable_offset == 0
        await it.cluster.start_broker(other)
        assert (await described(it)).transaction_state == "CompleteCommit"
        assert partition.log.last_stable_offset == 2


async def test_deleted_topic_needs_no_marker() -> None:
    async with running_harness() as it:
        one = await producer(it)
        await one.write()
        await it.cluster.delete_topic("t")
        assert await one.end() == ErrorCode.NONE
        await asyncio.sleep(0.01)
        assert (await described(it)).transaction_state == "CompleteCommit"


# -- fencing --------------------------------------------------------------------------------------


@both
async def test_new_producer_fences_old_one(generation: int) -> None:
    async with running_harness() as it:
        old = await producer(it, generation)
        await old.write(b"old")
        new = Producer(await it.connect(), generation)
        assert await new.init() == ErrorCode.CONCURRENT_TRANSACTIONS
        await asyncio.sleep(0.01)
        assert await new.init() == ErrorCode.NONE
        assert (new.producer_id, new.epoch) == (old.producer_id, old.epoch + 2)

        fenced = ErrorCode.PRODUCER_FENCED if generation == V1 else ErrorCode.INVALID_PRODUCER_EPOCH
        assert await old.write() == fenced
        assert await old.commit_offset(1) == fenced
        assert await old.end() == ErrorCode.PRODUCER_FENCED
        assert await old.end(commit=False) == ErrorCode.PRODUCER_FENCED

        await new.write(b"new")
        await new.end()
        await asyncio.sleep(0.01)
        assert await committed_values(it) == [b"new"]


@both
async def test_timed_out_transaction_is_aborted(generation: int) -> None:
    async with running_harness() as it:
        zombie = await producer(it, generation)
        await zombie.write(b"zombie")
        await asyncio.sleep(9.9)
        assert (await described(it)).transaction_state == "Ongoing"
        await asyncio.sleep(0.2)
        assert (await described(it)).transaction_state == "CompleteAbort"
        assert await committed_values(it) == []
        fenced = ErrorCode.PRODUCER_FENCED if generation == V1 else ErrorCode.INVALID_PRODUCER_EPOCH
        assert await zombie.write() == fenced
        # With v2 it looks like an abort whose response was lost.
        assert await zombie.end() == (
            ErrorCode.PRODUCER_FENCED if generation == V1 else ErrorCode.INVALID_TXN_STATE
        )


@both
async def test_ended_transaction_is_not_aborted_later(generation: int) -> None:
    async with running_harness() as it:
        one = await producer(it, generation)
        await one.write(b"a")
        await asyncio.sleep(9)
        await one.end()
        await asyncio.sleep(0.5)
        await one.write(b"b")
        await asyncio.sleep(9)
        assert (await described(it)).transaction_state == "Ongoing"
        assert await one.end() == ErrorCode.NONE
        await asyncio.sleep(60)
        assert await committed_values(it) == [b"a", b"b"]


async def test_log_rejects_write_of_fenced_epoch() -> None:
    async with running_harness() as it:
        one = await producer(it, V1)
        await one.write()
        await asyncio.sleep(11)
        assert await one.write(version=11) == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize(("version", "code"), [(3, 47), (4, 90)])
async def test_older_clients_get_invalid_producer_epoch(version: int, code: int) -> None:
    async with running_harness() as it:
        one = await producer(it)
        await one.init()
        request = InitProducerIdRequest(
            transactional_id="tx",
            transaction_timeout_ms=1000,
            producer_id=one.producer_id,
            producer_epoch=0,
        )
        response = await one.client.call(request, version)
        assert (response.error_code, response.producer_id) == (code, -1)


async def test_init_recovers_with_id_and_epoch() -> None:
    async with running_harness() as it:
        one = await producer(it)
        given = {"producer_id": one.producer_id, "producer_epoch": one.epoch}
        assert await one.init(**given) == ErrorCode.NONE
        assert one.epoch == 1
        assert await one.init(producer_id=one.producer_id, producer_epoch=-1) == (
            ErrorCode.INVALID_REQUEST
        )


# -- offsets --------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("commit", [True, False])
async def test_offsets_are_committed_with_transaction(generation: int, commit: bool) -> None:
    async with running_harness(transaction_marker_delay_ms=100) as it:
        one = await producer(it, generation)
        assert await one.commit_offset(7) == ErrorCode.NONE
        [topic] = (await described(it)).topics
        assert (topic.topic, list(topic.partitions)) == (
            "__consumer_offsets",
            [offsets_partition_for("g")],
        )
        assert await committed_offset(it) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
        assert await committed_offset(it, stable=False) == (ErrorCode.NONE, -1)
        assert await one.end(commit) == ErrorCode.NONE
        assert await committed_offset(it) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
        await asyncio.sleep(0.1)
        assert await committed_offset(it) == (ErrorCode.NONE, 7 if commit else -1)


@pytest.mark.parametrize(
    ("version", "code"), [(3, ErrorCode.INVALID_TXN_STATE), (4, ErrorCode.TRANSACTION_ABORTABLE)]
)
async def test_v1_requires_added_group(version: int, code: ErrorCode) -> None:
    async with running_harness() as it:
        one = await producer(it, V1)
        assert await one.commit_offset(7, version) == code


async def test_offsets_of_timed_out_transaction_are_dropped() -> None:
    async with running_harness() as it:
        one = await producer(it)
        await one.commit_offset(7)
        await asyncio.sleep(11)
        assert await committed_offset(it) == (ErrorCode.NONE, -1)


@both
async def test_only_current_generation_commits_in_transaction(generation: int) -> None:
    async with running_harness() as it:  # KIP-447
        one = await producer(it, generation)
        join = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            group_instance_id="i",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        member = await one.client.call(join)
        right: dict[str, Any] = {
            "generation_id_or_member_epoch": member.generation_id,
            "member_id": member.member_id,
            "group_instance_id": "i",
        }
        wrong: list[tuple[dict[str, Any], ErrorCode]] = [
            ({"generation_id_or_member_epoch": 0}, ErrorCode.ILLEGAL_GENERATION),
            ({"member_id": "unknown", "group_instance_id": None}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"member_id": "unknown"}, ErrorCode.FENCED_INSTANCE_ID),
        ]
        for fields, code in wrong:
            assert await one.commit_offset(7, **{**right, **fields}) == code
        assert await one.commit_offset(7, **right) == ErrorCode.NONE


async def test_offsets_are_committed_by_topic_id() -> None:
    async with running_harness() as it:
        one = await producer(it)
        topic = it.cluster.topics.get("t")
        assert topic is not None
        partition = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=5, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id="tx",
            group_id="g",
            producer_id=one.producer_id,
            producer_epoch=one.epoch,
            topics=[TxnOffsetCommitRequestTopic(topic_id=topic.id, partitions=[partition])],
        )
        response = await one.client.call(request, 6)
        assert response.topics[0].partitions[0].error_code == ErrorCode.NONE
        await one.end()
        await asyncio.sleep(0.01)
        assert await committed_offset(it) == (ErrorCode.NONE, 5)


# -- other APIs -----------------------------------------------------------------------------------


async def test_any_broker_allocates_producer_ids() -> None:
    async with running_harness(3) as it:
        ids: set[int] = set()
        for broker_id in it.cluster.brokers:
            client = await it.connect(broker_id)
            for version in range(6):
                response = await client.call(InitProducerIdRequest(transactional_id=None), version)
                assert (response.error_code, response.producer_epoch) == (ErrorCode.NONE, 0)
                ids.add(response.producer_id)
        assert len(ids) == 18


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
async def test_invalid_transaction_timeout_is_rejected(timeout_ms: int) -> None:
    async with running_harness() as it:
        one = Producer(await it.connect())
        code = await one.init(transaction_timeout_ms=timeout_ms)
        assert code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


async def test_empty_transactional_id_is_rejected() -> None:
    async with running_harness() as it:
        assert (
            await Producer(await it.connect()).init(transactional_id="")
            == ErrorCode.INVALID_REQUEST
        )


async def test_partitions_are_added_all_or_none() -> None:
    async with running_harness() as it:
        one = await producer(it, V1)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="tx",
            v3_and_below_producer_id=one.producer_id,
            v3_and_below_producer_epoch=one.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0, 7])],
        )
        [topic] = (await one.client.call(request, 3)).results_by_topic_v3_and_below
        assert {
            it.partition_index: it.partition_error_code for it in topic.results_by_partition
        } == {
            0: ErrorCode.OPERATION_NOT_ATTEMPTED,
            7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert (await described(it)).transaction_state == "Empty"


async def test_brokers_verify_and_add_partitions() -> None:
    async with running_harness() as it:
        one = await producer(it)

        async def ask(partition: int, *, verify: bool) -> int:
            transaction = AddPartitionsToTxnTransaction(
                transactional_id="tx",
                producer_id=one.producer_id,
                producer_epoch=one.epoch,
                verify_only=verify,
                topics=[AddPartitionsToTxnTopic(name="t", partitions=[partition])],
            )
            request = AddPartitionsToTxnRequest(transactions=[transaction])
            [result] = (await one.client.call(request, 5)).results_by_transaction
            return result.topic_results[0].results_by_partition[0].partition_error_code

        assert await ask(0, verify=True) == ErrorCode.TRANSACTION_ABORTABLE
        assert await ask(0, verify=False) == ErrorCode.NONE
        assert await ask(0, verify=True) == ErrorCode.NONE
        assert await ask(1, verify=True) == ErrorCode.TRANSACTION_ABORTABLE


async def test_lists_transactions_with_filters() -> None:
    async with running_harness() as it:
        one = await producer(it)
        await one.write()
        await Producer(one.client).init(transactional_id="other")

        async def ids(**filters: Any) -> list[str]:
            response = await one.client.call(ListTransactionsRequest(**filters))
            assert response.error_code == ErrorCode.NONE
            return sorted(entry.transactional_id for entry in response.transaction_states)

        assert await ids() == ["other", "tx"]
        assert await ids(state_filters=["Ongoing"]) == ["tx"]
        assert await ids(producer_id_filters=[one.producer_id]) == ["tx"]
        assert await ids(transactional_id_pattern="o.*") == ["other"]
        # An id without a transaction has the start time -1, which exceeds every duration.
        assert await ids(duration_filter=5_000) == ["other"]
        await asyncio.sleep(6)
        assert await ids(duration_filter=5_000) == ["other", "tx"]
        response = await one.client.call(ListTransactionsRequest(state_filters=["Odd"]))
        assert response.unknown_state_filters == ["Odd"]
        bad = await one.client.call(ListTransactionsRequest(transactional_id_pattern="("))
        assert bad.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


async def test_transactional_id_expires() -> None:
    async with running_harness(transactional_id_expiration_ms=60_000) as it:
        one = await producer(it)
        await asyncio.sleep(61)
        assert (await described(it)).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert await one.write() == ErrorCode.INVALID_PRODUCER_ID_MAPPING


CALLS: list[tuple[Any, int, Callable[[Any], int]]] = [
    (
        InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=1000),
        5,
        lambda it: it.error_code,
    ),
    (
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="tx",
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
        ),
        3,
        lambda it: it.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
    ),
    (
        AddOffsetsToTxnRequest(transactional_id="tx", group_id="g"),
        4,
        lambda it: it.error_code,
    ),
    (EndTxnRequest(transactional_id="tx"), 5, lambda it: it.error_code),
    (
        DescribeTransactionsRequest(transactional_ids=["tx"]),
        0,
        lambda it: it.transaction_states[0].error_code,
    ),
]


@pytest.mark.parametrize(
    ("request_", "version", "error_code_of"), CALLS, ids=[type(call[0]).__name__ for call in CALLS]
)
async def test_other_broker_responds_not_coordinator(
    request_: Any, version: int, error_code_of: Callable[[Any], int]
) -> None:
    async with running_harness(3) as it:
        coordinating = it.cluster.coordinator_for("tx")
        client = await it.connect(next(id_ for id_ in it.cluster.brokers if id_ != coordinating))
        assert error_code_of(await client.call(request_, version)) == ErrorCode.NOT_COORDINATOR


@both
async def test_transaction_survives_stop_of_coordinator(generation: int) -> None:
    async with running_harness(3, coordinator_load_time_ms=1_000) as it:
        coordinating = it.cluster.coordinator_for("tx")
        one = Producer(await it.connect(coordinating), generation)
        await one.init()
        assert await one.add() == ErrorCode.NONE
        await it.cluster.stop_broker(coordinating or 0)
        moved = it.cluster.coordinator_for("tx")
        one.client = await it.connect(moved)
        assert await one.end() == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await asyncio.sleep(1)
        assert await one.end() == ErrorCode.NONE
        await asyncio.sleep(0.01)
        assert (await described(it)).transaction_state == "CompleteCommit"
