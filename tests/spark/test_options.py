"""Tests of the options of format("kafka_async")."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.config import ConsumerConfig, ProducerConfig
from kafka_async.errors import InvalidConfigurationError
from kafka_async.spark.offsets import EARLIEST, LATEST, ByTimestamp
from kafka_async.spark.options import SOURCE_OPTIONS
from kafka_async.spark.sink.sink_options import sink_options
from kafka_async.spark.source.source_options import source_options
from kafka_async.types import TopicPartition
from tests.rows import row
from tests.test_config import JAVA_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def test_page_describes_every_option() -> None:
    page = (Path(__file__).parents[2] / "docs/spark.md").read_text("utf-8")
    assert [name for name in SOURCE_OPTIONS if f"`{name}`" not in page] == []


def test_defaults_match_a_batch_read() -> None:
    options = source_options({**SERVERS, "subscribe": "a, b"})
    assert options.topics == ("a", "b")
    assert (options.starting, options.ending) == (EARLIEST, LATEST)
    assert not options.include_headers
    assert options.fail_on_data_loss
    assert options.config().bootstrap_servers == ("localhost:9092",)
    assert options.config().auto_offset_reset == "none"


def test_tasks_do_not_wait_long_for_the_fetch_of_the_task_before() -> None:
    options = {**SERVERS, "subscribe": "a"}
    assert source_options(options).config().fetch_max_wait_ms == 10
    options["kafka.fetch.max.wait.ms"] = "250"
    assert source_options(options).config().fetch_max_wait_ms == 250


def test_tasks_fetch_more_of_their_partition_than_other_consumers() -> None:
    options = {**SERVERS, "subscribe": "a"}
    assert source_options(options).config().max_partition_fetch_bytes == 4 * 2**20
    options["kafka.max.partition.fetch.bytes"] = "65536"
    assert source_options(options).config().max_partition_fetch_bytes == 65536


def test_option_names_are_case_insensitive() -> None:
    options = source_options(
        {
            "KAFKA.BOOTSTRAP.SERVERS": "a:1",
            "assign": '{"t":[3]}',
            "startingoffsets": '{"t":{"3":5}}',
            "ENDINGOFFSETS": "latest",
            "includeheaders": "TRUE",
            "minpartitions": "8",
            "maxrecordsperpartition": "1000",
            "kafka.isolation.level": "read_committed",
        }
    )
    assert options.partitions == (TopicPartition("t", 3),)
    assert options.starting == {TopicPartition("t", 3): 5}
    assert options.include_headers
    assert (options.min_partitions, options.max_records) == (8, 1000)
    assert options.config().isolation_level == "read_committed"


def test_error_names_the_invalid_option() -> None:
    for options, named in [
        ({}, "subscribe"),
        ({"subscribe": "a", "assign": '{"a":[0]}'}, "subscribe and assign"),
        ({"subscribe": " , "}, "names no topic"),
        ({"subscribe": "a", "startingOffset": "1"}, "did you mean startingOffsets?"),
        ({"subscribe": "a", "kafka.auto.offset.reset": "latest"}, "use startingOffsets"),
        ({"subscribe": "a", "kafka.auto_offset_reset": "latest"}, "auto_offset_reset is not"),
        ({"subscribe": "a", "kafka.interceptor.classes": "x"}, "interceptors are Java classes"),
        ({"subscribePattern": "a("}, "subscribePattern='a(' is not a regular expression"),
        ({"subscribe": "a", "maxOffsetPerTrigger": "5"}, "did you mean maxOffsetsPerTrigger?"),
        ({"subscribe": "a", "maxTriggerDelay": "5 weeks"}, "maxTriggerDelay='5 weeks'"),
        ({"subscribe": "a", "startingTimestamp": "x"}, "startingTimestamp='x'"),
        ({"subscribe": "a", "startingOffsetsByTimestampStrategy": "x"}, "neither error nor latest"),
        ({"subscribe": "a", "startingOffsets": "latest"}, "cannot be the latest"),
        ({"subscribe": "a", "startingOffsets": '{"a":{"0":-1}}'}, "cannot be the latest"),
        ({"subscribe": "a", "endingOffsets": "earliest"}, "cannot be the earliest"),
        ({"subscribe": "a", "fetchOffset.numRetries": "0"}, "fetchOffset.numRetries='0'"),
        ({"subscribe": "a", "kafka.nonsense": "1"}, "there is no option kafka.nonsense"),
        ({"subscribe": "a", "ssl_ca_file": "f"}, "did you mean kafka.ssl.cafile?"),
        (
            {"subscribe": "a", "kafka.ssl.check.hostnam": "f"},
            "did you mean kafka.ssl.check.hostname?",
        ),
        ({"subscribe": "a", "bootstrap_server": "b"}, "did you mean kafka.bootstrap.servers?"),
        ({"subscribe": "a", "wildly.different": "b"}, "wildly.different: docs/spark.md lists them"),
        ({"subscribe": "a", "kafka.isolation.level": "chaos"}, "kafka.isolation.level='chaos'"),
        ({"subscribe": "a", "minPartitions": "0"}, "minPartitions"),
        ({"subscribe": "a", "failOnDataLoss": "perhaps"}, "failOnDataLoss"),
        ({"subscribe": "a", "startingOffsets": "{"}, "startingOffsets"),
    ]:
        with row(options, named), pytest.raises(InvalidConfigurationError, match=re.escape(named)):
            source_options({**SERVERS, **options})


def test_every_java_property_of_a_consumer_is_mapped_or_refused() -> None:
    for name in JAVA_NAMES[ConsumerConfig].split():
        for streaming in [False, True]:
            with row(name, streaming):
                options = {"subscribe": "a"}
                check_java_property(name, options, partial(source_options, streaming=streaming))


def test_every_java_property_of_a_producer_is_mapped_or_refused() -> None:
    for name in JAVA_NAMES[ProducerConfig].split():
        for options in [{}, {"exactlyOnce": "true", "sinkId": "s"}]:
            with row(name, options):
                check_java_property(name, options, sink_options)


def check_java_property(
    name: str, options: dict[str, str], parse: Callable[[dict[str, str]], Any]
) -> None:
    """Give a property a value that is right for few of them, so that most names raise."""
    try:
        made = parse({**SERVERS, **options, f"kafka.{name}": "-7"})
    except InvalidConfigurationError as error:
        message = str(error)
        assert name in message or name.replace(".", "_") in message
        assert "did you mean" not in message
        assert "lists them all" not in message
    else:
        assert made.config().bootstrap_servers


def test_wrong_option_of_a_stream_raises_when_spark_calls_the_reader() -> None:
    pytest.importorskip("pyspark")
    from pyspark.sql.types import StructType

    from kafka_async.spark.source import KafkaDataSource

    source = KafkaDataSource({**SERVERS, "subscribe": "a", "endingOffsets": "latest"})
    reader: Any = source.streamReader(StructType())
    for call in (
        reader.initialOffset,
        reader.latestOffset,
        lambda: reader.latestOffset({}, None),
        lambda: reader.partitions({}, {}),
    ):
        with pytest.raises(InvalidConfigurationError, match="endingOffsets is for batch reads"):
            call()
    reader.stop()


def test_defaults_of_a_stream_match_sparks_connector() -> None:
    options = source_options({**SERVERS, "subscribe": "a"}, streaming=True)
    assert options.starting == LATEST
    assert (options.max_rows_per_trigger, options.min_rows_per_trigger) == (None, None)
    assert options.max_trigger_delay == 15 * 60
    assert (options.attempts, options.retry_interval, options.poll_timeout) == (3, 1.0, 120.0)
    assert options.commit_group_id is None


def test_stream_accepts_all_options_of_sparks_connector() -> None:
    options = source_options(
        {
            **SERVERS,
            "subscribePattern": "a.*",
            "startingOffsets": '{"a":{"0":-1}}',
            "maxOffsetsPerTrigger": "100",
            "minOffsetsPerTrigger": "10",
            "maxTriggerDelay": "90s",
            "maxBytesPerTrigger": "1000",
            "groupIdPrefix": "p",
            "kafka.group.id": "g",
            "kafka.group.instance.id": "g-1",
            "kafkaConsumer.pollTimeoutMs": "500",
            "fetchOffset.numRetries": "5",
            "fetchOffset.retryIntervalMs": "0",
            "commitGroupId": "lag",
        },
        streaming=True,
    )
    assert options.pattern == "a.*"
    assert options.starting == {TopicPartition("a", 0): LATEST}
    assert (options.max_rows_per_trigger, options.min_rows_per_trigger) == (100, 10)
    assert (options.max_trigger_delay, options.max_bytes_per_trigger) == (90.0, 1000)
    assert (options.attempts, options.retry_interval, options.poll_timeout) == (5, 0.0, 0.5)
    assert options.commit_group_id == "lag"
    assert options.config().group_id is None


@pytest.mark.parametrize("option", ["groupIdPrefix", "kafka.group.id", "kafka.group.instance.id"])
@pytest.mark.parametrize("streaming", [False, True])
def test_names_of_groups_are_accepted_with_a_warning(
    caplog: pytest.LogCaptureFixture, option: str, streaming: bool
) -> None:
    source_options({**SERVERS, "subscribe": "a", "failOnDataLoss": "true"}, streaming=streaming)
    assert caplog.messages == []
    options = source_options({**SERVERS, "subscribe": "a", option: "g"}, streaming=streaming)
    assert caplog.messages == [
        "kafka.group.id and groupIdPrefix have no effect: the source joins no group"
    ]
    config = options.config()
    assert (config.group_id, config.group_instance_id) == (None, None)


def test_timestamps_come_before_offsets() -> None:
    given = {
        "startingOffsets": "earliest",
        "startingOffsetsByTimestamp": '{"a":{"0":7}}',
        "endingOffsetsByTimestamp": '{"a":{"0":9}}',
    }
    base = {**SERVERS, "subscribe": "a"}
    options = source_options({**base, **given})
    assert options.starting == ByTimestamp({TopicPartition("a", 0): 7}, latest_if_none=False)
    assert options.ending == ByTimestamp({TopicPartition("a", 0): 9}, latest_if_none=True)
    more = {"startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "LATEST"}
    options = source_options({**base, **given, **more})
    assert options.starting == ByTimestamp(5, latest_if_none=True)


@pytest.mark.parametrize("name", ["endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"])
def test_stream_has_no_end(name: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=f"{name} is for batch reads"):
        source_options({**SERVERS, "subscribe": "a", name: "1"}, streaming=True)


def test_stream_waits_for_no_more_rows_than_it_reads() -> None:
    limits = {"minOffsetsPerTrigger": "11", "maxOffsetsPerTrigger": "10"}
    with pytest.raises(InvalidConfigurationError, match="minOffsetsPerTrigger=11 is above"):
        source_options({**SERVERS, "subscribe": "a", **limits}, streaming=True)


def test_missing_servers_error_shows_an_example() -> None:
    with pytest.raises(InvalidConfigurationError, match="bootstrap"):
        source_options({"subscribe": "a"})


def test_sink_accepts_topic_and_producer_options() -> None:
    options = sink_options({**SERVERS, "topic": "out", "kafka.compression.type": "zstd"})
    assert options.topic == "out"
    assert options.config().compression_type == "zstd"


def test_sink_accepts_the_options_that_spark_adds() -> None:
    options = sink_options({**SERVERS, "topic": "t", "path": "", "queryname": "copy"})
    assert options.topic == "t"


def test_sink_rejects_transactional_id() -> None:
    with pytest.raises(InvalidConfigurationError, match="use exactlyOnce and sinkId"):
        sink_options({**SERVERS, "kafka.transactional.id": "x"})
    with pytest.raises(InvalidConfigurationError, match="use exactlyOnce and sinkId"):
        sink_options({**SERVERS, "kafka.transactional_id": "x"})


def test_kafka_options_accept_java_names() -> None:
    options = {"kafka.bootstrap.servers": "a:1", "kafka.acks": "1", "kafka.linger.ms": "7"}
    made = sink_options(options).config()
    assert (made.acks, made.enable_idempotence, made.linger_ms) == (1, False, 7)
    levels = {"kafka.compression.type": "zstd", "kafka.compression.zstd.level": "4"}
    made = sink_options({**options, **levels}).config()
    assert made.compression_level == 4


EXACTLY_ONCE = {**SERVERS, "topic": "t", "exactlyOnce": "true", "sinkId": "orders"}


def test_sink_takes_the_options_of_exactly_once_writes() -> None:
    options = sink_options(
        {**EXACTLY_ONCE, "writeid": "w", "ledgertopic": "l", "transactiontimeoutms": "60000"}
    )
    assert (options.exactly_once, options.sink_id, options.write_id) == (True, "orders", "w")
    assert (options.ledger_topic, options.transaction_timeout_ms) == ("l", 60_000)
    config = options.config(transactional_id="orders:1:0:0")
    assert (config.transactional_id, config.transaction_timeout_ms) == ("orders:1:0:0", 60_000)
    assert options.config().transactional_id is None
    defaults = sink_options(EXACTLY_ONCE)
    assert defaults.ledger_topic == "kafka-async-spark-ledger"
    assert (defaults.write_id, defaults.transaction_timeout_ms) == (None, 900_000)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"exactlyOnce": "true"}, "exactlyOnce needs the option sinkId"),
        ({"sinkId": "a"}, "sinkId is an option of exactly-once writes: set exactlyOnce"),
        ({"transactionTimeoutMs": "1"}, "transactionTimeoutMs is an option of exactly-once"),
        ({**EXACTLY_ONCE, "sinkId": "a:b"}, "sinkId='a:b' must consist of"),
        ({**EXACTLY_ONCE, "sinkId": ""}, "sinkId='' must consist of"),
        ({**EXACTLY_ONCE, "writeId": ""}, "writeId is empty"),
        ({**EXACTLY_ONCE, "transactionTimeoutMs": "soon"}, "transactionTimeoutMs='soon' is not a"),
        ({**EXACTLY_ONCE, "kafka.transaction.timeout.ms": "5"}, "use transactionTimeoutMs"),
        ({**EXACTLY_ONCE, "kafka.transactional.id": "x"}, "use exactlyOnce and sinkId"),
    ],
)
def test_exactly_once_option_error_names_the_option(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=re.escape(message)):
        sink_options({**SERVERS, "topic": "t", **options})
