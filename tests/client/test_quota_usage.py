"""Tests of `Client.quota_usage`: the fraction of each quota that a client uses."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kafka_async.admin import QuotaEntity
from kafka_async.client.client import services_of
from kafka_async.client.connection.quota_usage import FETCH, PRODUCE, ByteRate, QuotaUsage
from kafka_async.embedded.quotas.quota_manager import QuotaClient
from kafka_async.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from tests.embedded_client import InMemory, now


def test_rate_covers_eleven_samples() -> None:
    rate = ByteRate()
    assert rate.rate(0.0) == 0.0
    for second in range(20):
        rate.record(100, second + 0.25)
        rate.record(100, second + 0.75)
    assert rate.rate(19.999) == pytest.approx(2200 / 10.999)
    assert rate.rate(20.0) == pytest.approx(200.0)
    assert rate.rate(30.5) == 0.0


def test_fractions_are_none_without_quotas_and_at_most_1() -> None:
    usage = QuotaUsage()
    usage.record(1, PRODUCE, 5_000, 0.0)
    usage.record(2, FETCH, 50_000, 0.0)
    nothing = {(1, PRODUCE): None, (2, FETCH): None}
    assert usage.fractions(0.0) == usage.percentages(0.0) == nothing
    usage.set_quotas({})
    assert usage.fractions(0.0) == {(1, PRODUCE): 0.0, (2, FETCH): 0.0}
    usage.set_quotas({"producer_byte_rate": 1000.0, "consumer_byte_rate": 1000.0})
    assert usage.fractions(0.0) == {(1, PRODUCE): 0.5, (2, FETCH): 1.0}
    assert usage.percentages(0.0) == {(1, PRODUCE): 50.0, (2, FETCH): 100.0}
    usage.set_quotas(None)
    assert usage.fractions(0.0) == nothing


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_fraction_is_the_brokers_own() -> None:
    async with InMemory() as memory, memory.admin() as admin:
        await memory.cluster.create_topic("t")
        app = QuotaEntity(client_id="app")
        limits = {"producer_byte_rate": 1000, "consumer_byte_rate": 4000}
        await admin.alter_client_quotas({app: limits})
        async with (
            memory.producer(client_id="app", linger_ms=0) as producer,
            memory.consumer(
                "t", client_id="app", auto_offset_reset="earliest", group_id="g"
            ) as consumer,
        ):
            await asyncio.sleep(1 - now() % 1)
            await producer.send("t", b"v" * 5_000)
            await consumer.poll(timeout=5.0)
            produce = await producer.client.quota_usage()
            fetch = await consumer.client.quota_usage()
            client = QuotaClient("ANONYMOUS", "app")
            for found, kind, name in (
                (produce, PRODUCE, "producer_byte_rate"),
                (fetch, FETCH, "consumer_byte_rate"),
            ):
                percent = memory.cluster.quotas.usage(1, name, client, now())
                assert percent is not None
                assert found == {(1, kind): pytest.approx(percent / 100, rel=0.1)}
            statistics = producer.statistics(), consumer.statistics()
            for found, shown in zip((produce, fetch), statistics, strict=True):
                assert shown.quota_usage_percent == {
                    key: pytest.approx(100 * (part or 0.0)) for key, part in found.items()
                }
            await admin.alter_client_quotas({app: {"producer_byte_rate": None}})
            assert await producer.client.quota_usage() == {(1, PRODUCE): 0.0}


@pytest.mark.asyncio
@pytest.mark.virtual_clock
async def test_statistics_use_the_quotas_that_were_found_last_and_send_no_request() -> None:
    async with InMemory() as memory, memory.admin() as admin:
        await memory.cluster.create_topic("t")
        app = QuotaEntity(client_id="app")
        await admin.alter_client_quotas({app: {"producer_byte_rate": 1000}})
        async with memory.producer(client_id="app", linger_ms=0) as producer:
            await producer.send("t", b"v" * 20_000)
            assert producer.statistics().quota_usage_percent == {(1, PRODUCE): None}
            assert memory.requests(DescribeClientQuotasRequest) == []
            await producer.client.quota_usage()
            asked = len(memory.requests(DescribeClientQuotasRequest))
            assert asked > 0
            assert producer.statistics().quota_usage_percent == {(1, PRODUCE): 100.0}
            await admin.alter_client_quotas({app: {"producer_byte_rate": None}})
            assert producer.statistics().quota_usage_percent == {(1, PRODUCE): 100.0}
            await asyncio.sleep(12.0)  # the rate is that of the last 11 s
            assert producer.statistics().quota_usage_percent == {(1, PRODUCE): 0.0}
            assert len(memory.requests(DescribeClientQuotasRequest)) == asked


@pytest.mark.asyncio
@pytest.mark.virtual_clock
@pytest.mark.parametrize(
    "options",
    [{"authorizer": True}, {"api_versions": {48: (0, -1)}}],
    ids=["no permission", "no such API"],
)
async def test_fraction_is_none_where_the_cluster_may_not_be_asked(options: dict[str, Any]) -> None:
    async with InMemory(**options) as memory, memory.client() as client:
        usage = services_of(client).quota_usage
        usage.record(1, PRODUCE, 1000, now())
        assert await client.quota_usage() == {(1, PRODUCE): None}
