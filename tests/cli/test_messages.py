"""Messages of the clients, with the names of the command line."""

from __future__ import annotations

import logging

import pytest

from kafka_async.cli import terminal
from kafka_async.cli.messages import SASL_PASSWORD, SSL_PASSWORD, in_command_terms


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("leave security_protocol out", "leave --security-protocol out"),
        ('set security_protocol="SSL" or "SASL_SSL"', "set --security-protocol SSL or SASL_SSL"),
        ("ssl_cafile='/ca.pem' cannot be read", "--ssl-cafile '/ca.pem' cannot be read"),
        ("or sasl_allow_plaintext=True to accept it", "or --sasl-allow-plaintext to accept it"),
        (
            "PLAIN needs sasl_password: it is missing",
            f"PLAIN needs the password ({SASL_PASSWORD}, --sasl-password-file or "
            "--sasl-password-keyring): it is missing",
        ),
        ("ssl_password: check it", f"the password of the private key ({SSL_PASSWORD}): check it"),
        (
            "see ssl_enabled_protocols: 1.2 and newer",
            "see ssl.enabled.protocols in the file of --command-config: 1.2 and newer",
        ),
        ("give ssl_cafile, or an ssl_context, that trusts it", "give --ssl-cafile that trusts it"),
        (
            "with ssl_check_hostname=False to any host",
            "with an empty ssl.endpoint.identification.algorithm in the file of --command-config "
            "to any host",
        ),
        ("give ssl_cafile.", "give --ssl-cafile."),
    ],
)
def test_names_the_options_of_the_command_line(message: str, expected: str) -> None:
    assert in_command_terms(message) == expected


@pytest.mark.parametrize(
    "message",
    [
        "the topic my_sasl_topic does not exist",
        "the topic sasl_events does not exist",
        "the group ssl_readers is empty",
        "'/etc/ssl_certs/ca.pem' cannot be read",
        "'ssl_certs/ssl_cafile' cannot be read",
        "'/etc/ssl_keyfile.pem' cannot be read",
        "'ssl_keyfile-2' cannot be read",
    ],
)
def test_changes_no_names_and_paths_of_users(message: str) -> None:
    assert in_command_terms(message) == message


def test_warnings_of_clients_are_printed_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        logging.getLogger("kafka_async.cluster").warning("no broker:\n  give %s", "ssl_cafile")

    terminal.run(main)
    assert capsys.readouterr().err == "warning: no broker: give --ssl-cafile\n"
    logging.getLogger("kafka_async.cluster").warning("after the command")
    assert "warning: " not in capsys.readouterr().err
