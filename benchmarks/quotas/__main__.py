"""make bench-quotas: rates of a producer and of consumers with a quota of 1 MB/s.

python -m benchmarks.quotas          # one broker of Apache Kafka, and Java's clients: 5 minutes
python -m benchmarks.quotas --chart  # the embedded cluster, and the chart of docs/quotas.md
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final

from benchmarks.peers.java_peer import consumer_progress, producer_progress
from benchmarks.quotas import load
from benchmarks.quotas.chart import draw
from benchmarks.quotas.load import MEASURED, PERIODS, QUOTA, TOPIC, WINDOW
from kafka_async.embedded import EmbeddedCluster
from kafka_async.foundation.memory_network import MemoryNetwork
from kafka_async.testing.backends.apache import ApacheBackend
from kafka_async.testing.clock import run_virtual
from tools import generated_page

CHART: Final = generated_page.ROOT / "docs" / "images" / "quotas.svg"
SECONDS: Final = int(WINDOW + MEASURED)
SIZE: Final = len(load.VALUE) + 10
"""Bytes of a record."""
RECORDS: Final = int(1.1 * QUOTA * (WINDOW + PERIODS + 10) / SIZE)
"""Records of Java's clients: more than the time that is measured, with the burst before it."""


async def embedded() -> dict[str, dict[int, int]]:
    """Return bytes by second of a producer and a consumer of an embedded cluster."""
    found: dict[str, dict[int, int]] = {}
    for name in ("producer", "consumer"):
        network = MemoryNetwork()
        async with EmbeddedCluster(network=network) as cluster:
            servers = cluster.bootstrap_servers
            await load.set_quotas(servers, QUOTA, dialer=network)
            if name == "producer":
                meter = await load.produce(servers, network)
            else:
                await load.fill(servers, int(1.5 * QUOTA * SECONDS), network)
                meter = await load.consume(servers, network)
            found[name] = dict(meter.seconds)
            print(f"embedded {name}: {meter.rate() / QUOTA:.3f} of the quota")
    return found


async def chart() -> str:
    """Return the chart of docs/quotas.md; it is the same in every run."""
    title = "Rate of the last 11 s, in MB/s, with a quota of 1 MB/s"
    return draw(title, await embedded(), QUOTA, SECONDS)


async def apache(servers: str) -> bool:
    """Print the rates on a broker, and return whether they are what they should be.

    All clients are measured over the same window: the 30 s after the samples of the quota are full.
    """
    await load.set_quotas(servers, QUOTA)
    await asyncio.sleep(2.0)  # until the broker has learned of the quotas
    produced = (await load.produce(servers)).rate() / QUOTA
    await _forget()
    fast = await load.produce(servers, load=None)
    await _forget()
    options = {
        "client.id": load.PRODUCER_ID,
        "acks": "1",
        "enable.idempotence": "false",
        "batch.size": 50_000,
        "buffer.memory": 1_000_000,
    }
    java_fast = await asyncio.to_thread(
        producer_progress, servers, TOPIC, RECORDS, len(load.VALUE), options
    )
    await load.fill(servers, int(2.5 * QUOTA * SECONDS))
    fetched = (await load.consume(servers)).rate() / QUOTA
    await _forget()
    java_fetch = await asyncio.to_thread(
        consumer_progress, servers, TOPIC, RECORDS, load.CONSUMER_ID, load.FETCH_SIZE
    )
    java_fetched = load.rate_of(java_fetch) * SIZE / QUOTA
    print(f"produce {load.LOAD:g} times the quota: {produced:.3f} of the quota: 0.90 to 1.10")
    for name, rates in (
        ("kafka_async", [fast.rate(each) / QUOTA for each in (MEASURED, PERIODS)]),
        ("Java", [load.rate_of(java_fast, t) * SIZE / QUOTA for t in (MEASURED, PERIODS)]),
    ):
        print(f"produce at full speed, {name}: {rates[0]:.3f} over 30 s, {rates[1]:.3f} over 33 s")
    print(f"fetch {fetched:.3f} of the quota: 0.80 to 1.10")
    print(f"Java's consumer {java_fetched:.3f}: fetch is {fetched / java_fetched:.3f} of it")
    produces = 0.9 <= produced <= 1.1 and 0.9 <= fast.rate(PERIODS) / QUOTA <= 1.1
    return produces and 0.8 <= fetched <= 1.1 and fetched / java_fetched >= 0.95


async def _forget() -> None:
    """Wait until the samples of the client before have expired."""
    await asyncio.sleep(WINDOW + 2)


def main() -> int:
    """Measure, or draw the chart; return the exit status."""
    if sys.argv[1:] == ["--chart"]:
        CHART.write_text(run_virtual(chart()), "utf-8")
        return 0
    backend = ApacheBackend(brokers=1)
    backend.start()
    try:
        return 0 if asyncio.run(apache(backend.bootstrap_servers)) else 1
    finally:
        backend.stop()


if __name__ == "__main__":
    sys.exit(main())
