"""Options of the command that runs a cluster: files of users and certificates."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from kafka_async.embedded.security.options import SecurityOptions
from kafka_async.errors import InvalidConfigurationError
from kafka_async.secrets import Secret
from tests.integration.certificates import Certificates


@pytest.fixture
def users_file(tmp_path: Path) -> Path:
    file = tmp_path / "users"
    file.touch(mode=0o600)
    file.write_text("alice:pass:word\n\nbob:b\n")
    return file


def test_file_of_users_must_be_private_and_valid(users_file: Path) -> None:
    options = SecurityOptions("SASL_PLAINTEXT", users_file)
    assert options.users() == {"alice": Secret("pass:word"), "bob": Secret("b")}
    users_file.write_text("alice:a\nsecret-without-name\n")
    with pytest.raises(InvalidConfigurationError, match="line 2 is not name:password") as caught:
        options.users()
    assert "secret-without-name" not in str(caught.value)
    users_file.chmod(0o644)
    with pytest.raises(InvalidConfigurationError, match="can be read by other users"):
        options.users()


def test_certificates_come_from_files(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    broker = certificates.write("broker.pem", certificates.broker.pem)
    options = SecurityOptions(
        "SSL", ssl_certfile=Path(broker), ssl_cafile=Path(certificates.cafile)
    )
    listener = options.listeners()["SSL"]
    assert listener.ssl_context is not None
    assert listener.verify_mode == ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            SecurityOptions("PLAINTEXT", users_file=Path("users")),
            "--users-file is given .* set it to SASL_PLAINTEXT or SASL_SSL",
        ),
        (
            SecurityOptions("PLAINTEXT", ssl_certfile=Path("broker.pem")),
            "--ssl-certfile is given but --security-protocol is PLAINTEXT.* SSL or SASL_SSL",
        ),
        (
            SecurityOptions("SASL_PLAINTEXT", Path("users"), ssl_cafile=Path("ca.pem")),
            "--ssl-cafile is given .* set it to SSL or SASL_SSL",
        ),
    ],
)
def test_option_that_the_protocol_does_not_use_is_refused(
    options: SecurityOptions, words: str
) -> None:
    with pytest.raises(InvalidConfigurationError, match=words):
        options.listeners()


def test_error_names_the_file_that_cannot_be_used(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    broker = Path(certificates.write("broker.pem", certificates.broker.pem))
    other = Path(certificates.write("client.key", certificates.client.key))
    empty = Path(certificates.write("empty.pem", ""))
    good = SecurityOptions("SSL", ssl_certfile=broker, ssl_cafile=Path(certificates.cafile))
    for options, words in (
        (good._replace(ssl_certfile=tmp_path / "missing"), "missing cannot be used .No such file"),
        (
            good._replace(ssl_certfile=empty),
            f"--ssl-certfile {empty} cannot be used .not valid PEM",
        ),
        (good._replace(ssl_keyfile=other), f"{other} .*the key does not belong to the certificate"),
        (good._replace(ssl_cafile=empty), f"--ssl-cafile {empty} cannot be used"),
    ):
        with pytest.raises(InvalidConfigurationError, match=words) as caught:
            options.listeners()
        assert "_ssl.c" not in str(caught.value)
