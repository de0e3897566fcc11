"""Rebootstraps of clients in every role, on a cluster whose brokers all move to new ports.

tests/cluster/test_rebootstrap.py has more outages, in virtual time and with default options.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

import pytest

from kafka_async.protocol.messages.api_versions import ApiVersionsRequest
from kafka_async.protocol.messages.metadata import MetadataRequest
from tests.integration.broker_proxy import Proxies, silent_listeners
from tests.integration.moving_cluster import (
    chosen_backends,
    first_address,
    kill_brokers,
    started,
)
from tests.rebootstrap_roles import (
    BOOTSTRAP_NAME,
    ROLES,
    BootstrapName,
    Place,
    SocketDialer,
    each,
    opened,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafka_async.clock import Dialer
    from kafka_async.testing.backends.base import ClusterOptions
    from tests.conftest import CannotRun
    from tests.integration.moving_cluster import Moving
    from tests.rebootstrap_roles import Role

pytestmark = pytest.mark.asyncio

SHORT_SETUP = {
    "socket_connection_setup_timeout_ms": 1_000,
    "socket_connection_setup_timeout_max_ms": 2_000,
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test of the moving cluster once on each chosen backend that can move brokers."""
    marks = {"embedded": [], "apache": [pytest.mark.slow]}
    if metafunc.function is test_roles_continue_after_all_brokers_moved:
        del marks["apache"]  # The next test restarts Apache Kafka too, which takes a while.
    names = chosen_backends(metafunc)
    chosen = [pytest.param(name, marks=marks[name]) for name in names if name in marks]
    metafunc.parametrize("moving_cluster", chosen, indirect=True, scope="module")


@pytest.fixture(scope="module")
def moving_cluster(
    request: pytest.FixtureRequest, kafka_cluster_options: ClusterOptions, cannot_run: CannotRun
) -> Iterator[Moving]:
    """Start a cluster for the tests of this file, which move its brokers."""
    with started(request.param, kafka_cluster_options, cannot_run) as cluster:
        yield cluster


def place(cluster: Moving, dialer: Dialer, **fields: str) -> Place:
    name = BootstrapName(dialer, first_address(cluster))
    return Place(name, uuid.uuid4().hex[:8], options=SHORT_SETUP, patient=True, **fields)


async def move_brokers(cluster: Moving, place: Place, roles: list[Role]) -> None:
    """Start the stopped brokers at new ports, while calls of all roles are pending."""
    async with asyncio.TaskGroup() as group:
        group.create_task(each(role.during() for role in roles))
        await asyncio.to_thread(cluster.start_at_new_ports)
        place.dialer.target = first_address(cluster)
    await each(role.after() for role in roles)
    assert {role.name: bool(role.reasons) for role in roles} == {kind.name: True for kind in ROLES}


async def test_roles_continue_after_all_brokers_moved(moving_cluster: Moving) -> None:
    home = place(moving_cluster, SocketDialer())
    async with opened(home, ROLES) as roles:
        await kill_brokers(moving_cluster)
        await move_brokers(moving_cluster, home, roles)


async def test_roles_continue_while_former_addresses_do_not_respond(
    moving_cluster: Moving,
) -> None:
    """Checks a restart at new ports; the first of two bootstrap servers is down."""
    servers = f"down.test:9092,{BOOTSTRAP_NAME}"
    home = place(moving_cluster, SocketDialer(), servers=servers)
    async with (
        opened(home, ROLES) as roles,
        silent_listeners(await kill_brokers(moving_cluster)),
    ):
        await move_brokers(moving_cluster, home, roles)


@pytest.mark.parametrize("api", [MetadataRequest, ApiVersionsRequest])
async def test_roles_continue_after_brokers_require_rebootstrap(
    moving_cluster: Moving, api: type[MetadataRequest | ApiVersionsRequest]
) -> None:
    async with Proxies() as proxies:
        home = place(moving_cluster, proxies)
        async with opened(home, ROLES) as roles:
            proxies.refused[api.API_KEY] = 3 * len(ROLES)
            await proxies.disconnect()
            await each(role.during() for role in roles)
            await each(role.after() for role in roles)
            assert proxies.refused[api.API_KEY] == 0
