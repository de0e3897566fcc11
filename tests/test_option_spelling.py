"""Messages name options as the caller writes them, and errors have the option."""

from __future__ import annotations

import ast
import asyncio
import dataclasses
import logging
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_async.cli import terminal
from kafka_async.cli.connection_options import ConnectionOptions
from kafka_async.cli.option_names import SASL_PASSWORD, SSL_PASSWORD, CommandLineNames
from kafka_async.client.security.sasl import mechanism_for
from kafka_async.config import ClientConfig, ConsumerConfig, ProducerConfig
from kafka_async.config.spelling import (
    PropertyNames,
    if_objects,
    options_written_as,
    process_writes,
    spell,
    spell_given,
    with_dots,
)
from kafka_async.errors import Category, InvalidConfigurationError
from kafka_async.spark.options import client_options, names_as_given
from kafka_async.spark.properties import Properties
from tests.programs import ROOT

pytestmark = pytest.mark.one_kernel


def by_keywords(role: Any, options: dict[str, Any]) -> None:
    role("a:1", **options)


def by_properties(role: Any, options: dict[str, Any]) -> None:
    role.from_properties(
        {"bootstrap.servers": "a:1", **{with_dots(n): v for n, v in options.items()}}
    )


def by_dashes(role: Any, options: dict[str, Any]) -> None:
    named = {name.replace("_", "-"): value for name, value in options.items()}
    role.from_properties({"bootstrap.servers": "a:1", **named})


def by_spark(role: Any, options: dict[str, Any]) -> None:
    named = {"kafka.Bootstrap.Servers": "a:1"}
    named |= {f"kafka.{with_dots(name)}": str(value) for name, value in options.items()}
    with names_as_given(named):
        Properties(role, client_options(named, {}))


def by_command_line(role: Any, options: dict[str, Any]) -> None:
    ConnectionOptions({"bootstrap_servers": "a:1"}, 15).config(role, **options)


def by_file(role: Any, options: dict[str, Any]) -> None:
    written = {name: with_dots(name) for name in options}
    ConnectionOptions({"bootstrap_servers": "a:1", **options}, 15, written).config(role)


WRITERS = [by_keywords, by_properties, by_dashes, by_spark, by_command_line, by_file]
CASES: list[tuple[type[ClientConfig], dict[str, Any], str, list[str]]] = [
    (
        ProducerConfig,
        {"linger_ms": -1},
        "linger_ms",
        [
            "linger_ms=-1 must be at least 0",
            "linger.ms=-1 must be at least 0",
            "linger-ms=-1 must be at least 0",
            "kafka.linger.ms=-1 must be at least 0",
            "linger.ms=-1 in the file of --command-config must be at least 0",
            "linger.ms=-1 must be at least 0",
        ],
    ),
    (
        ClientConfig,
        {"ssl_cafile": "ca.pem"},
        "ssl_cafile",
        [
            "ssl_cafile is given but security_protocol is PLAINTEXT, which does not use TLS: set "
            'security_protocol="SSL"',
            "ssl.cafile is given but security.protocol is PLAINTEXT, which does not use TLS: set "
            "security.protocol=SSL",
            "ssl-cafile is given but security.protocol is PLAINTEXT, which does not use TLS: set "
            "security.protocol=SSL",
            "kafka.ssl.cafile is given but kafka.security.protocol is PLAINTEXT, which does not "
            "use TLS: set kafka.security.protocol=SSL",
            "--ssl-cafile is given but --security-protocol is PLAINTEXT, which does not use TLS: "
            "set --security-protocol SSL",
            "ssl.cafile is given but --security-protocol is PLAINTEXT, which does not use TLS: set "
            "--security-protocol SSL",
        ],
    ),
    (
        ProducerConfig,
        {"acks": 1, "enable_idempotence": True},
        "acks",
        [
            'acks=1 contradicts enable_idempotence=True: take acks="all", or '
            "enable_idempotence=False",
            "acks=1 contradicts enable.idempotence=true: take acks=all, or "
            "enable.idempotence=false",
            "acks=1 contradicts enable-idempotence=true: take acks=all, or "
            "enable-idempotence=false",
            "kafka.acks=1 contradicts kafka.enable.idempotence=true: take kafka.acks=all, or "
            "kafka.enable.idempotence=false",
            "acks=1 in the file of --command-config contradicts enable.idempotence=true in the "
            "file of --command-config: take acks=all in the file of --command-config, or "
            "enable.idempotence=false in the file of --command-config",
            "acks=1 contradicts enable.idempotence=true: take acks=all, or "
            "enable.idempotence=false",
        ],
    ),
    (
        ConsumerConfig,
        {"group_id": "g", "group_remote_assignor": "uniform"},
        "group_remote_assignor",
        [
            'group_remote_assignor needs group_protocol="consumer": members of the classic '
            "protocol assign partitions themselves, by partition_assignment_strategy",
            "group.remote.assignor needs group.protocol=consumer: members of the classic protocol "
            "assign partitions themselves, by partition.assignment.strategy",
            "group-remote-assignor needs group.protocol=consumer: members of the classic protocol "
            "assign partitions themselves, by partition.assignment.strategy",
            "kafka.group.remote.assignor needs kafka.group.protocol=consumer: members of the "
            "classic protocol assign partitions themselves, by "
            "kafka.partition.assignment.strategy",
            "group.remote.assignor in the file of --command-config needs group.protocol=consumer "
            "in the file of --command-config: members of the classic protocol assign partitions "
            "themselves, by partition.assignment.strategy in the file of --command-config",
            "group.remote.assignor needs group.protocol=consumer: members of the classic protocol "
            "assign partitions themselves, by partition.assignment.strategy",
        ],
    ),
]


