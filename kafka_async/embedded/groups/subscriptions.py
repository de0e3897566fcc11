"""What a coordinator reads of a consumer's metadata: the topics it subscribes to."""

from __future__ import annotations

import struct
from typing import Final

from kafka_async.errors import DecodeError, UnsupportedVersionError
from kafka_async.protocol.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
)

CONSUMER: Final = "consumer"
"""The protocol type of groups of consumers; others may put anything into their metadata."""


def subscribed_topics(metadata: bytes) -> frozenset[str]:
    """The topics of a subscription; none if the bytes are something else."""
    try:
        (version,) = struct.unpack_from(">h", metadata)
        known = min(version, ConsumerProtocolSubscription.VERSIONS.max)
        subscription, _ = ConsumerProtocolSubscription.decode_from(metadata, 2, known)
    except (struct.error, DecodeError, UnsupportedVersionError):
        return frozenset()
    return frozenset(subscription.topics)
