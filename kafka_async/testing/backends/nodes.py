"""A node of an Apache Kafka cluster: its properties, its storage and its process."""

from __future__ import annotations

import base64
import os
import random
import signal
import socket
import subprocess
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

MIN_PORT, MAX_PORT = 15_000, 32_000
STORAGE_TIMEOUT = 60
"""Seconds."""


def free_ports(count: int, *, exclude: Collection[int] = ()) -> list[int]:
    """Return unused ports of 127.0.0.1, outside the range of outgoing connections.

    Another process may bind a port before the broker does; the caller then retries with new ports.
    """
    with ExitStack() as sockets:
        ports: list[int] = []
        while len(ports) < count:
            port = random.SystemRandom().randint(MIN_PORT, MAX_PORT)
            if port in exclude:
                continue
            probe = sockets.enter_context(socket.socket())
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            ports.append(port)
    return ports


def random_cluster_id() -> str:
    """Return an id for a new cluster, in Kafka's format."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


class Node:
    """Runs a combined broker and controller; `java` is its command line up to the class to run."""

    def __init__(
        self, node_id: int, port: int, directory: Path, java: list[str], settings: Mapping[str, str]
    ) -> None:
        self.node_id = node_id
        self.port = port
        self._java = java
        self._process: subprocess.Popen[bytes] | None = None
        self._paused = False
        directory.mkdir(parents=True, exist_ok=True)
        self._output = directory / "output.log"
        self._properties = directory / "server.properties"
        self._settings = {**settings, "log.dirs": str(directory / "data")}
        self._write_properties()

    @property
    def address(self) -> str:
        """`host:port` for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        """Process id; None before the first start."""
        return None if self._process is None else self._process.pid

    @property
    def running(self) -> bool:
        """True while the process exists, even if paused."""
        return self._process is not None and self._process.poll() is None

    @property
    def output(self) -> str:
        """Output of the process."""
        return self._output.read_text(errors="replace") if self._output.exists() else ""

    def format(self, cluster_id: str, options: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        """Start formatting the storage; return the process for the caller to wait for."""
        # With "=": an id may begin with "-" and look like an option.
        tool = ["kafka.tools.StorageTool", "format", f"--cluster-id={cluster_id}"]
        return self._run([*tool, "-c", str(self._properties), *options])

    def move(self, port: int) -> None:
        """Use another client port from the next start on."""
        before, after = f"127.0.0.1:{self.port}", f"127.0.0.1:{port}"
        for name in ("listeners", "advertised.listeners"):
            self._settings[name] = self._settings[name].replace(before, after)
        self.port = port
        self._write_properties()

    def start(self) -> None:
        """Start the process, without waiting until it is ready."""
        if not self.running:
            self._process = self._run(["kafka.Kafka", str(self._properties)])

    def stop(self, timeout: float = 30) -> None:
        """Terminate the process, and kill it after `timeout` seconds."""
        process = self._process
        if process is None:
            return
        self.resume()
        process.terminate()
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._paused = False

    def pause(self) -> None:
        """Freeze the process and wait until all its threads have stopped."""
        if self._process is not None and self.running and not self._paused:
            self._process.send_signal(signal.SIGSTOP)
            self._paused = True
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            # Consume the notification, so that a later pause waits for its own.
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOHANG)

    def resume(self) -> None:
        """Resume the process after `pause`."""
        if self._process is not None and self._paused:
            self._process.send_signal(signal.SIGCONT)
            self._paused = False

    def _write_properties(self) -> None:
        rows = sorted(self._settings.items())
        self._properties.write_text("".join(f"{key}={_value(value)}\n" for key, value in rows))

    def _run(self, arguments: list[str]) -> subprocess.Popen[bytes]:
        with self._output.open("ab") as output:
            return subprocess.Popen(
                [*self._java, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C must reach only the owner.
            )


def _value(text: str) -> str:
    """Escape a value for a properties file, which Java reads as ISO-8859-1."""
    units = memoryview(text.encode("utf-16-be")).cast("B")
    codes = [int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2)]
    known = {ord("\\"): "\\\\", ord("\n"): "\\n"}
    return "".join(
        known.get(code) or (chr(code) if 32 <= code < 127 else f"\\u{code:04x}") for code in codes
    )
