"""Responses of transaction coordinators and partition leaders, on every kind of cluster.

The cluster has transactions v2 (KIP-890), and the requests use both versions of the protocol.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.embedded import ErrorCode
from kafka_async.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from kafka_async.protocol.messages.describe_transactions import DescribeTransactionsRequest
from kafka_async.protocol.messages.end_txn import EndTxnRequest
from kafka_async.protocol.messages.init_producer_id import InitProducerIdRequest
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
from tests.embedded.raw_connection import batch
from tests.integration.raw_cluster import NOT_READY, TIMEOUT, RawCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafka_async.testing.fixtures import ClusterHandle

V1, V2 = 4, 5
"""The version of EndTxn with which each version of the protocol begins."""

BUSY = {*NOT_READY, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS}


def retry_until_ready(send: Callable[[], int]) -> int:
    """Send until the error code is no longer a transient one, and return it."""
    deadline = time.monotonic() + TIMEOUT
    while (code := send()) in BUSY and time.monotonic() < deadline:
        time.sleep(0.05)
    return code


class Transactions:
    """Sends requests of one transactional id, with its latest producer id and epoch."""

    def __init__(self, cluster: RawCluster, handle: ClusterHandle) -> None:
        self.id = handle.transactional_id()
        self.topic = handle.topic()
        self.group = handle.group()
        self.leader = cluster.create_topic(self.topic)
        self.at = cluster.coordinator(1, self.id)
        self.offsets_at = cluster.coordinator(0, self.group)
        self.producer_id = -1
        self.epoch = -1

    def init(self, version: int = 5, **fields: Any) -> int:
        """Send InitProducerId once."""
        chosen: dict[str, Any] = {"transactional_id": self.id, "transaction_timeout_ms": 60_000}
        response = self.at.call(InitProducerIdRequest(**{**chosen, **fields}), version)
        if response.error_code == ErrorCode.NONE:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
        return response.error_code

    def begin(self) -> None:
        assert retry_until_ready(self.init) == ErrorCode.NONE

    def add(self, epoch: int | None = None) -> int:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch if epoch is None else epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=self.topic, partitions=[0])],
        )

        def send() -> int:
            [topic] = self.at.call(request, 3).results_by_topic_v3_and_below
            return topic.results_by_partition[0].partition_error_code

        return retry_until_ready(send)

    def write(self, version: int, sequence: int = 0, epoch: int | None = None) -> int:
        data = batch(
            b"x",
            producer_id=self.producer_id,
            epoch=self.epoch if epoch is None else epoch,
            sequence=sequence,
            transactional=True,
            timestamp=int(time.time() * 1000),
        )
        request = ProduceRequest(
            transactional_id=self.id,
            acks=-1,
            timeout_ms=5_000,
            topic_data=[
                TopicProduceData(
                    name=self.topic, partition_data=[PartitionProduceData(index=0, records=data)]
                )
            ],
        )

        def send() -> int:
            return self.leader.call(request, version).responses[0].partition_responses[0].error_code

        return retry_until_ready(send)

    def commit_offset(self, version: int, epoch: int | None = None, **fields: Any) -> int:
        partition = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=5, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.id,
            group_id=self.group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            topics=[TxnOffsetCommitRequestTopic(name=self.topic, partitions=[partition])],
            **fields,
        )

        def send() -> int:
            response = self.offsets_at.call(request, version)
            return response.topics[0].partitions[0].error_code

        return retry_until_ready(send)

    def committed(self) -> tuple[int, int]:
        """Fetch the stable offset; return the error code and the offset."""
        topics = [OffsetFetchRequestTopics(name=self.topic, partition_indexes=[0])]
        group = OffsetFetchRequestGroup(group_id=self.group, topics=topics)
        request = OffsetFetchRequest(groups=[group], require_stable=True)
        response = self.offsets_at.call(request, 9).groups[0].topics[0].partitions[0]
        return response.error_code, response.committed_offset

    def end(self, version: int, epoch: int, *, commit: bool = True) -> tuple[int, int]:
        """Send EndTxn; return the error code and the epoch in the response (-1 with v1)."""
        request = EndTxnRequest(
            transactional_id=self.id,
            producer_id=self.producer_id,
            producer_epoch=epoch,
            committed=commit,
        )
        given = -1

        def send() -> int:
            nonlocal given
            response = self.at.call(request, version)
            given = response.producer_epoch
            return response.error_code

        code = retry_until_ready(send)
        return code, given

    def final_state(self) -> str:
        """Return the state of the transaction after the markers are written."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            request = DescribeTransactionsRequest(transactional_ids=[self.id])
            state = self.at.call(request, 0).transaction_states[0].transaction_state
            if not state.startswith("Prepare") or time.monotonic() > deadline:
                return state
            time.sleep(0.05)


