"""The `kafka-async` commands in the documentation, and their options, exist."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from kafka_async.cli.app import app
from kafka_async.cli.properties import parse_properties
from kafka_async.secrets import Secret
from tests.docs.markdown_blocks import PAGES, blocks_of


def shown() -> Iterator[str]:
    """Yield the command lines of shell blocks, without comments and redirections."""
    for page in PAGES:
        for block in blocks_of(page):
            if block.language == "sh":
                for line in block.body.replace("\\\n", "").splitlines():
                    command = line.partition("#")[0].partition("<")[0].strip()
                    if command.startswith("kafka-async "):
                        yield command


def refusal(arguments: list[str]) -> str:
    """Return the error for these arguments; `--help` prevents the command from running."""
    result = CliRunner().invoke(app, [*arguments, "--help"])
    return result.output if result.exit_code else ""


def test_pages_show_each_command() -> None:
    assert {command.split()[1] for command in shown()} >= {"broker", "topics", "produce", "consume"}


@pytest.mark.parametrize("command", sorted(set(shown())))
def test_shown_command_is_accepted(command: str) -> None:
    assert refusal(shlex.split(command)[1:]) == ""


def test_unknown_option_is_found() -> None:
    assert "--port" in refusal(["topics", "list", "--port", "1"])


def files_of_properties() -> Iterator[object]:
    for page in PAGES:
        for block in blocks_of(page):
            if block.language == "properties":
                yield pytest.param(block.body, id=block.place)


@pytest.mark.parametrize("text", list(files_of_properties()))
def test_shown_file_of_properties_is_read(text: str) -> None:
    assert all(value for value in parse_properties(Secret(text)).values())
