"""Comparison of versions and frames with Java's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafka_async.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafka_async.protocol.messages.end_txn_marker import EndTxnMarker
from kafka_async.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tools.conformance.apis import MessageVersions, frame_differences, version_differences

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafka_async.protocol.message import Message

HEADERS = [[1, 0], [1, 0], [1, 0], [1, 0], [2, 1]]
HEARTBEAT = MessageVersions(0, 4, 12, 4, HEADERS)


@pytest.mark.parametrize(
    ("message", "known", "found"),
    [
        (HeartbeatRequest, HEARTBEAT, []),
        (EndTxnMarker, MessageVersions(0, 0), []),
        (HeartbeatRequest, HEARTBEAT._replace(highest=5), ["has versions 0-4, Java's 0-5"]),
        (HeartbeatRequest, HEARTBEAT._replace(lowest=1), ["has versions 0-4, Java's 1-4"]),
        (HeartbeatRequest, HEARTBEAT._replace(key=13), ["has key 12, Java's 13"]),
        (HeartbeatRequest, HEARTBEAT._replace(stable=3), ["is released up to 4, Java's up to 3"]),
    ],
)
def test_reports_other_versions_and_keys(
    message: type[Message], known: MessageVersions, found: list[str]
) -> None:
    assert list(version_differences(message, known)) == found


@pytest.mark.parametrize(
    ("message", "version", "headers"),
    [
        *((HeartbeatRequest, version, headers) for version, headers in enumerate(HEADERS)),
        *((HeartbeatResponse, version, headers) for version, headers in enumerate(HEADERS)),
        (ApiVersionsRequest, 3, [2, 0]),
        (ApiVersionsResponse, 3, [2, 0]),
    ],
)
def test_frames_have_header_version_of_java(
    message: type[Message], version: int, headers: Sequence[int], seeded: int
) -> None:
    assert list(frame_differences(message, version, headers, seeded)) == []


@pytest.mark.parametrize("message", [HeartbeatRequest, HeartbeatResponse])
def test_reports_other_header_version(message: type[Message]) -> None:
    differ, unread = frame_differences(message, 4, [1, 0], 1)
    assert differ.startswith("the frames, ours and Java's, differ at byte ")
    assert unread.startswith("we refuse a frame as Java would write it: ")
