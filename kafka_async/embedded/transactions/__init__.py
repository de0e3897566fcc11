"""The transaction coordinator: KIP-98 with KIP-360, KIP-447 and KIP-890."""

from __future__ import annotations

from kafka_async.embedded.transactions.transaction_coordinator import TransactionCoordinator

__all__ = ["TransactionCoordinator"]
