"""The commands topics, produce and consume: their output and exit status."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
from base64 import b64encode
from pathlib import Path

import pytest

from kafka_async import Consumer, Producer
from kafka_async.cli.quota_usage import in_progress, print_usage
from tests.cli.conftest import Command, call
from tests.cli.programs import Program, run


def fill(servers: str, topic: str, values: list[bytes]) -> None:
    async def main() -> None:
        async with Producer(servers) as producer:
            await producer.send_many(topic, values)

    asyncio.run(main())


@pytest.fixture
def topic(command: Command, request: pytest.FixtureRequest) -> str:
    name = request.node.name.translate({ord("["): "-", ord("]"): None})
    assert command("topics", "create", name, "--partitions", "2").status == 0
    return name


def test_creates_lists_describes_and_deletes_a_topic(command: Command) -> None:
    created = command(
        "topics", "create", "life", "--partitions", "3", "--config", "retention.ms=60000"
    )
    assert (created.status, created.out, created.err) == (
        0, "", "created life with 3 partitions\n"
    )  # fmt: skip
    assert "life" in command("topics", "list").out.splitlines()
    described = command("topics", "describe", "life").out
    assert "in sync" in described
    assert sum(line.split()[:1] in (["0"], ["1"], ["2"]) for line in described.splitlines()) == 3
    assert described.endswith("\nretention.ms=60000\n")
    assert command("topics", "delete", "life").err == "deleted life\n"
    assert "life" not in command("topics", "list").out.splitlines()


def test_error_of_an_illegal_topic_name_lists_the_legal_characters(command: Command) -> None:
    for arguments in (("topics", "create", "not legal!"), ("produce", "not legal!", __file__)):
        error = command(*arguments).error
        assert re.search(r"a-z A-Z 0-9 \. _ -|letters, digits, '\.', '_', '-'", error)
        assert error.count("not legal!: ") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        *("", "broker", "demo", "produce", "consume", "topics", "topics create", "topics list"),
        *("pipeline", "pipeline run", "pipeline validate", "spark-sink repair"),
    ],
)
def test_help_shows_no_type_of_options_without_a_value(arguments: str) -> None:
    shown = call(*arguments.split(), "--help", env={"COLUMNS": "200"}).out
    assert "--help" in shown
    assert "<bool>" not in shown


def test_produces_and_consumes_lines(command: Command, topic: str, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_bytes("one\ntwo\r\n\nü\nlast".encode())
    produced = command("produce", topic, str(text))
    assert (produced.status, produced.out, produced.err) == (
        0, "", f"5 records produced to {topic}\n"
    )  # fmt: skip
    consumed = command("consume", topic, "--offset", "beginning", "--exit")
    assert (consumed.status, consumed.err) == (0, "5 records\n")
    assert sorted(consumed.out.split("\n")[:-1]) == sorted(["one", "two", "", "ü", "last"])


def test_quota_shows_the_used_part_of_each_quota(
    command: Command, topic: str, tmp_path: Path
) -> None:
    text = tmp_path / "text"
    text.write_text("one\ntwo\n")
    produced = command("produce", topic, str(text), "--quota")
    assert (produced.status, produced.err) == (
        0,
        "broker 1: 0% of the produce quota, or no produce quota applies\n"
        f"2 records produced to {topic}\n",
    )  # fmt: skip
    consumed = command("consume", topic, "--offset", "beginning", "--exit", "--quota")
    assert (consumed.status, consumed.err) == (
        0, "broker 1: 0% of the fetch quota, or no fetch quota applies\n2 records\n"
    )  # fmt: skip


def test_statistics_are_not_computed_without_quota(
    command: Command, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They iterate over all partitions, and each batch of records would compute them."""
    text = tmp_path / "text"
    text.write_bytes(b"one\ntwo\n")
    for client in (Producer, Consumer):
        monkeypatch.setattr(client, "statistics", None)
    assert command("produce", topic, str(text)).status == 0
    assert command("consume", topic, "--offset", "beginning", "--exit").err == "2 records\n"


def test_quota_texts_name_the_percentage_or_what_it_needs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert in_progress({}) == in_progress({(1, "fetch"): None}) == ""
    assert in_progress({(1, "fetch"): 12.4, (2, "fetch"): 99.6}) == ", 100% of the quota"
    print_usage({(2, "fetch"): 99.6, (1, "fetch"): None})
    assert capsys.readouterr().err.splitlines() == [
        "broker 1: an unknown part of the fetch quota",
        "broker 2: 100% of the fetch quota",
        "the quotas are unknown: they need the permission DESCRIBE_CONFIGS of the cluster",
    ]


def test_produces_lines_of_standard_input_before_its_end(servers: str, topic: str) -> None:
    with Program(
        "produce", topic, "--bootstrap", servers, stdin=subprocess.PIPE
    ) as program, Program(
        "consume", topic, "--bootstrap", servers, "--offset", "beginning", "-n", "1"
    ) as reader:  # fmt: skip
        program.write(b"now\n")
        assert reader.end() == (0, "now\n", "1 record\n")  # The writer's input is still open.
        assert program.end() == (0, "", f"1 record produced to {topic}\n")


