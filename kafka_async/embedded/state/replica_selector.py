"""Selects the replica that a consumer should fetch from (KIP-392). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafka_async.embedded.state.brokers import Brokers
    from kafka_async.embedded.state.partition import Partition


def preferred_read_replica(
    brokers: Brokers, partition: Partition, rack: str, fetch_offset: int
) -> int | None:
    """Return an in-sync follower in the consumer's rack, or None to fetch from the leader.

    As in Kafka's RackAwareReplicaSelector, the leader serves consumers in its rack and consumers
    without a replica in theirs. All replicas share one log, so either all or none have an offset;
    of several replicas in the rack, the highest id is selected.
    """
    log = partition.log
    if not rack or brokers[partition.leader].rack == rack:
        return None
    if not log.start_offset <= fetch_offset <= log.end_offset:
        return None
    return max((id_ for id_ in partition.isr if brokers[id_].rack == rack), default=None)
