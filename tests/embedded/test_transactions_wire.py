"""Transactions over the wire: an embedded cluster in memory, raw requests, virtual time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from kafka_async.embedded.codes import Code
from kafka_async.embedded.groups.offsets import offsets_partition
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
from tests.embedded.stage import Stage, staged
from tests.embedded.wire import Peer, batch

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

V1 = 1
V2 = 2
both = pytest.mark.parametrize("generation", [V1, V2], ids=["v1", "v2"])


@dataclass
class Producer:
    """A transactional producer of one of the two generations of the protocol."""

    client: Peer
    generation: int = V2
    producer_id: int = -1
    epoch: int = -1
    sequence: int = 0

    async def init(self, **fields: Any) -> int:
        """InitProducerId; the code, and id and epoch in the producer."""
        chosen: dict[str, Any] = {"transactional_id": "tx", "transaction_timeout_ms": 10_000}
        request = InitProducerIdRequest(**{**chosen, **fields})
        answer = await self.client.ask(request, 5)
        if answer.error_code == Code.NONE:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequence = 0
        return answer.error_code

    async def add(self, partition: int = 0) -> int:
        """AddPartitionsToTxn, as clients of v1 send it."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="tx",
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[partition])],
        )
        [topic] = (await self.client.ask(request, 3)).results_by_topic_v3_and_below
        return topic.results_by_partition[0].partition_error_code

    async def write(self, value: bytes = b"x", version: int | None = None) -> int:
        """Produce one record to partition 0, which v1 adds to the transaction before."""
        if self.generation == V1 and version is None and (code := await self.add()) != Code.NONE:
            return code
        data = batch(
            value,
            producer_id=self.producer_id,
            epoch=self.epoch,
            sequence=self.sequence,
            transactional=True,
            timestamp=int(time.time() * 1000),  # as its marker's: else that begins a segment
        )
        partition = PartitionProduceData(index=0, records=data)
        request = ProduceRequest(
            transactional_id="tx",
            acks=-1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name="t", partition_data=[partition])],
        )
        answer = await self.client.ask(request, version or (11 if self.generation == V1 else 12))
        code = answer.responses[0].partition_responses[0].error_code
        self.sequence += code == Code.NONE
        return code

    async def commit_offset(self, offset: int, version: int | None = None, **fields: Any) -> int:
        """TxnOffsetCommit for partition 0 of the group `g`, which v1 adds before."""
        if self.generation == V1 and version is None:
            add = AddOffsetsToTxnRequest(
                transactional_id="tx",
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id="g",
            )
            code = (await self.client.ask(add)).error_code
            if code != Code.NONE:
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
        answer = await self.client.ask(request, chosen)
        return answer.topics[0].partitions[0].error_code

    async def end(self, commit: bool = True) -> int:
        """EndTxn; v2 goes on with the epoch of the answer."""
        answer = await self.ended(commit)
        if answer.error_code == Code.NONE and self.generation == V2:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequence = 0
        return answer.error_code

    async def ended(self, commit: bool = True) -> EndTxnResponse:
        """The answer to an EndTxn; the producer does not look at it."""
        request = EndTxnRequest(
            transactional_id="tx",
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        return await self.client.ask(request, 4 if self.generation == V1 else 5)


async def producer(it: Stage, generation: int = V2) -> Producer:
    made = Producer(await it.peer(), generation)
    assert await made.init() == Code.NONE
    return made


def stable_offset(it: Stage) -> int:
    partition = it.cluster.topics.partition(TopicPartition("t", 0))
    assert partition is not None
    return partition.log.stable_offset


async def committed_values(it: Stage) -> list[bytes | None]:
    """What a read_committed consumer sees of partition 0."""
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
    answer = await (await it.peer()).ask(request, 12)
    data = answer.responses[0].partitions[0]
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


async def described(it: Stage) -> TransactionState:
    client = await it.peer(it.cluster.coordinator_for("tx"))
    request = DescribeTransactionsRequest(transactional_ids=["tx"])
    return (await client.ask(request)).transaction_states[0]


async def committed_offset(it: Stage, *, stable: bool = True) -> tuple[int, int]:
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)], require_stable=stable
    )
    client = await it.peer(it.cluster.coordinator_for("g"))
    partition = (await client.ask(request, 9)).groups[0].topics[0].partitions[0]
    return partition.error_code, partition.committed_offset


# -- commit and abort -----------------------------------------------------------------------------


