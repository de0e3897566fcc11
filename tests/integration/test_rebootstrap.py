"""Rebootstraps of clients in every role, on a cluster whose brokers all move to new ports.

tests/client/test_rebootstrap.py has more outages, in virtual time and with default options.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

import pytest

from kafka_async.protocol.messages.api_versions import ApiVersionsRequest
from kafka_async.protocol.messages.metadata import MetadataRequest
from tests.integration.broker_proxy import Proxies, silent_listeners
from tests.integration.moving_cluster import chosen_backends, first_address, kill_brokers
from tests.rebootstrap_roles import (
    BOOTSTRAP_NAME,
    PATIENCE_MS,
    ROLES,
    SHORT_SETUP,
    BootstrapName,
    Place,
    SocketDialer,
    each,
    opened,
)

if TYPE_CHECKING:
    from tests.integration.moving_cluster import Moving
    from tests.rebootstrap_roles import Role

pytestmark = pytest.mark.asyncio


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test of the moving cluster once on each chosen backend that can move brokers."""
    marks = {"embedded": [], "apache": [pytest.mark.slow]}
    if metafunc.function is test_roles_continue_after_all_brokers_moved:
        del marks["apache"]  # The next test restarts Apache Kafka too, which takes a while.
    names = chosen_backends(metafunc)
    chosen = [pytest.param(name, marks=marks[name]) for name in names if name in marks]
    metafunc.parametrize("moving_cluster", chosen, indirect=True, scope="module")


def place(name: BootstrapName, servers: str = BOOTSTRAP_NAME) -> Place:
    suffix = uuid.uuid4().hex[:8]
    return Place(name, suffix, servers=servers, options=SHORT_SETUP, patient=True)


async def move_brokers(cluster: Moving, name: BootstrapName, roles: list[Role]) -> None:
    """Start the stopped brokers at new ports, while calls of all roles are pending."""
    async with asyncio.TaskGroup() as group:
        group.create_task(each(role.during() for role in roles))
        await asyncio.to_thread(cluster.start_at_new_ports)
        name.target = first_address(cluster)
    await each(role.after() for role in roles)
    assert {role.name: bool(role.reasons) for role in roles} == {kind.name: True for kind in ROLES}


async def test_roles_continue_after_all_brokers_moved(moving_cluster: Moving) -> None:
    name = BootstrapName(SocketDialer(), first_address(moving_cluster))
    async with opened(place(name), ROLES) as roles:
        await kill_brokers(moving_cluster)
        await move_brokers(moving_cluster, name, roles)


async def test_roles_continue_while_former_addresses_do_not_respond(
    moving_cluster: Moving,
) -> None:
    """Checks a restart at new ports; the first of two bootstrap servers is down."""
    name = BootstrapName(SocketDialer(), first_address(moving_cluster))
    async with (
        opened(place(name, f"down.test:9092,{BOOTSTRAP_NAME}"), ROLES) as roles,
        silent_listeners(await kill_brokers(moving_cluster)),
    ):
        await move_brokers(moving_cluster, name, roles)


@pytest.mark.parametrize("api", [MetadataRequest, ApiVersionsRequest])
async def test_roles_continue_after_brokers_require_rebootstrap(
    moving_cluster: Moving, api: type[MetadataRequest | ApiVersionsRequest]
) -> None:
    """Checks proxies that require it from now on; the bootstrap name leads to the brokers."""
    brokers = first_address(moving_cluster)
    async with Proxies() as proxies:
        name = BootstrapName(SocketDialer(), await proxies.servers(brokers))
        async with opened(place(name), ROLES) as roles:
            name.target = brokers
            await proxies.refuse(api.API_KEY)
            async with asyncio.timeout(PATIENCE_MS / 1000):
                await each(role.rebootstrapped.wait() for role in roles)
            await each(role.during() for role in roles)
            await each(role.after() for role in roles)
