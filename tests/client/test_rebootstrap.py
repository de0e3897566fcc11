"""Tests of rebootstraps in every role of a client: state survives, and no call fails."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from tests.embedded_client import InMemory, until
from tests.rebootstrap_roles import BOOTSTRAP_NAME, ROLES, BootstrapName, Place, Role, opened

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_clock]

roles = pytest.mark.parametrize("kind", ROLES, ids=lambda kind: kind.name)


class World:
    """Three brokers in memory behind a bootstrap name."""

    def __init__(self, memory: InMemory) -> None:
        self.memory = memory
        self.name = BootstrapName(memory.network, memory.address(1))

    async def stop_brokers(self) -> None:
        for broker in self.memory.cluster.brokers:
            await self.memory.cluster.stop_broker(broker)

    async def start_at_new_ports(self) -> None:
        for broker in self.memory.cluster.brokers.values():
            await self.memory.cluster.start_broker(broker.id, port=broker.port + 1000)
        self.name.target = self.memory.address(1)


@asynccontextmanager
async def world() -> AsyncGenerator[World]:
    async with InMemory(3) as memory:
        yield World(memory)


class Silent(asyncio.Protocol):
    """Accepts a connection and does not respond."""


async def moved(world: World, role: Role) -> None:
    await world.stop_brokers()
    calls = asyncio.create_task(role.during())
    await asyncio.sleep(20)
    await world.start_at_new_ports()
    await calls


async def silent(world: World, role: Role) -> None:
    """Let connections be accepted at the former addresses, without responses."""
    await world.stop_brokers()
    for broker in world.memory.cluster.brokers.values():
        world.memory.network.listen(Silent, "127.0.0.1", broker.port)
    calls = asyncio.create_task(role.during())
    await asyncio.sleep(20)
    await world.start_at_new_ports()
    await calls


async def frozen(world: World, role: Role) -> None:
    """Hold all requests for some time; the brokers then handle those that have not ended."""
    held = world.memory.hang()
    calls = asyncio.create_task(role.during())
    await asyncio.sleep(20)
    held.remove()
    await calls


async def required_in_metadata(world: World, role: Role) -> None:
    world.memory.cluster.faults.add(api="Metadata", error="REBOOTSTRAP_REQUIRED", count=3)
    await world.memory.cluster.disconnect()
    await role.during()


async def required_in_api_versions(world: World, role: Role) -> None:
    world.memory.cluster.faults.add(api="ApiVersions", error="REBOOTSTRAP_REQUIRED", count=3)
    await world.memory.cluster.disconnect()
    await role.during()


@roles
@pytest.mark.parametrize("outage", [moved, silent, required_in_metadata, required_in_api_versions])
async def test_role_continues_after_rebootstrap(
    kind: type[Role], outage: Callable[[World, Role], Awaitable[None]]
) -> None:
    async with world() as running, opened(Place(running.name, "x"), [kind]) as (role,):
        await outage(running, role)
        await until(lambda: bool(role.reasons))
        await role.after()


@roles
async def test_role_continues_after_freeze(kind: type[Role]) -> None:
    async with world() as running, opened(Place(running.name, "x"), [kind]) as (role,):
        await frozen(running, role)
        await role.after()


@roles
async def test_role_continues_while_first_bootstrap_server_is_down(kind: type[Role]) -> None:
    servers = f"down.test:9092,{BOOTSTRAP_NAME}"
    async with world() as running, opened(Place(running.name, "x", servers), [kind]) as (role,):
        await moved(running, role)
        await role.after()
        assert role.reasons == ["no known broker is available"]
