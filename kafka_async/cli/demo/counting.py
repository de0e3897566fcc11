"""The stage that counts: lines in, counts out, by workers that die and abort."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from kafka_async import Admin
from kafka_async.admin import OffsetSpec
from kafka_async.cli.demo.crew import DOOMED, Crew
from kafka_async.cli.demo.resources import COUNTS, LINES
from kafka_async.cli.demo.worker import BEGUN, Job
from kafka_async.cluster.request_destinations import TransactionCoordinator
from kafka_async.errors import KafkaError
from kafka_async.protocol.messages.describe_transactions import DescribeTransactionsRequest

if TYPE_CHECKING:
    import random

    from kafka_async.cli.demo.crew import Tally
    from kafka_async.cli.demo.resources import Resources
    from kafka_async.cli.demo.result import Teller

# Seconds without a newly committed line, or with an open transaction, before the demo gives up.
STALLED: Final = 60.0
LOOK: Final = 0.1


class Counting:
    """The counting of all lines, and the wait until no transaction is open."""

    def __init__(self, where: Resources, lines: int, teller: Teller, rng: random.Random) -> None:
        self._where = where
        self._lines = lines
        self._teller = teller
        self._rng = rng
        self.killed = asyncio.Event()

    async def run(self) -> Tally:
        """Count; what the workers told.

        Raises KafkaError if nothing is committed for a minute.
        """
        where = self._where
        async with Admin(where.servers) as admin:
            latest = dict.fromkeys(where.partitions(LINES), OffsetSpec.LATEST)
            ends = await admin.list_offsets(latest)
            job = Job(
                name="",
                bootstrap=where.servers,
                lines_topic=where.topics[LINES],
                counts_topic=where.topics[COUNTS],
                group=where.group,
                transactional_id=where.group,
                lines_per_transaction=max(1, min(100, self._lines // 60)),
            )
            crew = Crew(
                job,
                lines={tp.partition: end.offset for tp, end in ends.items()},
                rng=self._rng,
                say=self._teller.say,
                killed=self.killed,
            )
            await crew.run(self._all_counted(admin, crew.tally))
            return crew.tally

    async def _all_counted(self, admin: Admin, tally: Tally) -> None:
        loop = asyncio.get_running_loop()
        before, since = -1, loop.time()
        while (done := await self._committed(admin)) < self._lines:
            if done != before:
                before, since = done, loop.time()
            elif loop.time() - since > STALLED:
                why = f"; {tally.trouble}" if tally.trouble else ""
                raise KafkaError(f"no line was committed for {STALLED:.0f} s{why}")
            self._teller.advance(done)
            await asyncio.sleep(LOOK)
        self._teller.advance(done)

    async def _committed(self, admin: Admin) -> int:
        """How many lines the group has committed: offsets start at 0, and no line is a marker."""
        offsets = await admin.list_group_offsets(self._where.group)
        return sum(committed.offset for committed in offsets.values())

    async def settled(self, tally: Tally) -> int:
        """Wait until no transaction is open; how many the coordinator has aborted by its time-out.

        Until then a read_committed reader sees nothing that was written after the killed worker's.
        """
        latest = dict.fromkeys(self._where.partitions(COUNTS), OffsetSpec.LATEST)
        try:
            async with asyncio.timeout(STALLED), Admin(self._where.servers) as admin:
                while True:
                    stable = await admin.list_offsets(latest, isolation_level="read_committed")
                    if stable == await admin.list_offsets(latest):
                        break
                    await asyncio.sleep(LOOK)
                return int(await self._aborted_for_it(admin, tally))
        except TimeoutError:
            raise KafkaError(
                f"the killed worker's transaction was not aborted within {STALLED:.0f} s"
            ) from None

    async def _aborted_for_it(self, admin: Admin, tally: Tally) -> bool:
        """Whether the coordinator says that it has aborted what the killed worker had begun."""
        if tally.held_at in (None, BEGUN):
            return False  # nothing of that transaction had reached the cluster
        transactional_id = f"{self._where.group}-{DOOMED.rpartition('-')[2]}"
        while True:
            answer = await admin.client.request(
                DescribeTransactionsRequest(transactional_ids=[transactional_id]),
                to=TransactionCoordinator(transactional_id),
            )
            state = answer.transaction_states[0]
            if state.error_code == 0 and state.transaction_state in FINAL:
                return FINAL[state.transaction_state]
            await asyncio.sleep(LOOK)


# States in which nothing of a transaction is under way, and whether the last one was aborted.
FINAL: Final = {"Empty": False, "CompleteCommit": False, "CompleteAbort": True, "Dead": False}
