"""Distinguishes deleted topics from topics that a broker does not have yet."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kafka_async.config import seconds
from kafka_async.errors import RetriableError, UnknownTopicOrPartitionError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kafka_async.client.services import ClientServices

_CONFIRMATIONS = 2
"""Metadata responses in a row without the topic: a broker that has just started may lag."""


async def deleted_topics(
    services: ClientServices, topics: Iterable[str], deadline: float
) -> frozenset[str]:
    """Return the topics that do not exist.

    Raises KafkaTimeoutError if no broker has responded by `deadline` (event loop time), and any
    other error that makes a topic unusable.
    """
    suspects = set(topics)
    for confirmation in range(_CONFIRMATIONS):
        # Another broker may respond by then, or the lagging one has caught up.
        if confirmation:
            await services.lifetime.sleep(seconds(services.config.retry_backoff_ms))
        left = max(0.001, deadline - asyncio.get_running_loop().time())
        metadata = await services.metadata.refresh(topics=suspects, tracked=False, timeout=left)
        errors = {topic: metadata.error(topic) for topic in suspects}
        for error in errors.values():
            if error is not None and not isinstance(error, RetriableError):
                raise error
        suspects = {t for t, e in errors.items() if isinstance(e, UnknownTopicOrPartitionError)}
        if not suspects:
            break
    return frozenset(suspects)
