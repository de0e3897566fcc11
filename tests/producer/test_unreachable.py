"""A record that is not delivered in time says why its leader could not be reached."""

from __future__ import annotations

import pytest

from kafka_async.errors import InvalidConfigurationError, KafkaTimeoutError
from tests.producer.scripted import Bench

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]


async def test_the_last_reason_is_in_the_error() -> None:
    async with Bench({"clicks": [1]}) as bench:
        forbidden = InvalidConfigurationError("allowed_broker_hosts does not permit it")
        bench.cluster.refusing[1] = forbidden
        with pytest.raises(KafkaTimeoutError, match=r"cannot be reached: allowed_.*") as caught:
            await bench.producer.send("clicks", b"v")
        assert caught.value.__cause__ is forbidden
