"""Options of a reader of `format("kafka_async")`, named as in Spark's Kafka connector."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafka_async.config import ConsumerConfig
from kafka_async.errors import InvalidConfigurationError
from kafka_async.spark.offsets import (
    EARLIEST,
    LATEST,
    Bound,
    ByTimestamp,
    parse_assignment,
    parse_offsets,
    parse_timestamps,
)
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

    from kafka_async.types import TopicPartition

logger = logging.getLogger("kafka_async.spark")

TOPIC_OPTIONS: Final = ("subscribe", "subscribePattern", "assign")
NAMED: Final = {"earliest": EARLIEST, "latest": LATEST}
MS_PER_UNIT: Final = {
    "us": 0.001,
    "ms": 1.0,
    "s": 1_000.0,
    "m": 60_000.0,
    "min": 60_000.0,
    "h": 3_600_000.0,
    "d": 86_400_000.0,
}
"""Units of Spark's time strings."""

# Spark's connector rejects these options too.
REFUSED: Final = {
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.enable.auto.commit": "use commitGroupId to commit the progress of a streaming query",
    "kafka.interceptor.classes": "interceptors are Java classes",
    "kafka.key.deserializer": "columns are bytes: cast them in Spark",
    "kafka.value.deserializer": "columns are bytes: cast them in Spark",
}
BATCH_ONLY: Final = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
STREAM_ONLY: Final = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "commitGroupId",
)
MAX_PARTITION_FETCH_BYTES: Final = 4 * 2**20
"""Default of max_partition_fetch_bytes, and so of a response: a task reads one partition."""
FETCH_MAX_WAIT_MS: Final = 10
"""Time that brokers wait for data, unless kafka.fetch.max.wait.ms is given.

A task may end with a fetch in flight behind the partition's last record, and the next task of the
process waits for its response. With the client's default of 500 ms, 3,000,000 records of 100 B in 6
partitions take four times as long.
"""


@dataclass(frozen=True)
class SourceOptions:
    """Holds a reader's options; exactly one of `topics`, `pattern` and `partitions` is set.

    Attributes:
        properties: Options of the client.
        topics: Topics to read.
        pattern: Regular expression of the topics to read.
        partitions: Partitions to read.
        starting: First offsets.
        ending: Offsets after the last ones of a batch read.
        include_headers: Whether to read the column headers.
        min_partitions: Desired number of tasks.
        max_records: Maximum offsets of a task.
        fail_on_data_loss: Whether lost records raise DataLossError.
        max_rows_per_trigger: Offsets of a micro-batch.
        min_rows_per_trigger: Offsets that a micro-batch waits for.
        max_trigger_delay: Maximum time to wait for them, in seconds.
        max_bytes_per_trigger: Estimated bytes of a micro-batch.
        commit_group_id: Consumer group that a streaming query's progress is committed to.
        attempts: Look-ups of offsets before an implausible result is accepted.
        retry_interval: Time between look-ups, in seconds.
        poll_timeout: Time without data after which a task fails, in seconds.
    """

    properties: Properties[ConsumerConfig]
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] | None = None
    starting: Bound = EARLIEST
    ending: Bound = LATEST
    include_headers: bool = False
    min_partitions: int | None = None
    max_records: int | None = None
    fail_on_data_loss: bool = True
    max_rows_per_trigger: int | None = None
    min_rows_per_trigger: int | None = None
    max_trigger_delay: float = 900.0
    max_bytes_per_trigger: int | None = None
    commit_group_id: str | None = None
    attempts: int = 3
    retry_interval: float = 1.0
    poll_timeout: float = 120.0

    def config(self) -> ConsumerConfig:
        """Return a consumer's configuration; read the secrets in this process."""
        return self.properties.config()


