"""Starts every client, forks, and prints what each method does in the forked process, as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import AsyncExitStack
from typing import Any

from tests.embedded_client import InMemory
from tests.lifecycle.calls import make, outcome_of
from tools.lifecycle import TABLE


async def main() -> int:
    """Run the clients, and the calls in a child; return the child's status."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(InMemory())
        await cluster.cluster.create_topic("t", 1)
        clients: dict[str, Any] = {}
        for name in TABLE:
            clients[name] = await stack.enter_async_context(make(name, cluster))
        while not clients["Consumer"].assignment():  # noqa: ASYNC110  # no event tells of it
            await asyncio.sleep(0.01)
        child = os.fork()
        if child == 0:
            os._exit(_call_all(clients))
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
    return os.waitstatus_to_exitcode(status)


def _call_all(clients: dict[str, Any]) -> int:
    """Call every method in a new event loop of the forked process."""
    asyncio.events._set_running_loop(None)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    found = {
        name: {method: asyncio.run(outcome_of(client, method, 1.0)) for method in TABLE[name]}
        for name, client in clients.items()
    }
    sys.stdout.write(json.dumps(found))
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
