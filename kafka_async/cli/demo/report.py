"""Terminal output of the demo: progress, and a summary with a table and a chart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from rich import box
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kafka_async.cli import terminal

if TYPE_CHECKING:
    from rich.progress import TaskID

    from kafka_async.cli.demo.result import DemoOptions, Result

CHART_ROWS: Final = 12
CHART_WIDTH: Final = 44


class Report:
    """Shows the progress of a run on standard error."""

    def __init__(self) -> None:
        self._bounded = terminal.progress()
        self._unbounded = terminal.progress(counted=False, bounded=False)
        self._shown = self._unbounded
        self._task: TaskID | None = None
        self._stages = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._shown.stop()

    def start_stage(self, title: str, total: int | None) -> None:
        """Show a new stage; the previous one is complete."""
        if self._task is not None:
            self._shown.stop()
            self._shown.remove_task(self._task)
        self._stages += 1
        terminal.err.print(f"[bold]{self._stages}.[/] {title}")
        self._shown = self._unbounded if total is None else self._bounded
        self._task = self._shown.add_task(f"   {title}", total=total)
        self._shown.start()

    def advance(self, done: int) -> None:
        """Set the stage's progress."""
        if self._task is not None:
            self._shown.update(self._task, completed=done)

    def show(self, message: str) -> None:
        """Print a message under the stage's title."""
        mark = "→" if terminal.unicode() else "->"
        if not terminal.err.is_terminal:
            terminal.err.print(Text(f"   {mark} {message}"), soft_wrap=True)
            return
        row = Table.grid(padding=(0, 1))  # Indents the wrapped lines of a long message.
        row.add_row(mark, Text(message))
        terminal.err.print(Padding(row, (0, 0, 0, 3)), style="dim")

    @staticmethod
    def print_summary(result: Result, plan: DemoOptions) -> None:
        """Print the summary to standard output."""
        console = terminal.out
        console.print()
        console.print(_stages(result))
        console.print(_chart(result))
        console.print()
        for line in _verdict(result):
            console.print(line, soft_wrap=True)
        for path in result.written_files:
            console.print(f"wrote {path}", markup=False, soft_wrap=True)
        if result.spark != "run":
            console.print(f"Spark was {result.spark}", markup=False, soft_wrap=True)
        console.print(f"next: {_next_step(result, plan)}", markup=False, soft_wrap=True)


def _stages(result: Result) -> Table:
    table = Table(box=box.SIMPLE if terminal.unicode(terminal.out) else box.ASCII)
    table.add_column("stage")
    for name in ("records", "seconds", "records/s"):
        table.add_column(name, justify="right", no_wrap=True)
    for stage in result.stages:
        rate = f"{stage.records / stage.seconds:,.0f}" if stage.records and stage.seconds else ""
        records = f"{stage.records:,}" if stage.records else ""
        table.add_row(stage.name, records, f"{stage.seconds:.2f}", rate)
    return table


def _chart(result: Result) -> Table:
    """Draw the most frequent words as bars that fit into the terminal's width."""
    console = terminal.out
    top = result.counts.most_common(CHART_ROWS)
    highest = top[0][1] if top else 1
    word_width = max((len(word) for word, _ in top), default=0)
    bar_width = min(CHART_WIDTH, console.width - word_width - len(f"{highest:,}") - 6)
    block = "█" if terminal.unicode(console) else "#"
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(justify="right")
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    for word, occurrences in top:
        width = max(1, round(max(1, bar_width) * occurrences / highest))
        table.add_row(Text(word), block * width, f"{occurrences:,}")
    return table


def _verdict(result: Result) -> list[Text]:
    comparison = result.comparison
    style = "bold green" if comparison.equal else "bold red"
    equal = "equal" if comparison.equal else "DIFFERENT"
    expected = terminal.plural(comparison.expected, "word")
    killed = terminal.plural(result.killed_workers, "worker")
    aborted = terminal.plural(result.aborted_transactions, "transaction")
    return [
        Text(f"a plain count finds {expected}, transactions {comparison.found:,}: {equal}", style),
        Text(f"lost {comparison.lost:,}, counted twice {comparison.duplicated:,}", style),
        Text(
            f"{killed} killed, {aborted} aborted, "
            f"{terminal.plural(result.rebalances, 'rebalance')} of the group"
        ),
    ]


def _next_step(result: Result, plan: DemoOptions) -> str:
    if plan.bootstrap is None:
        return "the same on your own Kafka: kafka-async demo --bootstrap HOST:PORT"
    if not plan.keep:
        return "add --keep, and see what is in the topics"
    topic = result.topics["word-totals"]
    return (
        f"kafka-async consume {topic} --bootstrap {plan.bootstrap} --offset beginning --exit --json"
    )
