"""Options of `format("kafka_async")`, with the names of Spark's Kafka connector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kafka_async.config import ConsumerConfig, ProducerConfig, hide_secret
from kafka_async.errors import InvalidConfigurationError
from kafka_async.spark.offsets import EARLIEST, LATEST, Offsets, parse_assignment, parse_offsets
from kafka_async.spark.properties import Properties, option_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafka_async.types import TopicPartition

SOURCES: Final = ("subscribe", "subscribePattern", "assign")
KNOWN: Final = (
    *SOURCES,
    "startingOffsets",
    "endingOffsets",
    "includeHeaders",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "topic",
)
NAMED: Final = {"earliest": EARLIEST, "latest": LATEST}

# Spark's connector rejects these options too.
FORBIDDEN: Final = {
    "kafka.group.id": "the source joins no group",
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.enable.auto.commit": "the source commits nothing",
    "kafka.key.deserializer": "columns are bytes: cast them in Spark",
    "kafka.value.deserializer": "columns are bytes: cast them in Spark",
    "kafka.key.serializer": "columns are bytes: cast them in Spark",
    "kafka.value.serializer": "columns are bytes: cast them in Spark",
    "kafka.transactional.id": "the sink is at-least-once",
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


@dataclass(frozen=True)
class SinkOptions:
    """Holds a writer's options; `topic` overrides the column of that name."""

    properties: Properties[ProducerConfig]
    topic: str | None = None

    def config(self) -> ProducerConfig:
        """Return the configuration of a producer, with secrets read in this process."""
        return self.properties.config()


def source_options(options: Mapping[str, str]) -> SourceOptions:
    """Parse and check a reader's options; InvalidConfigurationError names the option."""
    options = _hidden(options)
    given = _given(options)
    named = [name for name in SOURCES if name in given]
    if len(named) != 1:
        raise InvalidConfigurationError(
            "say what to read with exactly one of the options subscribe, subscribePattern and "
            f"assign; {' and '.join(named) or 'none'} is given"
        )
    topics = tuple(t.strip() for t in given.get("subscribe", "").split(",") if t.strip())
    if "subscribe" in given and not topics:
        raise InvalidConfigurationError("subscribe names no topic")
    properties = {**_properties(options), "auto_offset_reset": "none"}
    return SourceOptions(
        properties=Properties(ConsumerConfig, properties),
        topics=topics or None,
        pattern=given.get("subscribePattern"),
        partitions=tuple(parse_assignment(given["assign"])) if "assign" in given else None,
        starting=_bound(given, "startingOffsets", EARLIEST),
        ending=_bound(given, "endingOffsets", LATEST),
        include_headers=_flag(given, "includeHeaders", default=False),
        min_partitions=_count(given, "minPartitions"),
        max_records=_count(given, "maxRecordsPerPartition"),
        fail_on_data_loss=_flag(given, "failOnDataLoss", default=True),
    )


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Parse and check a writer's options; InvalidConfigurationError names the option."""
    options = _hidden(options)
    given = _given(options)
    properties = Properties(ProducerConfig, _properties(options))
    return SinkOptions(properties, topic=given.get("topic"))


def _hidden(options: Mapping[str, str]) -> dict[str, Any]:
    """Return the options with their secrets wrapped."""
    return {
        key: value if (name := option_name(key)) is None else hide_secret(name, value)
        for key, value in options.items()
    }


def _given(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the source's own options with their canonical names; Spark passes any letter case."""
    spelling = {name.lower(): name for name in KNOWN}
    given: dict[str, str] = {}
    for key, value in options.items():
        if key.lower() in spelling:
            given[spelling[key.lower()]] = value
        elif option_name(key) is None and key.lower() != "path":
            raise InvalidConfigurationError(
                f"format kafka_async has no option {key} (yet): it takes kafka.*, "
                "security_protocol, ssl_*, sasl_*, " + ", ".join(KNOWN)
            )
    return given


def _properties(options: Mapping[str, Any]) -> dict[str, object]:
    properties: dict[str, object] = {}
    for key, value in options.items():
        java = key.lower().replace("_", ".").replace("-", ".")
        if java in FORBIDDEN:
            raise InvalidConfigurationError(f"option {key} is not allowed: {FORBIDDEN[java]}")
        name = option_name(key)
        if name in properties:
            raise InvalidConfigurationError(f"option {key} is given twice, under two names")
        if name is not None:
            properties[name] = value
    if "bootstrap_servers" not in properties:
        raise InvalidConfigurationError(
            'option kafka.bootstrap.servers is missing: name a broker, as "localhost:9092"'
        )
    return properties


def _bound(given: Mapping[str, str], option: str, default: int) -> Offsets | int:
    text = given.get(option)
    if text is None:
        return default
    if text.lower() in NAMED:
        return NAMED[text.lower()]
    return parse_offsets(text, option)


def _flag(given: Mapping[str, str], option: str, *, default: bool) -> bool:
    text = given.get(option, str(default)).lower()
    if text not in ("true", "false"):
        raise InvalidConfigurationError(f"{option}={text!r} is neither true nor false")
    return text == "true"


def _count(given: Mapping[str, str], option: str) -> int | None:
    text = given.get(option)
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise InvalidConfigurationError(f"{option}={text!r} is not a number of at least 1")
    return int(text)
