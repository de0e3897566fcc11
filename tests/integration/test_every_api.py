"""Every version of every API that the broker and this project support, with one request each.

The broker checks the encoder's bytes, and the decoder has to read the response to the last byte.
Encoding the response again has to give the broker's bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafka_async.embedded import ErrorCode
from kafka_async.errors import KafkaError
from kafka_async.protocol import api
from kafka_async.protocol.header import decode_response, encode_response
from kafka_async.protocol.messages.api_versions import ApiVersionsRequest
from kafka_async.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafka_async.protocol.messages.heartbeat import HeartbeatRequest
from kafka_async.protocol.messages.init_producer_id import InitProducerIdRequest
from kafka_async.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.integration.api_requests import Resources, request_of
from tests.integration.raw_cluster import RawCluster, when_ready

if TYPE_CHECKING:
    from kafka_async.protocol.registry import Api
    from kafka_async.testing.fixtures import ClusterHandle
    from tests.raw_connection import RawConnection

pytestmark = [pytest.mark.asyncio, pytest.mark.any_broker]


async def coordinators(cluster: RawCluster, kind: int, prefix: str) -> dict[int, list[str]]:
    """Return many names by the broker that coordinates them."""
    await cluster.coordinator(kind, prefix)  # Waits until there are coordinators.
    names = [f"{prefix}-{number}" for number in range(128)]
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=names)
    found: dict[int, list[str]] = {}
    for row in (await cluster.any.call(request, 4)).coordinators:
        assert row.error_code == ErrorCode.NONE
        found.setdefault(row.node_id, []).append(row.key)
    return found


async def create_resources(
    cluster: RawCluster, handle: ClusterHandle
) -> tuple[RawConnection, Resources]:
    """Create a topic, groups and a transactional id, and connect to the broker that has them."""
    by_broker = await coordinators(cluster, 0, handle.group())
    broker_id, names = max(by_broker.items(), key=lambda item: len(item[1]))
    groups = iter(names)
    group = next(groups)
    broker = await cluster.create_topic(handle.topic(), leader=broker_id)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=handle.topic())])
    [topic] = (await broker.call(request, 12)).topics
    unknown = HeartbeatRequest(group_id=group, member_id="unknown")
    heartbeat = await when_ready(lambda: broker.call(unknown, 3))
    assert heartbeat.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    # A broker may coordinate no transactions, for example after another one was down; it responds
    # with an error code then.
    ids = await coordinators(cluster, 1, handle.transactional_id())
    transactional_id = ids.get(broker_id, [handle.transactional_id()])[0]
    init = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=10_000)
    coordinator = await cluster.coordinator(1, transactional_id)
    producer = await when_ready(lambda: coordinator.call(init, 4))
    assert producer.error_code == ErrorCode.NONE
    return broker, Resources(
        broker_id=broker_id,
        topic=handle.topic(),
        topic_id=topic.topic_id,
        group=group,
        consumer_group=next(groups),
        share_group=next(groups),
        streams_group=next(groups),
        groups=groups,
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
    )


def is_supported(known: Api, version: int) -> bool:
    """Return whether this project has a version, which may be an unstable one."""
    return known.versions.contains(version) or version == known.unstable


async def check_version(broker: RawConnection, known: Api, version: int, at: Resources) -> None:
    """Send a request, encode its response again, and check that the connection still works."""
    request = request_of(known, version, at)
    frame = await broker.submit(broker.encode(request, version))
    correlation_id, response = decode_response(frame, known.response, version)
    again = b"".join(map(bytes, encode_response(response, version, correlation_id)))
    assert again[4:] == frame, f"encoding {response} gives other bytes"
    assert (await broker.call(ApiVersionsRequest(), 0)).error_code == ErrorCode.NONE


MIN_APIS, MIN_VERSIONS = 30, 190
"""The embedded cluster has the fewest APIs and versions."""


async def test_broker_responds_to_every_advertised_version(
    raw_cluster: RawCluster, kafka_cluster: ClusterHandle
) -> None:
    broker, at = await create_resources(raw_cluster, kafka_cluster)
    apis = await broker.api_versions()
    tested = 0
    removed = 0
    failed: list[str] = []
    for key, versions in apis.items():
        known = api.lookup(key)
        common = [version for version in versions if is_supported(known, version)]
        assert common, f"{known} and the broker have no version in common"
        foreign = [version for version in versions if version not in common]
        assert all(version < common[0] for version in foreign), f"a new version of {known}"
        removed += len(foreign)
        for version in common:
            tested += 1
            try:
                await check_version(broker, known, version, at)
            except (AssertionError, OSError, KafkaError) as error:
                failed.append(f"{known.name} {version}: {error!r}")
                broker = await raw_cluster.leader(at.topic)
    coverage = f"tested {len(apis)} APIs in {tested} versions, {removed} removed ones left out"
    print(f"{kafka_cluster.cluster.name}: {coverage}")  # noqa: T201  # part of the result
    assert failed == []
    assert len(apis) >= MIN_APIS
    assert tested >= MIN_VERSIONS
