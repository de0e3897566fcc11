"""Waiting for what may block for ever, in a way that never keeps the process from ending."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

T = TypeVar("T")

CHUNK: Final = 1 << 16


async def in_thread(function: Callable[[], T]) -> T:
    """What a blocking function returns, or raises; cancelled, it is left behind.

    A daemon thread, because an executor's threads are waited for at the end of the process, which a
    read from a silent terminal would put off until somebody presses a key.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)  # type: ignore[arg-type]  # None only if T is
        else:
            future.set_exception(error)

    def work() -> None:
        result, error = None, None
        try:
            result = function()
        except BaseException as raised:  # noqa: BLE001  # raised where it is awaited
            error = raised
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:
            pass  # the loop is closed: nobody waits any more

    threading.Thread(target=work, name="kafka-async waiting", daemon=True).start()
    return await future


async def lines(descriptor: int, longest: int) -> AsyncGenerator[list[bytes]]:
    """The lines of an open file or pipe, without their ends, as soon as they are there.

    It is read without Python's buffers, whose locks a thread left behind would hold at the end.

    Raises:
        ValueError: a line has more than `longest` bytes.
    """
    rest = bytearray()
    while data := await in_thread(lambda: os.read(descriptor, CHUNK)):
        head, newline, tail = data.rpartition(b"\n")
        if newline:
            rest += head
            found = [line.removesuffix(b"\r") for line in bytes(rest).split(b"\n")]
            rest = bytearray(tail)
            yield found
        else:
            rest += data
        if len(rest) > longest:
            raise ValueError(f"a line is longer than {longest:,} bytes")
    if rest:
        yield [bytes(rest).removesuffix(b"\r")]
