"""The generator reproduces the checked-in messages, and reports differences."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from kafka_async.protocol import api
from kafka_async.testing.backends.base import BackendUnavailableError
from tools import generate_protocol as generator
from tools.kafka_definitions import Versions, read_definitions, snake

ROOT = Path(__file__).parents[2]


@pytest.fixture
def jar(cannot_run: Callable[[str, object], NoReturn]) -> Path:
    """Return the kafka-clients jar; skip the test, or fail in CI, without Maven."""
    try:
        return generator.fetch_jar()
    except BackendUnavailableError as error:
        cannot_run("generator", error)


@pytest.mark.slow
def test_checked_in_messages_are_up_to_date(jar: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert generator.main(["--check", "--jar", str(jar)]) == 0, capsys.readouterr().out


@pytest.mark.slow
def test_check_reports_differences_and_write_removes_them(
    jar: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copy(ROOT / "kafka_async" / "protocol" / "api.py", tmp_path)
    shutil.copytree(ROOT / "kafka_async" / "protocol" / "messages", tmp_path / "messages")
    changed, missing, extra = (
        tmp_path / "messages" / name for name in ("heartbeat.py", "fetch.py", "extra.py")
    )
    changed.write_text(changed.read_text().replace("member_id", "member_name"))
    missing.unlink()
    extra.write_text("left over\n")
    monkeypatch.setattr(generator, "TARGET", tmp_path)
    arguments = ["--jar", str(jar)]

    assert generator.main(["--check", *arguments]) == 1
    diff = capsys.readouterr().out
    assert "-        self.member_name = member_name" in diff
    assert "+        self.member_id = member_id" in diff
    assert "+class FetchResponse(Response):" in diff
    assert "-left over" in diff
    assert generator.main(arguments) == 0
    assert generator.main(["--check", *arguments]) == 0
    assert not extra.exists()


def test_release_is_that_of_package() -> None:
    assert generator.KAFKA_VERSION == api.KAFKA_VERSION


def test_refuses_jar_without_definitions(tmp_path: Path) -> None:
    empty = Path(shutil.make_archive(str(tmp_path / "empty"), "zip", ROOT / "tools"))
    with pytest.raises(SystemExit, match="contains no common/message/"):
        read_definitions(empty)


# -- conversions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kafka", "ours"),
    [
        ("ThrottleTimeMs", "throttle_time_ms"),
        ("TopicId", "topic_id"),
        ("V3AndBelowTopics", "v3_and_below_topics"),
        ("Name", "name"),
    ],
)
def test_converts_names_to_snake_case(kafka: str, ours: str) -> None:
    assert snake(kafka) == ours


@pytest.mark.parametrize(
    ("text", "valid", "literal"),
    [
        ("0+", "0-5", "ALWAYS"),
        ("1-9", "1-5", "ALWAYS"),
        ("3+", "0-5", "since(3)"),
        ("0-2", "0-5", "until(2)"),
        ("1-3", "0-5", "VersionRange(1, 3)"),
        ("4", "0-5", "VersionRange(4, 4)"),
        ("none", "0-5", "NEVER"),
    ],
)
def test_converts_version_ranges_to_expressions(text: str, valid: str, literal: str) -> None:
    assert Versions.parse(text).literal(Versions.parse(valid)) == literal


@pytest.mark.parametrize(
    ("spec", "literal"),
    [
        ({"type": "int32", "default": "0x7fffffff"}, "2147483647"),
        ({"type": "int64", "default": "-1"}, "-1"),
        ({"type": "bool", "default": False}, "False"),
        ({"type": "bool", "default": "true"}, "True"),
        ({"type": "string"}, '""'),
        ({"type": "string", "default": "null"}, "None"),
        ({"type": "[]int32"}, "()"),
        ({"type": "[]int32", "default": "null"}, "None"),
        ({"type": "records"}, "None"),
        ({"type": "uuid"}, "ZERO_UUID"),
        ({"type": "float64"}, "0.0"),
        ({"type": "bytes"}, 'b""'),
    ],
)
def test_converts_defaults_to_literals(spec: dict[str, Any], literal: str) -> None:
    assert generator.default_literal(spec) == literal
