"""A running cluster, with its address in the environment."""

from __future__ import annotations

import os
from typing import Unpack

from kafka_async.testing.backends.base import Backend, BackendUnavailableError, ClusterOptions
from kafka_async.testing.backends.probe import wait_until_ready

VARIABLE = "KAFKA_ASYNC_BOOTSTRAP"


class ExternalBackend(Backend):
    """Uses the cluster at the address in KAFKA_ASYNC_BOOTSTRAP; never starts or stops it."""

    def __init__(self, **options: Unpack[ClusterOptions]) -> None:
        super().__init__("external", options)

    @property
    def bootstrap_servers(self) -> str:
        """Address from the environment."""
        return os.environ.get(VARIABLE, "")

    def start(self) -> None:
        """Check that the cluster responds."""
        servers = self.bootstrap_servers
        if not servers:
            raise BackendUnavailableError(f"set {VARIABLE} to the address of a cluster")
        try:
            wait_until_ready(servers.split(","), brokers=1, timeout=10)
        except TimeoutError as error:
            raise BackendUnavailableError(f"{VARIABLE}={servers}: {error}") from error

    def stop(self) -> None:
        """Do nothing: the cluster keeps running."""
