"""Exactly-once processing, work divided among processes, and the lead of a group."""

from kafka_async.app.leader_election import LeaderElection
from kafka_async.app.single_writer import SingleWriter
from kafka_async.app.transactional_loop import transactional
from kafka_async.app.worker_pool import WorkerPool

__all__ = ["LeaderElection", "SingleWriter", "WorkerPool", "transactional"]
