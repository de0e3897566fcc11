"""Commands of the command line on secure listeners of both clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.conftest import call
from tests.integration.secure_cluster import ADMIN, USERS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.secure_cluster import SecureCluster


def certificate_options(cluster: SecureCluster) -> tuple[str, ...]:
    certificates = cluster.certificates
    chain = certificates.write("command.pem", certificates.client.chain)
    key = certificates.write("command.key", certificates.client.key)
    return ("--security-protocol", "SSL", "--ssl-certfile", chain, "--ssl-keyfile", key)


@pytest.mark.parametrize("listener", ["MTLS", "SASL_SSL"])
def test_commands_create_write_and_read(
    secure_cluster: SecureCluster,
    listener: str,
    tmp_path: Path,
) -> None:
    options = ("--bootstrap", secure_cluster.servers(listener), "--timeout", "30")
    options += ("--ssl-cafile", secure_cluster.certificates.cafile)
    if listener == "MTLS":
        options += certificate_options(secure_cluster)
    else:
        options += ("--security-protocol", "SASL_SSL", "--sasl-mechanism", "SCRAM-SHA-512")
        password = tmp_path / "password"
        password.touch(0o600)
        password.write_text(USERS[ADMIN])
        options += ("--sasl-username", ADMIN, "--sasl-password-file", str(password))
    topic, text = secure_cluster.handle.topic(), tmp_path / "text"
    text.write_text("one\ntwo\n")
    config = ("--config", "retention.ms=60000")
    created = call("topics", "create", topic, *config, *options)
    assert created.err == f"created {topic} with 1 partition\n"
    described = call("topics", "describe", topic, *options).out
    assert "retention.ms=60000" in described.splitlines()
    assert "cleanup.policy" not in described  # a default
    assert call("produce", topic, str(text), *options).err == f"2 records produced to {topic}\n"
    read = call("consume", topic, "--offset=beginning", "--exit", *options)
    assert (read.status, read.out) == (0, "one\ntwo\n")
