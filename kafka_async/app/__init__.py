"""Work divided among processes: named resources, the leader of a group, the only writer."""

from kafka_async.app.leader_election import LeaderElection
from kafka_async.app.single_writer import SingleWriter
from kafka_async.app.worker_pool import WorkerPool

__all__ = ["LeaderElection", "SingleWriter", "WorkerPool"]
