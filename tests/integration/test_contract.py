"""The recorded responses of the contract, on Apache Kafka and on the embedded cluster.

Unit tests compare the embedded cluster with the record; this test keeps the record correct.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from tests.contract.compare import differences, read_record, run_sockets
from tests.contract.scenarios import SCENARIOS

if TYPE_CHECKING:
    from kafka_async.testing.fixtures import ClusterHandle


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_cluster_responds_as_recorded(kafka_cluster: ClusterHandle) -> None:
    found = asyncio.run(run_sockets(kafka_cluster.bootstrap_servers, SCENARIOS))
    assert differences(read_record(), json.loads(json.dumps(found))) == []
