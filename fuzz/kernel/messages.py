"""The target "messages": every response's decoder in every version, on the compiled codec.

It is the target `responses` of the fuzzer for Python, with the same inputs and promises: what the
compiled codec decodes and encodes is what plain Python does. Here the codec counts its edges.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fuzz import responses

if TYPE_CHECKING:
    from fuzz.kernel.twins import Twins

Prepared = tuple[Callable[[], object], int]


def check(twins: Twins, data: bytes) -> None:
    """Decode, and encode what was decoded; raises what does not hold."""
    responses.run(data)


def prepare(data: bytes) -> Prepared:
    """The decoder's call."""
    return responses.subject(data), len(data)


def run(kernel: Any, given: Prepared) -> int:
    """Only the decoder's work; gives the bytes that it was about."""
    call, size = given
    call()
    return size
