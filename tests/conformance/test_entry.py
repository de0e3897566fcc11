"""`make conformance`: what it prints, and what its exit status says."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafka_async.testing.backends.base import BackendUnavailableError
from tools.conformance import __main__ as entry
from tools.conformance.parts import PARTS, Options, Outcome, load


def use(monkeypatch: pytest.MonkeyPatch, outcome: Outcome | Exception) -> None:
    """Let every part come to this."""

    def part(options: Options) -> Outcome:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def load_any(name: str) -> Callable[[Options], Outcome]:
        return part

    monkeypatch.setattr(entry, "load", load_any)


def test_every_part_is_there() -> None:
    assert {"apis", "messages", "refusals"} <= set(PARTS)
    assert all(callable(load(name)) for name in PARTS)


def test_no_difference_passes_and_says_how_to_do_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, Outcome("3 messages"))
    assert entry.main(["--seed", "5", "--count", "2", "--part", "messages"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "Kafka 4.4.0, seed 5, count 2"
    assert shown[1].startswith("messages   3 messages: 0 differences, ")
    assert shown[-2:] == [
        'again: make conformance CONFORMANCE_ARGS="--seed 5 --count 2"',
        "passed: no difference",
    ]


def test_a_difference_fails_with_the_command_that_replays_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = Outcome()
    for number in range(30):
        outcome.differ(Options(2, 5), "FetchRequest:4", f"message {number}: differs")
    use(monkeypatch, outcome)
    assert entry.main(["--seed", "5", "--count", "2", "--part", "messages"]) == 1
    shown = capsys.readouterr().out
    assert "FetchRequest:4 message 19: differs\n" in shown
    assert "message 20" not in shown
    assert 'CONFORMANCE_ARGS="--seed 5 --count 2 --only FetchRequest:4"' in shown
    assert "and 10 more" in shown
    assert shown.endswith("failed: 30 differences\n")


@pytest.mark.parametrize(("ci", "status"), [("", 2), ("true", 1)])
def test_what_is_missing_is_named_and_fails_where_nothing_may_be_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ci: str, status: int
) -> None:
    monkeypatch.setenv("CI", ci)
    use(monkeypatch, BackendUnavailableError("install Maven (mvn)"))
    assert entry.main(["--seed", "5"]) == status
    assert "not run: install Maven (mvn)" in capsys.readouterr().out


def test_a_run_without_a_seed_takes_another_each_time() -> None:
    seeds = {entry.read_arguments([])[1].seed for _ in range(5)}
    assert len(seeds) == 5
    parts, options = entry.read_arguments(["--only", "A:1", "--only", "B"])
    assert parts == list(PARTS)
    assert options.count == 200
    assert options.wants("A", 1)
    assert not options.wants("A", 2)
    assert options.wants("B", 7)


def test_a_name_that_nothing_has_does_not_pass(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def part(options: Options) -> Outcome:
        wanted = [version for version in range(3) if options.wants("A", version)]
        return Outcome(f"{wanted}")

    def load_any(name: str) -> Callable[[Options], Outcome]:
        return part

    monkeypatch.setattr(entry, "load", load_any)
    assert entry.main(["--only", "A:1", "--only", "A"]) == 0
    assert entry.main(["--only", "A:2", "--only", "A:3", "--only", "B"]) == 2
    assert "not run: nothing is called A:3, B" in capsys.readouterr().out
