"""Tests of the options of format("kafka_async")."""

from __future__ import annotations

import re

import pytest

from kafka_async.errors import InvalidConfigurationError
from kafka_async.spark.offsets import EARLIEST, LATEST
from kafka_async.spark.sink_options import sink_options
from kafka_async.spark.source_options import source_options
from kafka_async.types import TopicPartition

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def test_defaults_match_a_batch_read() -> None:
    options = source_options({**SERVERS, "subscribe": "a, b"})
    assert options.topics == ("a", "b")
    assert (options.starting, options.ending) == (EARLIEST, LATEST)
    assert not options.include_headers
    assert options.fail_on_data_loss
    assert options.config().bootstrap_servers == ("localhost:9092",)
    assert options.config().auto_offset_reset == "none"


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


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({}, "subscribe"),
        ({"subscribe": "a", "assign": '{"a":[0]}'}, "subscribe and assign"),
        ({"subscribe": " , "}, "names no topic"),
        ({"subscribe": "a", "startingOffset": "1"}, "did you mean startingOffsets?"),
        ({"subscribe": "a", "kafka.group.id": "g"}, "kafka.group.id"),
        ({"subscribe": "a", "kafka.group_id": "g"}, "kafka.group_id is not allowed"),
        ({"subscribe": "a", "kafka.nonsense": "1"}, "there is no option nonsense"),
        ({"subscribe": "a", "ssl_ca_file": "f"}, "did you mean ssl_cafile?"),
        ({"subscribe": "a", "kafka.ssl.check.hostnam": "f"}, "did you mean ssl_check_hostname?"),
        ({"subscribe": "a", "bootstrap_server": "b"}, "did you mean kafka.bootstrap.servers?"),
        ({"subscribe": "a", "wildly.different": "b"}, "wildly.different: docs/spark.md lists them"),
        ({"subscribe": "a", "kafka.isolation.level": "chaos"}, "isolation_level"),
        ({"subscribe": "a", "minPartitions": "0"}, "minPartitions"),
        ({"subscribe": "a", "failOnDataLoss": "perhaps"}, "failOnDataLoss"),
        ({"subscribe": "a", "startingOffsets": "{"}, "startingOffsets"),
    ],
)
def test_error_names_the_invalid_option(options: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=re.escape(named)):
        source_options({**SERVERS, **options})


def test_missing_servers_error_shows_an_example() -> None:
    with pytest.raises(InvalidConfigurationError, match="bootstrap"):
        source_options({"subscribe": "a"})


def test_sink_accepts_topic_and_producer_options() -> None:
    options = sink_options({**SERVERS, "topic": "out", "kafka.compression.type": "zstd"})
    assert options.topic == "out"
    assert options.config().compression_type == "zstd"


def test_sink_rejects_transactional_id() -> None:
    with pytest.raises(InvalidConfigurationError, match="at-least-once"):
        sink_options({**SERVERS, "kafka.transactional.id": "x"})
    with pytest.raises(InvalidConfigurationError, match="at-least-once"):
        sink_options({**SERVERS, "kafka.transactional_id": "x"})


def test_kafka_options_accept_java_names() -> None:
    options = {"kafka.bootstrap.servers": "a:1", "kafka.acks": "1", "kafka.linger.ms": "7"}
    made = sink_options(options).config()
    assert (made.acks, made.enable_idempotence, made.linger_ms) == (1, False, 7)
    levels = {"kafka.compression.type": "zstd", "kafka.compression.zstd.level": "4"}
    made = sink_options({**options, **levels}).config()
    assert made.compression_level == 4
