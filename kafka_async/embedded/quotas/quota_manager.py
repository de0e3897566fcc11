"""Enforces client quotas: computes the time to mute a connection after a request. Pure.

Each broker measures each client separately, with one sensor per kind of quota. It handles the
request first, then records it: for a client over its quota, the response contains the throttle
time, and the connection is muted for it (KIP-219). Times are seconds of the event loop's clock.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from kafka_async.embedded.quotas.client_quotas import (
    CONNECTION,
    CONTROLLER_MUTATION,
    FETCH,
    PRODUCE,
    REQUEST,
    ClientQuotas,
)
from kafka_async.embedded.quotas.sensors import RateSensor, TokenBucket

if TYPE_CHECKING:
    from kafka_async.embedded.quotas.sensors import Formula

KINDS: Final = (PRODUCE, FETCH, REQUEST, CONTROLLER_MUTATION)
"""Quotas of users and client ids, under their names in requests."""


class QuotaClient(NamedTuple):
    """Identifies a client to quotas, by user name and client id."""

    user: str
    client_id: str


class QuotaCallback(Protocol):
    """Chooses quotas instead of the table of quotas, as Kafka's ClientQuotaCallback."""

    def quota_limit(self, kind: str, client: QuotaClient) -> float | None:
        """Return a client's quota of a kind, such as "producer_byte_rate"; None for unlimited."""
        ...

    def quota_key(self, kind: str, client: QuotaClient) -> Hashable:
        """Return the key of a client's quota; clients with equal keys share one sensor."""
        ...


class TableQuotaCallback:
    """Applies the table of quotas: all clients that match an entry share its quota."""

    def __init__(self, quotas: ClientQuotas) -> None:
        self._quotas = quotas

    def quota_limit(self, kind: str, client: QuotaClient) -> float | None:
        """Return the value of the entry that applies."""
        found = self._quotas.find(kind, *client)
        return None if found is None else found[1]

    def quota_key(self, kind: str, client: QuotaClient) -> Hashable:
        """Return the parts of a client that its entry distinguishes.

        All client ids share a user's quota, and all users a client id's quota. A default entry
        counts each name separately.
        """
        found = self._quotas.find(kind, *client)
        if found is None:
            return client
        kinds = {each for each, _ in found[0]}
        user = client.user if "user" in kinds else None
        return (user, client.client_id if "client-id" in kinds else None)


@dataclass(frozen=True, slots=True)
class QuotaOptions:
    """Configures a `QuotaManager`; see `Settings`."""

    samples: int = 11
    window_seconds: int = 1
    controller_samples: int = 11
    controller_window_seconds: int = 1
    formula: Formula = "kafka"


