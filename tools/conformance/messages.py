"""Compares random messages of every version as Kafka's classes and ours encode and decode them.

The bytes must be equal, Java must decode ours to an equal message, and we Java's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafka_async.errors import KafkaError
from tools.conformance.codecs import CODECS, plain_codec
from tools.conformance.messages_java import JavaMessages, Query, message_query
from tools.conformance.parts import PartResult
from tools.conformance.samples import all_versions, sample
from tools.conformance.trees import byte_difference, difference, tree_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafka_async.protocol.message import Message
    from tools.conformance.messages_java import MessageResult
    from tools.conformance.parts import Options


@dataclass
class Case:
    """Random message, with our encoding of it or the error."""

    message: type[Message]
    version: int
    number: int
    sent: Message
    tree: dict[str, object]
    ours: bytes = b""
    refusal: str = ""

    def differences(self, java_result: MessageResult) -> Iterator[str]:
        """Yield the differences from Java's result."""
        if self.refusal:
            yield f"we refuse to encode it: {self.refusal}"
            return
        if java_result.failure:
            yield f"Java {java_result.failure}"
            return
        if found := byte_difference(self.ours, java_result.encoded):
            yield f"the bytes, ours and Java's, differ at {found}"
        if self.tree != java_result.tree and (found := difference(self.tree, java_result.tree)):
            yield f"Java decodes our bytes differently at {found}"
        elif not java_result.equal and self.sent == self.sent:  # false with a NaN
            yield "Java decodes our bytes to a message that does not equal the one from the JSON"
        if found := self._read(java_result.encoded):
            yield found
        if "compiled" in CODECS:
            with plain_codec():
                yield from self._plain_differences(java_result)

    def _plain_differences(self, java_result: MessageResult) -> Iterator[str]:
        """Yield the differences of the codec in plain Python."""
        if found := byte_difference(self.sent.encode(self.version), java_result.encoded):
            yield f"the bytes, those of plain Python and Java's, differ at {found}"
        if found := self._read(java_result.encoded):
            yield f"in plain Python {found}"

    def _read(self, encoded: bytes) -> str | None:
        """Decode Java's bytes; return the error or the difference, if any."""
        try:
            read = self.message.decode(encoded, self.version)
        except KafkaError as error:
            return f"we refuse Java's bytes: {error}"
        if read != self.sent and (found := difference(self.sent, read)):
            return f"we decode Java's bytes differently at {found}"
        return None


@dataclass
class Tally:
    """Counts messages, bytes and versions."""

    messages: int = 0
    bytes: int = 0
    versions: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])

    def add(self, case: Case) -> None:
        """Count a message."""
        self.messages += 1
        self.bytes += len(case.ours)
        self.versions.add((case.message.__name__, case.version))

    def __str__(self) -> str:
        kinds = len({name for name, _ in self.versions})
        return (
            f"{self.messages:,} messages of {kinds} kinds in {len(self.versions)} versions, "
            f"{self.bytes:,} bytes, codec {' and '.join(CODECS)}"
        )


def run(options: Options) -> PartResult:
    """Compare random messages of every selected version."""
    tally, result = Tally(), PartResult()
    with JavaMessages() as java:
        for case, java_result in java.messages(queries(options)):
            tally.add(case)
            for found in case.differences(java_result):
                name = f"{case.message.__name__}:{case.version}"
                result.add_difference(options, name, f"message {case.number}: {found}")
    result.summary = str(tally)
    return result


def queries(options: Options) -> Iterator[Query[Case]]:
    """Yield the queries for all selected messages."""
    for message, version in all_versions():
        if options.selects(message.__name__, version):
            for number in range(options.count):
                yield query(message, version, number, options.seed)


def query(message: type[Message], version: int, number: int, seed: int) -> Query[Case]:
    """Return the query for one random message."""
    sent = sample(message, version, f"{seed} {number}", nan=True)
    case = Case(message, version, number, sent, tree_of(sent, version))
    try:
        case.ours = sent.encode(version)
    except KafkaError as error:
        case.refusal = str(error)
    return message_query(case, message.__name__, version, case.tree, case.ours)
