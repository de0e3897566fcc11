"""Runs Apache Kafka's command-line tools from their jars."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

from kafka_async.testing.backends.apache import JAVA_OPTIONS
from kafka_async.testing.backends.jars import LOGGER, Artifact, cache_directory, resolve
from kafka_async.testing.backends.jvm import ClassArchive, find_java

if TYPE_CHECKING:
    from kafka_async.testing.fixtures import ClusterHandle

VERSION = "4.3.1"
"""The newest version of which Maven resolves the tools and the command for configurations."""
ARTIFACTS = (
    Artifact("org.apache.kafka", "kafka_2.13", VERSION),
    Artifact("org.apache.kafka", "kafka-tools", VERSION),
    LOGGER,
)
TIMEOUT = 120.0
"""Seconds."""


class Tools:
    """Runs Kafka's tools, each in a new JVM, as their shell scripts do."""

    def __init__(self) -> None:
        java = find_java()
        self._jars = resolve(f"kafka-commands-{VERSION}", ARTIFACTS)
        self._archive = ClassArchive(cache_directory() / "classes", f"commands-{VERSION}", java)
        self._java = java.command

    def run(self, cluster: ClusterHandle | str, tool: str, *arguments: str, text: str = "") -> str:
        """Run a tool that must succeed, with `text` as its input, and return its output."""
        finished = self.call(cluster, tool, *arguments, text=text)
        assert finished.returncode == 0, f"{tool}: {finished.stdout}{finished.stderr}"
        return finished.stdout

    def call(
        self, cluster: ClusterHandle | str, tool: str, *arguments: str, text: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a tool on a cluster or at an address; it may fail."""
        finished = subprocess.run(
            self.command(cluster, tool, *arguments, writes_archive=True),
            input=text,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        self._archive.install()
        return finished

    def command(
        self,
        cluster: ClusterHandle | str,
        tool: str,
        *arguments: str,
        writes_archive: bool = False,
    ) -> list[str]:
        """Return the command line of a tool; one at a time may write the class archive."""
        address = cluster if isinstance(cluster, str) else cluster.bootstrap_servers
        name = tool if tool.startswith("kafka.") else f"org.apache.kafka.tools.{tool}"
        servers = "--broker-list" if tool == "TransactionalMessageCopier" else "--bootstrap-server"
        options = [*self._archive.options(writer=writes_archive), *JAVA_OPTIONS, "-Xmx256m"]
        command = [self._java, *options, "-cp", f"{self._jars}/*", name]
        return [*command, servers, address, *arguments]

    def rows(self, cluster: ClusterHandle, tool: str, *arguments: str) -> list[dict[str, Any]]:
        """Run a tool that prints a JSON object per line."""
        return [json.loads(line) for line in self.run(cluster, tool, *arguments).splitlines()]
