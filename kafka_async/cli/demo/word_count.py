"""The counting stage of the demo: transactional workers count words and survive a kill."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from kafka_async import Admin
from kafka_async.admin import OffsetSpec
from kafka_async.cli.demo.resources import CHECK_INTERVAL, COUNTS, LINES
from kafka_async.cli.demo.worker import BEGUN, Job
from kafka_async.cli.demo.worker_group import KILLED_WORKER, WorkerGroup
from kafka_async.client.metadata.request_router import CoordinatorOfTransactionalId
from kafka_async.config import ClientConfig
from kafka_async.errors import KafkaError
from kafka_async.protocol.messages.describe_transactions import DescribeTransactionsRequest

if TYPE_CHECKING:
    import random

    from kafka_async.cli.demo.report import Report
    from kafka_async.cli.demo.resources import Resources
    from kafka_async.cli.demo.worker_group import GroupState

PROGRESS_TIMEOUT: Final = 60.0
"""Seconds without a newly committed line, or with an open transaction, before the demo fails."""

# States without an open transaction; True if the last transaction was aborted.
ABORTED_IN_STATE: Final = {
    "Empty": False,
    "CompleteCommit": False,
    "CompleteAbort": True,
    "Dead": False,
}


class WordCount:
    """Counts the words of all lines, and waits until no transaction is open."""

    def __init__(
        self, resources: Resources, lines: int, report: Report, rng: random.Random
    ) -> None:
        self._resources = resources
        self._lines = lines
        self._report = report
        self._rng = rng

    async def run(self) -> GroupState:
        """Count all lines; raise KafkaError if a worker fails or progress stops for a minute."""
        resources = self._resources
        async with Admin(config=resources.connection.config(ClientConfig)) as admin:
            latest = dict.fromkeys(resources.partitions(LINES), OffsetSpec.LATEST)
            ends = await admin.list_offsets(latest)
            job = Job(
                name="",
                lines_topic=resources.topics[LINES],
                counts_topic=resources.topics[COUNTS],
                group=resources.group,
                transactional_id=resources.group,
                lines_per_transaction=max(1, min(100, self._lines // 60)),
            )
            group = WorkerGroup(
                job,
                resources.connection,
                lines={tp.partition: end.offset for tp, end in ends.items()},
                rng=self._rng,
                show=self._report.show,
            )
            await group.run(self._wait_until_counted(admin, group.state))
            return group.state

    async def _wait_until_counted(self, admin: Admin, state: GroupState) -> None:
        loop = asyncio.get_running_loop()
        last_committed, last_progress = -1, loop.time()
        while (committed := await self._committed_lines(admin)) < self._lines:
            if committed != last_committed:
                last_committed, last_progress = committed, loop.time()
            elif loop.time() - last_progress > PROGRESS_TIMEOUT:
                reason = f"; {state.last_error}" if state.last_error else ""
                raise KafkaError(f"no line was committed for {PROGRESS_TIMEOUT:.0f} s{reason}")
            self._report.advance(committed)
            await asyncio.sleep(CHECK_INTERVAL)
        self._report.advance(committed)

    async def _committed_lines(self, admin: Admin) -> int:
        """Return the number of committed lines, which is the sum of the group's offsets."""
        offsets = await admin.list_group_offsets(self._resources.group)
        return sum(committed.offset for committed in offsets.values())

    async def wait_for_open_transactions(self, state: GroupState) -> int:
        """Wait until no transaction is open; return the number that the coordinator aborted.

        Before that, read_committed consumers get no record behind the first record of the killed
        worker's transaction.
        """
        try:
            config = self._resources.connection.config(ClientConfig)
            async with asyncio.timeout(PROGRESS_TIMEOUT), Admin(config=config) as admin:
                await self._resources.wait_for_open_transactions(admin, COUNTS)
                return int(await self._coordinator_aborted(admin, state))
        except TimeoutError:
            raise KafkaError(
                f"the killed worker's transaction was not aborted within {PROGRESS_TIMEOUT:.0f} s"
            ) from None

    async def _coordinator_aborted(self, admin: Admin, state: GroupState) -> bool:
        """Return whether the coordinator has aborted the killed worker's transaction."""
        if state.held_phase in (None, BEGUN):
            return False  # No request of that transaction reached the cluster.
        transactional_id = f"{self._resources.group}-{KILLED_WORKER.rpartition('-')[2]}"
        while True:
            response = await admin.client.request(
                DescribeTransactionsRequest(transactional_ids=[transactional_id]),
                to=CoordinatorOfTransactionalId(transactional_id),
            )
            transaction = response.transaction_states[0]
            if transaction.error_code == 0 and transaction.transaction_state in ABORTED_IN_STATE:
                return ABORTED_IN_STATE[transaction.transaction_state]
            await asyncio.sleep(CHECK_INTERVAL)