@both
async def test_records_are_visible_once_the_marker_is_written(generation: int) -> None:
    async with staged(transaction_marker_delay_ms=100) as it:
        one = await producer(it, generation)
        assert await one.write(b"a") == await one.write(b"b") == Code.NONE
        assert (await described(it)).transaction_state == "Ongoing"
        assert await committed_values(it) == []
        assert await one.end() == Code.NONE
        assert (await described(it)).transaction_state == "PrepareCommit"
        assert stable_offset(it) == 0
        await asyncio.sleep(0.1)
        assert (await described(it)).transaction_state == "CompleteCommit"
        assert await committed_values(it) == [b"a", b"b"]
        assert stable_offset(it) == 3  # two records and the marker


@both
async def test_aborted_records_are_never_visible(generation: int) -> None:
    async with staged() as it:
        one = await producer(it, generation)
        await one.write(b"lost")
        assert await one.end(commit=False) == Code.NONE
        await asyncio.sleep(0)
        await one.write(b"kept")
        assert await one.end() == Code.NONE
        await asyncio.sleep(0.01)
        assert await committed_values(it) == [b"kept"]
        assert (await described(it)).transaction_state == "CompleteCommit"


@both
async def test_what_comes_too_early_after_an_end_is_to_wait(generation: int) -> None:
    async with staged(transaction_marker_delay_ms=100) as it:
        one = await producer(it, generation)
        await one.write()
        await one.end()
        assert await one.write() == Code.CONCURRENT_TRANSACTIONS
        assert await one.init() == Code.CONCURRENT_TRANSACTIONS
        await asyncio.sleep(0.1)
        assert await one.write() == Code.NONE


async def test_v2_adds_a_partition_by_writing_to_it() -> None:
    async with staged() as it:
        one = await producer(it)
        await one.write()
        state = await described(it)
        assert [(topic.topic, list(topic.partitions)) for topic in state.topics] == [("t", [0])]
        assert state.transaction_timeout_ms == 10_000
        assert (state.producer_id, state.producer_epoch) == (one.producer_id, one.epoch)


@pytest.mark.parametrize(
    ("version", "code"), [(10, Code.INVALID_TXN_STATE), (11, Code.TRANSACTION_ABORTABLE)]
)
async def test_v1_must_add_a_partition_before(version: int, code: Code) -> None:
    async with staged() as it:
        one = await producer(it, V1)
        assert await one.write(version=version) == code
        assert await one.add() == Code.NONE
        assert await one.write(version=version) == Code.NONE


@pytest.mark.parametrize(
    ("generation", "codes"),
    [
        (V1, [Code.NONE, Code.OUT_OF_ORDER_SEQUENCE_NUMBER]),
        (V2, [Code.OUT_OF_ORDER_SEQUENCE_NUMBER, Code.NONE]),
    ],
)
async def test_of_a_producer_it_does_not_know_a_partition_takes_any_sequence_in_v1_and_0_in_v2(
    generation: int, codes: list[Code]
) -> None:
    async with staged() as it:
        one = await producer(it, generation)
        answered: list[int] = []
        for one.sequence in (1, 0):
            answered.append(await one.write())
        assert answered == codes


async def test_a_late_write_of_v1_meets_an_ending_transaction() -> None:
    async with staged(transaction_marker_delay_ms=100) as it:
        one = await producer(it, V1)
        await one.write()
        await one.end()
        # CONCURRENT_TRANSACTIONS would be no reason to retry for a client of that age
        assert await one.write(version=11) == Code.NOT_ENOUGH_REPLICAS
        await asyncio.sleep(0.1)
        assert await one.write(version=11) == Code.TRANSACTION_ABORTABLE


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
        "concurrent": Code.CONCURRENT_TRANSACTIONS,
        "invalid": Code.INVALID_TXN_STATE,
        "fenced": Code.PRODUCER_FENCED,
    }
    ends = [(True, True), (True, False), (False, True), (False, False)]
    for (first, second), word in zip(ends, codes.split(), strict=True):
        async with staged(transaction_marker_delay_ms=100) as it:
            one = await producer(it, generation)
            await one.write()
            if again:
                assert (await one.ended(first)).error_code == Code.NONE
            else:
                assert await one.end(first) == Code.NONE
            assert (await one.ended(second)).error_code == meant[word]
            await asyncio.sleep(0.1)
            state = "CompleteCommit" if first else "CompleteAbort"
            assert (await described(it)).transaction_state == state