def source_options(options: Mapping[str, str], *, streaming: bool = False) -> SourceOptions:
    """Parse and check a reader's options; raise InvalidConfigurationError for a bad one.

    Args:
        options: The options, in any letter case.
        streaming: Whether they are for a streaming query.
    """
    options = hide_option_secrets(options)
    own = own_options(options)
    named = [name for name in TOPIC_OPTIONS if name in own]
    if len(named) != 1:
        raise InvalidConfigurationError(
            "say what to read with exactly one of the options subscribe, subscribePattern and "
            f"assign; {' and '.join(named) or 'none'} is given"
        )
    _check_use(own, streaming=streaming)
    topics = tuple(t.strip() for t in own.get("subscribe", "").split(",") if t.strip())
    if "subscribe" in own and not topics:
        raise InvalidConfigurationError("subscribe names no topic", option="subscribe")
    properties = {
        "fetch_max_wait_ms": FETCH_MAX_WAIT_MS,
        "max_partition_fetch_bytes": MAX_PARTITION_FETCH_BYTES,
        **client_options(options, REFUSED),
        "auto_offset_reset": "none",
    }
    of_group = [properties.pop(name, None) for name in ("group_id", "group_instance_id")]
    if any(value is not None for value in of_group) or "groupIdPrefix" in own:
        logger.warning("kafka.group.id and groupIdPrefix have no effect: the source joins no group")
    least, most = count(own, "minOffsetsPerTrigger"), count(own, "maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise InvalidConfigurationError(
            f"minOffsetsPerTrigger={least} is above maxOffsetsPerTrigger={most}",
            option="minOffsetsPerTrigger",
        )
    attempts, interval = count(own, "fetchOffset.numRetries"), count(own, _INTERVAL, low=0)
    timeout = count(own, "kafkaConsumer.pollTimeoutMs")
    with names_as_given(options):
        consumer = Properties(ConsumerConfig, properties)
    return SourceOptions(
        properties=consumer,
        topics=topics or None,
        pattern=_pattern(own),
        partitions=tuple(parse_assignment(own["assign"])) if "assign" in own else None,
        starting=_starting(own, streaming=streaming),
        ending=_ending(own),
        include_headers=flag(own, "includeHeaders", default=False),
        min_partitions=count(own, "minPartitions"),
        max_records=count(own, "maxRecordsPerPartition"),
        fail_on_data_loss=flag(own, "failOnDataLoss", default=True),
        max_rows_per_trigger=most,
        min_rows_per_trigger=least,
        max_trigger_delay=_duration(own, "maxTriggerDelay", default=900.0),
        max_bytes_per_trigger=count(own, "maxBytesPerTrigger"),
        commit_group_id=own.get("commitGroupId"),
        attempts=3 if attempts is None else attempts,
        retry_interval=1.0 if interval is None else interval / 1000,
        poll_timeout=120.0 if timeout is None else timeout / 1000,
    )


_INTERVAL: Final = "fetchOffset.retryIntervalMs"


def _check_use(own: Mapping[str, str], *, streaming: bool) -> None:
    for name in BATCH_ONLY:
        if streaming and name in own:
            raise InvalidConfigurationError(
                f"{name} is for batch reads: a streaming query has no end; with "
                "trigger(availableNow=True) it ends at the offsets that are the latest at its start"
            )
    for name in STREAM_ONLY:
        if not streaming and name in own:
            logger.warning("%s has no effect on a batch read", name)


def _pattern(own: Mapping[str, str]) -> str | None:
    pattern = own.get("subscribePattern")
    if pattern is None:
        return None
    pattern = pattern.strip()
    try:
        re.compile(pattern)
    except re.error as error:
        raise InvalidConfigurationError(
            f"subscribePattern={pattern!r} is not a regular expression of Python: {error}"
        ) from error
    if not pattern:
        raise InvalidConfigurationError("subscribePattern is empty")
    return pattern


def _starting(own: Mapping[str, str], *, streaming: bool) -> Bound:
    strategy = own.get("startingOffsetsByTimestampStrategy", "error").strip().lower()
    if strategy not in ("error", "latest"):
        raise InvalidConfigurationError(
            f"startingOffsetsByTimestampStrategy={strategy!r} is neither error nor latest"
        )
    bound = _bound(own, "starting", LATEST if streaming else EARLIEST, strategy == "latest")
    if not streaming and LATEST in _offsets_of(bound):
        raise InvalidConfigurationError(
            "startingOffsets of a batch read cannot be the latest (-1), because it would read "
            "nothing: use earliest, offsets or startingTimestamp"
        )
    return bound


def _ending(own: Mapping[str, str]) -> Bound:
    bound = _bound(own, "ending", LATEST, latest_if_none=True)
    if EARLIEST in _offsets_of(bound):
        raise InvalidConfigurationError(
            "endingOffsets cannot be the earliest (-2), because nothing would be read: use latest, "
            "offsets or endingTimestamp"
        )
    return bound


def _bound(own: Mapping[str, str], side: str, default: int, latest_if_none: bool) -> Bound:
    """Return a bound; timestamps have precedence over offsets, as in Spark's connector."""
    timestamp = count(own, f"{side}Timestamp", low=0)
    if timestamp is not None:
        return ByTimestamp(timestamp, latest_if_none)
    option = f"{side}OffsetsByTimestamp"
    if option in own:
        return ByTimestamp(parse_timestamps(own[option], option), latest_if_none)
    option = f"{side}Offsets"
    text = own.get(option)
    if text is None:
        return default
    if text.strip().lower() in NAMED:
        return NAMED[text.strip().lower()]
    return parse_offsets(text, option)


def _offsets_of(bound: Bound) -> set[int]:
    if isinstance(bound, ByTimestamp):
        return set()
    return {bound} if isinstance(bound, int) else set(bound.values())


def _duration(own: Mapping[str, str], option: str, *, default: float) -> float:
    """Return an option such as 90s or 15m in seconds; a bare number is in milliseconds."""
    text = own.get(option)
    if text is None:
        return default
    match = re.fullmatch(r"([0-9]+)\s*([a-z]*)", text.strip().lower())
    if match is None or (match[2] or "ms") not in MS_PER_UNIT:
        raise InvalidConfigurationError(
            f"{option}={text!r} is not a time: write a number and {', '.join(MS_PER_UNIT)}"
        )
    return int(match[1]) * MS_PER_UNIT[match[2] or "ms"] / 1000
