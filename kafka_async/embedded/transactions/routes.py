"""The transaction APIs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.embedded.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
    txn_offset_commit,
)

if TYPE_CHECKING:
    from kafka_async.embedded.context import Route

ROUTES: Final[tuple[Route, ...]] = (
    init_producer_id.ROUTE,
    add_partitions_to_txn.ROUTE,
    add_offsets_to_txn.ROUTE,
    end_txn.ROUTE,
    txn_offset_commit.ROUTE,
    describe_transactions.ROUTE,
    list_transactions.ROUTE,
)
