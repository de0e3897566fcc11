"""Every public method of every client does in every state what docs/lifecycle.md says."""

from __future__ import annotations

import asyncio
import json
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from kafka_async.errors import TaskDiedError
from tests.embedded_client import InMemory
from tests.lifecycle.calls import make, outcome_of, outcome_without_loop
from tests.lifecycle.places import LISTENERS, PROTOCOLS, Place, outcomes_in, places
from tests.programs import run_python
from tools.lifecycle import CLIENTS, CLIENTS_IN, STATES, TABLE, WORDS, methods_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator

OWN_STATES = ("new", "starting", "connecting", "running", "stopping", "stopped", "failed")
"""The states of a client itself; the others depend on where the call is made."""
STARTED = ("running", "stopping", "stopped", "failed", "elsewhere")

STARTS = {"starting": 10.0, "connecting": 1.0}
"""Seconds after which a call counts as one that waits; a start lasts longer."""


async def die() -> None:
    raise ValueError("why")


def supervisor_of(client: Any) -> Any:
    """Return the supervisor of a client's own tasks."""
    owner = getattr(client, "_member", client)  # of a WorkerPool
    return owner._supervisor if hasattr(owner, "_supervisor") else owner.client._supervisor


@asynccontextmanager
async def in_state(name: str, state: str, cluster: InMemory) -> AsyncGenerator[Any]:
    """Bring a new client into a state; stop it afterwards."""
    client, fault = make(name, cluster), None
    background: asyncio.Task[None] | None = None
    try:
        if state in STARTED:
            await client.start()
            await asyncio.sleep(10)  # Members join their groups.
        if state in ("starting", "stopping"):
            fault = cluster.hang()
        if state == "connecting":
            cluster.network.refused.update(b.port for b in cluster.cluster.brokers.values())
        if state in ("starting", "connecting", "stopping"):
            action = client.stop() if state == "stopping" else client.start()
            background = asyncio.create_task(action)
            await asyncio.sleep(0.001)
        if state == "stopped":
            await client.stop()
        if state == "failed":
            supervisor_of(client).spawn(die, name="dies")
            await asyncio.sleep(1)
        yield client
    finally:
        if fault is not None:
            fault.remove()
        cluster.network.refused.clear()
        with suppress(TaskDiedError):
            await client.stop()
        if background is not None:
            await asyncio.wait({background})
            background.exception()


def differences(name: str, state: str, found: dict[str, str]) -> dict[str, str]:
    """Return what calls do in a state that differs from the table."""
    assert found.keys() == TABLE[name].keys()
    expected = {method: row[state] for method, row in TABLE[name].items()}
    return {
        method: f"{word}, not {expected[method]}"
        for method, word in found.items()
        if word != expected[method]
    }


def in_another_loop(client: Any, method: str) -> str:
    """Return the outcome of a call in another event loop."""
    return asyncio.run(outcome_of(client, method, 1.0))


def paired_places() -> Iterator[Any]:
    """Yield all places; each listener with one protocol, the other listeners are slow tests."""
    paired = {f"{name} {protocol}" for name, protocol in zip(LISTENERS, PROTOCOLS, strict=True)}
    for place in places():
        slow = place.state == "listener" and place.name not in paired
        yield pytest.param(place, marks=pytest.mark.slow if slow else (), id=str(place))


def test_table_has_a_row_for_every_method_and_a_cell_for_every_state() -> None:
    assert TABLE.keys() == CLIENTS.keys()
    for name, rows in TABLE.items():
        assert sorted(rows) == methods_of(CLIENTS[name]), f"{name}: the table has other methods"
        for method, row in rows.items():
            states = [state for state in STATES if name in CLIENTS_IN.get(state, TABLE)]
            assert list(row) == states, f"{name}.{method}"
            assert WORDS.keys() >= set(row.values()), f"{name}.{method}"


@pytest.mark.asyncio
@pytest.mark.virtual_clock
@pytest.mark.parametrize("state", OWN_STATES)
@pytest.mark.parametrize("name", TABLE)
async def test_every_call_does_what_the_table_says(
    name: str, state: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "kafka_async")
    wait = STARTS.get(state, 200.0)
    found: dict[str, str] = {}
    async with InMemory() as cluster:
        await cluster.cluster.create_topic("t", 1)
        for method in TABLE[name]:
            async with in_state(name, state, cluster) as client:
                found[method] = await outcome_of(client, method, wait)
    assert differences(name, state, found) == {}


@pytest.mark.asyncio
@pytest.mark.virtual_clock
@pytest.mark.parametrize("place", list(paired_places()))
async def test_every_call_in_a_rebalance_or_callback_does_what_the_table_says(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "kafka_async")
    found = await outcomes_in(place, TABLE[place.client])
    assert differences(place.client, place.column, found) == {}


@pytest.mark.asyncio
@pytest.mark.virtual_clock
@pytest.mark.may_block  # waits for another thread
@pytest.mark.parametrize(
    ("state", "outcome"), [("elsewhere", in_another_loop), ("thread", outcome_without_loop)]
)
@pytest.mark.parametrize("name", TABLE)
async def test_every_call_in_another_thread_does_what_the_table_says(
    name: str, state: str, outcome: Callable[[Any, str], str]
) -> None:
    found: dict[str, str] = {}
    async with InMemory() as cluster:
        await cluster.cluster.create_topic("t", 1)
        async with in_state(name, "elsewhere", cluster) as client:
            with ThreadPoolExecutor(1) as pool:
                for method in TABLE[name]:
                    found[method] = pool.submit(outcome, client, method).result()
    assert differences(name, state, found) == {}


def test_every_cell_has_a_test() -> None:
    tested = {(place.client, place.column) for place in places()}
    for name, rows in TABLE.items():
        for state in {state for row in rows.values() for state in row}:
            elsewhere = ("elsewhere", "thread", "fork")
            assert state in (*OWN_STATES, *elsewhere) or (name, state) in tested


def test_every_call_in_a_forked_process_does_what_the_table_says() -> None:
    result = run_python("-m", "tests.lifecycle.fork")
    assert result.returncode == 0, result.stderr
    found: dict[str, dict[str, str]] = json.loads(result.stdout)
    assert [differences(name, "fork", words) for name, words in found.items()] == [{}] * len(TABLE)
