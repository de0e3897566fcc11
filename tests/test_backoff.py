"""Tests of backoff: doubling, maximum, jitter."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from kafka_async.foundation.backoff import Backoff, delay_after


def test_delays_double_up_to_the_maximum() -> None:
    assert [delay_after(n, 0.1, 1.0) for n in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


@given(st.integers(0, 10_000), st.integers())
def test_jitter_stays_within_its_fraction(failures: int, seed: int) -> None:
    backoff = Backoff(0.05, 1.0, jitter=0.2, rng=random.Random(seed), failures=failures)
    exact = delay_after(failures, 0.05, 1.0)
    assert exact * 0.8 <= backoff.next() <= exact * 1.2
    assert backoff.failures == failures + 1


def test_reset_starts_with_initial_delay() -> None:
    backoff = Backoff(0.1, 1.0, jitter=0)
    assert [backoff.next(), backoff.next()] == [0.1, 0.2]
    backoff.reset()
    assert backoff.next() == 0.1
