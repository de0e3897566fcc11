"""The questions that Judge.java answers, in batches, with the next one under way meanwhile."""

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
AHEAD: Final = 2
"""Batches that Java has to do while we look at an earlier one's answers."""

INT: Final = struct.Struct(">i")
VERSION: Final = struct.Struct(">h")

DONE, REFUSED, BROKEN = 0, 1, 2

CaseT = TypeVar("CaseT")


class Judged(NamedTuple):
    """What Java says of one message.

    Attributes:
        fault: why Java could not do it, and at which step; the rest is empty then.
        encoded: the message as Java writes it.
        equal: whether what Java read from our bytes equals what it read from the JSON.
        tree: the JSON of what Java read from our bytes.
    """

    fault: str | None
    encoded: bytes = b""
    equal: bool = False
    tree: Any = None


class Verdict(NamedTuple):
    """Whether Java writes a message in a version.

    Attributes:
        encoded: its bytes; None if it refuses.
        refusal: what Java says then.
        broken: why the question made no sense to Java, if so.
    """

    encoded: bytes | None
    refusal: str = ""
    broken: str = ""


class Known(NamedTuple):
    """What Java knows of a kind of message.

    Attributes:
        lowest: its first version.
        highest: its last version, released or not.
        key: the key of its API; None if it has none.
        stable: the last version of its API that is released; None without a key.
        headers: with a key, the versions of the headers of request and response, a version each.
    """

    lowest: int
    highest: int
    key: int | None
    stable: int | None
    headers: dict[int, tuple[int, int]]


@dataclass(frozen=True)
class Question(Generic[CaseT]):
    """A case, and how it is put to Java."""

    case: CaseT
    wire: bytes


def judge_question(case: CaseT, name: str, version: int, tree: Any, ours: bytes) -> Question[CaseT]:
    """Ask for the judgement of one message and our bytes of it."""
    said = _json(tree)
    parts = [b"J", _sized(name.encode()), VERSION.pack(version), _sized(said), _sized(ours)]
    return Question(case, b"".join(parts))


def known_question(case: CaseT, name: str) -> Question[CaseT]:
    """Ask what versions a kind of message has."""
    return Question(case, b"".join([b"V", _sized(name.encode()), VERSION.pack(0)]))


def encode_question(
    case: CaseT, name: str, version: int, target: int, tree: Any
) -> Question[CaseT]:
    """Ask whether what the tree says in one version can be written in another."""
    versions = VERSION.pack(version), VERSION.pack(target)
    head = [b"E", _sized(name.encode()), *versions, _sized(_json(tree))]
    return Question(case, b"".join(head))


def _json(tree: Any) -> bytes:
    return json.dumps(tree, ensure_ascii=False, separators=(",", ":")).encode()


def _sized(data: bytes) -> bytes:
    return INT.pack(len(data)) + data


class Answer:
    """A frame from Java, read from its beginning."""

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self._at = 0

    def byte(self) -> int:
        """The next byte."""
        self._at += 1
        return self._frame[self._at - 1]

    def bytes(self) -> bytes:
        """The next bytes, whose number stands before them."""
        (size,) = INT.unpack_from(self._frame, self._at)
        start = self._at + INT.size
        self._at = start + size
        return self._frame[start : self._at]

    def number(self) -> int:
        """The next number of two bytes."""
        self._at += VERSION.size
        return VERSION.unpack_from(self._frame, self._at - VERSION.size)[0]

    def known(self) -> Known:
        """What is known of the next kind of message."""
        lowest, highest, key = self.number(), self.number(), self.number()
        if key < 0:
            return Known(lowest, highest, None, None, {})
        stable = self.number()
        headers = {each: (self.byte(), self.byte()) for each in range(lowest, highest + 1)}
        return Known(lowest, highest, key, stable, headers)

    def judged(self) -> Judged:
        """The next judgement."""
        if self.byte() == BROKEN:
            return Judged(self.bytes().decode())
        encoded, equal = self.bytes(), bool(self.byte())
        return Judged(None, encoded, equal, json.loads(self.bytes()))

    def verdict(self) -> Verdict:
        """The next verdict."""
        status, data = self.byte(), self.bytes()
        if status == DONE:
            return Verdict(data)
        said = data.decode()
        return Verdict(None, said) if status == REFUSED else Verdict(None, broken=said)


class Judge:
    """Kafka's classes in a Java process, as long as the `with` block lasts.

    Raises:
        BackendUnavailableError: Java, its compiler or Maven is missing.
    """

    def __init__(self) -> None:
        self._java = JavaProcess("Judge", compile_java("Judge.java"))

    def __enter__(self) -> Self:
        self._java.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._java.__exit__(*error)

    def judged(self, questions: Iterable[Question[CaseT]]) -> Iterator[tuple[CaseT, Judged]]:
        """Each case with what Java says of it, in order; made by `judge_question`."""
        return self._asked(questions, Answer.judged)

    def verdicts(self, questions: Iterable[Question[CaseT]]) -> Iterator[tuple[CaseT, Verdict]]:
        """Each case with Java's verdict, in order; made by `encode_question`."""
        return self._asked(questions, Answer.verdict)

    def known(self, questions: Iterable[Question[CaseT]]) -> Iterator[tuple[CaseT, Known]]:
        """Each case with what Java knows of it, in order; made by `known_question`."""
        return self._asked(questions, Answer.known)

    def _asked(
        self, questions: Iterable[Question[CaseT]], read: Callable[[Answer], Any]
    ) -> Iterator[tuple[CaseT, Any]]:
        waiting: deque[list[CaseT]] = deque()
        for batch in chain(_batches(questions), [None] * AHEAD):
            if batch is not None:
                self._java.send(b"".join(question.wire for question in batch))
                waiting.append([question.case for question in batch])
            if len(waiting) > AHEAD or (batch is None and waiting):
                answer = Answer(self._java.receive())
                for case in waiting.popleft():
                    yield case, read(answer)


def _batches(questions: Iterable[Question[CaseT]]) -> Iterator[list[Question[CaseT]]]:
    """Questions that together have about BATCH_BYTES."""
    batch: list[Question[CaseT]] = []
    size = 0
    for question in questions:
        batch.append(question)
        size += len(question.wire)
        if size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