async def test_a_lost_answer_to_end_txn_is_repeated() -> None:
    async with staged() as it:
        one = await producer(it)
        await one.write()
        first = await one.ended()
        await asyncio.sleep(0.01)
        second = await one.ended()
        assert first.error_code == second.error_code == Code.NONE
        assert (second.producer_id, second.producer_epoch) == (one.producer_id, one.epoch + 1)
        assert (await one.ended(commit=False)).error_code == Code.INVALID_TXN_STATE
        assert stable_offset(it) == 2  # one record, one marker


async def test_a_v1_cluster_has_no_v2() -> None:
    async with staged(transaction_version=1) as it:
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
async def test_a_marker_waits_for_a_leader(generation: int) -> None:
    async with staged(2, default_replication_factor=1) as it:
        partition = it.cluster.topics.partition(TopicPartition("t", 0))
        assert partition is not None
        home = it.cluster.coordinator_for("tx")
        assert home is not None
        other = 3 - home
        await it.cluster.move_leader(partition.tp, other)
        partition.replicas = (other,)
        coordinator, leader = Producer(await it.peer(home), generation), await it.peer(other)
        await coordinator.init()
        await coordinator.add()
        writer = Producer(leader, generation, coordinator.producer_id, coordinator.epoch)
        assert await writer.write(version=11) == Code.NONE
        await it.cluster.stop_broker(other)
        assert await coordinator.end() == Code.NONE
        await asyncio.sleep(1)
        assert (await described(it)).transaction_state == "PrepareCommit"
        assert partition.log.stable_offset == 0
        await it.cluster.start_broker(other)
        assert (await described(it)).transaction_state == "CompleteCommit"
        assert partition.log.stable_offset == 2


async def test_a_topic_that_is_gone_needs_no_marker() -> None:
    async with staged() as it:
        one = await producer(it)
        await one.write()
        await it.cluster.delete_topic("t")
        assert await one.end() == Code.NONE
        await asyncio.sleep(0.01)
        assert (await described(it)).transaction_state == "CompleteCommit"


# -- fencing --------------------------------------------------------------------------------------


@both
async def test_a_new_producer_fences_the_old_one(generation: int) -> None:
    async with staged() as it:
        old = await producer(it, generation)
        await old.write(b"old")
        new = Producer(await it.peer(), generation)
        assert await new.init() == Code.CONCURRENT_TRANSACTIONS
        await asyncio.sleep(0.01)
        assert await new.init() == Code.NONE
        assert (new.producer_id, new.epoch) == (old.producer_id, old.epoch + 2)

        fenced = Code.PRODUCER_FENCED if generation == V1 else Code.INVALID_PRODUCER_EPOCH
        assert await old.write() == fenced
        assert await old.commit_offset(1) == fenced
        assert await old.end() == Code.PRODUCER_FENCED
        assert await old.end(commit=False) == Code.PRODUCER_FENCED

        await new.write(b"new")
        await new.end()
        await asyncio.sleep(0.01)
        assert await committed_values(it) == [b"new"]


@both
async def test_a_transaction_that_takes_too_long_is_aborted(generation: int) -> None:
    async with staged() as it:
        zombie = await producer(it, generation)
        await zombie.write(b"zombie")
        await asyncio.sleep(9.9)
        assert (await described(it)).transaction_state == "Ongoing"
        await asyncio.sleep(0.2)
        assert (await described(it)).transaction_state == "CompleteAbort"
        assert await committed_values(it) == []
        fenced = Code.PRODUCER_FENCED if generation == V1 else Code.INVALID_PRODUCER_EPOCH
        assert await zombie.write() == fenced
        # With v2 it looks as if the producer had aborted and not heard of it.
        assert await zombie.end() == (
            Code.PRODUCER_FENCED if generation == V1 else Code.INVALID_TXN_STATE
        )


@both
async def test_a_transaction_that_ends_in_time_is_not_aborted_later(generation: int) -> None:
    async with staged() as it:
        one = await producer(it, generation)
        await one.write(b"a")
        await asyncio.sleep(9)
        await one.end()
        await asyncio.sleep(0.5)
        await one.write(b"b")
        await asyncio.sleep(9)
        assert (await described(it)).transaction_state == "Ongoing"
        assert await one.end() == Code.NONE
        await asyncio.sleep(60)
        assert await committed_values(it) == [b"a", b"b"]


