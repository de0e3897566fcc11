"""Definitions of pipelines: names, checks and the options that result."""

from __future__ import annotations

import tomllib

import pytest

from kafka_async.errors import InvalidConfigurationError
from kafka_async.spark.pipeline.definition import Definition, define, parse

WORD_COUNT = """
[pipeline]
name = "word-count"
checkpoint = "/tmp/word-count"
trigger = "1 second"

[kafka]
kafka.bootstrap.servers = "localhost:9092"

[[source]]
topics = ["raw.lines"]
options = { startingOffsets = "earliest", maxOffsetsPerTrigger = 1000 }

[[step]]
name = "words"
sql = "SELECT explode(split(CAST(value AS STRING), ' ')) AS word FROM raw_lines"

[[step]]
sql = "SELECT word AS key, CAST(count(*) AS STRING) AS value FROM words GROUP BY word"

[[sink]]
kind = "topic"
topic = "counts"
mode = "update"

[[sink]]
kind = "parquet"
from = "words"
path = "/tmp/words"
"""


def defined(text: str) -> Definition:
    return define(parse(tomllib.loads(text)))


def test_fills_in_the_names_of_views_and_queries() -> None:
    definition = defined(WORD_COUNT)
    assert [source.name for source in definition.sources] == ["raw_lines"]
    assert [step.name for step in definition.steps] == ["words", "step_2"]
    assert [(sink.name, sink.view) for sink in definition.sinks] == [
        ("topic", "step_2"),
        ("parquet", "words"),
    ]


def test_names_are_filled_in_once() -> None:
    definition = defined(WORD_COUNT)
    assert define(definition) == definition


def test_numbers_sinks_of_one_kind() -> None:
    definition = defined(WORD_COUNT + '\n[[sink]]\nkind = "parquet"\npath = "/tmp/counts"\n')
    assert [sink.name for sink in definition.sinks] == ["topic", "parquet-2", "parquet-3"]


def test_options_of_a_source_follow_those_of_all() -> None:
    definition = defined(WORD_COUNT)
    assert definition.source_options(definition.sources[0]) == {
        "kafka.bootstrap.servers": "localhost:9092",
        "subscribe": "raw.lines",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "1000",
    }


def test_topics_are_written_exactly_once_by_default() -> None:
    definition = defined(WORD_COUNT)
    topic, parquet = definition.sinks
    assert definition.sink_options(topic) == {
        "kafka.bootstrap.servers": "localhost:9092",
        "topic": "counts",
        "exactlyOnce": "true",
        "sinkId": "word-count.topic",
    }
    assert definition.sink_options(parquet) == {"path": "/tmp/words"}


def test_a_topic_may_be_written_at_least_once() -> None:
    text = WORD_COUNT.replace('mode = "update"', "options = { exactlyOnce = false }")
    definition = defined(text)
    assert definition.sink_options(definition.sinks[0]) == {
        "kafka.bootstrap.servers": "localhost:9092",
        "topic": "counts",
        "exactlyOnce": "false",
    }