def test_json_lines_have_all_fields_of_a_record(
    command: Command, topic: str, tmp_path: Path
) -> None:
    text = tmp_path / "text"
    text.write_bytes(b"key=value\nno key\n\\xff=\xfe\n")
    command("produce", topic, str(text), "--key-separator", "=", "--compression", "lz4")
    out = command("consume", topic, "--offset", "beginning", "--exit", "--json").out
    rows = [json.loads(line) for line in out.splitlines()]
    found = [(row["key"], row["value"]) for row in rows]
    other = {"base64": b64encode(b"\xfe").decode()}
    for pair in (("key", "value"), (None, "no key"), ("\\xff", other)):
        assert pair in found
    assert len(found) == 3
    assert {row["topic"] for row in rows} == {topic}
    for row in rows:
        assert list(row) == [
            "topic", "partition", "offset", "timestamp", "key", "value", "headers"
        ]  # fmt: skip
        assert row["timestamp"] > 1_700_000_000_000
        assert row["headers"] == []


def test_consumes_from_an_offset_up_to_a_count(command: Command, servers: str) -> None:
    command("topics", "create", "numbers")
    fill(servers, "numbers", [str(n).encode() for n in range(20)])
    assert command("consume", "numbers", "--offset", "17", "--exit").out == "17\n18\n19\n"
    first = command("consume", "numbers", "--offset", "beginning", "--count", "3")
    assert (first.out, first.err) == ("0\n1\n2\n", "3 records\n")
    assert command("consume", "numbers", "--offset", "end", "--exit").out == ""
    assert command("consume", "numbers", "--offset", "20", "--exit").err == "0 records\n"
    expected = "error: --offset 50 is out of range: the partition has readable offsets 0 to 20"
    assert command("consume", "numbers", "--offset", "50").error == expected
    assert command("consume", "numbers", "--offset", "50", "--exit").error == expected


def test_offset_beyond_a_partition_starts_at_its_end(command: Command, servers: str) -> None:
    async def produce() -> None:
        async with Producer(servers) as producer:
            for partition, value in ((0, b"first"), (0, b"second"), (0, b"third"), (1, b"short")):
                await producer.send("uneven", value, partition=partition)

    command("topics", "create", "uneven", "--partitions", "2")
    asyncio.run(produce())
    assert command("consume", "uneven", "--offset", "2", "--exit").out == "third\n"
    error = command("consume", "uneven", "--offset", "4", "--exit").error
    assert "the topic has readable offsets 0 to 3" in error


def test_stops_at_the_end_of_a_topic_that_ends_in_an_aborted_transaction(
    command: Command, servers: str, topic: str
) -> None:
    async def transactions() -> None:
        async with Producer(servers, transactional_id=topic) as producer:
            async with producer.transaction() as transaction:
                await transaction.enqueue(topic, b"stays")
            transaction = await producer.begin()
            await transaction.enqueue(topic, b"goes")
            await producer.flush()
            await transaction.abort()

    asyncio.run(transactions())
    read = command("consume", topic, "--offset", "beginning", "--exit")
    assert (read.status, read.out) == (0, "stays\n")
    everything = command("consume", topic, "--offset", "beginning", "--exit", "--no-read-committed")
    assert sorted(everything.out.split()) == ["goes", "stays"]


@pytest.mark.parametrize("verb", ["produce", "consume"])
def test_error_names_a_missing_topic(command: Command, verb: str, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("a line\n")
    ended = command(verb, "nowhere", *([str(text)] if verb == "produce" else []), timeout=1)
    assert "nowhere" in ended.error


def test_error_names_a_topic_created_or_deleted_twice(command: Command, topic: str) -> None:
    assert topic in command("topics", "create", topic).error
    command("topics", "delete", topic)
    assert topic in command("topics", "delete", topic).error


def test_error_has_the_number_of_a_line_over_the_limit(
    command: Command, topic: str, tmp_path: Path
) -> None:
    text = tmp_path / "text"
    text.write_bytes(b"short\n" + b"x" * 1_048_500 + b"\n")
    error = command("produce", topic, str(text)).error
    assert error.startswith("error: line 2: ")
    assert "max_request_size" in error


def test_reading_stops_at_a_line_over_the_limit(
    command: Command, topic: str, tmp_path: Path
) -> None:
    text = tmp_path / "text"
    text.write_bytes(b"x" * 3_000_000)
    error = command("produce", topic, str(text)).error
    assert error.startswith(f"error: {text}: a line is longer than 1,048,576 bytes")


def test_error_names_files_that_cannot_be_read(command: Command, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    assert command("produce", "t", str(missing)).error == f"error: {missing}: no such file"
    error = command("produce", "t", str(tmp_path)).error
    assert error == f"error: {tmp_path} is a directory: name files"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("consume", "t", "--offset", "soon"), "write beginning, end or a number"),
        (
            ("produce", "t", "--compression", "zip"),
            "error: --compression 'zip' is not one of 'none', ",
        ),
        (("produce", "t", "--key-separator", ""), "--key-separator is empty"),
        (("topics", "create", "t", "--config", "x"), "write KEY=VALUE"),
    ],
)
def test_error_names_an_invalid_option(
    command: Command, arguments: tuple[str, ...], message: str
) -> None:
    assert message in command(*arguments).error


