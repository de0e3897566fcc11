"""Compares random messages of every version as Kafka's classes and ours encode and decode them.

The bytes must be equal, Java must decode ours to an equal message, and we Java's.
"""

from __future__ import annotations

from base64 import b64decode
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from unittest.mock import patch

from kafka_async.errors import KafkaError
from kafka_async.kernel import compiled_codec
from kafka_async.protocol import compiler
from tools.conformance.java import JavaProcess
from tools.conformance.parts import PartResult
from tools.conformance.samples import all_versions, sample
from tools.conformance.trees import byte_difference, difference, tree_of

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from typing import Self

    from kafka_async.protocol.message import Message
    from tools.conformance.java import Query
    from tools.conformance.parts import Options

CODECS: Final = ("compiled", "plain") if compiled_codec() else ("plain",)
"""Names of our codecs; messages use the first one."""


@contextmanager
def plain_codec() -> Generator[None]:
    """Make messages use the codec in plain Python within the `with` block."""
    with (
        patch.multiple(compiler, encoder=compiler.plain_encoder, decoder=compiler.plain_decoder),
        patch.dict(compiler.ENCODERS, clear=True),
        patch.dict(compiler.DECODERS, clear=True),
    ):
        yield


class JavaMessage(NamedTuple):
    """Java's encoding of a message and what it decodes from ours, or its failure or refusal.

    `equal`: Java decoded our bytes to the message that it was given.
    """

    failure: str = ""
    refusal: str = ""
    encoded: bytes = b""
    equal: bool = False
    tree: Any = None

    @classmethod
    def from_result(cls, result: dict[str, Any]) -> Self:
        """Return the result of a query."""
        result["encoded"] = b64decode(result.get("encoded", ""))
        return cls(**result)


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

    def query(self) -> Query:
        """Return the query that compares the message with our bytes of it."""
        return {
            "operation": "compare",
            "message": self.message.__name__,
            "version": self.version,
            "tree": self.tree,
            "bytes": self.ours,
        }

    def differences(self, java_result: JavaMessage) -> Iterator[str]:
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

    def _plain_differences(self, java_result: JavaMessage) -> Iterator[str]:
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


def run(options: Options) -> PartResult:
    """Compare random messages of every selected version."""
    result = PartResult()
    messages = size = 0
    versions: set[tuple[str, int]] = set()
    with JavaProcess() as java:
        for case, row in java.results((case, case.query()) for case in cases(options)):
            messages += 1
            size += len(case.ours)
            versions.add((case.message.__name__, case.version))
            for found in case.differences(JavaMessage.from_result(row)):
                name = f"{case.message.__name__}:{case.version}"
                result.add_difference(options, name, f"message {case.number}: {found}")
    kinds = len({name for name, _ in versions})
    result.summary = (
        f"{messages:,} messages of {kinds} kinds in {len(versions)} versions, "
        f"{size:,} bytes, codec {' and '.join(CODECS)}"
    )
    return result


def cases(options: Options) -> Iterator[Case]:
    """Yield random messages of every selected version."""
    for message, version in all_versions():
        if options.selects(message.__name__, version):
            for number in range(options.count):
                yield make_case(message, version, number, options.seed)


def make_case(message: type[Message], version: int, number: int, seed: int) -> Case:
    """Return one random message."""
    sent = sample(message, version, f"{seed} {number}", nan=True)
    case = Case(message, version, number, sent, tree_of(sent, version))
    try:
        case.ours = sent.encode(version)
    except KafkaError as error:
        case.refusal = str(error)
    return case
