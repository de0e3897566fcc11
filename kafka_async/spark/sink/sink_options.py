"""Options of a writer of `format("kafka_async")`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafka_async.config import ProducerConfig
from kafka_async.errors import InvalidConfigurationError
from kafka_async.spark.options import (
    client_options,
    count,
    flag,
    hide_option_secrets,
    names_as_given,
    own_options,
)
from kafka_async.spark.properties import Properties

if TYPE_CHECKING:
    from collections.abc import Mapping

# Spark's connector rejects the serializers too.
REFUSED: Final = {
    "kafka.key.serializer": "columns are bytes: cast them in Spark",
    "kafka.value.serializer": "columns are bytes: cast them in Spark",
    "kafka.transactional.id": "use exactlyOnce and sinkId",
}
EXACTLY_ONCE: Final = ("sinkId", "writeId", "ledgerTopic", "transactionTimeoutMs")
DEFAULT_LEDGER_TOPIC: Final = "kafka-async-spark-ledger"
DEFAULT_TRANSACTION_TIMEOUT_MS: Final = 900_000
"""The brokers' default of transaction.max.timeout.ms."""
_SINK_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")


@dataclass(frozen=True)
class SinkOptions:
    """Holds a writer's options; `topic` overrides the column of that name.

    `sink_id` is set if `exactly_once` is.
    """

    properties: Properties[ProducerConfig]
    topic: str | None = None
    exactly_once: bool = False
    sink_id: str = ""
    write_id: str | None = None
    ledger_topic: str = DEFAULT_LEDGER_TOPIC
    transaction_timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS

    def config(self, transactional_id: str | None = None) -> ProducerConfig:
        """Return a producer's configuration; read the secrets in this process."""
        if transactional_id is None:
            return self.properties.config()
        return self.properties.config(
            transactional_id=transactional_id, transaction_timeout_ms=self.transaction_timeout_ms
        )


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Parse and check a writer's options; raise InvalidConfigurationError for a bad one."""
    options = hide_option_secrets(options)
    own = own_options(options)
    properties = client_options(options, REFUSED)
    exactly_once = flag(own, "exactlyOnce", default=False)
    if exactly_once:
        _check_exactly_once(own, properties)
    else:
        for option in EXACTLY_ONCE:
            if option in own:
                raise InvalidConfigurationError(
                    f'{option} is an option of exactly-once writes: set exactlyOnce to "true" too',
                    option=option,
                )
    with names_as_given(options):
        producer = Properties(ProducerConfig, properties)
    return SinkOptions(
        producer,
        topic=own.get("topic"),
        exactly_once=exactly_once,
        sink_id=own.get("sinkId", ""),
        write_id=own.get("writeId"),
        ledger_topic=own.get("ledgerTopic", DEFAULT_LEDGER_TOPIC),
        transaction_timeout_ms=count(own, "transactionTimeoutMs") or DEFAULT_TRANSACTION_TIMEOUT_MS,
    )


def _check_exactly_once(own: Mapping[str, str], properties: Mapping[str, object]) -> None:
    sink_id = own.get("sinkId")
    if sink_id is None:
        raise InvalidConfigurationError(
            "exactlyOnce needs the option sinkId: a name that this sink keeps over restarts, and "
            "that no other query uses at the same time",
            option="sinkId",
        )
    if not _SINK_ID.fullmatch(sink_id):
        raise InvalidConfigurationError(
            f"sinkId={sink_id!r} must consist of 1 to 100 letters, digits, dots, underscores and "
            "hyphens",
            option="sinkId",
        )
    if "transaction_timeout_ms" in properties:
        raise InvalidConfigurationError(
            "kafka.transaction.timeout.ms is not allowed with exactlyOnce: use "
            "transactionTimeoutMs",
            option="transaction_timeout_ms",
        )
    if own.get("writeId") == "":
        raise InvalidConfigurationError(
            "writeId is empty: leave it out, or name the write", option="writeId"
        )
