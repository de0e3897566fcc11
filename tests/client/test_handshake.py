"""Tests of the requests that open a connection."""

from __future__ import annotations

import pytest

from kafka_async.client.wire.handshake import BrokerVersions, Procedure, handshake
from kafka_async.errors import DecodeError, UnsupportedVersionError
from kafka_async.protocol.header import encode_response
from kafka_async.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from kafka_async.protocol.spec import VersionRange

NEWEST = ApiVersionsRequest.VERSIONS.max
OWN_KEY = ApiVersionsRequest.API_KEY
UNSUPPORTED_VERSION = 35


def frame(response: ApiVersionsResponse, version: int) -> bytes:
    return b"".join(encode_response(response, version, 0))[4:]


def offer(key: int, low: int, high: int) -> ApiVersion:
    return ApiVersion(api_key=key, min_version=low, max_version=high)


def begin(cluster: str | None, node: int) -> tuple[Procedure, ApiVersionsRequest]:
    procedure = handshake("1.2", cluster, node)
    step = next(procedure)
    assert isinstance(step.request, ApiVersionsRequest)
    assert step.version == NEWEST
    assert step.request.client_software_name == "kafka-async"
    assert step.request.client_software_version == "1.2"
    return procedure, step.request


def finish(procedure: Procedure, data: bytes) -> BrokerVersions:
    with pytest.raises(StopIteration) as ended:
        procedure.send(data)
    return ended.value.value


@pytest.mark.parametrize(
    ("cluster", "node", "named"),
    [
        ("cluster", 7, ("cluster", 7)),
        ("cluster", 0, ("cluster", 0)),
        (None, -1, (None, -1)),
        (None, 7, (None, -1)),
        ("cluster", -2, (None, -1)),
    ],
)
def test_sends_cluster_and_node_id_together_or_not_at_all(
    cluster: str | None, node: int, named: tuple[str | None, int]
) -> None:
    _, request = begin(cluster, node)
    assert (request.cluster_id, request.node_id) == named


def test_needs_one_request_for_a_current_broker() -> None:
    procedure, _ = begin("cluster", 7)
    response = ApiVersionsResponse(
        api_keys=[offer(0, 3, 12), offer(OWN_KEY, 0, NEWEST)],
        finalized_features=[FinalizedFeatureKey(name="transaction.version", max_version_level=2)],
        finalized_features_epoch=9,
    )
    versions = finish(procedure, frame(response, NEWEST))
    assert versions.ranges[0] == VersionRange(3, 12)
    assert versions.features == {"transaction.version": 2}
    assert versions.features_epoch == 9


@pytest.mark.parametrize(
    ("offered", "expected"), [([offer(OWN_KEY, 0, 3)], 3), ([offer(0, 0, 3)], 0), ([], 0)]
)
def test_retries_in_version_of_an_older_broker(offered: list[ApiVersion], expected: int) -> None:
    procedure, _ = begin("cluster", 7)
    rejection = ApiVersionsResponse(error_code=UNSUPPORTED_VERSION, api_keys=offered)
    assert procedure.send(frame(rejection, 0)).version == expected
    versions = finish(procedure, frame(ApiVersionsResponse(api_keys=[offer(3, 0, 8)]), expected))
    assert versions.version(3) == 8


def test_raises_for_bytes_that_are_not_a_response() -> None:
    procedure, _ = begin("cluster", 7)
    with pytest.raises(DecodeError):
        procedure.send(b"\x00\x00\x00\x00\x00\x00\xff\xff")


def test_chooses_newest_common_version() -> None:
    versions = BrokerVersions({3: VersionRange(0, 5), 1: VersionRange(90, 99)})
    assert versions.version(3) == 5
    assert versions.version(3) == 5
    with pytest.raises(UnsupportedVersionError, match=r"Fetch: we know .*offers 90-99"):
        versions.version(1)
    with pytest.raises(UnsupportedVersionError, match="does not offer Produce"):
        versions.version(0)
