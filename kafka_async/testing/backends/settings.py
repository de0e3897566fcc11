"""The server.properties of test clusters.

Sessions, rebalances and time-outs are as short as Kafka allows, since tests wait for them. There
are few threads and few partitions of internal topics.
"""

from __future__ import annotations

COMMON_SETTINGS = {
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
    # Otherwise Kafka would move leaders, and with them group coordinators, back to restarted
    # brokers every 5 minutes: in the middle of any later test.
    "auto.leader.rebalance.enable": "false",
    # By default the controller writes a record every 500 ms, which all nodes apply: a third of the
    # CPU time of an idle cluster.
    "metadata.max.idle.interval.ms": "5000",
    "log.cleaner.dedupe.buffer.size": "16777216",
    # Keep old records, except at the first check, 30 s after a start.
    "log.retention.check.interval.ms": "86400000",
}

# Groups of the consumer protocol exist since 4.0, share groups since 4.2; older brokers ignore
# unknown settings.
GROUP_SETTINGS = {
    "min.session.timeout.ms": "500",
    "session.timeout.ms": "6000",
    "min.heartbeat.interval.ms": "100",
    "heartbeat.interval.ms": "500",
    # By default a group waits 1 s before it computes another assignment.
    "assignment.interval.ms": "0",
}
SHARE_GROUP_SETTINGS = {
    "group.share.min.record.lock.duration.ms": "1000",
    # A member gets no partitions until their state is initialized. If the state's broker changes
    # during that, the next attempt is 30 s later by default; 5 s is the minimum.
    "group.share.initialize.retry.interval.ms": "5000",
}


def cluster_settings(
    brokers: int, auto_create_topics: bool, default_partitions: int
) -> dict[str, str]:
    """Return the settings shared by all nodes, with up to three replicas, two of them in sync."""
    replicas, in_sync = str(min(brokers, 3)), str(min(brokers, 2))
    groups = {
        f"group.{kind}.{name}": value
        for kind in ("consumer", "share")
        for name, value in GROUP_SETTINGS.items()
    }
    return {
        **COMMON_SETTINGS,
        **groups,
        **SHARE_GROUP_SETTINGS,
        "auto.create.topics.enable": str(auto_create_topics).lower(),
        "num.partitions": str(default_partitions),
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
    }


def node_settings(
    node_id: int, port: int, controller: str, voters: str, *, bind: str = "127.0.0.1"
) -> dict[str, str]:
    """Return the settings of a node; its client port is bound at the address `bind`."""
    return {
        "node.id": str(node_id),
        "controller.quorum.voters": voters,
        "listeners": f"PLAINTEXT://{bind}:{port},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
    }


def rack_settings(rack: str) -> dict[str, str]:
    """Return the settings of a node in a rack; consumers fetch from a replica in their rack."""
    from kafka_async.embedded.settings import RACK_AWARE_REPLICA_SELECTOR

    return {"broker.rack": rack, "replica.selector.class": RACK_AWARE_REPLICA_SELECTOR}
