"""Job and streaming query events, for asynchronous iterators."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

MAX_EVENTS: Final = 10_000
"""Unread events that a stream keeps; beyond that it drops the oldest."""


@dataclass(frozen=True, slots=True)
class OrchestratorEvent:
    """Holds an event of the driver, a job or a streaming query.

    Attributes:
        kind: "driver_active" or "driver_standby"; "job_accepted", "job_started", "job_retried",
            "job_bisected", "job_succeeded", "job_failed" or "job_cancelled"; "query_started",
            "query_progress", "query_idle" or "query_terminated".
        time: Seconds since the epoch.
        details: Further fields, representable as JSON. A query event has Spark's fields.
    """

    kind: str
    time: float
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def to_json(self) -> bytes:
        """Return the event as a JSON object."""
        return json.dumps({"kind": self.kind, "time": self.time, **self.details}).encode()


class EventStream:
    """Iterates over the events since its creation; ends when the orchestrator stops.

    Attributes:
        dropped: Number of events dropped because they were not read in time.
    """

    def __init__(self, on_close: Callable[[EventStream], None]) -> None:
        self._events: deque[OrchestratorEvent] = deque()
        self._wakeup = asyncio.Event()
        self._on_close = on_close
        self._closed = False
        self.dropped = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> OrchestratorEvent:
        """Return the next event."""
        while not self._events:
            if self._closed:
                raise StopAsyncIteration
            self._wakeup.clear()
            await self._wakeup.wait()
        return self._events.popleft()

    def put(self, event: OrchestratorEvent) -> None:
        """Append an event."""
        if len(self._events) >= MAX_EVENTS:
            self._events.popleft()
            self.dropped += 1
        self._events.append(event)
        self._wakeup.set()

    def close(self) -> None:
        """End the stream after its unread events."""
        self._closed = True
        self._wakeup.set()
        self._on_close(self)


class EventBus:
    """Distributes events to streams and to a callback.

    Args:
        on_event: Called with every event, in the event loop.
    """

    def __init__(self, on_event: Callable[[OrchestratorEvent], None]) -> None:
        self._streams: list[EventStream] = []
        self._on_event = on_event

    def stream(self) -> EventStream:
        """Return a new stream."""
        stream = EventStream(self._remove)
        self._streams.append(stream)
        return stream

    def _remove(self, stream: EventStream) -> None:
        if stream in self._streams:
            self._streams.remove(stream)

    def publish(self, kind: str, **details: object) -> None:
        """Distribute an event; must be called in the event loop."""
        event = OrchestratorEvent(kind, time.time(), details)
        for stream in self._streams:
            stream.put(event)
        self._on_event(event)

    def close(self) -> None:
        """End all streams."""
        for stream in list(self._streams):
            stream.close()


# -- streaming queries ----------------------------------------------------------------------------


def query_listener(publish: Callable[..., None]) -> Any:
    """Return a StreamingQueryListener that forwards Spark's events to the running event loop.

    Args:
        publish: Called in the event loop with the kind and the details of an event.
    """
    from pyspark.sql.streaming.listener import StreamingQueryListener

    loop = asyncio.get_running_loop()

    def forward(kind: str, details: dict[str, Any]) -> None:
        # Spark calls the listener in a thread that the query waits for, so do not block.
        try:
            loop.call_soon_threadsafe(lambda: publish(kind, **details))
        except RuntimeError:
            pass  # the event loop was closed

    class Listener(StreamingQueryListener):
        """Forwards the events of all streaming queries of a session."""

        def onQueryStarted(self, event: Any) -> None:
            forward("query_started", {**_ids(event), "name": event.name})

        def onQueryProgress(self, event: Any) -> None:
            progress = cast("dict[str, Any]", json.loads(event.progress.json))
            forward("query_progress", progress)

        def onQueryIdle(self, event: Any) -> None:
            forward("query_idle", _ids(event))

        def onQueryTerminated(self, event: Any) -> None:
            details = {**_ids(event), "exception": event.exception}
            forward("query_terminated", details)

    return Listener()


def _ids(event: Any) -> dict[str, Any]:
    return {"id": str(event.id), "runId": str(event.runId)}
