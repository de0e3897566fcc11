"""Options of format("kafka_async") for TLS and SASL, and where their secrets are read."""

from __future__ import annotations

import os
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from kafka_async.errors import InvalidConfigurationError
from kafka_async.secrets import Secret
from kafka_async.spark.sink.sink_options import sink_options
from kafka_async.spark.source.source_options import source_options
from tests.planted_secrets import KEY_PEM, PASSPHRASE, PASSWORD, secrets_in, text_of

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
SASL = {**SERVERS, "sasl_mechanism": "PLAIN", "security_protocol": "SASL_SSL"}
ALICE = {**SASL, "sasl_username": "alice"}
VARIABLE = "KAFKA_PASSWORD_OF_ALICE"


@pytest.mark.parametrize(
    "options",
    [
        {**ALICE, "sasl_password": PASSWORD},
        {**ALICE, "kafka.sasl.password": PASSWORD},
        {**ALICE, "KAFKA.SASL_PASSWORD": PASSWORD},
    ],
)
def test_secret_options_are_hidden_and_survive_pickling(options: dict[str, str]) -> None:
    made = sink_options(options)
    assert secrets_in(repr(made)) == set()
    assert "sasl_password" in repr(made)
    for each in (made, pickle.loads(pickle.dumps(made))):
        config = each.config()
        assert (config.security_protocol, config.sasl_mechanism) == ("SASL_SSL", "PLAIN")
        assert (config.sasl_username, config.sasl_password) == ("alice", Secret(PASSWORD))


@pytest.mark.parametrize("name", ["sasl_password_env", "kafka.sasl.password.env"])
def test_variable_is_read_by_the_process_that_connects(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    made = source_options({**ALICE, "subscribe": "t", name: VARIABLE})
    pickled = pickle.dumps(made)
    with pytest.raises(InvalidConfigurationError, match=f"executorEnv.{VARIABLE}"):
        made.config()
    monkeypatch.setenv(VARIABLE, PASSWORD)
    assert pickle.loads(pickled).config().sasl_password == Secret(PASSWORD)
    assert secrets_in(pickle.dumps(made)) == set()


@pytest.mark.parametrize("name", ["sasl_password_file", "kafka.sasl.password.file"])
def test_file_is_read_by_the_process_that_connects(tmp_path: Path, name: str) -> None:
    file = tmp_path / "password"
    made = sink_options({**ALICE, name: str(file)})
    with pytest.raises(InvalidConfigurationError, match=r"[Nn]o such file"):
        made.config()
    file.write_text(PASSWORD + "\n")
    file.chmod(0o644)
    with pytest.raises(InvalidConfigurationError, match="chmod 600"):
        made.config()
    file.chmod(0o600)
    assert made.config().sasl_password == Secret(PASSWORD)
    assert secrets_in(pickle.dumps(made)) == set()
    file.write_text(PASSWORD * 10_000)
    with pytest.raises(InvalidConfigurationError, match="is longer than 65,536 bytes"):
        made.config()
    file.unlink()
    os.mkfifo(file, 0o600)
    with pytest.raises(InvalidConfigurationError, match="a device or another special file"):
        made.config()


def test_path_of_an_assertion_is_an_option_of_its_name() -> None:
    assertion = {
        "kafka.bootstrap.servers": "a:1",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_assertion_file": "assertion.jwt",
        "kafka.sasl.oauthbearer.assertion.template.file": "template.json",
    }
    config = sink_options(assertion).config()
    assert config.sasl_oauthbearer_assertion_file == "assertion.jwt"
    assert config.sasl_oauthbearer_assertion_template_file == "template.json"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sasl_password": PASSWORD, "kafka.sasl.password": PASSWORD}, "given twice"),
        ({"sasl_password": PASSWORD, "sasl_password_env": VARIABLE}, "are the same: give one"),
        ({"sasl_password_file": "f", "sasl_password_env": VARIABLE}, "are the same: give one"),
        ({"sasl_password_env": "AWS_SECRET_ACCESS_KEY"}, "begins with KAFKA_"),
        (
            {"sasl_password_env": VARIABLE, "kafka.request.timeout.ms": "0"},
            "kafka.request.timeout.ms=0",
        ),
        ({"ssl_keyfile": KEY_PEM}, "Spark shows the option ssl_keyfile"),
        ({"kafka.ssl.keystore.key": KEY_PEM}, "give kafka.ssl.keystore.key.env"),
        (
            {"sasl_oauthbearer_assertion_private_key_passphrase": PASSPHRASE},
            "Spark shows the option sasl_oauthbearer_assertion_private_key_passphrase",
        ),
        ({"kafka.sasl.pass": PASSWORD}, "did you mean kafka.sasl.password?"),
        ({"kafka.sasl.login.callback.handler.class": "a.B"}, "sasl.login.callback.handler.class"),
        ({"kafka.sasl.client.callback.handler.class": "a.B"}, "sasl.client.callback.handler.class"),
        ({"kafka.ssl.engine.factory.class": "a.B"}, "ssl.engine.factory.class"),
        ({"kafka.security.providers": "a.B"}, "kafka.security.providers"),
        ({"kafka.config.providers": "file"}, "kafka.config.providers"),
        ({"kafka.interceptor.classes": "a.B"}, "kafka.interceptor.classes"),
        (
            {"kafka.sasl.jaas.config": f'a.b.JndiLoginModule required password="{PASSWORD}";'},
            "sasl",
        ),
    ],
)
def test_error_names_the_option_and_shows_no_secret(options: dict[str, str], message: str) -> None:
    base: dict[str, Any] = dict(ALICE)
    with pytest.raises(InvalidConfigurationError, match=re.escape(message)) as caught:
        sink_options({**base, **options})
    assert secrets_in(text_of(caught.value)) == set()
