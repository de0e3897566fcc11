"""Queries to Messages.java, sent in batches while results of earlier ones are read."""

from __future__ import annotations

import json
import struct
from collections import deque
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Self, TypeVar

from tools.conformance.java import JavaProcess, compile_java

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

BATCH_BYTES: Final = 1 << 20
MAX_PENDING_BATCHES: Final = 2
"""Batches that Java may process while we compare the results of an earlier one."""

INT: Final = struct.Struct(">i")
VERSION: Final = struct.Struct(">h")

DONE, REFUSED, FAILED = 0, 1, 2

CaseT = TypeVar("CaseT")


class MessageResult(NamedTuple):
    """Java's result for one message.

    Attributes:
        failure: the step that failed in Java, with the reason; the other attributes are empty then.
        encoded: the message as Java encodes it.
        equal: the message that Java decodes from our bytes equals the one from the JSON.
        tree: the JSON of the message that Java decodes from our bytes.
    """

    failure: str | None
    encoded: bytes = b""
    equal: bool = False
    tree: Any = None


class EncodeResult(NamedTuple):
    """Java's result of encoding a message in a version.

    Attributes:
        encoded: the bytes; None if Java refuses the message.
        refusal: the error if Java refuses the message.
        failure: the reason if Java could not read the query.
    """

    encoded: bytes | None
    refusal: str = ""
    failure: str = ""


class MessageVersions(NamedTuple):
    """Java's versions of a class of messages.

    Attributes:
        lowest: the first version.
        highest: the last version, released or not.
        key: the key of the API; None without one.
        stable: the last released version of the API; None without a key.
        headers: request and response header versions, by version of the API; empty without a key.
    """

    lowest: int
    highest: int
    key: int | None
    stable: int | None
    headers: dict[int, tuple[int, int]]


@dataclass(frozen=True)
class Query(Generic[CaseT]):
    """A case and its encoded query to Java."""

    case: CaseT
    wire: bytes


def message_query(case: CaseT, name: str, version: int, tree: Any, ours: bytes) -> Query[CaseT]:
    """Return the query that compares a message with our bytes of it."""
    head = [b"J", _sized(name.encode()), VERSION.pack(version)]
    parts = [*head, _sized(_json(tree)), _sized(ours)]
    return Query(case, b"".join(parts))


def versions_query(case: CaseT, name: str) -> Query[CaseT]:
    """Return the query for the versions of a class of messages."""
    return Query(case, b"".join([b"V", _sized(name.encode()), VERSION.pack(0)]))


def encode_query(case: CaseT, name: str, version: int, target: int, tree: Any) -> Query[CaseT]:
    """Return the query that encodes the tree of one version in another version."""
    versions = VERSION.pack(version), VERSION.pack(target)
    head = [b"E", _sized(name.encode()), *versions, _sized(_json(tree))]
    return Query(case, b"".join(head))


def _json(tree: Any) -> bytes:
    return json.dumps(tree, ensure_ascii=False, separators=(",", ":")).encode()


def _sized(data: bytes) -> bytes:
    return INT.pack(len(data)) + data


class ResultReader:
    """Reads a result frame from its beginning."""

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self._position = 0

    def byte(self) -> int:
        """Read a byte."""
        self._position += 1
        return self._frame[self._position - 1]

    def bytes(self) -> bytes:
        """Read bytes with a length prefix."""
        (size,) = INT.unpack_from(self._frame, self._position)
        start = self._position + INT.size
        self._position = start + size
        return self._frame[start : self._position]

    def int16(self) -> int:
        """Read an integer of two bytes."""
        self._position += VERSION.size
        return VERSION.unpack_from(self._frame, self._position - VERSION.size)[0]

    def message_versions(self) -> MessageVersions:
        """Read the versions of a class of messages."""
        lowest, highest, key = self.int16(), self.int16(), self.int16()
        if key < 0:
            return MessageVersions(lowest, highest, None, None, {})
        stable = self.int16()
        headers = {each: (self.byte(), self.byte()) for each in range(lowest, highest + 1)}
        return MessageVersions(lowest, highest, key, stable, headers)

    def message_result(self) -> MessageResult:
        """Read the result for a message."""
        if self.byte() == FAILED:
            return MessageResult(self.bytes().decode())
        encoded, equal = self.bytes(), bool(self.byte())
        return MessageResult(None, encoded, equal, json.loads(self.bytes()))

    def encode_result(self) -> EncodeResult:
        """Read the result of encoding a message."""
        status, data = self.byte(), self.bytes()
        if status == DONE:
            return EncodeResult(data)
        text = data.decode()
        return EncodeResult(None, text) if status == REFUSED else EncodeResult(None, failure=text)


class JavaMessages:
    """Kafka's message classes in a Java process, until the end of the `with` block.

    Raises:
        BackendUnavailableError: Java, its compiler or Maven is missing.
    """

    def __init__(self) -> None:
        self._java = JavaProcess("Messages", compile_java("Messages.java"))

    def __enter__(self) -> Self:
        self._java.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._java.__exit__(*error)

    def messages(self, queries: Iterable[Query[CaseT]]) -> Iterator[tuple[CaseT, MessageResult]]:
        """Run queries of `message_query`; yield each case with its result, in order."""
        return self._run(queries, ResultReader.message_result)

    def encodings(self, queries: Iterable[Query[CaseT]]) -> Iterator[tuple[CaseT, EncodeResult]]:
        """Run queries of `encode_query`; yield each case with its result, in order."""
        return self._run(queries, ResultReader.encode_result)

    def versions(self, queries: Iterable[Query[CaseT]]) -> Iterator[tuple[CaseT, MessageVersions]]:
        """Run queries of `versions_query`; yield each case with its result, in order."""
        return self._run(queries, ResultReader.message_versions)

    def _run(
        self, queries: Iterable[Query[CaseT]], read: Callable[[ResultReader], Any]
    ) -> Iterator[tuple[CaseT, Any]]:
        pending: deque[list[CaseT]] = deque()
        for batch in chain(_batches(queries), [None] * MAX_PENDING_BATCHES):
            if batch is not None:
                self._java.send(b"".join(query.wire for query in batch))
                pending.append([query.case for query in batch])
            if len(pending) > MAX_PENDING_BATCHES or (batch is None and pending):
                reader = ResultReader(self._java.receive())
                for case in pending.popleft():
                    yield case, read(reader)


def _batches(queries: Iterable[Query[CaseT]]) -> Iterator[list[Query[CaseT]]]:
    """Group queries into batches of about BATCH_BYTES."""
    batch: list[Query[CaseT]] = []
    size = 0
    for query in queries:
        batch.append(query)
        size += len(query.wire)
        if size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
