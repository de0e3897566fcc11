"""The seconds until an error is raised that a retry cannot solve, on the real clock.

With `--log-cli-level=INFO`, pytest prints them.
"""

from __future__ import annotations

import asyncio
import logging
from statistics import median
from typing import TYPE_CHECKING

import pytest

from kafka_async import Client
from kafka_async.errors import KafkaError, TopicAuthorizationError
from tests.integration.helpers import create_topic
from tests.integration.secure_cluster import ALICE
from tests.integration.test_security import FAILURES, send, start_and_stop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.integration.secure_cluster import SecureCluster

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

logger = logging.getLogger(__name__)
LIMIT_S = 2.0
"""Maximum seconds, which the security page promises."""
RUNS = 5
"""Runs per case; the median counts, so that one pause of a busy machine does not."""
MISSING_ACL = "missing ACL"
CASES = {
    "wrong password": "wrong password of SCRAM-SHA-512",
    "wrong certificate authority": "authority that is not trusted",
    "wrong host name": "host name that the certificate does not have",
    "expired certificate": "expired certificate of a broker",
    MISSING_ACL: "",
    "TLS at a plaintext listener": "TLS at a plaintext listener",
    "plaintext at a TLS listener": "plaintext at a TLS listener",
    "unsupported mechanism": "mechanism that the broker does not offer",
}
"""Keys of `FAILURES` by the names that the security page has."""


def failing_call(
    cluster: SecureCluster, case: str, topic: str
) -> tuple[Callable[[], Awaitable[None]], type[KafkaError]]:
    """Return a call that fails, and its error."""
    if case == MISSING_ACL:
        options = cluster.options("SASL_SSL", "SCRAM-SHA-512", user=ALICE)
        return lambda: send(cluster, options, topic), TopicAuthorizationError
    failure = FAILURES[CASES[case]]
    port = cluster.servers(failure.at).rpartition(":")[2]
    options = failure.options(cluster, port)
    return lambda: start_and_stop(Client(**options)), failure.error


@pytest.mark.parametrize("case", CASES)
async def test_error_is_raised_within_two_seconds(secure_cluster: SecureCluster, case: str) -> None:
    call, error = failing_call(secure_cluster, case, await create_topic(secure_cluster.handle))
    clock, taken = asyncio.get_running_loop().time, list[float]()
    for _ in range(RUNS):
        began = clock()
        with pytest.raises(error):
            await call()
        taken.append(clock() - began)
    backend = secure_cluster.backend
    logger.info("%s, %s: %.2f s, at most %.2f s", backend, case, median(taken), max(taken))
    assert median(taken) < LIMIT_S
