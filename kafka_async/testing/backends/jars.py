"""Apache Kafka's jars, downloaded by Maven once and kept in the user's cache directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from kafka_async.testing.backends.base import BackendUnavailableError

MAVEN_TIMEOUT = 600
"""Seconds."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """Holds Maven coordinates, and dependencies to exclude.

    Attributes:
        group: Id of the group.
        name: Id of the artifact.
        version: Its version.
        exclusions: Dependencies as "group:artifact", or artifacts of org.apache.kafka; "*:*" for
            all.
    """

    group: str
    name: str
    version: str
    exclusions: tuple[str, ...] = ()


LOGGER = Artifact("org.slf4j", "slf4j-nop", "1.7.36")

# kafka-tools-api 4.4.0, a dependency of 4.4.0, is not in every mirror; 4.3.1 works too.
ARTIFACTS_BY_VERSION = {
    "4.4.0": (
        Artifact("org.apache.kafka", "kafka_2.13", "4.4.0", exclusions=("kafka-tools-api",)),
        Artifact("org.apache.kafka", "kafka-tools-api", "4.3.1"),
        LOGGER,
    ),
}


def artifacts(version: str) -> tuple[Artifact, ...]:
    """Return the artifacts for a broker of a version."""
    default = (Artifact("org.apache.kafka", "kafka_2.13", version), LOGGER)
    return ARTIFACTS_BY_VERSION.get(version, default)


def cache_directory() -> Path:
    """Return the directory for jars and run records: kafka-async in the XDG cache directory."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "kafka-async"


def jar_directory(version: str) -> Path:
    """Return the directory of the jars for a version's broker; see `resolve`."""
    return resolve(version, artifacts(version))


def resolve(name: str, wanted: tuple[Artifact, ...]) -> Path:
    """Return the directory of artifacts and dependencies, downloaded with Maven if missing.

    Raises BackendUnavailableError if Maven is missing, or could not resolve the jars.
    """
    target = cache_directory() / "jars" / name
    if target.is_dir():
        return target
    maven = shutil.which("mvn")
    if maven is None:
        raise BackendUnavailableError("install Maven (mvn)")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f"{name}-") as work:
        jars = Path(work, "jars")
        _download(maven, wanted, Path(work, "pom.xml"), jars)
        try:
            jars.rename(target)
        except OSError:
            if not target.is_dir():  # If it exists, another run has downloaded the same jars.
                raise
    return target


def _download(maven: str, wanted: tuple[Artifact, ...], pom: Path, jars: Path) -> None:
    pom.write_text(_project(wanted))
    command = [maven, "-B", "-q", "-f", str(pom), "dependency:copy-dependencies"]
    finished = subprocess.run(
        [*command, "-DincludeScope=runtime", f"-DoutputDirectory={jars}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=MAVEN_TIMEOUT,
        check=False,
    )
    if finished.returncode or not jars.is_dir():
        names = ", ".join(f"{one.group}:{one.name}:{one.version}" for one in wanted)
        lines = finished.stdout.splitlines()
        reason = next((line for line in lines if "ERROR" in line), "no reason given")
        raise BackendUnavailableError(f"Maven could not resolve {names}: {reason}")


def _project(wanted: tuple[Artifact, ...]) -> str:
    dependencies = "".join(_dependency(artifact) for artifact in wanted)
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>kafka-async</groupId><artifactId>jars</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>\n"
    )


def _dependency(artifact: Artifact) -> str:
    excluded = [name.rpartition(":") for name in artifact.exclusions]
    exclusions = "".join(
        f"<exclusion><groupId>{group or 'org.apache.kafka'}</groupId>"
        f"<artifactId>{name}</artifactId></exclusion>"
        for group, _, name in excluded
    )
    return (
        f"<dependency><groupId>{artifact.group}</groupId><artifactId>{artifact.name}</artifactId>"
        f"<version>{artifact.version}</version><exclusions>{exclusions}</exclusions></dependency>"
    )
