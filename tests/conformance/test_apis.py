"""Versions and frames: what is compared with Java's, and what a difference looks like."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kafka_async.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafka_async.protocol.messages.end_txn_marker import EndTxnMarker
from kafka_async.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tools.conformance.apis import frame_faults, version_faults
from tools.conformance.judge import Known

if TYPE_CHECKING:
    from kafka_async.protocol.message import Message

HEADERS = {0: (1, 0), 1: (1, 0), 2: (1, 0), 3: (1, 0), 4: (2, 1)}
HEARTBEAT = Known(0, 4, 12, 4, HEADERS)


def test_what_java_knows_alike_has_no_fault() -> None:
    assert list(version_faults(HeartbeatRequest, HEARTBEAT)) == []
    assert list(version_faults(EndTxnMarker, Known(0, 0, None, None, {}))) == []


@pytest.mark.parametrize(
    ("known", "fault"),
    [
        (HEARTBEAT._replace(highest=5), "has versions 0-4, Java's 0-5"),
        (HEARTBEAT._replace(lowest=1), "has versions 0-4, Java's 1-4"),
        (HEARTBEAT._replace(key=13), "has key 12, Java's 13"),
        (HEARTBEAT._replace(stable=3), "is released up to 4, Java's up to 3"),
    ],
)
def test_other_versions_and_keys_are_found(known: Known, fault: str) -> None:
    assert list(version_faults(HeartbeatRequest, known)) == [fault]


@pytest.mark.parametrize("message", [HeartbeatRequest, HeartbeatResponse])
@pytest.mark.parametrize("version", HEADERS)
def test_frames_have_the_header_that_java_names(
    message: type[Message], version: int, seeded: int
) -> None:
    assert list(frame_faults(message, version, HEARTBEAT, seeded)) == []


def test_the_answer_to_api_versions_always_has_the_oldest_header(seeded: int) -> None:
    known = Known(0, 5, 18, 5, {3: (2, 0)})
    assert list(frame_faults(ApiVersionsRequest, 3, known, seeded)) == []
    assert list(frame_faults(ApiVersionsResponse, 3, known, seeded)) == []


@pytest.mark.parametrize("message", [HeartbeatRequest, HeartbeatResponse])
def test_another_header_is_found(message: type[Message]) -> None:
    swapped = HEARTBEAT._replace(headers={4: (1, 0)})
    differ, unread = frame_faults(message, 4, swapped, 1)
    assert differ.startswith("the frames, ours and Java's, differ at byte ")
    assert unread.startswith("we do not read a frame as Java would write it: ")
