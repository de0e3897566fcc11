"""Runs on the embedded cluster in memory or on sockets, and comparison with the record.

python -m tests.contract.compare HOST:PORT writes the record anew, from Kafka with three brokers in
the racks rack-1, rack-2 and rack-3, and with Kafka's RackAwareReplicaSelector.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from kafka_async.embedded import EmbeddedCluster
from kafka_async.embedded.settings import RACK_AWARE_REPLICA_SELECTOR
from kafka_async.foundation.memory_network import MemoryNetwork
from kafka_async.testing import run_virtual
from tests.contract.model import BROKERS
from tests.contract.runner import Cluster, Run
from tests.contract.scenarios import SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.contract.model import Scenario

RECORD: Final = Path(__file__).parent / "recorded" / "kafka-4.4.0.json"


async def run_embedded(scenario: Scenario) -> Run:
    """Run a scenario on a new embedded cluster, in memory."""
    network = MemoryNetwork()
    async with EmbeddedCluster(
        BROKERS,
        network=network,
        racks={broker: f"rack-{broker}" for broker in range(1, BROKERS + 1)},
        replica_selector_class=RACK_AWARE_REPLICA_SELECTOR,
        min_insync_replicas=2,
        quota_request_time_ms=0.1,
        group_min_session_timeout_ms=500,
        group_consumer_session_timeout_ms=6_000,
        group_consumer_heartbeat_interval_ms=500,
        group_consumer_min_session_timeout_ms=500,
        group_consumer_min_heartbeat_interval_ms=100,
        group_share_session_timeout_ms=6_000,
        group_share_heartbeat_interval_ms=500,
        group_share_min_session_timeout_ms=500,
        group_share_min_heartbeat_interval_ms=100,
        group_share_min_record_lock_duration_ms=1_000,
    ) as embedded:
        cluster = Cluster("c000000", names=40, network=network)
        await cluster.open(embedded.bootstrap_servers)
        try:
            run = await Run(cluster, scenario).play()
        finally:
            await cluster.close()
        assert embedded.failures == []
    return run


@cache
def play(number: int) -> Run:
    """Run a scenario of the list on a new embedded cluster, once in this process."""
    return run_virtual(run_embedded(SCENARIOS[number]))


async def run_sockets(bootstrap_servers: str, scenarios: Iterable[Scenario]) -> dict[str, Any]:
    """Run scenarios on a cluster that listens on sockets."""
    cluster = Cluster(f"c{secrets.token_hex(3)}")
    await cluster.open(bootstrap_servers)
    try:
        return {it.name: (await Run(cluster, it).play()).results for it in scenarios}
    finally:
        await cluster.close()


def differences(recorded: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """Return what differs between responses, with the request and the path in the response."""
    return list(_differences("", recorded, found))


def _differences(path: str, recorded: Any, found: Any) -> Iterator[str]:
    if isinstance(recorded, dict) and isinstance(found, dict):
        left, right = cast("dict[str, Any]", recorded), cast("dict[str, Any]", found)
        for key in [*left, *(key for key in right if key not in left)]:
            yield from _differences(f"{path}/{key}", left.get(key, ABSENT), right.get(key, ABSENT))
    elif isinstance(recorded, list) and isinstance(found, list) and len(recorded) == len(found):  # pyright: ignore[reportUnknownArgumentType]
        rows = zip(cast("list[Any]", recorded), cast("list[Any]", found), strict=True)
        for index, (left, right) in enumerate(rows):
            yield from _differences(f"{path}/{index}", left, right)
    elif recorded != found:
        yield f"{path}: Kafka {json.dumps(recorded)}, embedded {json.dumps(found)}"


ABSENT: Final = "(default)"


def read_record() -> dict[str, dict[str, Any]]:
    """Return the responses of Apache Kafka, by scenario and request."""
    return json.loads(RECORD.read_text())


def write_record(record: dict[str, dict[str, Any]]) -> None:
    """Write the responses of Apache Kafka, one request a line."""
    lines: list[str] = []
    for name, rows in sorted(record.items()):
        body = ",\n".join(
            f"  {json.dumps(title)}: {json.dumps(row, sort_keys=True)}"
            for title, row in rows.items()
        )
        lines.append(f"{json.dumps(name)}: {{\n{body}\n}}")
    RECORD.parent.mkdir(exist_ok=True)
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    write_record(asyncio.run(run_sockets(sys.argv[1], SCENARIOS)))
