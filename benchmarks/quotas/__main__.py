"""make bench-quotas: rates of a producer and of consumers with a quota of 1 MB/s.

python -m benchmarks.quotas          # one broker of Apache Kafka, and Java's consumer: 3 minutes
python -m benchmarks.quotas --chart  # the embedded cluster, and the chart of docs/quotas.md
"""

from __future__ import annotations

import asyncio
import sys
from typing import Final

from benchmarks.peers.java_peer import consumer_rate
from benchmarks.quotas import load
from benchmarks.quotas.chart import draw
from benchmarks.quotas.load import MEASURED, QUOTA, TOPIC, WINDOW
from kafka_async.clock import MemoryNetwork
from kafka_async.embedded import EmbeddedCluster
from kafka_async.testing.backends.apache import ApacheBackend
from kafka_async.testing.clock import run_virtual
from tools import generated_page

CHART: Final = generated_page.ROOT / "docs" / "images" / "quotas.svg"
SECONDS: Final = int(WINDOW + MEASURED)
RECORDS: Final = 3_500
"""Records for the comparison with Java's consumer: 35 MB, 25 MB after the burst."""


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


async def apache(servers: str) -> bool:
    """Print the rates on a broker, and return whether they are what they should be."""
    await load.set_quotas(servers, QUOTA)
    await asyncio.sleep(2.0)  # until the broker has learned of the quotas
    produced = (await load.produce(servers)).rate() / QUOTA
    await load.fill(servers, int(2.5 * QUOTA * SECONDS))
    consumed = await load.consume(servers)
    fetched = consumed.rate() / QUOTA
    await asyncio.sleep(WINDOW + 2)  # until the samples of our consumer have expired
    java = await asyncio.to_thread(
        consumer_rate, servers, TOPIC, RECORDS, load.CONSUMER_ID, load.FETCH_SIZE
    )
    # Both from the start, where the burst that a quota allows is part of it.
    compared = RECORDS / consumed.time_of(RECORDS * (len(load.VALUE) + 10)) / java
    print(f"produce {produced:.3f} of the quota: 0.90 to 1.10")
    print(f"fetch {fetched:.3f} of the quota: 0.80 to 1.10")
    print(f"{RECORDS} records from the start: {compared:.3f} of Java's rate: at least 0.95")
    return 0.9 <= produced <= 1.1 and 0.8 <= fetched <= 1.1 and compared >= 0.95


def main() -> int:
    """Measure, or draw the chart; return the exit status."""
    if sys.argv[1:] == ["--chart"]:
        rates = run_virtual(embedded())
        title = "Rate of the last 11 s, in MB/s, with a quota of 1 MB/s"
        CHART.write_text(draw(title, rates, QUOTA, SECONDS), "utf-8")
        return 0
    backend = ApacheBackend(brokers=1)
    backend.start()
    try:
        return 0 if asyncio.run(apache(backend.bootstrap_servers)) else 1
    finally:
        backend.stop()


if __name__ == "__main__":
    sys.exit(main())
