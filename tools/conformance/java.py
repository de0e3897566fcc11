"""Compiles and runs Java programs that result queries over pipes.

    with JavaProcess("Messages", compile_java("Messages.java")) as java:
        result = java.call(query)

Every program includes Frames.java, the other end of the pipe.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import subprocess
import tempfile
import threading
from pathlib import Path
from queue import SimpleQueue
from typing import IO, TYPE_CHECKING, Final

from kafka_async.protocol.api import KAFKA_VERSION
from kafka_async.testing.backends.base import BackendUnavailableError
from kafka_async.testing.backends.jars import cache_directory, jar_directory
from kafka_async.testing.backends.jvm import find_java

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

HERE: Final = Path(__file__).parent
SIZE: Final = struct.Struct(">i")
COMPILE_TIMEOUT: Final = 120
FLAGS: Final = ("-Xmx2g", "-XX:+UseSerialGC", "-Xshare:auto")


class JavaError(RuntimeError):
    """The Java program failed on a query, or ended; the message has its output."""


def class_path(version: str = KAFKA_VERSION) -> str:
    """Return the class path of a broker of `version`: kafka-clients, Jackson, codec libraries.

    Raises:
        BackendUnavailableError: Maven is missing, or cannot resolve the jars.
    """
    return os.pathsep.join(sorted(map(str, jar_directory(version).glob("*.jar"))))


def compile_java(*sources: str, version: str = KAFKA_VERSION) -> Path:
    """Compile programs of this directory, unless that is done; return the directory of the classes.

    Raises:
        BackendUnavailableError: Java, its compiler or the jars are missing.
        JavaError: the compiler reports errors.
    """
    return compile_files([HERE / name for name in ("Frames.java", *sources)], class_path(version))


def compile_files(files: Sequence[Path], jars: str) -> Path:
    """Compile sources against `jars`, unless that is done; return the directory of the classes.

    Raises:
        BackendUnavailableError: Java or its compiler is missing.
        JavaError: the compiler reports errors.
    """
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
    """Java program that answers queries in order, until the end of the `with` block.

    Any number of queries may be pending: a thread reads the results as they arrive.

    Raises:
        BackendUnavailableError: Java or the jars are missing.
    """

    def __init__(
        self, main: str, classes: Path, *arguments: str, version: str = KAFKA_VERSION
    ) -> None:
        paths = os.pathsep.join([str(classes), class_path(version)])
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [find_java().command, *FLAGS, "-cp", paths, main, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in: IO[bytes] = self._process.stdin
        self._out: IO[bytes] = self._process.stdout
        self._results: SimpleQueue[bytes | None] = SimpleQueue()
        self._reader = threading.Thread(target=self._read, name=f"results of {main}", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._process.kill()
        self.close()

    def call(self, query: bytes) -> bytes:
        """Send a query and return its result.

        Raises:
            JavaError: the program failed on the query, or ended.
        """
        self.send(query)
        return self.receive()

    def send(self, query: bytes) -> None:
        """Send a query, whose result `receive` returns later.

        Raises:
            JavaError: the program has ended.
        """
        try:
            self._in.write(SIZE.pack(len(query)))
            self._in.write(query)
            self._in.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def receive(self) -> bytes:
        """Return the result of the oldest pending query.

        Raises:
            JavaError: the program failed on the query, or ended.
        """
        result = self._results.get()
        if result is None:
            raise self._ended()
        if result[0]:
            raise JavaError(result[1:].decode(errors="replace"))
        return result[1:]

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

    def _read(self) -> None:
        while len(head := self._out.read(SIZE.size)) == SIZE.size:
            (size,) = SIZE.unpack(head)
            result = self._out.read(size)
            if len(result) < size:
                break
            self._results.put(result)
        self._results.put(None)

    def _ended(self) -> JavaError:
        status = self._process.wait()
        self._stderr.seek(0)
        output = self._stderr.read().decode(errors="replace")[-4000:]
        return JavaError(f"the Java program ended with status {status}: {output or 'no output'}")
