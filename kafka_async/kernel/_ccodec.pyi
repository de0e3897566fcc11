"""The compiled codec has no twin here: its specification is `protocol/compiler.py`."""

from kafka_async.protocol.layouts import Row

class Unsure(ValueError): ...

class Layout:
    def __init__(
        self,
        cls: type,
        every: list[Row],
        line: list[Row],
        tagged: list[Row],
        absent: list[Row],
        flexible: bool,
    ) -> None: ...
    def decode(
        self, source: bytes | bytearray | memoryview, position: int
    ) -> tuple[object, int]: ...
    def encode(self, value: object) -> list[bytes | bytearray | memoryview]: ...
