"""Every version of every API that the broker and this project support, with one request each.

The broker checks the encoder's bytes, and the decoder has to read the response to the last byte.
Encoding the response again has to give the broker's bytes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.embedded import ErrorCode
from kafka_async.errors import KafkaError
from kafka_async.protocol import api
from kafka_async.protocol.header import encode_response
from kafka_async.protocol.messages.api_versions import ApiVersionsRequest
from kafka_async.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafka_async.protocol.messages.heartbeat import HeartbeatRequest
from kafka_async.protocol.messages.init_producer_id import InitProducerIdRequest
from kafka_async.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.integration.api_requests import REQUESTS, Resources
from tests.integration.raw_cluster import NOT_READY, TIMEOUT, RawCluster, RawConnection

if TYPE_CHECKING:
    from kafka_async.protocol.registry import Api
    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = pytest.mark.any_broker


@pytest.fixture
def cluster(kafka_cluster: ClusterHandle) -> Iterator[RawCluster]:
    opened = RawCluster(kafka_cluster.bootstrap_servers)
    yield opened
    opened.close()


def coordinators(cluster: RawCluster, kind: int, prefix: str) -> dict[int, list[str]]:
    """Return many names by the broker that coordinates them."""
    cluster.coordinator(kind, prefix)  # Waits until there are coordinators.
    names = [f"{prefix}-{number}" for number in range(128)]
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=names)
    found: dict[int, list[str]] = {}
    for row in cluster.any.call(request, 4).coordinators:
        assert row.error_code == ErrorCode.NONE
        found.setdefault(row.node_id, []).append(row.key)
    return found


def call_when_ready(broker: RawConnection, request: Any, version: int) -> Any:
    """Return the first response of a coordinator that has loaded its state."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        response = broker.call(request, version)
        if response.error_code not in NOT_READY or time.monotonic() > deadline:
            return response
        time.sleep(0.1)


def create_resources(cluster: RawCluster, handle: ClusterHandle) -> tuple[RawConnection, Resources]:
    """Create a topic, groups and a transactional id, and connect to the broker that has them."""
    by_broker = coordinators(cluster, 0, handle.group())
    broker_id, names = max(by_broker.items(), key=lambda item: len(item[1]))
    groups = iter(names)
    group = next(groups)
    broker = cluster.create_topic(handle.topic(), leader=broker_id)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=handle.topic())])
    [topic] = broker.call(request, 12).topics
    heartbeat = call_when_ready(broker, HeartbeatRequest(group_id=group, member_id="unknown"), 3)
    assert heartbeat.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    # A broker may coordinate no transactions, for example after another one was down; it responds
    # with an error code then.
    ids = coordinators(cluster, 1, handle.transactional_id())
    transactional_id = ids.get(broker_id, [handle.transactional_id()])[0]
    init = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=10_000)
    producer = call_when_ready(cluster.coordinator(1, transactional_id), init, 4)
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


def advertised(broker: RawConnection) -> dict[int, range]:
    """Return the versions that the broker advertises, by API key."""
    request = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
    response = broker.call(request, 3)
    assert response.error_code == ErrorCode.NONE
    return {row.api_key: range(row.min_version, row.max_version + 1) for row in response.api_keys}


def is_supported(known: Api, version: int) -> bool:
    """Return whether this project has a version, which may be an unstable one."""
    return known.versions.contains(version) or version == known.unstable


def check_version(broker: RawConnection, known: Api, version: int, at: Resources) -> None:
    """Send a request, encode its response again, and check that the connection still works."""
    request = known.request.from_dict(REQUESTS[known.name](at, version))
    response, frame = broker.exchange(request, version)
    correlation_id = int.from_bytes(frame[:4], "big")
    again = b"".join(map(bytes, encode_response(response, version, correlation_id)))
    assert again[4:] == frame, f"encoding {response} gives other bytes"
    assert broker.call(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE


MIN_APIS, MIN_VERSIONS = 30, 190
"""The embedded cluster has the fewest APIs and versions."""


def test_broker_responds_to_every_advertised_version(
    cluster: RawCluster, kafka_cluster: ClusterHandle
) -> None:
    broker, at = create_resources(cluster, kafka_cluster)
    apis = advertised(broker)
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
                check_version(broker, known, version, at)
            except (AssertionError, OSError, KafkaError) as error:
                failed.append(f"{known.name} {version}: {error!r}")
                broker = RawConnection(*broker.address)
    coverage = f"tested {len(apis)} APIs in {tested} versions, {removed} removed ones left out"
    print(f"{kafka_cluster.cluster.name}: {coverage}")  # noqa: T201  # part of the result
    assert failed == []
    assert len(apis) >= MIN_APIS
    assert tested >= MIN_VERSIONS
