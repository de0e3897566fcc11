"""Lets one of several processes write: a transactional producer for the leader of a group."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from kafka_async.app.fencing import token_of
from kafka_async.app.lead import Lead
from kafka_async.app.worker_pool import WorkerPool
from kafka_async.config import ClientOptions, GroupMemberOptions, ProducerOptions, hide_secrets
from kafka_async.errors import IllegalStateError, InvalidConfigurationError, KafkaError
from kafka_async.foundation.arguments import text
from kafka_async.producer.producer import Producer, id_and_epoch_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Unpack

    from kafka_async.client.client import Client

__all__ = ["SingleWriter", "SingleWriterOptions"]

logger = logging.getLogger("kafka_async.app")

PRODUCER_OPTIONS: Final = ProducerOptions.__annotations__.keys() - ClientOptions.__annotations__
STOP_TIMEOUT: Final = 5.0
"""Maximum seconds to deliver and close after giving up the lead."""


class SingleWriterOptions(ProducerOptions, GroupMemberOptions, total=False):
    """Options of a `SingleWriter`: producer options and group member options."""


class _SingleWriterPool(WorkerPool):
    _protocol_type = "single-writer"


class SingleWriter(Lead):
    """Lets one of several processes write for the duration of an `async with` block.

        async with SingleWriter("localhost:9092", name="ledger") as writer:
            async with writer.producer.transaction() as txn:
                await txn.enqueue("entries", b"...")

    Entering the block waits until this process is the writer, and fences the former one: its
    transaction is aborted, and its further writes are refused (InitProducerId, KIP-98). The block
    is cancelled and raises LeadershipLostError under the conditions of `LeaderElection`. A former
    writer that was frozen while it was replaced raises a fencing error at its next write.

    Args:
        servers: Addresses of brokers, as "host:port,host:port" or a sequence; or a started
            `Client`: its connections are shared, and stay open.
        name: The name that all processes share. The group and the transactional id are
            "single-writer-" + name.
        **options: Options of `ProducerConfig` without transactional_id, and of `GroupMemberConfig`.
            The default of rebalance_timeout_ms is half of session_timeout_ms.

    Raises:
        InvalidConfigurationError: An option is unknown or its value is invalid.
    """

    def __init__(
        self,
        servers: str | Sequence[str] | Client | None = None,
        /,
        *,
        name: str,
        **options: Unpack[SingleWriterOptions],
    ) -> None:
        servers, options = hide_secrets(servers), hide_secrets(options)
        if "transactional_id" in options:
            raise InvalidConfigurationError(
                "transactional_id is made from the name of a SingleWriter: leave it out",
                option="transactional_id",
            )
        given: dict[str, Any] = {**options}
        self._producer_options = {k: v for k, v in given.items() if k in PRODUCER_OPTIONS}
        self._transactional_id = f"single-writer-{text(name, 'name')}"
        member = {k: v for k, v in given.items() if k not in PRODUCER_OPTIONS}
        super().__init__(servers, _SingleWriterPool, self._transactional_id, **member)
        self._make_producer()  # raises for wrong options
        self._producer: Producer | None = None

    @property
    def producer(self) -> Producer:
        """The transactional producer of the active writer.

        Raises:
            IllegalStateError: This process is not the writer.
        """
        if self._producer is None:
            raise IllegalStateError(f"{self._name} is not the writer: use `async with`")
        return self._producer

    def _make_producer(self) -> Producer:
        return Producer(
            self._pool.client, transactional_id=self._transactional_id, **self._producer_options
        )

    async def _acquire(self) -> int:
        producer = self._make_producer()
        await producer.start()
        self._producer = producer
        return token_of(id_and_epoch_of(producer))

    async def _release(self) -> None:
        producer, self._producer = self._producer, None
        if producer is None:
            return
        try:
            await producer.stop(STOP_TIMEOUT)
        except KafkaError as error:  # another writer has aborted its transaction
            logger.info("%s: records were not delivered: %s", self._name, error)
