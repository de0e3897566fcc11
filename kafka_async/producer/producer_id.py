"""Requests the producer id of an idempotent producer without a transactional id."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kafka_async.client.metadata.request_router import AnyBroker
from kafka_async.config import seconds
from kafka_async.errors import RetriableError, raise_for
from kafka_async.foundation.backoff import Backoff
from kafka_async.producer.idempotence import ProducerIdAndEpoch

if TYPE_CHECKING:
    import random

    from kafka_async.client.services import ClientServices
    from kafka_async.config import ProducerConfig

__all__ = ["request_producer_id"]

logger = logging.getLogger("kafka_async.producer")

# The field is ignored without a transactional id; this is the value that Java's client sends.
NO_TRANSACTION_TIMEOUT_MS = 2**31 - 1


async def request_producer_id(
    config: ProducerConfig, services: ClientServices, rng: random.Random
) -> ProducerIdAndEpoch:
    """Return a producer id from any broker; raise only errors that are not retriable."""
    from kafka_async.protocol.messages.init_producer_id import InitProducerIdRequest

    request = InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=NO_TRANSACTION_TIMEOUT_MS
    )
    backoff = Backoff(
        seconds(config.retry_backoff_ms), seconds(config.retry_backoff_max_ms), rng=rng
    )
    while True:
        try:
            response = await services.request(request, to=AnyBroker())
            # One of the two permissions is enough (KIP-679).
            raise_for(response.error_code, needs="WRITE on a topic, or IDEMPOTENT_WRITE")
        except RetriableError as error:
            # The sender waits without a limit: the records' own deadlines end the waiting.
            logger.debug("no producer id yet: %s", error)
            await asyncio.sleep(backoff.next())
        else:
            return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