def test_error_names_a_port_in_use(servers: str) -> None:
    port = servers.rpartition(":")[2]
    error = call("broker", "--port", port).error
    assert error == f"error: port {port}: in use by another program: choose another --port, or 0"


def test_error_names_the_number_of_racks() -> None:
    error = call("broker", "--port", "0", "--brokers", "3", "--racks", "a,b").error
    assert "'a,b' must name one rack for each of 3 brokers" in error


def test_error_names_the_option_that_a_secure_broker_needs() -> None:
    error = call("broker", "--port", "0", "--security-protocol", "SASL_SSL").error
    assert error == (
        "error: SASL_SSL needs --users-file FILE with a line name:password for each user"
    )


def test_prints_the_version() -> None:
    ended = call("--version")
    assert ended.status == 0
    assert ended.out.startswith("kafka-async ")


def test_help_lists_all_commands() -> None:
    ended = call("--help", terminal_width=80)
    for name in ("demo", "broker", "topics", "produce", "consume"):
        assert f" {name} " in ended.out


def test_ends_quietly_when_the_reader_closes_the_pipe(servers: str, command: Command) -> None:
    command("topics", "create", "much")
    fill(servers, "much", [b"x" * 1000] * 2000)
    with Program(
        "consume", "much", "--bootstrap", servers, "--offset", "beginning", "--exit"
    ) as program:
        assert program.read_line() == b"x" * 1000 + b"\n"
        assert program.process.stdout is not None
        program.process.stdout.close()
        program.process.stdout = None
        status, _, err = program.end()
    assert (status, err) == (1, "")


def test_ctrl_c_ends_consume(servers: str, topic: str) -> None:
    fill(servers, topic, [b"one"])
    with Program(
        "consume", topic, "--bootstrap", servers, "--offset", "beginning"
    ) as program:  # fmt: skip
        assert program.read_line() == b"one\n"
        program.signal(signal.SIGINT)
        assert program.end() == (130, "", "interrupted\n")
        assert program.left() == []


def test_ctrl_c_ends_produce_after_sending_complete_lines(
    command: Command, servers: str, topic: str
) -> None:
    with Program("produce", topic, "--bootstrap", servers, stdin=subprocess.PIPE) as program:
        program.write(b"one\n")
        read = command("consume", topic, "--offset", "beginning", "--count", "1")
        program.signal(signal.SIGINT)
        assert program.process.wait(20) == 130
        assert program.left() == []
    assert read.out == "one\n"


def on_a_terminal(*arguments: str) -> str:
    """Run a command on a terminal of 80 columns and return its output."""
    master, slave = os.openpty()
    environment = {"TERM": "xterm-256color", "COLUMNS": "80", "LANG": "C.UTF-8", "NO_COLOR": ""}
    shown = b""
    try:
        with Program(*arguments, environment=environment, stdout=slave, stderr=slave) as program:
            os.close(slave)
            with contextlib.suppress(OSError):  # The command has closed the other end.
                while data := os.read(master, 4096):
                    shown += data
            assert program.process.wait(20) == 0
    finally:
        os.close(master)
    return shown.decode()


def test_shows_a_progress_bar_on_a_terminal_and_removes_it(
    servers: str, command: Command, tmp_path: Path
) -> None:
    command("topics", "create", "bar")
    text = tmp_path / "text"
    text.write_bytes(b"line\n" * 20_000)
    shown = on_a_terminal("produce", "bar", str(text), "--bootstrap", servers)
    assert "producing to bar" in shown
    assert "\u2501" in shown  # The progress bar.
    assert shown.endswith("20,000 records produced to bar\r\n")
    shown = on_a_terminal(
        "consume", "bar", "--offset", "beginning", "--exit", "--bootstrap", servers
    )
    assert "\u2501" in shown
    assert shown.count("line\r\n") == 20_000
    assert shown.endswith("20,000 records\r\n")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_escapes_characters_that_the_terminal_cannot_encode(servers: str, encoding: str) -> None:
    environment = {"PYTHONIOENCODING": encoding, "LANG": "C", "PYTHONUTF8": "0"}
    arguments = ("topics", "describe", "żaba", "--bootstrap", servers, "--timeout", "1")
    status, out, err = run(*arguments, environment=environment)
    assert (status, out) == (1, "")
    assert "\\u017caba" in err
