"""The `kafka-async` commands that the pages show are commands, with options that exist."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from kafka_async.cli.app import app
from tests.docs.markdown_blocks import PAGES, blocks_of


def shown() -> Iterator[str]:
    """Each line of a shell block that calls the command, without comment and redirection."""
    for page in PAGES:
        for block in blocks_of(page):
            if block.language == "sh":
                for line in block.body.splitlines():
                    command = line.partition("#")[0].partition("<")[0].strip()
                    if command.startswith("kafka-async "):
                        yield command


def refusal(arguments: list[str]) -> str:
    """What the command line says of these arguments; nothing is run, only help is asked for."""
    result = CliRunner().invoke(app, [*arguments, "--help"])
    return result.output if result.exit_code else ""


def test_the_pages_show_each_command() -> None:
    assert {command.split()[1] for command in shown()} >= {"broker", "topics", "produce", "consume"}


@pytest.mark.parametrize("command", sorted(set(shown())))
def test_a_command_that_is_shown_can_be_given(command: str) -> None:
    assert refusal(shlex.split(command)[1:]) == ""


def test_an_option_that_is_not_there_is_seen() -> None:
    assert "--port" in refusal(["topics", "list", "--port", "1"])