def test_a_pattern_of_topics_needs_a_name() -> None:
    text = WORD_COUNT.replace('topics = ["raw.lines"]\noptions = {', "options = {")
    text = text.replace("{ startingOffsets", '{ subscribePattern = "raw.*", startingOffsets')
    with pytest.raises(InvalidConfigurationError, match=r"\[\[source\]\] 1: name is missing"):
        defined(text)
    text = text.replace("[[source]]", '[[source]]\nname = "raw_lines"')
    assert defined(text).sources[0].topics == ()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "word-count"', "", r"\[pipeline\] name is missing"),
        ('name = "word-count"', 'name = "word count"', "give a name of letters"),
        ('name = "word-count"', "name = 1", r"\[pipeline\] name: write a text"),
        ("trigger =", "triggerr =", "no key 'triggerr': did you mean 'trigger'"),
        ('"1 second"', '"1 s"', "trigger='1 s': write an interval, such as \"5 seconds\""),
        ('checkpoint = "/tmp/word-count"', "", r"\[pipeline\] checkpoint is missing"),
        ("[kafka]", "[kafk]", "the file has no key 'kafk': did you mean 'kafka'"),
        ('["raw.lines"]', '"raw.lines"', r'\[\[source\]\] 1 topics: write a list, as \["clicks"\]'),
        ('topics = ["raw.lines"]', "", r"\[\[source\]\] 1: give topics, or one of the options"),
        ("maxOffsetsPerTrigger = 1000", "maxOffsetsPerTrigger = [1]", "write a text, a number"),
        ('sql = "SELECT word', 'python = "m:f"\nsql = "SELECT word', "2: give either sql or pyth"),
        ('sql = "SELECT word', 'python = "m.f"\n#', r'2: python=\'m.f\': write "module:function"'),
        ('name = "words"', 'name = "raw_lines"', r"1: there is another view 'raw_lines'"),
        ('name = "words"', 'name = "all words"', "a view has a name of letters"),
        ('kind = "topic"', 'kind = "topics"', r"1 kind='topics': did you mean 'topic'"),
        ('kind = "topic"', "", r"\[\[sink\]\] 1: kind is missing: topic, parquet, console"),
        ('topic = "counts"', "", r"\[\[sink\]\] 1: topic is missing"),
        ('path = "/tmp/words"', "", r"\[\[sink\]\] 2: path is missing"),
        ('topic = "counts"', 'topic = "counts"\npath = "x"', "path needs kind = 'parquet'"),
        ('mode = "update"', 'mode = "updates"', "1 mode='updates': did you mean 'update'"),
        ('from = "words"', 'from = "word"', "2 from='word': did you mean 'words'"),
        ('from = "words"', 'name = "topic"', "2: there is another sink 'topic'"),
        ("[[step]]\nname", "[[step]]\nwatermark = { column = 'time' }\nname", "both column and"),
    ],
)
def test_error_names_the_table_and_the_key(old: str, new: str, message: str) -> None:
    assert old in WORD_COUNT
    with pytest.raises(InvalidConfigurationError, match=message):
        defined(WORD_COUNT.replace(old, new, 1))


@pytest.mark.parametrize("missing", ["source", "sink"])
def test_needs_a_source_and_a_sink(missing: str) -> None:
    head = WORD_COUNT.partition("[[source]]")[0]
    other = {
        "source": '[[sink]]\nkind = "console"\n',
        "sink": '[[source]]\ntopics = ["lines"]\n',
    }
    with pytest.raises(InvalidConfigurationError, match=rf"there is no \[\[{missing}\]\]"):
        defined(head + other[missing])


def test_one_table_in_place_of_a_list_is_refused() -> None:
    with pytest.raises(InvalidConfigurationError, match=r"write \[\[sink\]\]"):
        defined(WORD_COUNT.partition("[[sink]]")[0] + '[sink]\nkind = "console"\n')


def test_only_the_console_needs_no_checkpoint() -> None:
    text = WORD_COUNT.partition("[[sink]]")[0] + '[[sink]]\nkind = "console"\n'
    assert defined(text.replace('checkpoint = "/tmp/word-count"', "")).checkpoint is None


def test_another_cluster_gets_no_credentials() -> None:
    text = WORD_COUNT.replace(
        "[kafka]", '[kafka]\nsecurity_protocol = "SASL_SSL"\nkafka.acks = "all"'
    )
    text = text.replace("options = {", 'options = { kafka.sasl.jaas.config = "x",')
    definition = defined(text).on_cluster("127.0.0.1:1", "/tmp/new")
    assert definition.checkpoint == "/tmp/new"
    assert definition.source_options(definition.sources[0]) == {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "kafka.acks": "all",
        "subscribe": "raw.lines",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "1000",
    }
