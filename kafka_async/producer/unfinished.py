"""Describes and delivers the records of a producer that was not stopped."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kafka_async.config import seconds
from kafka_async.errors import KafkaTimeoutError
from kafka_async.process_end import END_OF_PROCESS

if TYPE_CHECKING:
    from kafka_async.producer.runtime import ProducerRuntime
    from kafka_async.producer.transactions.manager import TransactionManager

__all__ = ["UnfinishedRecords"]

logger = logging.getLogger("kafka_async.producer")


class UnfinishedRecords:
    """Delivers or reports the records of a producer at the end of the process or event loop.

    Attributes:
        name: Name of the producer.
        loop: Its event loop.
    """

    def __init__(self, runtime: ProducerRuntime, transactions: TransactionManager | None) -> None:
        self.name = runtime.supervisor.name
        self.loop = runtime.supervisor.loop
        self._runtime = runtime
        self._transactions = transactions

    @property
    def cancelled(self) -> bool:
        """True if the event loop or the application has cancelled its tasks or its client's."""
        runtime = self._runtime
        return runtime.supervisor.cancelled or runtime.services.supervisor.cancelled

    def lost(self) -> str:
        """Return what would be lost now, as "3 records were not delivered", or an empty text."""
        count = self._runtime.accumulator.unacknowledged_count
        records = "1 record was" if count == 1 else f"{count} records were"
        undelivered = f"{records} not delivered" if count else ""
        return ", and ".join(filter(None, [undelivered, self.uncommitted()]))

    def uncommitted(self) -> str:
        """Return what an open transaction would lose of delivered records, or an empty string."""
        transactions = self._transactions
        if transactions is None or not transactions.in_transaction:
            return ""
        count = self._runtime.accumulator.written_count
        return f"a transaction was not committed ({count} delivered)"

    async def finish(self) -> None:
        """Deliver appended records within close_timeout_ms; the rest fails and is logged."""
        runtime = self._runtime
        timeout = seconds(runtime.config.close_timeout_ms)
        try:
            async with asyncio.timeout(timeout):
                await runtime.flush()
        except TimeoutError:
            # No application code is left to await the deliveries or to raise their errors to.
            error = KafkaTimeoutError(f"not delivered within close_timeout_ms ({timeout:g} s)")
            runtime.fail_all(error)
        failures = runtime.accumulator.take_failures()
        if failures is not None:
            logger.error("%s: %s. %s", self.name, failures, END_OF_PROCESS)