async def test_a_write_of_a_fenced_epoch_is_refused_by_the_log_too() -> None:
    async with staged() as it:
        one = await producer(it, V1)
        await one.write()
        await asyncio.sleep(11)
        assert await one.write(version=11) == Code.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize(("version", "code"), [(3, 47), (4, 90)])
async def test_older_clients_know_fencing_by_another_code(version: int, code: int) -> None:
    async with staged() as it:
        one = await producer(it)
        await one.init()
        request = InitProducerIdRequest(
            transactional_id="tx",
            transaction_timeout_ms=1000,
            producer_id=one.producer_id,
            producer_epoch=0,
        )
        answer = await one.client.ask(request, version)
        assert (answer.error_code, answer.producer_id) == (code, -1)


async def test_recovery_with_id_and_epoch() -> None:
    async with staged() as it:
        one = await producer(it)
        given = {"producer_id": one.producer_id, "producer_epoch": one.epoch}
        assert await one.init(**given) == Code.NONE
        assert one.epoch == 1
        assert await one.init(producer_id=one.producer_id, producer_epoch=-1) == (
            Code.INVALID_REQUEST
        )


# -- offsets --------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("commit", [True, False])
async def test_offsets_count_once_the_transaction_has_ended(generation: int, commit: bool) -> None:
    async with staged(transaction_marker_delay_ms=100) as it:
        one = await producer(it, generation)
        assert await one.commit_offset(7) == Code.NONE
        [topic] = (await described(it)).topics
        assert (topic.topic, list(topic.partitions)) == (
            "__consumer_offsets",
            [offsets_partition("g")],
        )
        assert await committed_offset(it) == (Code.UNSTABLE_OFFSET_COMMIT, -1)
        assert await committed_offset(it, stable=False) == (Code.NONE, -1)
        assert await one.end(commit) == Code.NONE
        assert await committed_offset(it) == (Code.UNSTABLE_OFFSET_COMMIT, -1)
        await asyncio.sleep(0.1)
        assert await committed_offset(it) == (Code.NONE, 7 if commit else -1)


@pytest.mark.parametrize(
    ("version", "code"), [(3, Code.INVALID_TXN_STATE), (4, Code.TRANSACTION_ABORTABLE)]
)
async def test_v1_must_add_the_group_before(version: int, code: Code) -> None:
    async with staged() as it:
        one = await producer(it, V1)
        assert await one.commit_offset(7, version) == code


async def test_offsets_of_a_timed_out_transaction_are_dropped() -> None:
    async with staged() as it:
        one = await producer(it)
        await one.commit_offset(7)
        await asyncio.sleep(11)
        assert await committed_offset(it) == (Code.NONE, -1)


@both
async def test_only_the_current_generation_commits_in_a_transaction(generation: int) -> None:
    async with staged() as it:  # KIP-447
        one = await producer(it, generation)
        join = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            group_instance_id="i",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        member = await one.client.ask(join)
        right: dict[str, Any] = {
            "generation_id_or_member_epoch": member.generation_id,
            "member_id": member.member_id,
            "group_instance_id": "i",
        }
        wrong: list[tuple[dict[str, Any], Code]] = [
            ({"generation_id_or_member_epoch": 0}, Code.ILLEGAL_GENERATION),
            ({"member_id": "nobody", "group_instance_id": None}, Code.UNKNOWN_MEMBER_ID),
            ({"member_id": "nobody"}, Code.FENCED_INSTANCE_ID),
        ]
        for fields, code in wrong:
            assert await one.commit_offset(7, **{**right, **fields}) == code
        assert await one.commit_offset(7, **right) == Code.NONE


async def test_offsets_by_topic_id() -> None:
    async with staged() as it:
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
        answer = await one.client.ask(request, 6)
        assert answer.topics[0].partitions[0].error_code == Code.NONE
        await one.end()
        await asyncio.sleep(0.01)
        assert await committed_offset(it) == (Code.NONE, 5)


# -- the rest -------------------------------------------------------------------------------------


async def test_idempotent_producers_get_ids_from_any_broker() -> None:
    async with staged(3) as it:
        ids: set[int] = set()
        for broker_id in it.cluster.brokers:
            client = await it.peer(broker_id)
            for version in range(6):
                answer = await client.ask(InitProducerIdRequest(transactional_id=None), version)
                assert (answer.error_code, answer.producer_epoch) == (Code.NONE, 0)
                ids.add(answer.producer_id)
        assert len(ids) == 18


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
async def test_time_outs_have_limits(timeout_ms: int) -> None:
    async with staged() as it:
        one = Producer(await it.peer())
        code = await one.init(transaction_timeout_ms=timeout_ms)
        assert code == Code.INVALID_TRANSACTION_TIMEOUT


