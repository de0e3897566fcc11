"""Apache Kafka from its jars: combined KRaft nodes as processes on this machine.

Maven downloads the jars once. Three nodes start within a few seconds: their JVMs only use the fast
compiler, and load classes from an archive that the first run of a version has written. Sessions,
rebalances and time-outs are as short as Kafka allows, since tests wait for them.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from kafka_async.testing.backends.base import Backend, ClusterOptions
from kafka_async.testing.backends.jars import cache_directory, jar_directory
from kafka_async.testing.backends.jvm import ClassArchive, Java, find_java
from kafka_async.testing.backends.nodes import STORAGE_TIMEOUT, Node, free_ports, random_cluster_id
from kafka_async.testing.backends.probe import wait_until_ready
from kafka_async.testing.backends.runs import Run
from kafka_async.testing.backends.security import (
    address_settings,
    allowed_urls_option,
    scram_arguments,
    security_settings,
)
from kafka_async.testing.backends.settings import cluster_settings, node_settings, rack_settings

LATEST = "4.4.0"
HEAP = "384m"
JAVA_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
START_TIMEOUT = 60
"""Seconds."""
MAX_START_ATTEMPTS = 3


class NodeExitedError(RuntimeError):
    """A node's process ended while the cluster started."""


class ApacheBackend(Backend):
    """Runs a version of Apache Kafka; requires Java 17, and Maven the first time."""

    def __init__(
        self, version: str = LATEST, *, heap: str = HEAP, **options: Unpack[ClusterOptions]
    ) -> None:
        super().__init__(f"apache {version}", options)
        self.version = version
        self._heap = heap
        self._properties = dict(options.get("properties", {}))
        self._jvm_options = tuple(options.get("jvm_options", ()))
        self._security = options.get("security")
        self._ports: dict[str, list[int]] = {}
        self._nodes: dict[int, Node] = {}
        self._run: Run | None = None
        self._archive: ClassArchive | None = None

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` of every broker, separated by commas."""
        return ",".join(node.address for node in self._nodes.values())

    def bootstrap_servers_of(self, listener: str) -> str:
        """Return `host:port` of a listener of every broker, separated by commas."""
        return ",".join(f"127.0.0.1:{port}" for port in self._ports[listener])

    def start(self) -> None:
        """Download the jars if they are missing, start the nodes and wait until all are ready."""
        java, jars = find_java(), jar_directory(self.version)
        self._run = Run.open(cache_directory() / "runs")
        self._archive = ClassArchive(cache_directory() / "classes", self.version, java)
        try:
            for attempt in range(1, MAX_START_ATTEMPTS + 1):
                try:
                    self._start_nodes(java, jars, self._run.directory / str(attempt))
                except NodeExitedError:  # Most likely another process has taken one of the ports.
                    self._stop_nodes()
                    if attempt == MAX_START_ATTEMPTS:
                        raise
                else:
                    return
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the nodes and remove their data."""
        try:
            self._stop_nodes()
        finally:
            run, self._run = self._run, None
            if run is not None:
                run.close()

    def stop_broker(self, broker_id: int) -> None:
        """Shut a broker down orderly: its leaderships move first."""
        self._nodes[broker_id].stop()

    def kill_broker(self, broker_id: int) -> None:
        """Kill a broker by SIGKILL."""
        self._nodes[broker_id].kill()

    def start_broker(self, broker_id: int) -> None:
        """Start a stopped broker at its former port and wait until it is ready."""
        node = self._nodes[broker_id]
        node.start()
        alive = sum(node.running for node in self._nodes.values())
        self._wait_until_ready([node], alive)

    def start_at_new_ports(self) -> None:
        """Start all stopped brokers at other client ports, with their data."""
        nodes = list(self._nodes.values())
        former = [node.port for node in nodes]
        for attempts_left in reversed(range(MAX_START_ATTEMPTS)):
            ports = free_ports(self.brokers, exclude=former)
            for node, port in zip(nodes, ports, strict=True):
                node.move(port)
                node.start()
            try:
                self._wait_until_ready(nodes, self.brokers)
            except NodeExitedError:  # Most likely another process has taken one of the ports.
                if not attempts_left:
                    raise
                for node in nodes:
                    node.kill()
            else:
                return

    def pause_broker(self, broker_id: int) -> None:
        """Freeze a broker by SIGSTOP: its connections stay open without responses."""
        self._nodes[broker_id].pause()

    def resume_broker(self, broker_id: int) -> None:
        """Resume a frozen broker by SIGCONT."""
        self._nodes[broker_id].resume()

    def _start_nodes(self, java: Java, jars: Path, directory: Path) -> None:
        assert self._run is not None
        assert self._archive is not None
        heap = f"-Xmx{self._heap}"
        options = [self._run.marker, heap, *JAVA_OPTIONS, *self._jvm_options]
        options += allowed_urls_option(self._security) if self._security else []
        options += ["-cp", f"{jars}/*"]
        ids = range(1, self.brokers + 1)
        security = self._security
        names = ["CONTROLLER", "PLAINTEXT", *(security.listeners if security else ())]
        free = iter(free_ports(len(names) * self.brokers))
        self._ports = {name: [next(free) for _ in ids] for name in names}
        clients, controllers = self._ports["PLAINTEXT"], self._ports["CONTROLLER"]
        voters = ",".join(
            f"{node_id}@127.0.0.1:{port}" for node_id, port in zip(ids, controllers, strict=True)
        )
        for node_id, port, controller in zip(ids, clients, controllers, strict=True):
            settings = {
                **cluster_settings(self.brokers, self.auto_create_topics, self.default_partitions),
                **node_settings(node_id, port, f"127.0.0.1:{controller}", voters),
                **(rack_settings(self.racks[node_id - 1]) if self.racks else {}),
                **self._security_settings(node_id),
                **self._properties,
            }
            command = [java.command, *self._archive.options(writer=node_id == 1), *options]
            home = directory / f"node-{node_id}"
            self._nodes[node_id] = Node(node_id, port, home, command, settings)
        nodes = list(self._nodes.values())
        format_storage(nodes, scram_arguments(self._security.users) if self._security else ())
        for node in nodes:
            node.start()
        self._wait_until_ready(nodes, self.brokers)

    def _security_settings(self, node_id: int) -> dict[str, str]:
        if self._security is None:
            return {}
        ports = {name: numbers[node_id - 1] for name, numbers in self._ports.items()}
        controller = ports.pop("CONTROLLER")
        return {
            **security_settings(self._security),
            **address_settings(ports, f"127.0.0.1:{controller}"),
        }

    def _wait_until_ready(self, nodes: Sequence[Node], alive: int) -> None:
        def check() -> None:
            exited = [node for node in nodes if not node.running]
            if exited:
                output = exited[0].output.strip()[-500:] or "it printed nothing"
                raise NodeExitedError(f"node {exited[0].node_id} of {self.name} ended: {output}")

        servers = [node.address for node in nodes]
        wait_until_ready(servers, brokers=alive, timeout=START_TIMEOUT, check=check)

    def _stop_nodes(self) -> None:
        # Kill the nodes, since their data is removed anyway. Only the node that writes the class
        # archive must end orderly, and first, since its shutdown needs the other nodes.
        nodes = list(self._nodes.values())
        if nodes and self._archive is not None and self._archive.missing:
            nodes[0].stop(timeout=10)
            self._archive.install()
        for node in nodes:
            node.kill()
        self._nodes.clear()


def format_storage(nodes: Sequence[Node], options: Sequence[str] = ()) -> None:
    """Format the storage of all nodes of a new cluster in parallel, with options for the tool."""
    cluster_id = random_cluster_id()
    processes = [(node, node.format(cluster_id, options)) for node in nodes]
    for node, process in processes:
        try:
            status = process.wait(STORAGE_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        if status:
            raise RuntimeError(f"the storage of node {node.node_id}: {node.output[-500:]}")
