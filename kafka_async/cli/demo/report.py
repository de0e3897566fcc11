"""What a person sees of the demo: progress while it runs, tables and a chart at the end."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Self

from rich import box
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kafka_async.cli import screen

if TYPE_CHECKING:
    from collections.abc import Generator

    from rich.progress import TaskID

    from kafka_async.cli.demo.result import Plan, Result

CHART_ROWS: Final = 12
CHART_WIDTH: Final = 44


class Report:
    """Follows one run on standard error."""

    def __init__(self) -> None:
        self._bounded = screen.progress()
        self._endless = screen.progress(counted=False, bounded=False)
        self._shown = self._endless
        self._task: TaskID | None = None
        self._stages = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._shown.stop()

    def stage(self, title: str, total: int | None) -> None:
        """A new line of progress; the one before is done."""
        if self._task is not None:
            self._shown.stop()
            self._shown.remove_task(self._task)
        self._stages += 1
        screen.err.print(f"[bold]{self._stages}.[/] {title}")
        self._shown = self._endless if total is None else self._bounded
        self._task = self._shown.add_task(f"   {title}", total=total)
        self._shown.start()

    def advance(self, done: int) -> None:
        """Move the bar."""
        if self._task is not None:
            self._shown.update(self._task, completed=done)

    def say(self, line: str) -> None:
        """A line of the story, under the stage's title; a long one goes on beneath itself."""
        mark = "→" if screen.unicode() else "->"
        if not screen.err.is_terminal:
            screen.err.print(Text(f"   {mark} {line}"), soft_wrap=True)
            return
        row = Table.grid(padding=(0, 1))
        row.add_row(mark, Text(line))
        screen.err.print(Padding(row, (0, 0, 0, 3)), style="dim")

    @contextmanager
    def aside(self) -> Generator[None]:
        """Leave the screen to another program."""
        self._shown.stop()
        yield
        self._shown.start()

    @staticmethod
    def show(result: Result, plan: Plan) -> None:
        """The end screen."""
        console = screen.out
        console.print()
        console.print(_stages(result))
        console.print(_chart(result))
        console.print()
        for line in _verdict(result):
            console.print(line, soft_wrap=True)
        for path in result.wrote:
            console.print(f"wrote {path}", markup=False, soft_wrap=True)
        if result.spark != "run":
            console.print(f"Spark was {result.spark}", markup=False, soft_wrap=True)
        console.print(f"next: {_next(result, plan)}", markup=False, soft_wrap=True)


def _stages(result: Result) -> Table:
    table = Table(box=box.SIMPLE if screen.unicode(screen.out) else box.ASCII)
    table.add_column("stage")
    for name in ("records", "seconds", "records/s"):
        table.add_column(name, justify="right", no_wrap=True)
    for stage in result.stages:
        rate = f"{stage.records / stage.seconds:,.0f}" if stage.records and stage.seconds else ""
        records = f"{stage.records:,}" if stage.records else ""
        table.add_row(stage.name, records, f"{stage.seconds:.2f}", rate)
    return table


def _chart(result: Result) -> Table:
    """The most frequent words as bars, as long as there is room for."""
    console = screen.out
    top = result.counts.most_common(CHART_ROWS)
    most = top[0][1] if top else 1
    longest = max((len(word) for word, _ in top), default=0)
    room = console.width - longest - len(f"{most:,}") - 6
    block = "█" if screen.unicode(console) else "#"
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(justify="right")
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    for word, occurrences in top:
        width = max(1, round(max(1, min(CHART_WIDTH, room)) * occurrences / most))
        table.add_row(Text(word), block * width, f"{occurrences:,}")
    return table


def _verdict(result: Result) -> list[Text]:
    compared = result.comparison
    style = "bold green" if compared.equal else "bold red"
    equal = "equal" if compared.equal else "DIFFERENT"
    counted = screen.plural(compared.expected, "word")
    killed = screen.plural(result.killed_workers, "worker")
    aborted = screen.plural(result.aborted_transactions, "transaction")
    return [
        Text(f"a plain count finds {counted}, transactions {compared.found:,}: {equal}", style),
        Text(f"lost {compared.lost:,}, counted twice {compared.duplicated:,}", style),
        Text(
            f"{killed} killed, {aborted} aborted, "
            f"{screen.plural(result.rebalances, 'rebalance')} of the group"
        ),
    ]


def _next(result: Result, plan: Plan) -> str:
    if plan.bootstrap is None:
        return "the same on your own Kafka: kafka-async demo --bootstrap HOST:PORT"
    if not plan.keep:
        return "add --keep, and see what is in the topics"
    topic = result.topics["top-words"]
    return (
        f"kafka-async consume {topic} --bootstrap {plan.bootstrap} --offset beginning --exit --json"
    )
