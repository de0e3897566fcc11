"""Kafka's jars and Java: downloads by Maven, errors with advice, and the class archive."""

from __future__ import annotations

import os
import stat
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from kafka_async.testing.backends.base import BackendUnavailableError
from kafka_async.testing.backends.jars import cache_directory, jar_directory
from kafka_async.testing.backends.jvm import ClassArchive, Java, find_java

POM = "{http://maven.apache.org/POM/4.0.0}"

# A fake mvn, which records its command line and project, and creates one jar.
MAVEN = """#!/bin/sh
echo "$*" >> "$CALLS"
while [ $# -gt 0 ]; do
  case "$1" in
    -f) shift; cp "$1" "$CALLS.pom";;
    -DoutputDirectory=*) out="${1#-DoutputDirectory=}";;
  esac
  shift
done
mkdir -p "$out" && touch "$out/kafka.jar"
"""
FAILING_MAVEN = """#!/bin/sh
echo "[INFO] Scanning"
echo "[ERROR] Could not find artifact org.apache.kafka:kafka_2.13:jar:9.9.9"
exit 1
"""


def write_program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.defpath}")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return tmp_path


def test_downloads_jars_once(home: Path) -> None:
    write_program(home / "bin" / "mvn", MAVEN)
    first = jar_directory("4.3.1")
    assert first == home / "cache" / "kafka-async" / "jars" / "4.3.1"
    assert [path.name for path in first.iterdir()] == ["kafka.jar"]
    assert jar_directory("4.3.1") == first
    assert len((home / "calls").read_text().splitlines()) == 1
    assert [path.name for path in first.parent.iterdir()] == ["4.3.1"]


@pytest.mark.parametrize(
    ("version", "wanted"),
    [
        ("4.3.1", {"kafka_2.13:4.3.1", "slf4j-nop:1.7.36"}),
        ("4.4.0", {"kafka_2.13:4.4.0", "kafka-tools-api:4.3.1", "slf4j-nop:1.7.36"}),
    ],
)
def test_maven_project_has_the_artifacts_of_a_version(
    home: Path, version: str, wanted: set[str]
) -> None:
    write_program(home / "bin" / "mvn", MAVEN)
    jar_directory(version)
    project = ET.parse(home / "calls.pom").getroot()
    found = {
        f"{row.findtext(f'{POM}artifactId')}:{row.findtext(f'{POM}version')}"
        for row in project.iter(f"{POM}dependency")
    }
    assert found == wanted
    excluded = [row.findtext(f"{POM}artifactId") for row in project.iter(f"{POM}exclusion")]
    assert excluded == (["kafka-tools-api"] if version == "4.4.0" else [])


def test_error_without_maven_says_what_to_install(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(home / "bin"))
    with pytest.raises(BackendUnavailableError, match="install Maven"):
        jar_directory("4.4.0")


def test_error_of_maven_names_the_artifact_and_leaves_no_files(home: Path) -> None:
    write_program(home / "bin" / "mvn", FAILING_MAVEN)
    with pytest.raises(BackendUnavailableError, match="Could not find artifact"):
        jar_directory("9.9.9")
    assert list((cache_directory() / "jars").iterdir()) == []


def java_of_version(version: str) -> str:
    return f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n"


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.1"])
def test_finds_java_17_and_newer(home: Path, version: str) -> None:
    java = write_program(home / "bin" / "java", java_of_version(version))
    assert find_java().command == str(java)


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_292"])
def test_error_names_an_older_java(home: Path, version: str) -> None:
    java = write_program(home / "bin" / "java", java_of_version(version))
    with pytest.raises(BackendUnavailableError, match=rf"install Java 17 or newer: {java}"):
        find_java()


def test_java_home_precedes_the_path(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_program(home / "bin" / "java", java_of_version("11"))
    java = write_program(home / "jdk" / "bin" / "java", java_of_version("17"))
    monkeypatch.setenv("JAVA_HOME", str(home / "jdk"))
    assert find_java().command == str(java)


def test_error_without_java_says_what_to_install(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(home / "bin"))
    with pytest.raises(BackendUnavailableError, match="install Java 17 or newer"):
        find_java()


def test_first_cluster_writes_the_class_archive_and_later_ones_read_it(tmp_path: Path) -> None:
    java = Java("java", "17.0.15")
    first = ClassArchive(tmp_path, "4.4.0", java)
    assert first.missing
    assert first.options(writer=False) == []
    (option, _) = first.options(writer=True)
    Path(option.partition("=")[2]).write_text("classes")
    first.install()
    assert not first.missing

    later = ClassArchive(tmp_path, "4.4.0", java)
    assert not later.missing
    archive = Path(later.options(writer=True)[0].partition("=")[2])
    assert archive.read_text() == "classes"
    assert list(tmp_path.iterdir()) == [archive]


def test_class_archives_differ_by_java_and_version(tmp_path: Path) -> None:
    first = ClassArchive(tmp_path, "4.4.0", Java("java", "17.0.15"))
    Path(first.options(writer=True)[0].partition("=")[2]).write_text("classes")
    first.install()
    assert ClassArchive(tmp_path, "4.4.0", Java("java", "21.0.1")).missing
    assert ClassArchive(tmp_path, "4.3.1", Java("java", "17.0.15")).missing


def test_next_cluster_writes_the_class_archive_after_a_killed_writer(tmp_path: Path) -> None:
    java = Java("java", "17.0.15")
    ClassArchive(tmp_path, "4.4.0", java).install()
    assert ClassArchive(tmp_path, "4.4.0", java).missing
