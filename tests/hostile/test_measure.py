"""What cannot be measured is not passed over in silence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile import measure


@pytest.mark.parametrize(
    ("value", "outcome"), [("true", OSError), ("1", OSError), ("", pytest.skip.Exception)]
)
def test_where_no_peak_can_be_reset_it_skips_and_in_ci_it_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setenv("CI", value)
    monkeypatch.setattr(measure, "_CLEAR", tmp_path / "missing" / "clear_refs")
    with pytest.raises(outcome), measure.growing_at_most(0):
        pass
