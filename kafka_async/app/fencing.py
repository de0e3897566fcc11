"""Fencing tokens: numbers that grow with each holder, from producer ids and epochs.

The coordinator of a transactional id responds to each InitProducerId with a higher epoch, and with
a new producer id when the epochs are used up. Producer id and epoch together are therefore a
growing number that is unique to a holder and does not depend on clocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kafka_async.client.client import services_of
from kafka_async.client.metadata.request_router import CoordinatorOfTransactionalId
from kafka_async.errors import RetriableError, error_for
from kafka_async.producer.idempotence import ProducerIdAndEpoch
from kafka_async.protocol.messages.init_producer_id import InitProducerIdRequest

if TYPE_CHECKING:
    from kafka_async.client.client import Client

TRANSACTION_TIMEOUT_MS: Final = 60_000
"""Transaction time-out, which InitProducerId requires; no transaction is begun."""


async def fence(client: Client, transactional_id: str) -> ProducerIdAndEpoch:
    """Obtain a new epoch of a transactional id; raise only errors that are not retriable."""
    services = services_of(client)
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
    )
    backoff = services.retry_backoff()
    while True:
        try:
            # Retries until cancelled: while the coordinator is unavailable, no other holder can
            # obtain an epoch either.
            response = await services.request(
                request, to=CoordinatorOfTransactionalId(transactional_id)
            )
            if response.error_code:
                raise error_for(response.error_code, needs="WRITE", name=transactional_id)
        except RetriableError:
            await services.lifetime.sleep(backoff.next())
        else:
            return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)


def token_of(id_and_epoch: ProducerIdAndEpoch) -> int:
    """Return the fencing token: the producer id above the 16 bits of the epoch."""
    return id_and_epoch.producer_id << 16 | id_and_epoch.epoch
