"""Output and exit status of `make conformance`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafka_async.testing.backends.base import BackendUnavailableError
from tools.conformance import __main__ as entry
from tools.conformance.parts import PARTS, Options, PartResult, load

Part = Callable[[Options], PartResult]
ReplaceParts = Callable[[Part], None]
SEEDED = ["--seed", "5", "--count", "2", "--part", "messages"]


@pytest.fixture
def replace_parts(monkeypatch: pytest.MonkeyPatch) -> ReplaceParts:
    """Return a function that replaces every part by another."""

    def replace(part: Part) -> None:
        def load_any(name: str) -> Part:
            return part

        monkeypatch.setattr(entry, "load", load_any)

    return replace


def test_all_parts_can_be_imported() -> None:
    assert {"apis", "messages", "refusals"} <= set(PARTS)
    assert all(callable(load(name)) for name in PARTS)


def test_passes_without_difference_and_prints_command(
    replace_parts: ReplaceParts, capsys: pytest.CaptureFixture[str]
) -> None:
    replace_parts(lambda options: PartResult("3 messages"))
    assert entry.main(SEEDED) == 0
    output = capsys.readouterr().out.splitlines()
    assert output[0] == "Kafka 4.4.0, seed 5, count 2"
    assert output[1].startswith("messages   3 messages: 0 differences, ")
    assert output[-2:] == [
        'again: make conformance CONFORMANCE_ARGS="--seed 5 --count 2"',
        "passed: no difference",
    ]


def test_fails_with_difference_and_prints_command(
    replace_parts: ReplaceParts, capsys: pytest.CaptureFixture[str]
) -> None:
    result = PartResult()
    for number in range(30):
        result.add_difference(Options(2, 5), "FetchRequest:4", f"message {number}: differs")
    replace_parts(lambda options: result)
    assert entry.main(SEEDED) == 1
    output = capsys.readouterr().out
    assert "FetchRequest:4 message 19: differs\n" in output
    assert "message 20" not in output
    assert 'CONFORMANCE_ARGS="--seed 5 --count 2 --only FetchRequest:4"' in output
    assert "and 10 more" in output
    assert output.endswith("failed: 30 differences\n")


@pytest.mark.parametrize(("ci", "status"), [("", 2), ("true", 1)])
def test_names_missing_requirement_and_fails_in_ci(
    replace_parts: ReplaceParts,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ci: str,
    status: int,
) -> None:
    def part(options: Options) -> PartResult:
        raise BackendUnavailableError("install Maven (mvn)")

    monkeypatch.setenv("CI", ci)
    replace_parts(part)
    assert entry.main(["--seed", "5"]) == status
    assert "not run: install Maven (mvn)" in capsys.readouterr().out


def test_chooses_random_seed() -> None:
    seeds = {entry.read_arguments([])[1].seed for _ in range(5)}
    assert len(seeds) == 5
    parts, options = entry.read_arguments(["--only", "A:1", "--only", "B"])
    assert (parts, options.count) == (list(PARTS), 200)
    assert [options.selects(*each) for each in (("A", 1), ("A", 2), ("B", 7))] == [
        True,
        False,
        True,
    ]


def test_does_not_pass_with_unknown_name(
    replace_parts: ReplaceParts, capsys: pytest.CaptureFixture[str]
) -> None:
    def part(options: Options) -> PartResult:
        return PartResult(f"{[version for version in range(3) if options.selects('A', version)]}")

    replace_parts(part)
    assert entry.main(["--only", "A:1", "--only", "A"]) == 0
    assert entry.main(["--only", "A:2", "--only", "A:3", "--only", "B"]) == 2
    assert "not run: there is no A:3, B" in capsys.readouterr().out