@pytest.mark.parametrize(
    ("write", "role", "options", "option", "message"),
    [
        pytest.param(write, role, options, option, message, id=f"{option}-{write.__name__}")
        for role, options, option, messages in CASES
        for write, message in zip(WRITERS, messages, strict=True)
    ],
)
def test_error_names_options_as_the_caller_writes_them(
    write: Callable[..., None], role: Any, options: dict[str, Any], option: str, message: str
) -> None:
    with pytest.raises(InvalidConfigurationError) as caught:
        write(role, options)
    assert (caught.value.message, caught.value.option) == (message, option)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (lambda: f"leave {spell('security_protocol')} out", "leave --security-protocol out"),
        (
            lambda: f"set {spell('security_protocol', 'SSL', 'SASL_SSL')}",
            "set --security-protocol SSL or SASL_SSL",
        ),
        (lambda: spell_given("ssl_cafile", "'/ca.pem'"), "--ssl-cafile '/ca.pem'"),
        (lambda: spell("sasl_allow_plaintext", True), "--sasl-allow-plaintext"),
        (lambda: spell("sasl_allow_plaintext", False), "--sasl-allow-plaintext false"),
        (
            lambda: spell("sasl_password"),
            f"the password ({SASL_PASSWORD}, --sasl-password-file or --sasl-password-keyring)",
        ),
        (lambda: spell("ssl_password"), f"the password of the private key ({SSL_PASSWORD})"),
        (
            lambda: spell("ssl_check_hostname", False),
            "ssl.check.hostname=false in the file of --command-config",
        ),
        (lambda: "give one" + if_objects(", or a function"), "give one"),
    ],
)
def test_command_line_names_its_own_options(message: Callable[[], str], expected: str) -> None:
    with process_writes(CommandLineNames({})):
        assert message() == expected
    assert message() != expected


def test_warnings_of_a_command_name_its_options_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def main() -> None:
        name = await asyncio.to_thread(spell, "ssl_cafile")
        logging.getLogger("kafka_async.cluster").warning("no broker:\n  give %s", name)

    terminal.run(main)
    assert capsys.readouterr().err == "warning: no broker: give --ssl-cafile\n"
    assert spell("ssl_cafile") == "ssl_cafile"
    logging.getLogger("kafka_async.cluster").warning("after the command")
    assert "warning: " not in capsys.readouterr().err


