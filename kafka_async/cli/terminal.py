"""Terminal output, progress displays and the exit status of subcommands."""

from __future__ import annotations

import io
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from kafka_async.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

T = TypeVar("T")

EXIT_INTERRUPTED: Final = 130

# Show characters that the terminal cannot encode as escapes: an encoding error would end the
# command.
for _stream in (sys.stdout, sys.stderr):
    if isinstance(_stream, io.TextIOWrapper):
        _stream.reconfigure(errors="backslashreplace")

# Records go to standard output, all messages to standard error.
out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False)


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a command's coroutine; an error prints one line and exits with a nonzero status."""
    from kafka_async.cli.option_names import CommandLineNames
    from kafka_async.config.spelling import process_writes
    from kafka_async.runner import SIGNALS
    from kafka_async.runner import run as run_loop

    logger, warnings = logging.getLogger("kafka_async"), _Warnings(logging.WARNING)
    logger.addHandler(warnings)
    try:
        with process_writes(CommandLineNames({})):
            return run_loop(main(), signals=(*SIGNALS, signal.SIGHUP))
    except KeyboardInterrupt:
        err.print("interrupted")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except BrokenPipeError:
        # The reader has closed the pipe, as in `consume | head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    except KafkaError as error:
        fail(str(error))
    except TimeoutError as error:
        fail(str(error) or "it took too long")
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    finally:
        logger.removeHandler(warnings)


class _Warnings(logging.Handler):
    """Prints each warning of the clients in one line."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record."""
        line = " ".join(record.getMessage().split())
        err.print(f"[bold yellow]{record.levelname.lower()}:[/] {escape(line)}", soft_wrap=True)


def fail(message: str) -> NoReturn:
    """Print an error in one line and exit with status 1."""
    line = " ".join(message.split())
    err.print(f"[bold red]error:[/] {escape(line)}", soft_wrap=True)
    raise typer.Exit(1)


def check_readable(files: list[Path]) -> None:
    """Fail unless each path is a readable file."""
    for file in files:
        if not file.exists():
            fail(f"{file}: no such file")
        if file.is_dir():
            fail(f"{file} is a directory: name files")
        if not os.access(file, os.R_OK):
            fail(f"{file}: no permission to read it")


def check_writable(path: Path, *, directory: bool = False) -> None:
    """Fail unless a file, or a directory and its parents, can be created at the path."""
    if path.is_dir() and not directory:
        fail(f"{path} is a directory: name a file")
    if path.exists() and directory and not path.is_dir():
        fail(f"{path} is a file: name a directory")
    place = path if path.exists() else path.absolute().parent
    while directory and not place.exists():
        place = place.parent
    if not place.exists():
        fail(f"{path}: there is no directory {place}")
    if place != path and not place.is_dir():
        fail(f"{path}: {place} is not a directory")
    if not os.access(place, os.W_OK | (os.X_OK if place.is_dir() else 0)):
        fail(f"{path}: no permission to write in {place}")


def unicode(console: Console = err) -> bool:
    """Return whether the terminal can show block characters."""
    return console.encoding.lower().replace("-", "").startswith("utf")


def plural(number: int, noun: str) -> str:
    """Return a number with its noun, such as "1 record" or "2,000 records"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def progress(
    console: Console = err, *, counted: bool = True, bounded: bool = True, silent: bool = False
) -> Progress:
    """Return a display that disappears at its end; without a terminal it shows nothing.

    With `counted` it shows the count and the total, with `bounded` a bar and a percentage.
    """
    columns: list[ProgressColumn] = [
        SpinnerColumn("dots" if unicode(console) else "line"),
        TextColumn("{task.description}", markup=False),
    ]
    if bounded:
        columns += [BarColumn(20), TaskProgressColumn()]
    if counted:
        columns.append(MofNCompleteColumn())
    return Progress(
        *columns,
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=silent or not console.is_terminal,
    )
