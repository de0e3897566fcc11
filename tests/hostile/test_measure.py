"""Measurements that are not possible skip or fail a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile import measure


@pytest.mark.parametrize(
    ("value", "outcome"), [("true", OSError), ("1", OSError), ("", pytest.skip.Exception)]
)
def test_unmeasurable_peak_skips_and_fails_in_ci(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setenv("CI", value)
    monkeypatch.setattr(measure, "_CLEAR", tmp_path / "missing" / "clear_refs")
    with pytest.raises(outcome), measure.grows_at_most(0):
        pass
