"""Events at the end of transactions."""

from __future__ import annotations

import pytest

from kafka_async.hooks import TransactionEnded
from tests.producer.bench import Bench

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]


async def test_emits_an_event_for_commit_and_abort() -> None:
    async with Bench({"counts": [1]}, transactional_id="words") as bench:
        told: list[TransactionEnded] = []
        bench.producer.client.hooks.listen(TransactionEnded, told.append)
        async with bench.producer.transaction() as txn:
            await txn.send("counts", b"1")
        txn = await bench.producer.begin()
        await txn.send("counts", b"2")
        await txn.abort()
        assert [(event.transactional_id, event.committed) for event in told] == [
            ("words", True),
            ("words", False),
        ]
