"""Apache Kafka's jars: resolved by Maven once, then kept in the user's cache directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from kafka_async.testing.backends.base import BackendUnavailableError

MAVEN_TIMEOUT = 600


@dataclass(frozen=True, slots=True)
class Artifact:
    """Maven coordinates; `without` are artifacts of org.apache.kafka that it asks for in vain."""

    group: str
    name: str
    version: str
    without: tuple[str, ...] = ()


LOGGER = Artifact("org.slf4j", "slf4j-nop", "1.7.36")

# 4.4.0 asks for a kafka-tools-api of its own version, which is not in every mirror; 4.3.1's serves.
EXCEPTIONS = {
    "4.4.0": (
        Artifact("org.apache.kafka", "kafka_2.13", "4.4.0", without=("kafka-tools-api",)),
        Artifact("org.apache.kafka", "kafka-tools-api", "4.3.1"),
        LOGGER,
    ),
}


def artifacts(version: str) -> tuple[Artifact, ...]:
    """What a broker of a version runs from."""
    whole = (Artifact("org.apache.kafka", "kafka_2.13", version), LOGGER)
    return EXCEPTIONS.get(version, whole)


def cache_directory() -> Path:
    """Where jars and the records of runs are kept: kafka-async in the XDG cache directory."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "kafka-async"


def jar_directory(version: str) -> Path:
    """The directory with the jars a version's broker runs from; see `resolve`.

    Raises:
        BackendUnavailableError: Maven is missing, or could not resolve them.
    """
    return resolve(version, artifacts(version))


def resolve(name: str, wanted: tuple[Artifact, ...]) -> Path:
    """The cache's directory `name`, with the jars of `wanted` and of all that they ask for.

    Maven fetches them, unless the directory is there already.

    Raises:
        BackendUnavailableError: Maven is missing, or could not resolve them.
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
        _fetch(maven, wanted, Path(work, "pom.xml"), jars)
        try:
            jars.rename(target)
        except OSError:
            if not target.is_dir():  # else another run was faster, and its jars are as good
                raise
    return target


def _fetch(maven: str, wanted: tuple[Artifact, ...], pom: Path, jars: Path) -> None:
    pom.write_text(_project(wanted))
    command = [maven, "-B", "-q", "-f", str(pom), "dependency:copy-dependencies"]
    done = subprocess.run(
        [*command, "-DincludeScope=runtime", f"-DoutputDirectory={jars}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=MAVEN_TIMEOUT,
        check=False,
    )
    if done.returncode or not jars.is_dir():
        names = ", ".join(f"{one.group}:{one.name}:{one.version}" for one in wanted)
        reason = next((line for line in done.stdout.splitlines() if "ERROR" in line), "no reason")
        raise BackendUnavailableError(f"Maven could not resolve {names}: {reason}")


def _project(wanted: tuple[Artifact, ...]) -> str:
    dependencies = "".join(_dependency(artifact) for artifact in wanted)
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>kafka-async</groupId><artifactId>jars</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>\n"
    )


def _dependency(artifact: Artifact) -> str:
    exclusions = "".join(
        f"<exclusion><groupId>org.apache.kafka</groupId><artifactId>{name}</artifactId></exclusion>"
        for name in artifact.without
    )
    return (
        f"<dependency><groupId>{artifact.group}</groupId><artifactId>{artifact.name}</artifactId>"
        f"<version>{artifact.version}</version><exclusions>{exclusions}</exclusions></dependency>"
    )
