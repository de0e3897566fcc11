"""Java for the judges: their class path, their compiler, and a process that answers questions.

    with JavaProcess("Judge", compile_java("Judge.java")) as java:
        answer = java.ask(question)

Frames.java is the other end of the pipe and is compiled into every program.
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
    """The Java program failed on a whole question, or ended; the message has what it said."""


def class_path(version: str = KAFKA_VERSION) -> str:
    """Every jar a broker of `version` runs from: kafka-clients, Jackson, the codecs' libraries.

    Raises:
        BackendUnavailableError: Maven is missing, or could not resolve them.
    """
    return os.pathsep.join(sorted(map(str, jar_directory(version).glob("*.jar"))))


def compile_java(*sources: str, version: str = KAFKA_VERSION) -> Path:
    """The directory of the classes of programs beside this file, compiled unless they are there.

    Raises:
        BackendUnavailableError: no Java, no Java compiler, or no jars.
        JavaError: the compiler refuses them.
    """
    return compile_files([HERE / name for name in ("Frames.java", *sources)], class_path(version))


def compile_files(files: Sequence[Path], jars: str) -> Path:
    """The directory of the classes of these sources, compiled against `jars` unless it is there.

    Raises:
        BackendUnavailableError: no Java, or no Java compiler.
        JavaError: the compiler refuses them.
    """
    java = find_java()
    known = hashlib.sha256("\0".join([java.description, jars]).encode())
    for file in files:
        known.update(file.read_bytes())
    target = cache_directory() / "judges" / known.hexdigest()[:16]
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
            if not target.is_dir():  # else another run was faster, and its classes are as good
                raise
    return target


def _compiler(java: str) -> str:
    """The compiler that belongs to a Java."""
    beside = Path(java).resolve().with_name("javac")
    found = str(beside) if beside.exists() else shutil.which("javac")
    if found is None:
        raise BackendUnavailableError("install a Java development kit (javac), version 17 or newer")
    return found


class JavaProcess:
    """A Java program that answers questions in order, as long as the `with` block lasts.

    Any number of questions may be sent ahead: answers are read as they come.

    Raises:
        BackendUnavailableError: no Java, or no jars.
    """

    def __init__(
        self, main: str, classes: Path, *arguments: str, version: str = KAFKA_VERSION
    ) -> None:
        paths = os.pathsep.join([str(classes), class_path(version)])
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [find_java().command, *FLAGS, "-cp", paths, main, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in: IO[bytes] = self._process.stdin
        self._out: IO[bytes] = self._process.stdout
        self._answers: SimpleQueue[bytes | None] = SimpleQueue()
        self._reader = threading.Thread(target=self._read, name=f"answers of {main}", daemon=True)
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

    def ask(self, question: bytes) -> bytes:
        """The answer to a question.

        Raises:
            JavaError: the program failed on it, or ended.
        """
        self.send(question)
        return self.receive()

    def send(self, question: bytes) -> None:
        """Ask, and fetch the answer later with `receive`.

        Raises:
            JavaError: the program has ended.
        """
        try:
            self._in.write(SIZE.pack(len(question)))
            self._in.write(question)
            self._in.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def receive(self) -> bytes:
        """The answer to the oldest question that has none yet.

        Raises:
            JavaError: the program failed on it, or ended.
        """
        answer = self._answers.get()
        if answer is None:
            raise self._ended()
        if answer[0]:
            raise JavaError(answer[1:].decode(errors="replace"))
        return answer[1:]

    def close(self) -> None:
        """Let the program come to its end, and wait for it."""
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
        self._complaints.close()

    def _read(self) -> None:
        while len(head := self._out.read(SIZE.size)) == SIZE.size:
            (size,) = SIZE.unpack(head)
            answer = self._out.read(size)
            if len(answer) < size:
                break
            self._answers.put(answer)
        self._answers.put(None)

    def _ended(self) -> JavaError:
        status = self._process.wait()
        self._complaints.seek(0)
        said = self._complaints.read().decode(errors="replace")[-4000:]
        return JavaError(f"the Java program ended with status {status}: {said or 'without a word'}")
