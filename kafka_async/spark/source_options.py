"""Options of a reader of `format("kafka_async")`, with the names of Spark's Kafka connector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafka_async.config import ConsumerConfig
from kafka_async.errors import InvalidConfigurationError
from kafka_async.spark.offsets import EARLIEST, LATEST, Offsets, parse_assignment, parse_offsets
from kafka_async.spark.options import client_options, count, flag, hide_option_secrets, own_options
from kafka_async.spark.properties import Properties

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafka_async.types import TopicPartition

TOPIC_OPTIONS: Final = ("subscribe", "subscribePattern", "assign")
NAMED: Final = {"earliest": EARLIEST, "latest": LATEST}

# Spark's connector rejects these options too.
REFUSED: Final = {
    "kafka.group.id": "the source joins no group",
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.enable.auto.commit": "the source commits nothing",
    "kafka.key.deserializer": "columns are bytes: cast them in Spark",
    "kafka.value.deserializer": "columns are bytes: cast them in Spark",
}


@dataclass(frozen=True)
class SourceOptions:
    """Holds a reader's options; exactly one of `topics`, `pattern` and `partitions` is set."""

    properties: Properties[ConsumerConfig]
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] | None = None
    starting: Offsets | int = EARLIEST
    ending: Offsets | int = LATEST
    include_headers: bool = False
    min_partitions: int | None = None
    max_records: int | None = None
    fail_on_data_loss: bool = True

    def config(self) -> ConsumerConfig:
        """Return the configuration of a consumer, with secrets read in this process."""
        return self.properties.config()


def source_options(options: Mapping[str, str]) -> SourceOptions:
    """Parse and check a reader's options; InvalidConfigurationError names the option."""
    options = hide_option_secrets(options)
    own = own_options(options)
    named = [name for name in TOPIC_OPTIONS if name in own]
    if len(named) != 1:
        raise InvalidConfigurationError(
            "say what to read with exactly one of the options subscribe, subscribePattern and "
            f"assign; {' and '.join(named) or 'none'} is given"
        )
    topics = tuple(t.strip() for t in own.get("subscribe", "").split(",") if t.strip())
    if "subscribe" in own and not topics:
        raise InvalidConfigurationError("subscribe names no topic")
    properties = {**client_options(options, REFUSED), "auto_offset_reset": "none"}
    return SourceOptions(
        properties=Properties(ConsumerConfig, properties),
        topics=topics or None,
        pattern=own.get("subscribePattern"),
        partitions=tuple(parse_assignment(own["assign"])) if "assign" in own else None,
        starting=_bound(own, "startingOffsets", EARLIEST),
        ending=_bound(own, "endingOffsets", LATEST),
        include_headers=flag(own, "includeHeaders", default=False),
        min_partitions=count(own, "minPartitions"),
        max_records=count(own, "maxRecordsPerPartition"),
        fail_on_data_loss=flag(own, "failOnDataLoss", default=True),
    )


def _bound(own: Mapping[str, str], option: str, default: int) -> Offsets | int:
    text = own.get(option)
    if text is None:
        return default
    if text.lower() in NAMED:
        return NAMED[text.lower()]
    return parse_offsets(text, option)
