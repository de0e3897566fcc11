"""Java's own client over TLS and SASL, by Apache Kafka's tools with a file of its properties."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.helpers import create_topic_blocking
from tests.integration.secure_cluster import ADMIN, ALICE, COMBINATIONS, PROTOCOLS, USERS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.kafka_tools import Tools
    from tests.integration.secure_cluster import SecureCluster

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

LOGIN_MODULES = {
    "PLAIN": "plain.PlainLoginModule",
    "SCRAM-SHA-256": "scram.ScramLoginModule",
    "SCRAM-SHA-512": "scram.ScramLoginModule",
    "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule",
}
ON_BOTH = [("MTLS", None), ("SASL_SSL", "OAUTHBEARER"), ("SASL_PLAINTEXT", "SCRAM-SHA-256")]
"""Those that Java's client uses with Kafka too, which shows that its properties are right."""


class JavaClient:
    """Calls tools with the properties of one user at one listener."""

    def __init__(
        self,
        tools: Tools,
        cluster: SecureCluster,
        directory: Path,
        listener: str,
        mechanism: str | None = None,
        user: str = ADMIN,
    ) -> None:
        self._tools = tools
        self._address = cluster.servers(listener)
        self._file = directory / f"{listener}-{mechanism}-{user}.properties"
        rows = java_properties(cluster, directory, listener, mechanism, user)
        self._file.write_text("".join(f"{key}={value}\n" for key, value in rows.items()))

    def run(self, tool: str, *arguments: str, text: str = "") -> str:
        """Run a tool that must succeed, and return its output."""
        config = "--command-config", str(self._file)
        return self._tools.run(self._address, tool, *config, *arguments, text=text)

    def failure(self, tool: str, *arguments: str, text: str = "") -> str:
        """Run a tool that must fail, and return what it printed."""
        config = "--command-config", str(self._file)
        done = self._tools.call(self._address, tool, *config, *arguments, text=text)
        assert done.returncode, done.stdout
        return done.stdout + done.stderr


def java_properties(
    cluster: SecureCluster, directory: Path, listener: str, mechanism: str | None, user: str
) -> dict[str, str]:
    rows = {
        "security.protocol": PROTOCOLS[listener],
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": cluster.certificates.cafile,
    }
    if listener == "MTLS":
        keystore = directory / "client.pem"
        keystore.write_text(cluster.certificates.client.pem)
        rows |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(keystore)}
    if mechanism is not None:
        password = USERS[user].replace("\\", "\\\\").replace('"', '\\"')
        login = f'username="{user}" password="{password}"'
        if mechanism == "OAUTHBEARER":
            login = f'unsecuredLoginStringClaim_sub="{user}"'
        module = f"org.apache.kafka.common.security.{LOGIN_MODULES[mechanism]}"
        config = f"{module} required {login};".replace("\\", "\\\\").replace("\u00fc", "\\u00fc")
        rows |= {"sasl.mechanism": mechanism, "sasl.jaas.config": config}
    return rows


@pytest.mark.parametrize(
    ("listener", "mechanism"),
    [
        pytest.param(*each, marks=[] if each in ON_BOTH else pytest.mark.one_backend("embedded"))
        for each in COMBINATIONS
    ],
)
def test_console_producer_and_consumer(
    tools: Tools,
    secure_cluster: SecureCluster,
    tmp_path: Path,
    listener: str,
    mechanism: str | None,
) -> None:
    topic = create_topic_blocking(secure_cluster.handle)
    client = JavaClient(tools, secure_cluster, tmp_path, listener, mechanism)
    client.run("ConsoleProducer", "--topic", topic, text="one\ntwo\nthree\n")
    group = "--group", secure_cluster.handle.group()
    words = "--topic", topic, "--from-beginning", "--max-messages", "3", *group
    output = client.run("consumer.ConsoleConsumer", *words)
    assert output.split() == ["one", "two", "three"]


def test_wrong_password_is_an_authentication_error(
    tools: Tools, secure_cluster: SecureCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(USERS, ADMIN, "wrong")
    client = JavaClient(tools, secure_cluster, tmp_path, "SASL_SSL", "SCRAM-SHA-256")
    cause = "Authentication failed during authentication due to invalid credentials"
    assert cause in client.failure("TopicCommand", "--list")


def test_acls_decide_what_a_user_may_do(
    tools: Tools, secure_cluster: SecureCluster, tmp_path: Path
) -> None:
    topic = create_topic_blocking(secure_cluster.handle)
    admin = JavaClient(tools, secure_cluster, tmp_path, "SASL_SSL", "SCRAM-SHA-512")
    alice = JavaClient(tools, secure_cluster, tmp_path, "SASL_SSL", "SCRAM-SHA-512", ALICE)
    assert topic not in alice.run("TopicCommand", "--list").split()
    words = "--allow-principal", f"User:{ALICE}", "--producer", "--topic", topic
    added = admin.run("AclCommand", "--add", *words)
    assert f"ResourcePattern(resourceType=TOPIC, name={topic}, patternType=LITERAL)" in added
    alice.run("ConsoleProducer", "--topic", topic, text="one\n")
    listed = admin.run("AclCommand", "--list", "--topic", topic)
    assert f"(principal=User:{ALICE}, host=*, operation=WRITE, permissionType=ALLOW)" in listed
    admin.run("AclCommand", "--remove", "--force", *words)
    assert "WRITE" not in admin.run("AclCommand", "--list", "--topic", topic)
    assert topic not in alice.run("TopicCommand", "--list").split()


def test_creates_and_deletes_users_for_scram(
    tools: Tools, secure_cluster: SecureCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = secure_cluster.handle.group("user")
    monkeypatch.setitem(USERS, user, "user-secret")
    admin = JavaClient(tools, secure_cluster, tmp_path, "SASL_SSL", "PLAIN")
    client = JavaClient(tools, secure_cluster, tmp_path, "SASL_SSL", "SCRAM-SHA-256", user)
    entity = "--alter", "--entity-type", "users", "--entity-name", user
    added = "SCRAM-SHA-256=[iterations=4096,password=user-secret]"
    admin.run("kafka.admin.ConfigCommand", *entity, "--add-config", added)
    client.run("TopicCommand", "--list")
    admin.run("kafka.admin.ConfigCommand", *entity, "--delete-config", "SCRAM-SHA-256")
    assert "Authentication failed" in client.failure("TopicCommand", "--list")
