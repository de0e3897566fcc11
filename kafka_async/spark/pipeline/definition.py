"""Definition of a pipeline: its sources, steps and sinks, as tables of a TOML file. Pure.

Each source and step defines a view, which later steps and sinks refer to by name. A definition is
checked as a whole when it is made; an `InvalidConfigurationError` includes the table and the key.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from kafka_async.errors import InvalidConfigurationError
from kafka_async.spark.properties import option_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Function = Callable[[Mapping[str, "DataFrame"]], "DataFrame"]
"""Function of a step: it gets the earlier views by name, and returns a new one."""
Options = Mapping[str, str]
T = TypeVar("T")

KINDS: Final = ("topic", "parquet", "console")
MODES: Final = ("append", "update", "complete")
AVAILABLE_NOW: Final = "available-now"
_SOURCE_TOPICS: Final = ("subscribe", "subscribePattern", "assign")
_CONNECTION: Final = ("bootstrap_servers", "security_", "ssl_", "sasl_")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_VIEW: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INTERVAL: Final = re.compile(r"\d+ (milliseconds?|seconds?|minutes?|hours?|days?)")
_FUNCTION: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True)
class Watermark:
    """Limits the delay of rows, and thereby the state of an aggregation.

    Attributes:
        column: A column of type timestamp.
        delay: Maximum delay, such as "10 seconds".
    """

    column: str
    delay: str


@dataclass(frozen=True)
class Source:
    """Describes the topics that a pipeline reads as one view.

    Attributes:
        topics: Names of topics; empty with the option `subscribePattern` or `assign`.
        name: Name of the view. Default: the only topic, with `_` in place of special characters.
        options: Options of `format("kafka_async")`, such as `startingOffsets`.
        watermark: Maximum delay of the rows. Default: none.
        json: Columns, as in `CREATE TABLE`, that Spark's `from_json` reads from the column value
            and that replace it. Default: none.
    """

    topics: Sequence[str] = ()
    name: str = ""
    options: Options = field(default_factory=dict[str, str])
    watermark: Watermark | None = None
    json: str = ""


@dataclass(frozen=True)
class Step:
    """Computes a view from the earlier views; exactly one of `sql` and `python` is given.

    Attributes:
        sql: A query on the views.
        python: A function of the views by name, or its location as "module:function".
        name: Name of the view. Default: `step_1`, `step_2`, ...
        watermark: Maximum delay of the rows. Default: none.
    """

    sql: str | None = None
    python: str | Function | None = None
    name: str = ""
    watermark: Watermark | None = None


@dataclass(frozen=True)
class Sink:
    """Writes a view with one streaming query.

    Attributes:
        kind: "topic", "parquet" or "console".
        topic: Name of the topic. The rows have the columns `value` and, if any, `key`, `partition`
            and `headers`. Each row is written exactly once, unless the options contain `exactlyOnce
            = "false"`.
        path: Directory of the Parquet files.
        view: Name of the view, `from` in a file. Default: the last view.
        name: Name of the query, and of its checkpoint directory. Default: `kind`, with a number if
            several sinks have this kind.
        mode: Spark's output mode: "append" (default), "update" or "complete".
        options: Options of the format.
    """

    kind: str
    topic: str | None = None
    path: str | None = None
    view: str = ""
    name: str = ""
    mode: str = "append"
    options: Options = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Definition:
    """Holds a checked pipeline; see `Pipeline` for the arguments."""

    name: str
    sources: Sequence[Source]
    sinks: Sequence[Sink]
    steps: Sequence[Step] = ()
    master: str | None = None
    checkpoint: str | None = None
    trigger: str | None = None
    kafka: Options = field(default_factory=dict[str, str])
    spark: Options = field(default_factory=dict[str, str])

    def on_cluster(self, servers: str, checkpoint: str) -> Definition:
        """Return this pipeline from its start on another cluster, without credentials."""
        return replace(
            self,
            checkpoint=checkpoint,
            kafka={**_without_connection(self.kafka), "kafka.bootstrap.servers": servers},
            sources=[
                replace(each, options=_without_connection(each.options)) for each in self.sources
            ],
            sinks=[replace(each, options=_without_connection(each.options)) for each in self.sinks],
        )

    def source_options(self, source: Source) -> dict[str, str]:
        """Return all options for reading a source."""
        topics = {"subscribe": ",".join(source.topics)} if source.topics else {}
        return {**self.kafka, **topics, **source.options}

    def sink_options(self, sink: Sink) -> dict[str, str]:
        """Return all options for writing a sink."""
        if sink.kind == "parquet":
            return {"path": cast("str", sink.path), **sink.options}
        if sink.kind == "console":
            return dict(sink.options)
        given = {name.lower() for name in sink.options}
        options = {**self.kafka, "topic": cast("str", sink.topic), **sink.options}
        if "exactlyonce" not in given:
            options["exactlyOnce"] = "true"
        if "sinkid" not in given and options.get("exactlyOnce", "").lower() == "true":
            options["sinkId"] = f"{self.name}.{sink.name}"
        return options


def define(definition: Definition) -> Definition:
    """Return a definition with all default names filled in.

    Raises:
        InvalidConfigurationError: A value is missing, wrong or contradicts another.
    """
    _require(
        _NAME.fullmatch(definition.name) is not None,
        f"[pipeline] name={definition.name!r}: give a name of letters, digits, '.', '_' and '-'",
    )
    _require(bool(definition.sources), "there is no [[source]]: name the topics to read")
    _require(bool(definition.sinks), "there is no [[sink]]: say where the rows are written to")
    _check_trigger(definition.trigger)
    views: list[str] = []
    sources = [_named_source(source, views) for source in definition.sources]
    steps = [_named_step(number, step, views) for number, step in enumerate(definition.steps, 1)]
    sinks = _named_sinks(definition.sinks, views)
    _require(
        definition.checkpoint is not None or all(sink.kind == "console" for sink in sinks),
        "[pipeline] checkpoint is missing: name a directory, where Spark keeps its progress",
    )
    return replace(definition, sources=sources, steps=steps, sinks=sinks)


def parse(document: Mapping[str, Any]) -> Definition:
    """Return the definition in a TOML document; `define` fills in its default names.

    Raises:
        InvalidConfigurationError: A table or key is unknown, missing or has a wrong value.
    """
    _check_keys(document, "the file", ("pipeline", "kafka", "spark", "source", "step", "sink"))
    head = _table(document.get("pipeline"), "[pipeline]")
    _check_keys(head, "[pipeline]", ("name", "master", "checkpoint", "trigger"))
    texts = {key: _text(value, f"[pipeline] {key}") for key, value in head.items()}
    _require("name" in texts, "[pipeline] name is missing")
    return Definition(
        sources=[_record(Source, row, place) for place, row in _rows(document, "source")],
        steps=[_record(Step, row, place) for place, row in _rows(document, "step")],
        sinks=[_record(Sink, row, place) for place, row in _rows(document, "sink")],
        kafka=_options(document.get("kafka", {}), "[kafka]"),
        spark=_options(document.get("spark", {}), "[spark]"),
        **texts,
    )


def _without_connection(options: Options) -> dict[str, str]:
    """Return the options without those for the connection to a cluster."""
    return {
        key: value
        for key, value in options.items()
        if not (option_name(key) or "").startswith(_CONNECTION)
    }


# -- names -----------------------------------------------------------------------------------------


def _named_source(source: Source, views: list[str]) -> Source:
    place = f"[[source]] {len(views) + 1}"
    others = [name for name in _SOURCE_TOPICS if name in source.options]
    _require(
        bool(source.topics) != bool(others) and len(others) < 2,
        f"{place}: give topics, or one of the options subscribePattern and assign",
    )
    name = source.name
    if not name:
        _require(len(source.topics) == 1, f"{place}: name is missing, which is that of the view")
        name = re.sub(r"\W", "_", source.topics[0])
        name = f"_{name}" if name[0].isdigit() else name
    _add_view(name, place, views)
    return replace(source, name=name)


def _named_step(number: int, step: Step, views: list[str]) -> Step:
    place = f"[[step]] {number}"
    _require((step.sql is None) != (step.python is None), f"{place}: give either sql or python")
    if isinstance(step.python, str):
        _require(
            _FUNCTION.fullmatch(step.python) is not None,
            f'{place}: python={step.python!r}: write "module:function"',
        )
    name = step.name or f"step_{number}"
    _add_view(name, place, views)
    return replace(step, name=name)


def _add_view(name: str, place: str, views: list[str]) -> None:
    _require(
        _VIEW.fullmatch(name) is not None,
        f"{place}: name={name!r}: a view has a name of letters, digits and '_'",
    )
    _require(
        name.lower() not in map(str.lower, views),
        f"{place}: there is another view {name!r}: give one of them another name",
    )
    views.append(name)


def _named_sinks(sinks: Sequence[Sink], views: Sequence[str]) -> list[Sink]:
    named: list[Sink] = []
    for number, sink in enumerate(sinks, 1):
        place = f"[[sink]] {number}"
        _check_choice(sink.kind, KINDS, f"{place} kind")
        _check_choice(sink.mode, MODES, f"{place} mode")
        for key, kind in (("topic", "topic"), ("path", "parquet")):
            given = getattr(sink, key) is not None
            _require(given or sink.kind != kind, f"{place}: {key} is missing")
            _require(not given or sink.kind == kind, f"{place}: {key} needs kind = {kind!r}")
        view = sink.view or views[-1]
        _check_choice(view, views, f"{place} from")
        several = [each.kind for each in sinks].count(sink.kind) > 1
        name = sink.name or (f"{sink.kind}-{number}" if several else sink.kind)
        _require(
            _NAME.fullmatch(name) is not None,
            f"{place}: name={name!r}: give a name of letters, digits, '.', '_' and '-'",
        )
        _require(
            all(name != each.name for each in named),
            f"{place}: there is another sink {name!r}: give one of them another name",
        )
        named.append(replace(sink, view=view, name=name))
    return named


def _check_trigger(trigger: str | None) -> None:
    if trigger is not None and trigger != AVAILABLE_NOW:
        _require(
            _INTERVAL.fullmatch(trigger) is not None,
            f'[pipeline] trigger={trigger!r}: write an interval, such as "5 seconds", or '
            f'"{AVAILABLE_NOW}" to process what there is and end',
        )


# -- tables of a file ------------------------------------------------------------------------------


def _rows(document: Mapping[str, Any], key: str) -> list[tuple[str, Mapping[str, Any]]]:
    rows = document.get(key, [])
    _require(isinstance(rows, list), f"[{key}] is one table: write [[{key}]]")
    places = [f"[[{key}]] {number}" for number in range(1, len(rows) + 1)]
    return [(place, _table(row, place)) for place, row in zip(places, rows, strict=True)]


def _record(kind: type[T], row: Mapping[str, Any], place: str) -> T:
    """Return a Source, Step or Sink from one table."""
    keys = ["from" if each.name == "view" else each.name for each in fields(cast("Any", kind))]
    _check_keys(row, place, keys)
    values: dict[str, Any] = {}
    for key, value in row.items():
        at = f"{place} {key}"
        if key == "options":
            values[key] = _options(value, at)
        elif key == "topics":
            rows = cast("list[object]", value) if isinstance(value, list) else None
            _require(rows is not None, f'{at}: write a list, as ["clicks"]')
            values[key] = tuple(_text(topic, at) for topic in rows or ())
        elif key == "watermark":
            table = _table(value, at)
            _check_keys(table, at, ("column", "delay"))
            _require(len(table) == 2, f"{at}: give both column and delay")
            values[key] = Watermark(**{name: _text(text, at) for name, text in table.items()})
        else:
            values["view" if key == "from" else key] = _text(value, at)
    _require(kind is not Sink or "kind" in values, f"{place}: kind is missing: {', '.join(KINDS)}")
    return kind(**values)


def _options(value: object, place: str) -> dict[str, str]:
    """Return options as text, as Spark expects; TOML also has numbers and booleans."""
    options: dict[str, str] = {}
    for key, each in _flat(_table(value, place)):
        if isinstance(each, bool):
            options[key] = str(each).lower()
        elif isinstance(each, str | int | float):
            options[key] = str(each)
        else:
            raise InvalidConfigurationError(f"{place} {key}: write a text, a number or a boolean")
    return options


def _flat(table: Mapping[str, object], prefix: str = "") -> list[tuple[str, object]]:
    """Return joined keys of nested tables: TOML reads `kafka.acks = 1` as a table `kafka`."""
    rows: list[tuple[str, object]] = []
    for key, value in table.items():
        if isinstance(value, dict):
            rows += _flat(cast("dict[str, object]", value), f"{prefix}{key}.")
        else:
            rows.append((prefix + key, value))
    return rows


def _table(value: object, place: str) -> Mapping[str, Any]:
    _require(isinstance(value, dict), f"{place} is missing or no table")
    return cast("dict[str, Any]", value)


def _text(value: object, place: str) -> str:
    _require(isinstance(value, str) and bool(value), f"{place}: write a text that is not empty")
    return cast("str", value)


def _check_keys(table: Mapping[str, Any], place: str, known: Sequence[str]) -> None:
    for key in table:
        _check_choice(key, known, f"{place} has no key", shown=False)


def _check_choice(value: str, known: Sequence[str], place: str, *, shown: bool = True) -> None:
    """Check that a value is known; the error suggests a similar one."""
    if value in known:
        return
    near = difflib.get_close_matches(value, known, 1)
    advice = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
    raise InvalidConfigurationError(f"{place}{'=' if shown else ' '}{value!r}: {advice}")


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise InvalidConfigurationError(message)
