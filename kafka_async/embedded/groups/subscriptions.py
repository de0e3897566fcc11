"""Topics of a consumer's subscription, from its metadata."""

from __future__ import annotations

import struct
from typing import Final

from kafka_async.errors import DecodeError, UnsupportedVersionError
from kafka_async.protocol.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
)

CONSUMER: Final = "consumer"
"""Protocol type of consumer groups; the metadata of other groups has another format."""


def subscribed_topics(metadata: bytes) -> frozenset[str]:
    """Return the topics of a subscription; empty if the bytes are not a subscription."""
    try:
        (version,) = struct.unpack_from(">h", metadata)
        known = min(version, ConsumerProtocolSubscription.VERSIONS.max)
        subscription, _ = ConsumerProtocolSubscription.decode_from(metadata, 2, known)
    except (struct.error, DecodeError, UnsupportedVersionError):
        return frozenset()
    return frozenset(subscription.topics)
