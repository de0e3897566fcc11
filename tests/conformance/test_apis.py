"""Comparison of versions and frames with Java's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafka_async.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafka_async.protocol.messages.end_txn_marker import EndTxnMarker
from kafka_async.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tools.conformance.apis import frame_differences, version_differences
from tools.conformance.messages_java import MessageVersions

if TYPE_CHECKING:
    from kafka_async.protocol.message import Message

HEADERS = {0: (1, 0), 1: (1, 0), 2: (1, 0), 3: (1, 0), 4: (2, 1)}
HEARTBEAT = MessageVersions(0, 4, 12, 4, HEADERS)


def test_equal_versions_have_no_difference() -> None:
    assert list(version_differences(HeartbeatRequest, HEARTBEAT)) == []
    assert list(version_differences(EndTxnMarker, MessageVersions(0, 0, None, None, {}))) == []


@pytest.mark.parametrize(
    ("known", "found"),
    [
        (HEARTBEAT._replace(highest=5), "has versions 0-4, Java's 0-5"),
        (HEARTBEAT._replace(lowest=1), "has versions 0-4, Java's 1-4"),
        (HEARTBEAT._replace(key=13), "has key 12, Java's 13"),
        (HEARTBEAT._replace(stable=3), "is released up to 4, Java's up to 3"),
    ],
)
def test_reports_other_versions_and_keys(known: MessageVersions, found: str) -> None:
    assert list(version_differences(HeartbeatRequest, known)) == [found]


@pytest.mark.parametrize("message", [HeartbeatRequest, HeartbeatResponse])
@pytest.mark.parametrize("version", HEADERS)
def test_frames_have_header_version_of_java(
    message: type[Message], version: int, seeded: int
) -> None:
    assert list(frame_differences(message, version, HEARTBEAT, seeded)) == []


def test_api_versions_response_has_header_version_0(seeded: int) -> None:
    known = MessageVersions(0, 5, 18, 5, {3: (2, 0)})
    assert list(frame_differences(ApiVersionsRequest, 3, known, seeded)) == []
    assert list(frame_differences(ApiVersionsResponse, 3, known, seeded)) == []


@pytest.mark.parametrize("message", [HeartbeatRequest, HeartbeatResponse])
def test_reports_other_header_version(message: type[Message]) -> None:
    swapped = HEARTBEAT._replace(headers={4: (1, 0)})
    differ, unread = frame_differences(message, 4, swapped, 1)
    assert differ.startswith("the frames, ours and Java's, differ at byte ")
    assert unread.startswith("we refuse a frame as Java would write it: ")
