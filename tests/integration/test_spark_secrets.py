"""Planted secrets are searched in what Spark shows of the data source's options."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_async import blocking
from kafka_async.admin import NewTopic
from kafka_async.embedded import run_in_thread
from tests.planted_secrets import NEW_PASSWORD, PASSWORD, secrets_in
from tests.programs import python_path

PROGRAM = Path(__file__).with_name("spark_secrets_program.py")
TOPIC = "planted"
USER = "alice"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.one_kernel
def test_spark_shows_no_secret(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    password_file = tmp_path / "password"
    password_file.touch(0o600)
    password_file.write_text(PASSWORD)
    with run_in_thread(1, listeners="SASL_PLAINTEXT", users={USER: PASSWORD}) as cluster:
        create_topic(cluster.bootstrap_servers)
        base = {
            "kafka.bootstrap.servers": cluster.bootstrap_servers,
            "security_protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "SCRAM-SHA-256",
            "sasl_allow_plaintext": "true",
        }
        named = {**base, "sasl_username": USER}
        login = f'{SCRAM} required username="{USER}" password="{PASSWORD}";'
        given = {
            "topic": TOPIC,
            "options": {**named, "sasl_password": PASSWORD},
            "by variable": {**named, "sasl_password_env": "KAFKA_PLANTED"},
            "by file": {**named, "sasl_password_file": str(password_file)},
            "for Java": {**base, "kafka.sasl.jaas.config": login},
            "wrong": {**named, "sasl_password": NEW_PASSWORD},
        }
        done = subprocess.run(
            [sys.executable, str(PROGRAM), str(tmp_path)],
            env={
                **os.environ,
                "PYSPARK_PYTHON": sys.executable,
                "PYTHONPATH": python_path(),
                "KAFKA_PLANTED": PASSWORD,
            },
            input=json.dumps(given) + "\n",
            capture_output=True,
            text=True,
            check=False,
        )
    password_file.unlink()
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("rows: 2") == 2
    assert done.stdout.count("progress: ['{") == 1
    assert done.stdout.count("error: Traceback") == 3
    assert done.stdout.count("check sasl_username and sasl_password") >= 2
    assert secrets_in(done.stdout + done.stderr) == set()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.relative_to(tmp_path).parts[0] for path in files} >= {"events", "checkpoint"}
    shown = {str(path): secrets_in(path.read_bytes()) for path in files}
    assert {path: names for path, names in shown.items() if names} == {}
    # Spark shows options in its event log, and hides the secrets among them.
    (events,) = (tmp_path / "events").iterdir()
    log = events.read_text()
    assert "kafka.sasl.mechanism -> SCRAM-SHA-256" in log
    assert "kafka.sasl.jaas.config -> *********(redacted)" in log


def create_topic(servers: str) -> None:
    with blocking.Admin(
        servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_allow_plaintext=True,
        sasl_username=USER,
        sasl_password=PASSWORD,
    ) as admin:
        admin.create_topics([NewTopic(TOPIC)])
