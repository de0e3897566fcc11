"""The server.properties of test clusters.

Sessions, rebalances and time-outs are as short as Kafka lets them be, since tests wait for them;
threads and internal topics are few.
"""

from __future__ import annotations

COMMON = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "broker.heartbeat.interval.ms": "1000",
    "broker.session.timeout.ms": "6000",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "3",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
    "log.cleaner.dedupe.buffer.size": "16777216",
    "log.retention.check.interval.ms": "86400000",  # tests write records of any age
}

# Groups of the new protocol exist from 4.0 on, share groups from 4.2; older brokers do not mind
# settings that they do not know.
NEW_GROUPS = {
    "min.session.timeout.ms": "500",
    "session.timeout.ms": "6000",
    "min.heartbeat.interval.ms": "100",
    "heartbeat.interval.ms": "500",
}


def cluster_settings(
    brokers: int, auto_create_topics: bool, default_partitions: int
) -> dict[str, str]:
    """What is the same for each node: three copies and two in sync, where there are as many."""
    copies, in_sync = str(min(brokers, 3)), str(min(brokers, 2))
    groups = {
        f"group.{kind}.{name}": value
        for kind in ("consumer", "share")
        for name, value in NEW_GROUPS.items()
    }
    return {
        **COMMON,
        **groups,
        "auto.create.topics.enable": str(auto_create_topics).lower(),
        "num.partitions": str(default_partitions),
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
    }


def node_settings(
    node_id: int, port: int, controller: str, voters: str, *, bind: str = "127.0.0.1"
) -> dict[str, str]:
    """What is a node's own. Clients reach it at 127.0.0.1:`port`, controllers at `controller`."""
    return {
        "node.id": str(node_id),
        "controller.quorum.voters": voters,
        "listeners": f"PLAINTEXT://{bind}:{port},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
    }
