"""What is said on a new connection before anything else, as generators that yield requests. Pure.

A step yields a request and its version and is sent the frame that answers it; what the whole of it
returns is what the connection can do. ApiVersions comes first (KIP-35): in the newest version we
know, then in the newest that the broker names, or in version 0 for one that names none. With
version 5 the request names the cluster and the broker that metadata placed at this address, so that
another broker there can respond with REBOOTSTRAP_REQUIRED (KIP-1242). A broker refuses a request
with only one of the two (INVALID_REQUEST), so a connection to a bootstrap server, whose id is not
a broker's, names neither.

Message modules are imported where they are used, here and in the whole room: naming a client, as
web services do when they are imported, loads none.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

from kafka_async.errors import UnsupportedVersionError, raise_for
from kafka_async.protocol.api import lookup
from kafka_async.protocol.header import decode_response
from kafka_async.protocol.spec import VersionRange

if TYPE_CHECKING:
    from typing import Any

    from kafka_async.cluster.framing import Frame
    from kafka_async.protocol.message import Request
    from kafka_async.protocol.messages.api_versions import ApiVersionsResponse

T = TypeVar("T")


class Step(NamedTuple):
    """A request to send now, and its version."""

    request: Request[Any]
    version: int


Procedure: TypeAlias = Generator[Step, "Frame", T]

SOFTWARE_NAME: Final = "kafka-async"
_UNSUPPORTED_VERSION: Final = UnsupportedVersionError.code
_HEADER: Final = 4
_API_VERSIONS: Final = 18


@dataclass(frozen=True, slots=True)
class BrokerVersions:
    """What the broker at the other end can do: version ranges by API key, and features.

    `features_epoch` orders the finalized features that several brokers tell; -1 if there are none.
    """

    ranges: Mapping[int, VersionRange] = field(default_factory=dict[int, VersionRange])
    features: Mapping[str, int] = field(default_factory=dict[str, int])
    features_epoch: int = -1
    _chosen: dict[int, int] = field(default_factory=dict[int, int], repr=False, compare=False)

    def version(self, api_key: int) -> int:
        """The newest version of an API that both sides know.

        Raises:
            UnsupportedVersionError: there is none; it names the API and both ranges.
        """
        chosen = self._chosen.get(api_key)
        if chosen is None:
            chosen = self._chosen[api_key] = lookup(api_key).negotiate(self.ranges.get(api_key))
        return chosen


def handshake(
    software_version: str, cluster_id: str | None = None, node_id: int = -1
) -> Procedure[BrokerVersions]:
    """Everything that a connection needs before its first ordinary request.

    Args:
        software_version: Version of this library, for the broker's metrics.
        cluster_id: Id of the cluster expected at the address; None if it is unknown or is not to
            be checked.
        node_id: Id of the broker expected there; negative for a bootstrap server.

    Raises:
        RebootstrapRequiredError: The broker has another id or belongs to another cluster.
        BrokerError: The broker refuses.
    """
    return (yield from _api_versions(software_version, cluster_id, node_id))


def _api_versions(
    software_version: str, cluster_id: str | None, node_id: int
) -> Procedure[BrokerVersions]:
    from kafka_async.protocol.messages.api_versions import ApiVersionsRequest

    request = ApiVersionsRequest(
        client_software_name=SOFTWARE_NAME, client_software_version=software_version
    )
    if cluster_id is not None and node_id >= 0:
        request.cluster_id, request.node_id = cluster_id, node_id
    api = lookup(_API_VERSIONS)
    answer = _read(version := api.versions.max, (yield Step(request, version)))
    if answer.error_code == _UNSUPPORTED_VERSION:
        version = _next_best(answer)
        answer = _read(version, (yield Step(request, version)))
    raise_for(answer.error_code)
    return BrokerVersions(
        {row.api_key: VersionRange(row.min_version, row.max_version) for row in answer.api_keys},
        {row.name: row.max_version_level for row in answer.finalized_features},
        answer.finalized_features_epoch,
    )


def _read(version: int, frame: Frame) -> ApiVersionsResponse:
    from kafka_async.protocol.messages.api_versions import ApiVersionsResponse

    # A broker that does not know the version asked for answers in version 0, and the error code
    # is the first thing in the body of any version.
    code = int.from_bytes(frame[_HEADER : _HEADER + 2], "big", signed=True)
    answered_in = 0 if code == _UNSUPPORTED_VERSION else version
    return decode_response(frame, ApiVersionsResponse, answered_in)[1]


def _next_best(answer: ApiVersionsResponse) -> int:
    api = lookup(_API_VERSIONS)
    for row in answer.api_keys:
        if row.api_key == api.key:
            return api.negotiate(VersionRange(row.min_version, row.max_version))
    return 0
