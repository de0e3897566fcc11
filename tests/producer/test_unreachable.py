"""The error of an expired record says why its leader could not be reached."""

from __future__ import annotations

import pytest

from kafka_async.errors import InvalidConfigurationError, KafkaTimeoutError
from tests.producer.bench import Bench

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]


async def test_timeout_has_the_last_connection_error() -> None:
    settings = {"advertised_hosts": {1: "b.example"}}
    options = {"allowed_broker_hosts": ["127.0.0.1"]}
    async with Bench({"clicks": [1], "audit": [2]}, settings=settings, **options) as bench:
        await bench.producer.send("audit", b"v")
        reason = r"cannot be reached: .*allowed_broker_hosts"
        with pytest.raises(KafkaTimeoutError, match=reason) as caught:
            await bench.producer.send("clicks", b"v")
        assert isinstance(caught.value.__cause__, InvalidConfigurationError)
