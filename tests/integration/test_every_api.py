"""Every API that a broker advertises is asked once in each version that both of us know.

The broker is the judge of our encoder, and the source of what our decoder must read to the last
byte. Encoding the answer again must give the broker's own bytes.
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
from tests.integration.api_requests import REQUESTS, Surroundings
from tests.integration.raw_wire import NOT_READY, PATIENCE, RawCluster, RawConnection

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
    """Many names, by the broker that coordinates them."""
    cluster.coordinator(kind, prefix)  # which waits until there are coordinators
    names = [f"{prefix}-{number}" for number in range(128)]
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=names)
    found: dict[int, list[str]] = {}
    for row in cluster.any.call(request, 4).coordinators:
        assert row.error_code == ErrorCode.NONE
        found.setdefault(row.node_id, []).append(row.key)
    return found


def settled(broker: RawConnection, request: Any, version: int) -> Any:
    """The first answer of a coordinator that has loaded."""
    deadline = time.monotonic() + PATIENCE
    while True:
        answer = broker.call(request, version)
        if answer.error_code not in NOT_READY or time.monotonic() > deadline:
            return answer
        time.sleep(0.1)


def surroundings(cluster: RawCluster, handle: ClusterHandle) -> tuple[RawConnection, Surroundings]:
    """A topic, groups and a transactional id, and a connection to the broker that has them all."""
    by_broker = coordinators(cluster, 0, handle.group())
    broker_id, names = max(by_broker.items(), key=lambda item: len(item[1]))
    groups = iter(names)
    group = next(groups)
    broker = cluster.create_topic(handle.topic(), leader=broker_id)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=handle.topic())])
    [topic] = broker.call(request, 12).topics
    heartbeat = settled(broker, HeartbeatRequest(group_id=group, member_id="nobody"), 3)
    assert heartbeat.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    # If it coordinates no transactions, as after a broker was down, it answers that it does not.
    ids = coordinators(cluster, 1, handle.transactional_id())
    transactional_id = ids.get(broker_id, [handle.transactional_id()])[0]
    init = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=10_000)
    producer = settled(cluster.coordinator(1, transactional_id), init, 4)
    assert producer.error_code == ErrorCode.NONE
    return broker, Surroundings(
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
    """The versions of each API, by its key, that the broker says it has."""
    request = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
    answer = broker.call(request, 3)
    assert answer.error_code == ErrorCode.NONE
    return {row.api_key: range(row.min_version, row.max_version + 1) for row in answer.api_keys}


def knows(known: Api, version: int) -> bool:
    """Whether we have the version; a broker advertises unreleased ones only if told to."""
    return known.versions.contains(version) or version == known.unstable


def ask(broker: RawConnection, known: Api, version: int, at: Surroundings) -> None:
    """Ask, read the answer, write it again as it came, and see that the broker still listens."""
    request = known.request.from_dict(REQUESTS[known.name](at, version))
    answer, frame = broker.exchange(request, version)
    correlation_id = int.from_bytes(frame[:4], "big")
    again = b"".join(map(bytes, encode_response(answer, version, correlation_id)))
    assert again[4:] == frame, f"we would write {answer} otherwise"
    assert broker.call(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE


LEAST_APIS, LEAST_VERSIONS = 30, 190
"""What the broker with the fewest, the embedded one, offers."""


def test_every_advertised_version_is_answered(
    cluster: RawCluster, kafka_cluster: ClusterHandle
) -> None:
    broker, at = surroundings(cluster, kafka_cluster)
    offered = advertised(broker)
    asked = 0
    removed = 0
    failed: list[str] = []
    for key, versions in offered.items():
        known = api.lookup(key)
        common = [version for version in versions if knows(known, version)]
        assert common, f"{known} and the broker have no version in common"
        foreign = [version for version in versions if version not in common]
        assert all(version < common[0] for version in foreign), f"we lack a new {known}"
        removed += len(foreign)
        for version in common:
            asked += 1
            try:
                ask(broker, known, version, at)
            except (AssertionError, OSError, KafkaError) as error:
                failed.append(f"{known.name} {version}: {error!r}")
                broker = RawConnection(*broker.address)
    asked_for = f"asked {len(offered)} APIs in {asked} versions, {removed} removed ones left out"
    print(f"{kafka_cluster.cluster.name}: {asked_for}")  # noqa: T201 what was covered is a result
    assert failed == []
    assert len(offered) >= LEAST_APIS
    assert asked >= LEAST_VERSIONS
