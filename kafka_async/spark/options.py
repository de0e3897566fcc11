"""Parses the data source options that reader and writer share.

Each accepts the other's options, so that one set of options can read and write; unknown options are
refused.
"""

from __future__ import annotations

import dataclasses
import difflib
from typing import TYPE_CHECKING, Any, Final

from kafka_async.config import ClientConfig, ConsumerConfig, ProducerConfig, hide_secret
from kafka_async.config.spelling import PropertyNames, options_written_as, with_dots
from kafka_async.errors import InvalidConfigurationError
from kafka_async.spark.properties import PREFIX, option_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from contextlib import AbstractContextManager

SOURCE_OPTIONS: Final = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "includeHeaders",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "commitGroupId",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
SINK_OPTIONS: Final = (
    "topic",
    "checkpointLocation",
    "exactlyOnce",
    "sinkId",
    "writeId",
    "ledgerTopic",
    "transactionTimeoutMs",
)
SPARK_OPTIONS: Final = ("path", "queryName")
"""Options that Spark may add; `queryName` is a streaming query's name."""
_CLIENT_OPTIONS: Final = {
    name: f"kafka.{name}"
    for role in (ClientConfig, ConsumerConfig, ProducerConfig)
    for name in (with_dots(row.name) for row in dataclasses.fields(role))
}
"""Options of the Kafka client by Java's names, to suggest for a name without the prefix."""


def hide_option_secrets(options: Mapping[str, str]) -> dict[str, Any]:
    """Return the options with their secrets wrapped."""
    return {
        key: value if (name := option_name(key)) is None else hide_secret(name, value)
        for key, value in options.items()
    }


def own_options(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the data source's own options with canonical names; letter case does not count.

    Raises:
        InvalidConfigurationError: An option is unknown.
    """
    spelling = {name.lower(): name for name in (*SOURCE_OPTIONS, *SINK_OPTIONS, *SPARK_OPTIONS)}
    own: dict[str, str] = {}
    for key, value in options.items():
        if key.lower() in spelling:
            own[spelling[key.lower()]] = value
        elif option_name(key) is None:
            names = spelling | _CLIENT_OPTIONS
            near = difflib.get_close_matches(key.lower().replace("_", "."), names, 1)
            hint = f"did you mean {names[near[0]]}?" if near else "docs/spark.md lists them"
            raise InvalidConfigurationError(
                f"format kafka_async has no option {key}: {hint}", option=key
            )
    return own


def names_as_given(options: Iterable[str]) -> AbstractContextManager[None]:
    """Spell client options in errors of the block as the options of the data source."""
    written = {name: key for key in options if (name := option_name(key))}
    return options_written_as(PropertyNames(written, prefix=PREFIX, takes_objects=False))


def client_options(options: Mapping[str, Any], refused: Mapping[str, str]) -> dict[str, object]:
    """Return the options of the Kafka client, with underscores.

    Args:
        options: All options.
        refused: By Java's name of an option that the data source sets: the reason to refuse it.

    Raises:
        InvalidConfigurationError: An option is refused or given twice, or the servers are missing.
    """
    properties: dict[str, object] = {}
    for key, value in options.items():
        java = key.lower().replace("_", ".").replace("-", ".")
        if java in refused:
            raise InvalidConfigurationError(
                f"option {key} is not allowed: {refused[java]}", option=option_name(key) or key
            )
        name = option_name(key)
        if name in properties:
            raise InvalidConfigurationError(
                f"option {key} is given twice, under two names", option=name
            )
        if name is not None:
            properties[name] = value
    if "bootstrap_servers" not in properties:
        raise InvalidConfigurationError(
            'option kafka.bootstrap.servers is missing: name a broker, as "localhost:9092"',
            option="bootstrap_servers",
        )
    return properties


def flag(own: Mapping[str, str], option: str, *, default: bool) -> bool:
    """Return an option that is true or false."""
    text = own.get(option, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise InvalidConfigurationError(
            f"{option}={text!r} is neither true nor false", option=option
        )
    return text == "true"


def count(own: Mapping[str, str], option: str, *, low: int = 1) -> int | None:
    """Return an option as an integer of at least `low`, or None if it is not given."""
    text = own.get(option)
    if text is None:
        return None
    text = text.strip()
    if not (text.isascii() and text.isdecimal()) or int(text) < low:
        raise InvalidConfigurationError(
            f"{option}={text!r} is not a number of at least {low}", option=option
        )
    return int(text)
