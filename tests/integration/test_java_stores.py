"""The commands that convert Java's key stores give files that connect to a cluster."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest

from kafka_async.config.java_security import JKS_TO_PKCS12, PKCS12_TO_PEM, TRUSTSTORE_TO_PEM
from kafka_async.testing.backends.jvm import find_java

PASSWORD = "geheim"
pytestmark = pytest.mark.slow


def run(command: str, directory: Path, answers: str) -> None:
    """Run a command of the page, which asks for passwords at its standard input."""
    path = f"{Path(find_java().command).parent}:/usr/bin:/bin"
    subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=directory,
        env={"PATH": path},
        input=answers,
        text=True,
        check=True,
        capture_output=True,
        timeout=120,
    )


def make_stores(directory: Path) -> None:
    """Write a key store with one key, and a trust store with two certificates."""
    secret = f"-storetype JKS -storepass {PASSWORD} -noprompt"
    for name in ("client", "other"):
        run(
            f"keytool -genkeypair -alias {name} -keyalg RSA -dname CN={name} -ext bc=ca:true "
            f"-keypass {PASSWORD} -keystore {name}.jks {secret} && "
            f"keytool -exportcert -alias {name} -keystore {name}.jks {secret} > {name}.der && "
            f"keytool -importcert -alias {name} -file {name}.der -keystore truststore.jks {secret}",
            directory,
            "",
        )


def test_converted_stores_can_be_used(tmp_path: Path) -> None:
    make_stores(tmp_path)
    run(TRUSTSTORE_TO_PEM, tmp_path, f"{PASSWORD}\n")
    run(JKS_TO_PKCS12, tmp_path, f"{PASSWORD}\n{PASSWORD}\n{PASSWORD}\n")
    run(f"{PKCS12_TO_PEM} -passin pass:{PASSWORD} -passout pass:{PASSWORD}", tmp_path, "")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(tmp_path / "ca.pem")
    assert len(context.get_ca_certs()) == 2
    context.load_cert_chain(tmp_path / "client.pem", password=PASSWORD)
