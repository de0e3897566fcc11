"""The requests that open a connection, as generators that yield requests. Pure.

A procedure yields a request and its version, is sent the frame of the response, and returns what
the broker supports. ApiVersions comes first (KIP-35): in the newest version that this client has,
then in the newest version in the broker's response, or in version 0 if that has none. Version 5
contains the ids of the cluster and the broker that metadata places at the address, so that another
broker there responds with REBOOTSTRAP_REQUIRED (KIP-1242). A broker rejects a request with only one
of the two (INVALID_REQUEST), so the request to a bootstrap server, whose node id is negative,
contains neither.

Message modules are imported where they are used, here and in the whole package: importing a client,
as web services do at their start, loads none of them.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from kafka_async.client.wire.topic_ids import LAST_VERSION_WITH_NAMES
from kafka_async.errors import UnsupportedVersionError, raise_for
from kafka_async.protocol.api import lookup
from kafka_async.protocol.header import decode_response
from kafka_async.protocol.spec import VersionRange

if TYPE_CHECKING:
    from typing import Any

    from kafka_async.client.wire.framing import Frame
    from kafka_async.protocol.message import Request
    from kafka_async.protocol.messages.api_versions import ApiVersionsResponse


class Step(NamedTuple):
    """A request to send and its version."""

    request: Request[Any]
    version: int


SOFTWARE_NAME: Final = "kafka-async"
_UNSUPPORTED_VERSION: Final = UnsupportedVersionError.code
# The response's header of version 0: the correlation id.
_HEADER_SIZE: Final = 4
_TRANSACTION_VERSION: Final = "transaction.version"
_TRANSACTIONS_V2: Final = {0: 12, 26: 5, 28: 5}
"""First versions of Produce, EndTxn and TxnOffsetCommit for transactions v2 (KIP-890)."""
_API_VERSIONS: Final = 18


@dataclass(frozen=True, slots=True)
class BrokerVersions:
    """Versions and features that one broker supports.

    Attributes:
        ranges: Version range by API key.
        features: Level of each finalized feature by its name.
        features_epoch: Orders the finalized features that several brokers report; -1 if a broker
            reports none.
        throttle_time_ms: Throttle time of the broker's response, in milliseconds.
    """

    ranges: Mapping[int, VersionRange] = field(default_factory=dict[int, VersionRange])
    features: Mapping[str, int] = field(default_factory=dict[str, int])
    features_epoch: int = -1
    throttle_time_ms: int = 0
    # Negotiated once per API and connection, since each request needs it.
    _chosen: dict[int, int] = field(default_factory=dict[int, int], repr=False, compare=False)

    def version(self, api_key: int, max_version: int | None = None) -> int:
        """Return the newest version of an API that the broker and this client support.

        Raises UnsupportedVersionError, with the API and both ranges, if there is none up to
        `max_version`.
        """
        chosen = self._chosen.get(api_key)
        if chosen is None:
            chosen = self._chosen[api_key] = lookup(api_key).negotiate(self.ranges.get(api_key))
        if max_version is None or chosen <= max_version:
            return chosen
        offered = self.ranges[api_key]
        # The broker may have dropped the versions that this request needs.
        if max_version < offered.min:
            by_name = max_version == LAST_VERSION_WITH_NAMES.get(api_key)
            raise UnsupportedVersionError(
                f"{lookup(api_key).name}{' for topics by name' * by_name} needs version "
                f"{max_version} or older, the broker offers {offered}"
            )
        return max_version


Procedure: TypeAlias = Generator[Step, "Frame", BrokerVersions]


def handshake(software_version: str, cluster_id: str | None = None, node_id: int = -1) -> Procedure:
    """Run all requests that a connection needs before its first ordinary request.

    The broker checks that it is the one that metadata placed at the address, unless `cluster_id` is
    None or `node_id` negative. RebootstrapRequiredError is raised if it is not, and BrokerError if
    the broker rejects a request.
    """
    from kafka_async.protocol.messages.api_versions import ApiVersionsRequest

    request = ApiVersionsRequest(
        client_software_name=SOFTWARE_NAME, client_software_version=software_version
    )
    if cluster_id is not None and node_id >= 0:
        request.cluster_id, request.node_id = cluster_id, node_id
    api = lookup(_API_VERSIONS)
    response = _decode(version := api.versions.max, (yield Step(request, version)))
    # The response lists the broker's versions, in a form that every client can read (KIP-511).
    if response.error_code == _UNSUPPORTED_VERSION:
        version = _supported_version(response)
        response = _decode(version, (yield Step(request, version)))
    raise_for(response.error_code)
    ranges = {r.api_key: VersionRange(r.min_version, r.max_version) for r in response.api_keys}
    features = {row.name: row.max_version_level for row in response.finalized_features}
    return BrokerVersions(
        ranges,
        _usable_features(features, ranges),
        response.finalized_features_epoch,
        response.throttle_time_ms,
    )


def _usable_features(
    features: dict[str, int], ranges: Mapping[int, VersionRange]
) -> dict[str, int]:
    """Return the features, without transactions v2 if the broker lacks a version that they need.

    A proxy in front of the brokers may have older versions than they do.
    """
    level = features.get(_TRANSACTION_VERSION, 0)
    if level >= 2 and any(
        key in ranges and ranges[key].max < version for key, version in _TRANSACTIONS_V2.items()
    ):
        features[_TRANSACTION_VERSION] = 1
    return features


def _decode(version: int, frame: Frame) -> ApiVersionsResponse:
    from kafka_async.protocol.messages.api_versions import ApiVersionsResponse

    # A broker that does not support the request's version responds in version 0. The error code is
    # the first field of the body in every version.
    code = int.from_bytes(frame[_HEADER_SIZE : _HEADER_SIZE + 2], "big", signed=True)
    response_version = 0 if code == _UNSUPPORTED_VERSION else version
    return decode_response(frame, ApiVersionsResponse, response_version)[1]


def _supported_version(response: ApiVersionsResponse) -> int:
    api = lookup(_API_VERSIONS)
    for row in response.api_keys:
        if row.api_key == api.key:
            return api.negotiate(VersionRange(row.min_version, row.max_version))
    return 0
