"""Pipelines in Spark: every sink, functions, errors, and the command."""

from __future__ import annotations

import asyncio
import re
import signal
import textwrap
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async import ProducerRecord, blocking
from kafka_async.errors import InvalidConfigurationError
from kafka_async.spark.pipeline import Pipeline, PipelineStatus, Sink, Source, Step, Watermark
from tests.cli.programs import Program
from tests.integration.helpers import SPARKS_SIDE, create_topic_blocking
from tests.integration.stream_readers import READ_LIMITS
from tests.spark_versions import spark_version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from kafka_async.testing.fixtures import ClusterHandle

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.mainly_on("embedded", reason=SPARKS_SIDE),
]

LINES = [f"word-{number % 7} word-{number % 11}" for number in range(500)]
COUNTS = Counter(word for line in LINES for word in line.split())

FUNCTIONS = """
from pyspark.sql.functions import udf


@udf("string")
def shout(word):
    return word.upper()


def loud(views):
    words = views["words"]
    return words.select(shout(words.word).alias("word"))


def nothing(views):
    return None
"""


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


class World:
    """Holds the topics and the file of one pipeline."""

    def __init__(self, cluster: ClusterHandle, directory: Path) -> None:
        self.cluster = cluster
        self.directory = directory
        self.lines = create_topic_blocking(cluster, "lines", partitions=3)
        self.counts = create_topic_blocking(cluster, "counts", partitions=2)

    def write(self, lines: list[str]) -> None:
        values = [line.encode() for line in lines]
        asyncio.run(self.cluster.produce(self.lines, values))

    def latest_counts(self) -> dict[str, int]:
        """Return the last committed count of each word."""
        records = asyncio.run(self.cluster.read(self.counts))
        return {
            record.key.decode(): int(record.value)
            for record in sorted(records, key=lambda record: record.offset)
            if record.key is not None and record.value is not None
        }

    def pipeline(
        self, step: str = "", sinks: str = "", pipeline: str = "", mode: str = "update"
    ) -> Pipeline:
        self.directory.joinpath("shouting.py").write_text(FUNCTIONS, "utf-8")
        file = self.directory / "counts.toml"
        file.write_text(
            textwrap.dedent(f"""
                [pipeline]
                name = "counts-{self.counts}"
                checkpoint = "{self.directory}/checkpoint"
                trigger = "available-now"
                {pipeline}
                [kafka]
                kafka.bootstrap.servers = "{self.cluster.bootstrap_servers}"

                [[source]]
                name = "lines"
                topics = ["{self.lines}"]
                options = {{ startingOffsets = "earliest", maxOffsetsPerTrigger = 200 }}

                [[step]]
                name = "words"
                sql = "SELECT explode(split(CAST(value AS STRING), ' ')) AS word FROM lines"
                {step}
                [[step]]
                name = "counts"
                sql = '''SELECT word AS key, CAST(count(*) AS STRING) AS value
                         FROM words GROUP BY word'''

                [[sink]]
                kind = "topic"
                topic = "{self.counts}"
                mode = "{mode}"
                {sinks}
            """),
            "utf-8",
        )
        return Pipeline.from_toml(file)


@pytest.fixture
def world(kafka_cluster: ClusterHandle, tmp_path: Path) -> World:
    return World(kafka_cluster, tmp_path)


def test_counts_words_over_two_runs(world: World, spark: SparkSession) -> None:
    seen: list[PipelineStatus] = []
    world.write(LINES[:300])
    first = world.pipeline().run(spark, on_status=seen.append)
    assert first.state == "stopped"
    assert [query.rows for query in first.queries] == [300]
    limited = spark_version() >= READ_LIMITS  # as in the table of versions in docs/spark.md
    batch = first.queries[0].batch
    assert batch == (1 if limited else 0), "maxOffsetsPerTrigger limits a batch to 200 records"
    assert first.queries[0].lag == (0 if limited else None)
    assert first.queries[0].state_rows == len(COUNTS)
    assert seen[0].state == "starting"
    assert world.pipeline().status() == first

    world.write(LINES[300:])
    second = world.pipeline().run(spark)
    assert [query.rows for query in second.queries] == [200]
    assert world.latest_counts() == COUNTS


@pytest.mark.slow
@pytest.mark.one_backend("embedded")
def test_mode_complete_writes_all_counts_in_each_batch(world: World, spark: SparkSession) -> None:
    for lines in (["a b", "a"], ["b c"]):
        world.write(lines)
        assert world.pipeline(mode="complete").run(spark).state == "stopped"
    records = asyncio.run(world.cluster.read(world.counts))
    written = Counter(b"%s=%s" % (record.key or b"", record.value or b"") for record in records)
    assert written == Counter([b"a=2", b"b=1", b"a=2", b"b=2", b"c=1"])