@pytest.fixture
def transactions(kafka_cluster: ClusterHandle) -> Iterator[Transactions]:
    cluster = RawCluster(kafka_cluster.bootstrap_servers)
    yield Transactions(cluster, kafka_cluster)
    cluster.close()


def test_unknown_producer_id_is_an_invalid_mapping(transactions: Transactions) -> None:
    transactions.producer_id = transactions.epoch = 1
    unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert transactions.add() == unknown
    assert transactions.end(V2, 1) == (unknown, -1)
    assert transactions.write(11) == transactions.write(12) == unknown
    assert transactions.commit_offset(4) == transactions.commit_offset(5) == unknown
    assert retry_until_ready(lambda: transactions.init(transaction_timeout_ms=0)) == (
        ErrorCode.INVALID_TRANSACTION_TIMEOUT
    )


def test_responses_of_transactions_v1(transactions: Transactions) -> None:
    transactions.begin()
    epoch = transactions.epoch
    assert transactions.end(V1, epoch)[0] == ErrorCode.INVALID_TXN_STATE
    assert transactions.end(V1, epoch, commit=False)[0] == ErrorCode.INVALID_TXN_STATE
    assert transactions.write(10) == ErrorCode.INVALID_TXN_STATE
    assert transactions.write(11) == ErrorCode.TRANSACTION_ABORTABLE
    assert transactions.commit_offset(3) == ErrorCode.INVALID_TXN_STATE
    assert transactions.commit_offset(4) == ErrorCode.TRANSACTION_ABORTABLE
    assert transactions.add() == ErrorCode.NONE
    assert transactions.write(11) == ErrorCode.NONE
    assert transactions.end(V1, epoch) == (ErrorCode.NONE, -1)
    assert transactions.final_state() == "CompleteCommit"
    assert transactions.end(V1, epoch) == (ErrorCode.NONE, -1)
    assert transactions.end(V1, epoch, commit=False)[0] == ErrorCode.INVALID_TXN_STATE
    assert transactions.write(11, 1) == ErrorCode.TRANSACTION_ABORTABLE
    assert transactions.add() == ErrorCode.NONE
    assert transactions.write(11, 1) == ErrorCode.NONE
    assert transactions.end(V1, epoch, commit=False) == (ErrorCode.NONE, -1)
    assert transactions.final_state() == "CompleteAbort"
    assert transactions.end(V1, epoch, commit=False) == (ErrorCode.NONE, -1)


def test_responses_of_transactions_v2(transactions: Transactions) -> None:
    transactions.begin()
    epoch = transactions.epoch
    assert transactions.write(12) == ErrorCode.NONE
    assert transactions.end(V2, epoch + 1)[0] == ErrorCode.PRODUCER_FENCED
    assert transactions.end(V2, epoch) == (ErrorCode.NONE, epoch + 1)
    assert transactions.final_state() == "CompleteCommit"
    assert transactions.end(V2, epoch) == (ErrorCode.NONE, epoch + 1)
    assert transactions.end(V2, epoch, commit=False)[0] == ErrorCode.INVALID_TXN_STATE
    assert transactions.write(12) == ErrorCode.INVALID_PRODUCER_EPOCH
    transactions.epoch += 1
    assert transactions.end(V2, epoch + 1)[0] == ErrorCode.INVALID_TXN_STATE
    assert transactions.write(12) == ErrorCode.NONE
    assert transactions.end(V2, epoch)[0] == ErrorCode.PRODUCER_FENCED


