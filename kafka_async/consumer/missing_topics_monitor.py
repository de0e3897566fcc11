"""Checks regularly if the topics and partitions of a consumer exist, and logs warnings."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kafka_async.config import seconds
from kafka_async.consumer.missing_topics import MissingTopics

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from kafka_async.client.services import ClientServices
    from kafka_async.config import ReaderConfig
    from kafka_async.errors import KafkaError
    from kafka_async.types import TopicPartition

logger = logging.getLogger("kafka_async.consumer")


class MissingTopicsMonitor:
    """Warns of missing topics and partitions, and provides the error for polls.

    Args:
        services: Services of the client.
        name: Name of the consumer, for warnings.
        config: Options of the consumer.
        creates: True if the consumer may create topics.
        wanted: Returns the topics and partitions that the consumer reads.
        is_denied: Returns True if a poll has raised the topic's missing permission, which is still
            missing.
        on_error: Called when `take_error` has an error.
    """

    def __init__(
        self,
        services: ClientServices,
        name: str,
        config: ReaderConfig,
        *,
        creates: bool,
        wanted: Callable[[], tuple[Collection[str], Collection[TopicPartition]]],
        is_denied: Callable[[str], bool],
        on_error: Callable[[], None],
    ) -> None:
        self._metadata = services.metadata
        self._name = name
        self._wanted = wanted
        self._on_error = on_error
        self._loop = asyncio.get_running_loop()
        limit = seconds(config.default_api_timeout_ms)
        self._missing = MissingTopics(creates=creates, limit=limit, is_denied=is_denied)
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def current_error(self) -> KafkaError | None:
        """One error for all that is missing now, or None."""
        return self._missing.current_error

    def take_error(self) -> KafkaError | None:
        """Return an error that was not returned before, or None."""
        return self._missing.take_error()

    def check(self) -> None:
        """Log the warnings that are due, and set a timer for the next check."""
        # Metadata updates call this too; the timer is set anew from the result.
        self._cancel_timer()
        if self._closed:
            return
        warnings = self._missing.update(*self._wanted(), self._metadata.snapshot, self._loop.time())
        for warning in warnings:
            logger.warning("%s: %s", self._name, warning)
            # Otherwise a topic that was created since might be noticed only at metadata_max_age_ms.
            self._metadata.request_update()
        if self._missing.has_new_error:
            self._on_error()
        check_at = self._missing.next_check_at()
        if check_at is not None:
            self._timer = self._loop.call_at(check_at, self.check)

    def close(self) -> None:
        """End the checks."""
        self._closed = True
        self._cancel_timer()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