@pytest.mark.slow
@pytest.mark.one_backend("embedded")
def test_query_has_the_interval_of_its_trigger_and_the_limit_of_its_source(
    world: World, spark: SparkSession
) -> None:
    world.write(LINES[:300])
    sessions: list[SparkSession] = []
    triggers: list[str] = []

    def same(views: Mapping[str, DataFrame]) -> DataFrame:
        sessions.append(views["rows"].sparkSession)
        return views["rows"]

    def stop_after_the_first_batch(status: PipelineStatus) -> None:
        if status.queries[0].batch is not None:
            queries: list[Any] = sessions[0].streams.active
            triggers.extend(str(query._jsq.streamingQuery().trigger()) for query in queries)
            pipeline.stop()

    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "200"}
    pipeline = Pipeline(
        f"limited-{world.counts}",
        sources=[Source([world.lines], "rows", options)],
        steps=[Step(python=same)],
        sinks=[Sink("parquet", path=f"{world.directory}/rows")],
        checkpoint=f"{world.directory}/checkpoint",
        trigger="36500 days",
        kafka={"kafka.bootstrap.servers": world.cluster.bootstrap_servers},
    )
    (query,) = pipeline.run(spark, on_status=stop_after_the_first_batch).queries
    assert triggers[:1] == [f"ProcessingTimeTrigger({36500 * 86_400_000})"]
    assert query.batch == 0
    limited = spark_version() >= READ_LIMITS  # as in the table of versions in docs/spark.md
    assert 100 < query.rows <= 200 if limited else query.rows == 300
    assert query.lag == (300 - query.rows if limited else None)


@pytest.mark.slow
@pytest.mark.one_backend("embedded")
def test_watermarks_tell_when_windows_are_complete(world: World, spark: SparkSession) -> None:
    """Reads records of 0 to 200 s, with watermarks that are 10 and 90 s behind the last one."""

    def write(*times: int) -> None:
        with blocking.Producer(world.cluster.bootstrap_servers) as producer:
            producer.send_records(
                ProducerRecord(world.lines, b"", timestamp=1000 * time) for time in times
            )

    write(0, 30, 61, 125, 200)
    earliest = {"startingOffsets": "earliest"}
    windows = """SELECT CAST(window.end AS BIGINT) AS end, count(*) AS count
                 FROM {} GROUP BY window(timestamp, '1 minute')"""
    pipeline = Pipeline(
        f"windows-{world.counts}",
        sources=[
            Source([world.lines], "soon", earliest, Watermark("timestamp", "10 seconds")),
            Source([world.lines], "rows", earliest),
        ],
        steps=[
            Step("SELECT * FROM rows", name="late", watermark=Watermark("timestamp", "90 seconds")),
            Step(windows.format("soon"), name="windows_soon"),
            Step(windows.format("late"), name="windows_late"),
        ],
        sinks=[
            Sink("parquet", path=f"{world.directory}/{name}", view=f"windows_{name}", name=name)
            for name in ("soon", "late")
        ],
        checkpoint=f"{world.directory}/checkpoint",
        trigger="available-now",
        kafka={"kafka.bootstrap.servers": world.cluster.bootstrap_servers},
    )
    pipeline.run(spark)
    if spark_version() < READ_LIMITS:  # One batch per run, which sets the next one's watermark.
        write(200)
        pipeline.run(spark)

    def counts(name: str) -> dict[int, int]:
        rows = spark.read.parquet(f"{world.directory}/{name}").collect()
        return {row["end"]: row["count"] for row in rows}

    assert counts("soon") == {60: 2, 120: 1, 180: 1}
    assert counts("late") == {60: 2}


@pytest.mark.slow
@pytest.mark.one_backend("embedded")
def test_writes_a_view_as_parquet_and_to_the_console_with_a_function(
    world: World, spark: SparkSession
) -> None:
    world.write(LINES)
    pipeline = world.pipeline(
        step='[[step]]\nname = "loud"\npython = "shouting:loud"',
        sinks=f'[[sink]]\nkind = "parquet"\nfrom = "loud"\npath = "{world.directory}/words"\n'
        '[[sink]]\nkind = "console"\nfrom = "loud"',
    )
    status = pipeline.run(spark)
    assert {query.name: query.rows for query in status.queries} == {
        "topic": 500,
        "parquet": 500,
        "console": 500,
    }
    rows = spark.read.parquet(f"{world.directory}/words").collect()
    assert Counter(row["word"] for row in rows) == {
        word.upper(): count for word, count in COUNTS.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "message"),
    [
        ('[[step]]\nsql = "SELECT wordd FROM words"', r"\[\[step\]\] step_2 sql: .*wordd"),
        (
            '[[step]]\nname = "n"\npython = "shouting:nothing"',
            r"\[\[step\]\] n: .*return a DataFrame",
        ),
    ],
)
@pytest.mark.one_backend("embedded")
def test_validation_names_the_step(
    world: World, spark: SparkSession, step: str, message: str
) -> None:
    with pytest.raises(InvalidConfigurationError, match=message):
        world.pipeline(step=step).validate(spark)