async def test_an_empty_transactional_id_is_refused() -> None:
    async with staged() as it:
        assert await Producer(await it.peer()).init(transactional_id="") == Code.INVALID_REQUEST


async def test_partitions_are_added_all_or_none() -> None:
    async with staged() as it:
        one = await producer(it, V1)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="tx",
            v3_and_below_producer_id=one.producer_id,
            v3_and_below_producer_epoch=one.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0, 7])],
        )
        [topic] = (await one.client.ask(request, 3)).results_by_topic_v3_and_below
        assert {
            it.partition_index: it.partition_error_code for it in topic.results_by_partition
        } == {
            0: Code.OPERATION_NOT_ATTEMPTED,
            7: Code.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert (await described(it)).transaction_state == "Empty"


async def test_brokers_verify_and_add_in_bulk() -> None:
    async with staged() as it:
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
            [result] = (await one.client.ask(request, 5)).results_by_transaction
            return result.topic_results[0].results_by_partition[0].partition_error_code

        assert await ask(0, verify=True) == Code.TRANSACTION_ABORTABLE
        assert await ask(0, verify=False) == Code.NONE
        assert await ask(0, verify=True) == Code.NONE
        assert await ask(1, verify=True) == Code.TRANSACTION_ABORTABLE


async def test_listing_transactions() -> None:
    async with staged() as it:
        one = await producer(it)
        await one.write()
        await Producer(one.client).init(transactional_id="other")

        async def ids(**filters: Any) -> list[str]:
            answer = await one.client.ask(ListTransactionsRequest(**filters))
            assert answer.error_code == Code.NONE
            return sorted(entry.transactional_id for entry in answer.transaction_states)

        assert await ids() == ["other", "tx"]
        assert await ids(state_filters=["Ongoing"]) == ["tx"]
        assert await ids(producer_id_filters=[one.producer_id]) == ["tx"]
        assert await ids(transactional_id_pattern="o.*") == ["other"]
        # An id without a transaction has the start -1, which every duration precedes.
        assert await ids(duration_filter=5_000) == ["other"]
        await asyncio.sleep(6)
        assert await ids(duration_filter=5_000) == ["other", "tx"]
        answer = await one.client.ask(ListTransactionsRequest(state_filters=["Odd"]))
        assert answer.unknown_state_filters == ["Odd"]
        bad = await one.client.ask(ListTransactionsRequest(transactional_id_pattern="("))
        assert bad.error_code == Code.INVALID_REGULAR_EXPRESSION


async def test_a_transactional_id_expires() -> None:
    async with staged(transactional_id_expiration_ms=60_000) as it:
        one = await producer(it)
        await asyncio.sleep(61)
        assert (await described(it)).error_code == Code.TRANSACTIONAL_ID_NOT_FOUND
        assert await one.write() == Code.INVALID_PRODUCER_ID_MAPPING


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
    ("request_", "version", "code_of"), CALLS, ids=[type(call[0]).__name__ for call in CALLS]
)
async def test_another_broker_does_not_answer(
    request_: Any, version: int, code_of: Callable[[Any], int]
) -> None:
    async with staged(3) as it:
        home = it.cluster.coordinator_for("tx")
        client = await it.peer(next(id_ for id_ in it.cluster.brokers if id_ != home))
        assert code_of(await client.ask(request_, version)) == Code.NOT_COORDINATOR


@both
async def test_a_transaction_survives_its_coordinator(generation: int) -> None:
    async with staged(3, coordinator_load_time_ms=1_000) as it:
        home = it.cluster.coordinator_for("tx")
        one = Producer(await it.peer(home), generation)
        await one.init()
        assert await one.add() == Code.NONE
        await it.cluster.stop_broker(home or 0)
        moved = it.cluster.coordinator_for("tx")
        one.client = await it.peer(moved)
        assert await one.end() == Code.COORDINATOR_LOAD_IN_PROGRESS
        await asyncio.sleep(1)
        assert await one.end() == Code.NONE
        await asyncio.sleep(0.01)
        assert (await described(it)).transaction_state == "CompleteCommit"
