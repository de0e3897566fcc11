"""The handle of a request that `Client.submit` has started."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

from kafka_async.errors import ClientClosedError, KafkaTimeoutError
from kafka_async.foundation.arguments import check_timeout

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator
    from typing import Any

    from kafka_async.foundation.supervisor import Supervisor
    from kafka_async.protocol.message import Response

ResponseT = TypeVar("ResponseT", bound="Response")


class RequestHandle(Generic[ResponseT]):
    """A request that `Client.submit` has started: await it, cancel it, or look at it later.

    It may be awaited several times, even concurrently; each await returns the response or raises
    the request's error. Cancelling an await does not cancel the request. A handle may be dropped:
    the request continues, and its error is not reported.
    """

    def __init__(self, supervisor: Supervisor, send: Callable[[], Awaitable[ResponseT]]) -> None:
        self._client = supervisor.name
        self._future: asyncio.Future[ResponseT] = supervisor.loop.create_future()
        self._send = send
        self._task = supervisor.spawn(self._run, name="request")

    @property
    def done(self) -> bool:
        """True if there is a response or an error, or the request was cancelled."""
        return self._future.done()

    @property
    def cancelled(self) -> bool:
        """True if the request was cancelled before it was done."""
        return self._future.cancelled()

    def cancel(self) -> bool:
        """Cancel the request; awaiting the handle then raises asyncio.CancelledError.

        A request that was sent already is still handled by its broker, but not retried.

        Returns:
            False if the request was done.
        """
        if not self._future.cancel():
            return False
        self._task.cancel()
        return True

    async def response(self, timeout: float | None = None) -> ResponseT:
        """Wait for the response and return it.

        Args:
            timeout: Maximum time to wait, in seconds (default: no limit but the request's). The
                request continues.

        Raises:
            KafkaTimeoutError: `timeout` is over, or the request's own timeout.
            KafkaError: The error of the request, see `Client.request`.
            asyncio.CancelledError: The request was cancelled.
        """
        timeout = check_timeout(timeout)
        if not self._future.done():
            # Unlike an await of the future, this does not cancel it if the caller is cancelled.
            await asyncio.wait({self._future}, timeout=timeout)
        if not self._future.done():
            raise KafkaTimeoutError(f"the request has no response after {timeout:.3g} s")
        return self._future.result()

    def __await__(self) -> Generator[Any, None, ResponseT]:
        return self.response().__await__()

    async def _run(self) -> None:
        if self._future.done():  # cancelled before it was sent
            return
        try:
            response = await self._send()
        except Exception as error:  # noqa: BLE001  # raised when the handle is awaited
            self._fail(error)
        # The client stops; the handle must not wait forever.
        except BaseException:
            self._fail(ClientClosedError(f"{self._client} was closed"))
            raise
        else:
            if not self._future.done():
                self._future.set_result(response)

    def _fail(self, error: Exception) -> None:
        if not self._future.done():
            self._future.set_exception(error)
            self._future.exception()  # marks it as retrieved: the handle may be dropped
