"""Compiles Java programs, and runs Conformance.java, which runs queries with Kafka's classes.

    with JavaProcess() as java:
        result = java.call("versions", message="FetchRequest")

A query is an operation with arguments that JSON can represent; bytes become base64 strings.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import threading
from base64 import b64encode
from collections import deque
from pathlib import Path
from queue import SimpleQueue
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar

from kafka_async.protocol.api import KAFKA_VERSION
from kafka_async.testing.backends.base import BackendUnavailableError
from kafka_async.testing.backends.jars import cache_directory, jar_directory
from kafka_async.testing.backends.jvm import find_java

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Self

HERE: Final = Path(__file__).parent
COMPILE_TIMEOUT: Final = 120
FLAGS: Final = ("-Xmx2g", "-XX:+UseSerialGC", "-Xshare:auto")
MAX_PENDING: Final = 50
"""Queries that Java may process while we compare the result of an earlier one."""

Query = dict[str, Any]
CaseT = TypeVar("CaseT")


class JavaError(RuntimeError):
    """The Java program failed on a query, or ended; the message has its output."""


def class_path() -> str:
    """Return the class path of a broker: kafka-clients, Jackson, codec libraries."""
    return os.pathsep.join(sorted(map(str, jar_directory(KAFKA_VERSION).glob("*.jar"))))


def compile_files(files: Sequence[Path], jars: str) -> Path:
    """Compile sources against `jars`, unless that is done; return the directory of the classes."""
    java = find_java()
    digest = hashlib.sha256("\0".join([java.description, jars]).encode())
    for file in files:
        digest.update(file.read_bytes())
    target = cache_directory() / "conformance" / digest.hexdigest()[:16]
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        classes = Path(work, "classes")
        command = [_compiler(java.command), "-encoding", "UTF-8", "-Xlint:all,-processing"]
        command += ["-cp", jars, "-d", str(classes), *map(str, files)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT, check=False
        )
        if done.returncode:
            names = ", ".join(file.name for file in files)
            raise JavaError(f"javac refuses {names}:\n{done.stderr}")
        try:
            classes.rename(target)
        except OSError:
            if not target.is_dir():  # otherwise another run has compiled the same sources
                raise
    return target


def _compiler(java: str) -> str:
    """Return the compiler of the same installation as `java`, else the one in the path."""
    beside = Path(java).resolve().with_name("javac")
    found = str(beside) if beside.exists() else shutil.which("javac")
    if found is None:
        raise BackendUnavailableError("install a Java development kit (javac), version 17 or newer")
    return found


class JavaProcess:
    """Java program that runs queries in order until the end of the `with` block.

    A thread reads the results as they arrive. Raises JavaError if the program fails or ends.
    """

    def __init__(self, main: str = "Conformance") -> None:
        jars = class_path()
        classes = compile_files(sorted(HERE.glob("*.java")), jars)
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [find_java().command, *FLAGS, "-cp", os.pathsep.join([str(classes), jars]), main],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in: IO[bytes] = self._process.stdin
        self._out: IO[bytes] = self._process.stdout
        self._results: SimpleQueue[bytes] = SimpleQueue()
        self._reader = threading.Thread(target=self._read, name=f"results of {main}", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is not None:
            self._process.kill()
        self.close()

    def call(self, operation: str, **arguments: Any) -> Any:
        """Run a query and return its result."""
        self._send({"operation": operation, **arguments})
        return self._receive()

    def results(self, queries: Iterable[tuple[CaseT, Query]]) -> Iterator[tuple[CaseT, Any]]:
        """Run queries of cases; yield each case with its result, in order."""
        pending: deque[CaseT] = deque()
        for case, query in queries:
            self._send(query)
            pending.append(case)
            if len(pending) > MAX_PENDING:
                yield pending.popleft(), self._receive()
        while pending:
            yield pending.popleft(), self._receive()

    def close(self) -> None:
        """Close the program's input, and wait until it ends; kill it after 10 seconds."""
        try:
            self._in.close()
        except BrokenPipeError:
            pass
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        self._out.close()
        self._stderr.close()

    def _send(self, query: Query) -> None:
        text = json.dumps(query, ensure_ascii=False, separators=(",", ":"), default=_base64)
        try:
            self._in.write(text.encode() + b"\n")
            self._in.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def _receive(self) -> Any:
        """Return the result of the oldest pending query."""
        line = self._results.get()
        if not line.endswith(b"\n"):
            raise self._ended()
        result = json.loads(line)
        if "error" in result:
            raise JavaError(result["error"])
        return result["result"]

    def _read(self) -> None:
        line = b"\n"
        while line.endswith(b"\n"):
            line = self._out.readline()
            self._results.put(line)

    def _ended(self) -> JavaError:
        status = self._process.wait()
        self._stderr.seek(0)
        output = self._stderr.read().decode(errors="replace")[-4000:]
        return JavaError(f"the Java program ended with status {status}: {output or 'no output'}")


def _base64(data: bytes) -> str:
    return b64encode(data).decode()