class QuotaManager:
    """Measures the clients of all brokers, and computes throttle times.

    Attributes:
        quotas: The quotas of entities; change them with `ClientQuotas.alter` at any time.
        enforced: False switches all quotas off; clients are still measured.
    """

    def __init__(
        self,
        quotas: ClientQuotas,
        options: QuotaOptions,
        callback: QuotaCallback | None = None,
    ) -> None:
        self.quotas = quotas
        self.enforced = True
        self._has_callback = callback is not None
        self._options = options
        self._callback = callback or TableQuotaCallback(quotas)
        self._rates: dict[tuple[int, str, Hashable], RateSensor] = {}
        self._buckets: dict[Hashable, TokenBucket] = {}
        self._exempt: set[QuotaClient] = set()

    @property
    def active(self) -> bool:
        """True if any client may have a quota; otherwise no request is measured, as in Kafka."""
        return self._has_callback or bool(self.quotas.entries())

    def set_enforcement(self, client: QuotaClient, *, on: bool) -> None:
        """Switch the quotas of one client off or on; it is still measured."""
        if on:
            self._exempt.discard(client)
        else:
            self._exempt.add(client)

    def shutdown(self) -> None:
        """Forget all measurements."""
        self._rates.clear()
        self._buckets.clear()

    # -- rates ------------------------------------------------------------------------------------

    def check(
        self, broker: int, kind: str, client: QuotaClient, now: float, size: float = 0.0
    ) -> bool:
        """Return False if the client has used up its quota, or would with `size` more.

        This is the test before a request of the "seed" formula. With `size`, the largest possible
        response of a fetch counts, so that no response has to be measured.
        """
        sensor = self._sensor(broker, kind, client)
        return not self._enforces(client) or not sensor.violated(_ms(now), size)

    def on_response(
        self, broker: int, kind: str, client: QuotaClient, size: float, now: float
    ) -> float:
        """Record the bytes of a request, or for "request_percentage" its percent of a second.

        Returns:
            The throttle time in seconds; 0 within the quota.
        """
        sensor = self._sensor(broker, kind, client)
        sensor.record(size, _ms(now))
        if not self._enforces(client):
            return 0.0
        throttle = sensor.throttle_ms(_ms(now), self._options.formula)
        if kind == REQUEST:  # Kafka limits the throttle time to one window
            throttle = min(throttle, self._options.window_seconds * 1000)
        return throttle / 1000

    def unrecord(
        self, broker: int, kind: str, client: QuotaClient, size: float, now: float
    ) -> None:
        """Undo the recording of a response that is not sent."""
        self._sensor(broker, kind, client).record(-size, _ms(now))

    def max_in_window(self, kind: str, client: QuotaClient) -> float | None:
        """Return the most that one request may use without a throttle time; None for unlimited."""
        limit = self._callback.quota_limit(kind, client)
        if limit is None or not self._enforces(client):
            return None
        return limit * (self._options.samples - 1) * self._options.window_seconds

    def usage(self, broker: int, kind: str, client: QuotaClient, now: float) -> float | None:
        """Return the percentage of a quota that a client uses; 100 means throttled.

        Return None if the client has no quota of this kind.
        """
        sensor = self._sensor(broker, kind, client)
        if sensor.maximum is None:
            return None
        return min(100.0, max(0.0, sensor.rate(_ms(now)) / sensor.maximum * 100))

    def metrics(self, now: float) -> dict[tuple[int, str, Hashable], float]:
        """Return the usage in percent of all sensors with a bound, by broker, kind and key."""
        return {
            key: min(100.0, max(0.0, sensor.rate(_ms(now)) / sensor.maximum * 100))
            for key, sensor in self._rates.items()
            if sensor.maximum is not None
        }

    # -- controller mutations and connections -----------------------------------------------------

    def mutation_debt(self, client: QuotaClient, now: float) -> float:
        """Return the seconds until a client may change topics again, or 0 (KIP-599)."""
        bucket = self._bucket(client, now)
        if bucket is None or not self._enforces(client):
            return 0.0
        return bucket.throttle_ms(_ms(now)) / 1000

    def record_mutations(self, client: QuotaClient, partitions: int, now: float) -> float:
        """Record created or deleted partitions; return the throttle time in seconds."""
        bucket = self._bucket(client, now)
        if bucket is None:
            return 0.0
        bucket.record(partitions, _ms(now))
        return self.mutation_debt(client, now)

    def on_connection(self, broker: int, host: str, now: float) -> float:
        """Record a connection; return the seconds after which to close it, or 0 (KIP-612).

        A connection that is to be closed does not count.
        """
        rate = self.quotas.connection_rate(host)
        if rate is None or not self.enforced:
            return 0.0
        sensor = self._rate_sensor(broker, CONNECTION, host)
        sensor.maximum = rate
        sensor.record(1, _ms(now))
        throttle = min(sensor.throttle_ms(_ms(now)), self._options.window_seconds * 1000)
        if throttle:
            sensor.record(-1, _ms(now))
        return throttle / 1000

    # -- helpers ----------------------------------------------------------------------------------

    def _enforces(self, client: QuotaClient) -> bool:
        return self.enforced and client not in self._exempt

    def _sensor(self, broker: int, kind: str, client: QuotaClient) -> RateSensor:
        """Return the sensor of a client, with its current quota."""
        sensor = self._rate_sensor(broker, kind, self._callback.quota_key(kind, client))
        sensor.maximum = self._callback.quota_limit(kind, client)
        return sensor

    def _rate_sensor(self, broker: int, kind: str, key: Hashable) -> RateSensor:
        found = self._rates.get((broker, kind, key))
        if found is None:
            options = self._options
            found = RateSensor(f"{kind}-{key}", options.samples, options.window_seconds * 1000)
            self._rates[broker, kind, key] = found
        return found

    def _bucket(self, client: QuotaClient, now: float) -> TokenBucket | None:
        """Return a client's token bucket in the whole cluster, or None without a quota."""
        limit = self._callback.quota_limit(CONTROLLER_MUTATION, client)
        if limit is None:
            return None
        key = self._callback.quota_key(CONTROLLER_MUTATION, client)
        bucket = self._buckets.get(key)
        if bucket is None:
            options = self._options
            bucket = self._buckets[key] = TokenBucket(
                f"{CONTROLLER_MUTATION}-{key}",
                options.controller_samples,
                options.controller_window_seconds * 1000,
                _ms(now),
                limit,
            )
        bucket.set_rate(limit)
        return bucket


def _ms(now: float) -> int:
    """Return rounded milliseconds: a virtual time such as 0.3 has no exact binary fraction."""
    return int(now * 1000 + 1e-6)