def test_block_that_reads_properties_keeps_the_writing_of_a_block_around_it() -> None:
    with (
        options_written_as(PropertyNames({}, prefix="kafka."), by_default=True),
        pytest.raises(InvalidConfigurationError, match=r"^kafka\.linger\.ms=-1 must"),
    ):
        ProducerConfig.from_properties({"bootstrap.servers": "a:1", "linger.ms": "-1"})
    assert spell("linger_ms") == "linger_ms"


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"security_protocol": "SASL_SSL"}, "sasl_mechanism"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}, "sasl_username"),
        ({"sasl_mechanism": "PLAIN", "sasl_username": "a", "sasl_password": "b"}, "sasl_mechanism"),
        ({"bootstrap_servers": "a"}, "bootstrap_servers"),
        ({"linger": 5}, "linger"),
        (
            {
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "PLAIN",
                "sasl_username": "a",
                "sasl_password": "b",
            },
            "security_protocol",
        ),
    ],
)
def test_error_has_the_option_to_change(options: dict[str, Any], option: str) -> None:
    given: dict[str, Any] = {"bootstrap_servers": "a:1", **options}
    with pytest.raises(InvalidConfigurationError) as caught:
        mechanism_for(ClientConfig(**given))
    assert caught.value.option == option
    assert pickle.loads(pickle.dumps(caught.value)).option == option
    again = InvalidConfigurationError.from_cause(caught.value, Category.INVALID_CONFIGURATION)
    assert again.option == option


def test_error_without_an_option_has_none() -> None:
    with pytest.raises(InvalidConfigurationError) as caught:
        ClientConfig({"bootstrap.servers": "a:1"})  # pyright: ignore[reportArgumentType]
    assert caught.value.option is None


# --- The code takes the names of options from one place ------------------------------------------

OPTIONS = {
    row.name
    for role in (ClientConfig, ProducerConfig, ConsumerConfig)
    for row in dataclasses.fields(role)
}
SECURITY = {name for name in OPTIONS if name.startswith(("ssl_", "sasl_", "security_"))}
SPELLED = SECURITY | {"bootstrap_servers", "compression_type"}
OF_BROKERS = ("embedded", "testing", "protocol", "blocking")
"""Packages whose messages are not about options of a client, or are generated."""
EXEMPT = ("ConfigResource(ResourceType.GROUP, group_id)", "Log a warning with the stack of what")
"""Parts of Python code in a message, and of an option's documentation."""


def sentences(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the texts of a module that may be messages: no docstrings, and no options' docs."""
    documentation: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            documentation.add(id(node.value))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("option", "_option"):
            documentation.update(map(id, ast.walk(node)))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or id(node) in documentation:
            continue
        if isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value


def plain_names(path: Path, names: set[str]) -> list[str]:
    pattern = re.compile(rf"(?<![\w.{{])(?:{'|'.join(sorted(names))})(?!\w)")
    return [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for line, text in sentences(ast.parse(path.read_text()))
        if pattern.search(text) and not any(part in text for part in EXEMPT)
    ]


def test_no_message_has_the_name_of_an_option_in_its_text() -> None:
    package = ROOT / "kafka_async"
    found: list[str] = []
    for path in sorted(package.rglob("*.py")):
        room = path.relative_to(package).parts[0]
        if room == "config":
            found += plain_names(path, {name for name in OPTIONS if "_" in name})
        elif room not in OF_BROKERS:
            found += plain_names(path, SPELLED)
    assert found == []


def test_the_scan_finds_a_name_in_a_message() -> None:
    tree = ast.parse('"""Of ssl_cafile."""\nraise E(f"give {x} as ssl_cafile")\n')
    assert [text for _, text in sentences(tree)] == ["give ", " as ssl_cafile"]
