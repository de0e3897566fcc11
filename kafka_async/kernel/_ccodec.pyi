"""Types of the compiled codec; its specification is the code from `protocol/compiler.py`."""

from collections.abc import Sequence
from typing import Any

class FallbackRequired(ValueError): ...

class Layout:
    def __init__(
        self,
        cls: type,
        every: Sequence[Any],
        line: Sequence[Any],
        tagged: Sequence[Any],
        absent: Sequence[Any],
        flexible: bool,
    ) -> None: ...
    def decode(self, source: bytes | bytearray | memoryview, position: int) -> tuple[Any, int]: ...
    def encode(self, value: Any) -> list[bytes | bytearray | memoryview]: ...
