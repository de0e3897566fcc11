"""One node of a real Kafka cluster: its properties, its storage, its process."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

LOWEST_PORT, HIGHEST_PORT = 15_000, 32_000
STORAGE_TIMEOUT = 60


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody listens on, outside the range of outgoing connections.

    A port may be taken before a broker binds it; the caller then tries others.
    """
    with ExitStack() as held:
        ports: list[int] = []
        while len(ports) < count:
            port = random.SystemRandom().randint(LOWEST_PORT, HIGHEST_PORT)
            probe = held.enter_context(socket.socket())
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            ports.append(port)
    return ports


class Node:
    """A combined broker and controller. `java` is the command up to the class to run."""

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
        rows = {**settings, "log.dirs": str(directory / "data")}
        self._properties.write_text("".join(f"{key}={rows[key]}\n" for key in sorted(rows)))

    @property
    def address(self) -> str:
        """`host:port` for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        """The id of its process; None before its first start."""
        return None if self._process is None else self._process.pid

    @property
    def running(self) -> bool:
        """Whether its process is there; a paused one is."""
        return self._process is not None and self._process.poll() is None

    @property
    def output(self) -> str:
        """What it has printed."""
        return self._output.read_text(errors="replace") if self._output.exists() else ""

    def format(self, cluster_id: str) -> subprocess.Popen[bytes]:
        """Begin to format its storage; the caller waits for the process."""
        # An id may begin with "-", which would look like an option.
        tool = ["kafka.tools.StorageTool", "format", f"--cluster-id={cluster_id}"]
        return self._run([*tool, "-c", str(self._properties)])

    def start(self) -> None:
        """Start its process; it serves some seconds later."""
        if not self.running:
            self._process = self._run(["kafka.Kafka", str(self._properties)])

    def stop(self, timeout: float = 30) -> None:
        """End it in order, and by force after `timeout` seconds."""
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
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._paused = False

    def pause(self) -> None:
        """Freeze it; returns when all its threads stand still, which the signal alone is not."""
        if self._process is not None and self.running and not self._paused:
            self._process.send_signal(signal.SIGSTOP)
            self._paused = True
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOHANG)  # the news is used up

    def resume(self) -> None:
        """Let it go on after `pause`."""
        if self._process is not None and self._paused:
            self._process.send_signal(signal.SIGCONT)
            self._paused = False

    def _run(self, words: list[str]) -> subprocess.Popen[bytes]:
        with self._output.open("ab") as output:
            return subprocess.Popen(
                [*self._java, *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the owner, who ends things in order
            )
