"""An embedded Kafka cluster: real protocol, real sockets, several brokers, faults by rule, no Java.

For development and tests only: it keeps everything in memory and authenticates nobody. In the
caller's loop:

    async with EmbeddedCluster(brokers=3) as cluster:
        ... cluster.bootstrap_servers

in a thread of its own, for tests and blocking code:

    with run_in_thread(brokers=3) as cluster:
        cluster.create_topic("clicks", 6)

or as a process, `python -m kafka_async.embedded`.
"""

from __future__ import annotations

from kafka_async.embedded.cluster import EmbeddedCluster, Failure
from kafka_async.embedded.codes import Code
from kafka_async.embedded.faults import Fault, Faults
from kafka_async.embedded.threads import BlockingCluster, run_in_thread

__all__ = [
    "BlockingCluster",
    "Code",
    "EmbeddedCluster",
    "Failure",
    "Fault",
    "Faults",
    "run_in_thread",
]
