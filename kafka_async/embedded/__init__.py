"""A Kafka cluster inside the Python process: real protocol and sockets, fault injection, no Java.

For development and tests only: all data is in memory. In the caller's event loop:

    async with EmbeddedCluster(brokers=3) as cluster:
        ... cluster.bootstrap_servers

in a separate thread, for tests and blocking code:

    with run_in_thread(brokers=3) as cluster:
        cluster.create_topic("clicks", 6)

or as a process, `python -m kafka_async.embedded`.
"""

from __future__ import annotations

from kafka_async.embedded.cluster import EmbeddedCluster
from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.failures import Failure
from kafka_async.embedded.faults import Fault, Faults
from kafka_async.embedded.security.listeners import Listener
from kafka_async.embedded.security.oauthbearer import UnsecuredTokens
from kafka_async.embedded.state.acls import AclAuthorizer
from kafka_async.embedded.threads import BlockingCluster, run_in_thread

__all__ = [
    "AclAuthorizer",
    "BlockingCluster",
    "EmbeddedCluster",
    "ErrorCode",
    "Failure",
    "Fault",
    "Faults",
    "Listener",
    "UnsecuredTokens",
    "run_in_thread",
]
