"""The fraction of its client quotas that this client uses, per broker (KIP-13). Pure.

A broker measures a client over eleven samples of one second and throttles it above its quota. This
module measures the same bytes at the client: Produce requests and Fetch responses. Only this
client's bytes are counted, so the fraction is too low if other clients share the quota.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

SAMPLES: Final = 11
"""Samples of one second, the current one included, as Kafka's quota.window.num."""
PRODUCE: Final = "produce"
FETCH: Final = "fetch"
QUOTA_KEYS: Final[Mapping[str, str]] = {PRODUCE: "producer_byte_rate", FETCH: "consumer_byte_rate"}
"""Kafka's names of the quotas that a client can measure."""


class ByteRate:
    """Measures bytes per second over the last eleven seconds."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, int]] = deque()

    def record(self, size: int, now: float) -> None:
        """Add bytes at a time in seconds."""
        second = int(now)
        # One sample per second, so that memory does not depend on the number of requests.
        if self._samples and self._samples[-1][0] == second:
            self._samples[-1] = (second, self._samples[-1][1] + size)
        else:
            self._samples.append((second, size))
            self._drop_old(second)

    def rate(self, now: float) -> float:
        """Return the bytes of eleven samples over the ten to eleven seconds they cover.

        It changes nothing, so any thread may call it.
        """
        oldest = int(now) - SAMPLES
        # A copy, since the event loop may append in another thread.
        covered = (size for second, size in self._samples.copy() if second > oldest)
        # As Kafka's Rate: whole samples, and the part of the current second.
        return sum(covered) / (SAMPLES - 1 + now % 1)

    def _drop_old(self, second: int) -> None:
        while self._samples and self._samples[0][0] <= second - SAMPLES:
            self._samples.popleft()


class QuotaUsage:
    """Measures the requests and responses of one client that count for quotas.

    The quotas are those at the last call of `set_quotas`.
    """

    def __init__(self) -> None:
        self._quotas: Mapping[str, float] | None = None
        self._rates: dict[tuple[int, str], ByteRate] = {}

    def record(self, node_id: int, kind: str, size: int, now: float) -> None:
        """Record the bytes of a request or response of a broker."""
        rate = self._rates.get((node_id, kind))
        if rate is None:
            rate = self._rates[node_id, kind] = ByteRate()
        rate.record(size, now)

    def set_quotas(self, quotas: Mapping[str, float] | None) -> None:
        """Set the client's quotas by Kafka's names, or None if they are unknown."""
        self._quotas = quotas

    def fractions(self, now: float) -> dict[tuple[int, str], float | None]:
        """Return the used part of each quota, from 0 to 1, by broker and kind.

        It is 0 without a quota, and None while the quotas are unknown.
        """
        found: dict[tuple[int, str], float | None] = {}
        for (node_id, kind), rate in sorted(self._rates.items()):
            if self._quotas is None:
                found[node_id, kind] = None
                continue
            quota = self._quotas.get(QUOTA_KEYS[kind])
            found[node_id, kind] = 0.0 if quota is None else min(1.0, rate.rate(now) / quota)
        return found

    def percentages(self, now: float) -> dict[tuple[int, str], float | None]:
        """Return the result of `fractions` in percent."""
        found = self.fractions(now)
        return {key: None if part is None else 100 * part for key, part in found.items()}
