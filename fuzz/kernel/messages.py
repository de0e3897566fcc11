"""The target "messages": decodes every response in every version with the compiled codec.

It has the inputs and promises of the fuzzer's target `responses`, for example that the compiled
codec and plain Python agree. Here the codec is instrumented.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fuzz import responses

if TYPE_CHECKING:
    from fuzz.kernel.kernel_pair import KernelPair

Prepared = tuple[Callable[[], object], int]


def check(pair: KernelPair, data: bytes) -> None:
    """Decode and encode a message; raise Finding if a promise is broken."""
    responses.run(data)


def prepare(data: bytes) -> Prepared:
    """Return a call of the decoder and the size of the input."""
    return responses.subject(data), len(data)


def run(kernel: Any, given: Prepared) -> int:
    """Decode without checks; return the size of the input."""
    call, size = given
    call()
    return size
