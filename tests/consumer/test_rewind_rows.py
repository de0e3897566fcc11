"""Rows of the store of rewinds: requests and replies as metadata of committed offsets."""

from __future__ import annotations

import pytest

from kafka_async.consumer.group.rewind.rewind_store import MAX_REPLIES, RewindRow


def test_row_keeps_the_last_replies() -> None:
    row = RewindRow(7, "a", 10.0)
    for number in range(5):
        row = row.replied(f"request {number}", number)
    assert row.replies == {f"request {number}": number for number in range(5 - MAX_REPLIES, 5)}
    assert RewindRow.decode(7, row.encode()) == row
    assert len(row.replied("b", "x" * 5000).encode()) < 4096


@pytest.mark.parametrize("metadata", ["", "text", "[]", '{"request": 1}', '{"replies": []}'])
def test_row_of_other_metadata_has_no_request(metadata: str) -> None:
    row = RewindRow.decode(3, metadata)
    assert row == RewindRow(3)
    assert not row.is_pending(0.0)


def test_request_is_pending_until_it_has_a_reply_or_expires() -> None:
    row = RewindRow(3, "a", 10.0, {"b": 1})
    assert row.is_pending(9.0)
    assert not row.is_pending(10.0)
    assert not row.replied("a", "no").is_pending(9.0)
