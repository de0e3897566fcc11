"""The Java runtime of brokers, and the archive from which JVMs load Kafka's classes.

With the archive (class data sharing) a broker starts in half the time and half the CPU time. A JVM
writes the archive at an orderly exit, which the first node of a version's first cluster makes.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path

from kafka_async.testing.backends.base import BackendUnavailableError

MIN_JAVA_VERSION = 17


@dataclass(frozen=True, slots=True)
class Java:
    """Holds the command of a Java runtime and the output of `java -version`."""

    command: str
    description: str


def find_java() -> Java:
    """Return the Java of JAVA_HOME or the PATH.

    Raises:
        BackendUnavailableError: No Java 17 or newer was found.
    """
    home = os.environ.get("JAVA_HOME")
    command = os.path.join(home, "bin", "java") if home else shutil.which("java")
    advice = f"install Java {MIN_JAVA_VERSION} or newer"
    if command is None or not os.path.exists(command):
        raise BackendUnavailableError(advice)
    finished = subprocess.run([command, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(\d+)', finished.stderr)
    if found is None or int(found[1]) < MIN_JAVA_VERSION:
        raise BackendUnavailableError(f"{advice}: {command} is {found[1] if found else 'unknown'}")
    return Java(command, finished.stderr)


class ClassArchive:
    """Manages the class archive of a version of Kafka on a Java runtime."""

    def __init__(self, directory: Path, version: str, java: Java) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        java_id = hashlib.sha256(java.description.encode()).hexdigest()[:12]
        self._path = directory / f"{version}-{java_id}.jsa"
        self._written = directory / f"{self._path.name}.{uuid.uuid4().hex}"
        self.missing = not self._path.exists()
        """True if the archive does not exist, so that this cluster must write it."""

    def options(self, *, writer: bool) -> list[str]:
        """Return the JVM options that load the archive or, for the writer, create it."""
        if not self.missing:
            return [f"-XX:SharedArchiveFile={self._path}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
        if writer:
            return [f"-XX:ArchiveClassesAtExit={self._written}", "-Xlog:cds=off"]
        return []

    def install(self) -> None:
        """Move the written archive to its final path, after the writer has ended."""
        if self._written.exists():
            self._written.replace(self._path)
        self.missing = False