JSON = """
[pipeline]
name = "orders-{topic}"
checkpoint = "{directory}/checkpoint"
trigger = "available-now"

[kafka]
kafka.bootstrap.servers = "{servers}"

[[source]]
name = "orders"
topics = ["{topic}"]
options = {{ startingOffsets = "earliest" }}
json = "{schema}"

[[step]]
sql = "SELECT id, _corrupt_record AS wrong, offset FROM orders"

[[sink]]
kind = "parquet"
path = "{directory}/rows"
"""


@pytest.mark.slow
@pytest.mark.one_backend("embedded")
def test_source_has_the_columns_of_its_json_values(
    world: World, spark: SparkSession, tmp_path: Path
) -> None:
    topic = create_topic_blocking(world.cluster, "orders")
    asyncio.run(world.cluster.produce(topic, [b'{"id": 7, "more": 1}', b"no", None]))

    def pipeline(schema: str) -> Pipeline:
        file = tmp_path / "orders.toml"
        servers = world.cluster.bootstrap_servers
        text = JSON.format(topic=topic, directory=tmp_path, servers=servers, schema=schema)
        file.write_text(text, "utf-8")
        return Pipeline.from_toml(file)

    pipeline("id BIGINT, _corrupt_record STRING").run(spark)
    rows = spark.read.parquet(str(tmp_path / "rows")).orderBy("offset").collect()
    assert [tuple(row) for row in rows] == [(7, None, 0), (None, "no", 1), (None, None, 2)]
    with pytest.raises(InvalidConfigurationError, match=r"^\[\[source\]\] orders: .*BIGINTS"):
        pipeline("id BIGINTS").validate(spark)


@pytest.mark.slow
@pytest.mark.one_backend("embedded")
def test_validation_names_the_sink_whose_columns_are_wrong(
    world: World, spark: SparkSession
) -> None:
    pipeline = world.pipeline(sinks='[[sink]]\nkind = "topic"\ntopic = "x"\nfrom = "words"')
    message = r"\[\[sink\]\] topic-2: there is no column value: .* columns so: .*word"
    with pytest.raises(InvalidConfigurationError, match=message):
        pipeline.validate(spark)


@pytest.mark.slow
@pytest.mark.one_backend("embedded")
def test_error_of_a_query_is_raised_and_reported(world: World, spark: SparkSession) -> None:
    world.write(LINES)
    step = '[[step]]\nname = "failing"\nsql = "SELECT assert_true(word = \'x\') FROM words"'
    sink = '[[sink]]\nkind = "console"\nfrom = "failing"\nname = "shown"'
    pipeline = world.pipeline(step=step, sinks=sink)
    with pytest.raises(Exception, match=r"assert_true|is not true"):
        pipeline.run(spark)
    status = pipeline.status()
    assert status is not None
    assert status.state == "failed"
    assert [query.name for query in status.queries if query.state == "failed"] == ["shown"]
    assert status.error is not None
    assert "is not true" in status.error


@pytest.mark.slow
def test_command_runs_the_example_on_a_cluster_in_memory_until_ctrl_c(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("\n".join(LINES), "utf-8")
    example = Path(__file__).parents[2] / "examples" / "word_count.toml"
    command = ["pipeline", "run", str(example), "--local", "--input", f"lines={text}"]
    with Program(*command, environment={"XDG_STATE_HOME": str(tmp_path)}) as program:
        started = program.wait_for(" 500 rows")
        program.signal(signal.SIGINT)
        status, _, err = program.end(within=300)
        assert program.left() == []
    assert status == 0, err
    assert re.search(r"an embedded cluster is listening at 127\.0\.0\.1:\d+", started)
    assert "topic: running, batch 0, 500 rows" in started
    assert "stopping; a batch that is interrupted is repeated at the next start" in err
    assert err.endswith("word-count has stopped; rows read: topic 500\n")
    report = next(tmp_path.rglob("word-count.json"))
    assert PipelineStatus.from_json(report.read_text("utf-8")).state == "stopped"


@pytest.mark.slow
def test_command_validates_queries_and_columns_without_a_broker(tmp_path: Path) -> None:
    right = tmp_path / "right.toml"
    right.write_text(
        textwrap.dedent("""
            [pipeline]
            name = "words"

            [kafka]
            kafka.bootstrap.servers = "localhost:1"

            [[source]]
            topics = ["lines"]

            [[step]]
            name = "words"
            sql = "SELECT explode(split(CAST(value AS STRING), ' ')) AS value FROM lines"

            [[sink]]
            kind = "console"
        """),
        "utf-8",
    )
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(right.read_text("utf-8").replace("FROM lines", "FROM no_such_view"), "utf-8")
    environment = {"XDG_STATE_HOME": str(tmp_path)}
    with (
        Program("pipeline", "validate", str(right), environment=environment) as of_right,
        Program("pipeline", "validate", str(wrong), environment=environment) as of_wrong,
    ):
        status, out, err = of_right.end(within=300)
        assert (status, out, err.splitlines()[-1]) == (0, "", f"{right}: no errors"), err
        status, out, err = of_wrong.end(within=300)
        error = err.splitlines()[-1]
        assert (status, out) == (1, ""), err
        assert error.startswith(f"error: {wrong}: [[step]] words sql: ")
        assert "no_such_view" in error
