"""List, describe and end transactions; fence the producers of transactional ids."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kafka_async.admin.call import Results, item_error
from kafka_async.admin.values import TransactionDescription, TransactionListing
from kafka_async.client.fan_out import call_each
from kafka_async.client.metadata.coordinator_lookup import CoordinatorKind
from kafka_async.client.metadata.request_router import CoordinatorOfTransactionalId, FoundBroker
from kafka_async.errors import (
    KafkaError,
    RefreshRetriableError,
    UnsupportedVersionError,
    error_for,
)
from kafka_async.foundation.arguments import instance_of, text, texts
from kafka_async.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    TransactionState,
)
from kafka_async.protocol.messages.end_txn import EndTxnRequest
from kafka_async.protocol.messages.init_producer_id import InitProducerIdRequest
from kafka_async.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from kafka_async.types import PreparedTransaction, TopicPartition

if TYPE_CHECKING:
    from kafka_async.admin.call import Call

FENCING_TIMEOUT_MS = 60_000
"""Transaction time-out of a fenced transactional id, until its next producer sets its own."""
_KIND = "transactional id"
_MAX_END_TXN_VERSION = {1: 4, 2: 5}
"""Last EndTxn version by transaction version: EndTxn 5 and later bump the epoch (KIP-890)."""


async def list_all(
    call: Call, *, states: Sequence[str], pattern: str | None
) -> dict[str, TransactionListing]:
    """List the transactional ids of all coordinators; see `Admin.list_transactions`."""
    states = texts(states, "states")
    if pattern is not None:
        text(pattern, "pattern")
        re.compile(pattern)
    cluster = await call.services.metadata.refresh(timeout=call.left)

    async def attempt(node_ids: list[int]) -> Results[int, ListTransactionsResponse]:
        responses = await call_each(node_ids, lambda node_id: _list(call, node_id, states, pattern))
        return {
            node_id: error_for(response.error_code) if response.error_code else response
            for node_id, response in responses.items()
        }

    responses = await call.run(cluster.brokers, attempt)
    return {
        row.transactional_id: TransactionListing(
            row.transactional_id, row.producer_id, row.transaction_state
        )
        for response in responses.values()
        for row in response.transaction_states
        if pattern is None or re.fullmatch(pattern, row.transactional_id)
    }


async def _list(
    call: Call, node_id: int, states: Sequence[str], pattern: str | None
) -> ListTransactionsResponse:
    """Send ListTransactions, without the pattern if the broker is too old for it (KIP-1152)."""
    request = ListTransactionsRequest(state_filters=list(states), transactional_id_pattern=pattern)
    try:
        return await call.services.request(request, to=FoundBroker(node_id), timeout=call.left)
    except UnsupportedVersionError:
        if pattern is None:
            raise
        return await _list(call, node_id, states, None)


async def describe(
    call: Call, transactional_ids: Iterable[str]
) -> dict[str, TransactionDescription]:
    """Describe transactions; see `Admin.describe_transactions`."""

    async def query(node_id: int, names: list[str]) -> Results[str, TransactionDescription]:
        request = DescribeTransactionsRequest(transactional_ids=names)
        response = await call.services.request(request, to=FoundBroker(node_id), timeout=call.left)
        return {
            row.transactional_id: item_error(
                _KIND, row.transactional_id, row.error_code, needs="DESCRIBE"
            )
            or _description(row)
            for row in response.transaction_states
        }

    async def attempt(names: list[str]) -> Results[str, TransactionDescription]:
        coordinators = await call.services.coordinators.find_all(
            CoordinatorKind.TRANSACTION, names, timeout=call.left
        )
        results = await call.query_brokers({name: coordinators[name] for name in names}, query)
        for name, error in results.items():
            if isinstance(error, RefreshRetriableError):
                call.services.coordinators.forget(CoordinatorKind.TRANSACTION, name)
        return results

    return await call.run(texts(transactional_ids, "transactional_ids"), attempt)


async def fence(call: Call, transactional_ids: Iterable[str]) -> None:
    """Fence producers; see `Admin.fence_producers`."""

    async def fence_one(name: str) -> KafkaError | None:
        request = InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=FENCING_TIMEOUT_MS
        )
        response = await call.services.request(
            request, to=CoordinatorOfTransactionalId(name), timeout=call.left
        )
        return item_error(_KIND, name, response.error_code, needs="WRITE")

    await call.run(
        texts(transactional_ids, "transactional_ids"), lambda names: call_each(names, fence_one)
    )


async def end(call: Call, prepared: PreparedTransaction, *, commit: bool) -> None:
    """End a prepared transaction; see `Admin.end_transaction`."""
    instance_of(prepared, PreparedTransaction, "prepared")

    async def end_one(name: str) -> KafkaError | None:
        request = EndTxnRequest(
            transactional_id=name,
            producer_id=prepared.producer_id,
            producer_epoch=prepared.epoch,
            committed=commit,
        )
        response = await call.services.request(
            request,
            to=CoordinatorOfTransactionalId(name),
            timeout=call.left,
            max_version=_MAX_END_TXN_VERSION[prepared.version],
        )
        return item_error(_KIND, name, response.error_code, needs="WRITE")

    await call.run([prepared.transactional_id], lambda names: call_each(names, end_one))


def _description(row: TransactionState) -> TransactionDescription:
    return TransactionDescription(
        row.transactional_id,
        row.transaction_state,
        row.producer_id,
        row.producer_epoch,
        row.transaction_timeout_ms,
        None if row.transaction_start_time_ms < 0 else row.transaction_start_time_ms,
        frozenset(
            TopicPartition(topic.topic, partition)
            for topic in row.topics
            for partition in topic.partitions
        ),
    )
