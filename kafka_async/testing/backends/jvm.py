"""The Java that brokers run on, and the archive from which its JVMs read Kafka's classes.

With the archive (class data sharing) a broker starts in half the time and half the CPU. A JVM
writes it when it ends in order, so the first node of a version's first cluster does, for all later.
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

MINIMUM = 17


@dataclass(frozen=True, slots=True)
class Java:
    """A Java by its command and what it says of itself."""

    command: str
    description: str


def find_java() -> Java:
    """JAVA_HOME's Java, else the one on the PATH.

    Raises:
        BackendUnavailableError: there is none, or it is older than 17.
    """
    home = os.environ.get("JAVA_HOME")
    command = os.path.join(home, "bin", "java") if home else shutil.which("java")
    advice = f"install Java {MINIMUM} or newer"
    if command is None or not os.path.exists(command):
        raise BackendUnavailableError(advice)
    told = subprocess.run([command, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(\d+)', told.stderr)
    if found is None or int(found[1]) < MINIMUM:
        raise BackendUnavailableError(f"{advice}: {command} is {found[1] if found else 'unknown'}")
    return Java(command, told.stderr)


class ClassArchive:
    """The archive for one version of Kafka on one Java."""

    def __init__(self, directory: Path, version: str, java: Java) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        java_id = hashlib.sha256(java.description.encode()).hexdigest()[:12]
        self._path = directory / f"{version}-{java_id}.jsa"
        self._written = directory / f"{self._path.name}.{uuid.uuid4().hex}"
        self.wanted = not self._path.exists()
        """Whether this cluster has to write it."""

    def flags(self, *, writer: bool) -> list[str]:
        """What the command line of a JVM says about it."""
        if not self.wanted:
            return [f"-XX:SharedArchiveFile={self._path}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
        if writer:
            return [f"-XX:ArchiveClassesAtExit={self._written}", "-Xlog:cds=off"]
        return []

    def keep(self) -> None:
        """Put what the writer wrote in its place; call it after the writer has ended."""
        if self._written.exists():
            self._written.replace(self._path)
        self.wanted = False