def test_v2_aborts_a_transaction_that_has_not_begun(transactions: Transactions) -> None:
    transactions.begin()
    epoch = transactions.epoch
    assert transactions.end(V2, epoch)[0] == ErrorCode.INVALID_TXN_STATE
    assert transactions.end(V2, epoch, commit=False) == (ErrorCode.NONE, epoch + 1)
    assert transactions.final_state() == "CompleteAbort"
    assert transactions.end(V2, epoch, commit=False) == (ErrorCode.NONE, epoch + 1)
    assert transactions.end(V2, epoch)[0] == ErrorCode.INVALID_TXN_STATE
    assert transactions.end(V2, epoch + 1, commit=False) == (ErrorCode.NONE, epoch + 2)


def test_offsets_are_pending_until_the_transaction_ends(transactions: Transactions) -> None:
    transactions.begin()
    epoch = transactions.epoch
    assert transactions.commit_offset(5, generation_id_or_member_epoch=3, member_id="x") == (
        ErrorCode.ILLEGAL_GENERATION
    )
    assert transactions.commit_offset(5) == ErrorCode.NONE
    assert transactions.committed() == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert transactions.end(V2, epoch, commit=False)[0] == ErrorCode.NONE
    assert transactions.final_state() == "CompleteAbort"
    assert transactions.committed() == (ErrorCode.NONE, -1)
    transactions.epoch += 1
    assert transactions.commit_offset(5, epoch) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert transactions.commit_offset(5) == ErrorCode.NONE
    assert transactions.end(V2, epoch + 1)[0] == ErrorCode.NONE
    assert transactions.final_state() == "CompleteCommit"
    assert transactions.committed() == (ErrorCode.NONE, 5)


def test_new_producer_fences_the_old_one(transactions: Transactions) -> None:
    transactions.begin()
    old = transactions.epoch
    assert transactions.write(12) == ErrorCode.NONE
    assert transactions.init() == ErrorCode.CONCURRENT_TRANSACTIONS
    transactions.begin()
    assert transactions.epoch == old + 2
    assert transactions.write(12, 1, old) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert transactions.write(11, 1, old) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert transactions.add(old) == ErrorCode.PRODUCER_FENCED
    assert transactions.end(V2, old)[0] == ErrorCode.PRODUCER_FENCED
    assert transactions.end(1, old)[0] == ErrorCode.INVALID_PRODUCER_EPOCH
    identity = {"producer_id": transactions.producer_id}
    assert transactions.init(**identity, producer_epoch=old) == ErrorCode.PRODUCER_FENCED
    assert transactions.init(3, **identity, producer_epoch=old) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_init_with_producer_id_and_epoch_bumps_the_epoch(transactions: Transactions) -> None:
    transactions.begin()
    producer_id, epoch = transactions.producer_id, transactions.epoch
    given = {"producer_id": producer_id, "producer_epoch": epoch}
    for _ in range(2):  # The coordinator takes the second request for a retry.
        assert transactions.init(**given) == ErrorCode.NONE
        assert (transactions.producer_id, transactions.epoch) == (producer_id, epoch + 1)
    assert (
        transactions.init(producer_id=producer_id, producer_epoch=-1) == ErrorCode.INVALID_REQUEST
    )


def test_coordinator_aborts_a_transaction_after_its_timeout(transactions: Transactions) -> None:
    transactions.begin()
    assert (
        retry_until_ready(lambda: transactions.init(transaction_timeout_ms=2_000)) == ErrorCode.NONE
    )
    epoch = transactions.epoch
    assert transactions.write(12) == ErrorCode.NONE
    deadline = time.monotonic() + TIMEOUT
    while transactions.final_state() != "CompleteAbort" and time.monotonic() < deadline:
        time.sleep(0.1)
    assert transactions.write(12, 1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert transactions.end(V2, epoch)[0] == ErrorCode.INVALID_TXN_STATE
    assert transactions.end(V2, epoch, commit=False) == (ErrorCode.NONE, epoch + 1)
