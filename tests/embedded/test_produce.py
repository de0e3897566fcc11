"""Produce to partitions whose brokers have stopped or do not lead them."""

from __future__ import annotations

import pytest

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.records.compression import Codec
from tests.contract.cases.log import produce
from tests.embedded.harness import running_session
from tests.hostile.malformed_batches import batch

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]


async def test_too_few_in_sync_replicas_reject_acks_all_only() -> None:
    async with running_session(2, min_insync_replicas=2) as it:
        await it.embedded.stop_broker(2)
        assert await it.code(produce(11)) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert await it.code(produce(11, acks=1)) is ErrorCode.NONE


@pytest.mark.parametrize("version", [9, 10])
async def test_not_leader_response_has_leader_from_version_10(version: int) -> None:
    async with running_session(2) as it:
        response = await it.ask(produce(version, index=1))
        row = response.responses[0].partition_responses[0]
        assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        has_leader = version >= 10
        assert row.current_leader.leader_id == (2 if has_leader else -1)
        ports = [endpoint.port for endpoint in response.node_endpoints]
        assert ports == ([it.embedded.brokers[2].port] if has_leader else [])


async def test_records_that_cannot_be_decompressed_are_an_unknown_error() -> None:
    async with running_session() as it:
        damaged = batch(codec=Codec.gzip, payload=b"no gzip", base=0)
        assert await it.code(produce(11, damaged)) is ErrorCode.UNKNOWN_SERVER_ERROR
