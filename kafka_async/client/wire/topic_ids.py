"""Last versions of requests with topic names, before the versions with topic ids. Pure.

Topic ids come from Metadata, since version 10 (KIP-516). A broker may support newer versions of
another API without topic ids in its metadata, so a request about a topic with an unknown id
contains its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.protocol.wire import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

LAST_VERSION_WITH_NAMES: Final[Mapping[int, int]] = {0: 12, 1: 12, 8: 9, 9: 9, 28: 5}
"""By API key: Produce, Fetch, OffsetCommit, OffsetFetch, TxnOffsetCommit."""


def max_version_for(api_key: int, topic_ids: Iterable[UUID]) -> int | None:
    """Return the upper limit for the version of a request about topics with these ids.

    It is the last version with names if the id of a topic is unknown (the zero UUID), or None if
    there is no limit.
    """
    return LAST_VERSION_WITH_NAMES[api_key] if ZERO_UUID in topic_ids else None
