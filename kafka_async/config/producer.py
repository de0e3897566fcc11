"""Options of producers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from kafka_async.config.client import ClientConfig, ClientOptions
from kafka_async.config.hidden import hide_secrets
from kafka_async.config.options import (
    ANY,
    FLAG,
    FUNCTION,
    MAX_INT32,
    MAX_INT64,
    NUMBER,
    OBJECTS,
    SERIALIZER,
    TEXT,
    WHOLE,
    configuration,
    is_whole,
    option,
)
from kafka_async.config.spelling import option_error, spell
from kafka_async.errors import InvalidConfigurationError
from kafka_async.foundation.arguments import PLAIN_FUNCTION, is_async

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from kafka_async.config.option_types import Compression, Partitioner, Serializer

logger = logging.getLogger("kafka_async.config")

_LEVELS: Final = {"gzip": (-1, 9), "lz4": (0, 17), "zstd": (-131_072, 22)}
"""Lowest and highest `compression_level` of the codecs that have levels (KIP-390)."""


def _check_partitioner(partitioner: object) -> None:
    if is_async(partitioner):
        raise option_error(
            "partitioner", f" is async, and is called without waiting: {PLAIN_FUNCTION}"
        )


class ProducerOptions(ClientOptions, total=False):
    """Names the keyword arguments of a producer; see `ProducerConfig`."""

    acks: Literal[0, 1, -1, "all"]
    linger_ms: float
    batch_size: int
    buffer_memory: int
    max_block_ms: float
    delivery_timeout_ms: float
    max_in_flight_requests_per_connection: int
    max_request_size: int
    compression_type: Compression
    compression_level: int | None
    enable_idempotence: bool
    transactional_id: str | None
    transaction_timeout_ms: int
    partitioner: Partitioner | None
    partitioner_adaptive_partitioning_enable: bool
    partitioner_availability_timeout_ms: float
    metadata_max_idle_ms: float
    interceptors: Sequence[Any]
    key_serializer: Serializer | None
    value_serializer: Serializer | None


@configuration("producer")
class ProducerConfig(ClientConfig):
    """Holds the options of a producer; its arguments are like those of `ClientConfig`."""

    acks: Any = option(
        ANY,
        "all",
        "Replicas that must have written a record before it is acknowledged.",
        choices=(0, 1, -1, "all"),
    )
    linger_ms: float = option(
        NUMBER,
        5,
        "Maximum time to wait for more records before sending a batch. A batch with a delivery "
        "that a task awaits is sent as soon as its partition has no request in flight.",
        low=0,
    )
    batch_size: int = option(
        WHOLE,
        128 * 1024,
        "Maximum bytes of a batch before compression.",
        low=0,
        high=MAX_INT32,
        java=16_384,
        why="fewer, larger requests; memory is bounded by buffer_memory either way",
    )
    buffer_memory: int = option(
        WHOLE,
        32 * 2**20,
        "Maximum bytes of records that are not acknowledged yet.",
        low=1,
        high=MAX_INT64,
    )
    max_block_ms: float = option(
        NUMBER,
        60_000,
        "Maximum time that enqueue waits for memory, and a call for metadata.",
        low=0,
    )
    delivery_timeout_ms: float = option(
        NUMBER,
        120_000,
        "Maximum time from enqueue to the outcome, retries included (KIP-91).",
        low=1,
    )
    max_in_flight_requests_per_connection: int = option(
        WHOLE, 5, "Maximum produce requests in flight on one connection.", low=1, high=1000
    )
    max_request_size: int = option(
        WHOLE, 2**20, "Maximum bytes of a request, and of a record.", low=1, high=MAX_INT32
    )
    compression_type: str = option(
        TEXT, "none", "Codec of record batches.", choices=("none", "gzip", "snappy", "lz4", "zstd")
    )
    compression_level: int | None = option(
        WHOLE,
        None,
        "Level of the codec; None: its default (KIP-390).",
        why="Java has an option for each codec",
    )
    enable_idempotence: bool = option(
        FLAG, True, "Write each record exactly once and in order (KIP-98)."
    )
    transactional_id: str | None = option(
        TEXT, None, "Id of a transactional producer, which stays the same after a restart (KIP-98)."
    )
    transaction_timeout_ms: int = option(
        WHOLE,
        60_000,
        "Time after which the coordinator aborts an open transaction.",
        low=1,
        high=MAX_INT32,
    )
    partitioner: Partitioner | None = option(
        FUNCTION,
        None,
        "Function of (topic, key, number of partitions) that returns the partition; None: murmur2 "
        "of the key, or sticky without a key.",
        check=_check_partitioner,
        why="a function in place of Java's partitioner.class",
    )
    partitioner_adaptive_partitioning_enable: bool = option(
        FLAG,
        True,
        "Send fewer records without a key to partitions with long queues (KIP-794). Without effect "
        "with a partitioner.",
    )
    partitioner_availability_timeout_ms: float = option(
        NUMBER,
        0,
        "Time for which a broker may accept none of the batches that wait for it, before records "
        "without a key go to partitions of other brokers (KIP-794); 0: no limit. Without effect "
        "with a partitioner, and without partitioner_adaptive_partitioning_enable.",
        low=0,
    )
    metadata_max_idle_ms: float = option(
        NUMBER,
        300_000,
        "Time after its last record from which on the metadata of a topic is no longer refreshed "
        "(KIP-526); its next record fetches it again.",
        low=5_000,
    )
    interceptors: tuple[Any, ...] = option(
        OBJECTS,
        (),
        "Objects of classes derived from kafka_async.producer.interceptors.ProducerInterceptor, "
        "which change records and learn their outcome (KIP-42).",
        why="objects in place of Java's interceptor.classes",
    )
    key_serializer: Serializer | None = option(
        SERIALIZER,
        None,
        "Function of (key) or (topic, headers, key) that returns bytes or str, or an object of "
        "kafka_async.serde.",
        why="a function in place of Java's class; without one, keys are bytes",
    )
    value_serializer: Serializer | None = option(
        SERIALIZER,
        None,
        "Function of (value) or (topic, headers, value) that returns bytes or str, or an object of "
        "kafka_async.serde.",
        why="a function in place of Java's class; without one, values are bytes",
    )

    def __init__(
        self, servers: str | Sequence[str] = (), /, **options: Unpack[ProducerOptions]
    ) -> None:
        servers, options = hide_secrets(servers), hide_secrets(options)
        self._set(servers, options)

    @classmethod
    def _read_java(cls, given: dict[str, object]) -> None:
        levels = {codec: given.pop(f"compression_{codec}_level", None) for codec in _LEVELS}
        codec = given.get("compression_type")
        level = levels.get(codec) if isinstance(codec, str) else None
        if level is not None:
            if "compression_level" in given:
                own = f"compression_{codec}_level"
                raise option_error(own, f" and {spell('compression_level')} are the same: give one")
            given["compression_level"] = level

    @classmethod
    def _complete(cls, options: dict[str, object]) -> None:
        """Turn idempotence off for acks of 0 and 1, unless it was set explicitly (KIP-679).

        With a transactional id it stays on, so that the error names acks and transactional_id.
        """
        if options.keys() & {"enable_idempotence", "transactional_id"}:
            return
        if (acks := options.get("acks")) in (0, 1) and is_whole(acks):
            options["enable_idempotence"] = False
            logger.info(
                "idempotence is off, since acks=%d excludes it: set %s to say so, or %s",
                acks,
                spell("enable_idempotence", False),
                spell("acks", "all"),
            )

    def _check_together(self) -> None:
        super()._check_together()
        low, high = _LEVELS.get(self.compression_type, (-MAX_INT32, MAX_INT32))
        if self.compression_level is not None and not low <= self.compression_level <= high:
            raise option_error(
                "compression_level",
                f" must be from {low} to {high} for "
                f"{spell('compression_type', self.compression_type)}",
                value=repr(self.compression_level),
            )
        if self.transactional_id is not None and not self.enable_idempotence:
            raise option_error(
                "transactional_id",
                f" needs {spell('enable_idempotence', True)}: leave {spell('enable_idempotence')} "
                "out",
            )
        if self.transactional_id is not None and self.acks not in ("all", -1):
            raise option_error(
                "acks",
                f" contradicts {spell('transactional_id')}, which needs {spell('acks', 'all')}: "
                f"leave {spell('acks')} out",
                value=repr(self.acks),
            )
        if self.enable_idempotence and self.acks not in ("all", -1):
            raise option_error(
                "acks",
                f" contradicts {spell('enable_idempotence', True)}: take {spell('acks', 'all')}, "
                f"or {spell('enable_idempotence', False)}",
                value=repr(self.acks),
            )
        if self.enable_idempotence and self.max_in_flight_requests_per_connection > 5:
            limit = "max_in_flight_requests_per_connection"
            raise InvalidConfigurationError(
                f"{spell('enable_idempotence', True)} allows at most {spell(limit, 5)}, since "
                f"brokers remember five batches: lower it, or {spell('enable_idempotence', False)}",
                option=limit,
            )
        if self.delivery_timeout_ms < self.linger_ms + self.request_timeout_ms:
            raise option_error(
                "delivery_timeout_ms",
                f" must be at least {spell('linger_ms')} + {spell('request_timeout_ms')}",
            )
