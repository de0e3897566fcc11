"""Random messages of every version, as Kafka's classes write and read them and as ours do.

Of each message: the bytes are equal, Java reads ours as an equal message, and we read Java's so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafka_async.errors import KafkaError
from tools.conformance.codecs import CODECS, plain_codec
from tools.conformance.judge import Judge, Question, judge_question
from tools.conformance.parts import Outcome
from tools.conformance.samples import all_versions, sample
from tools.conformance.trees import byte_difference, difference, tree_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafka_async.protocol.message import Message
    from tools.conformance.judge import Judged
    from tools.conformance.parts import Options


@dataclass
class Case:
    """One random message."""

    message: type[Message]
    version: int
    number: int
    sent: Message
    tree: dict[str, object]
    ours: bytes = b""
    refusal: str = ""

    def faults(self, judged: Judged) -> Iterator[str]:
        """Whatever the two sides do not agree in."""
        if self.refusal:
            yield f"we do not write it: {self.refusal}"
            return
        if judged.fault:
            yield f"Java {judged.fault}"
            return
        if fault := byte_difference(self.ours, judged.encoded):
            yield f"the bytes, ours and Java's, differ at {fault}"
        if self.tree != judged.tree and (fault := difference(self.tree, judged.tree)):
            yield f"Java reads our bytes as something else at {fault}"
        elif not judged.equal and self.sent == self.sent:  # which a number that is none is not
            yield "Java reads our bytes as a message that does not equal the one from the JSON"
        if fault := self._read(judged.encoded):
            yield fault
        if "compiled" in CODECS:
            with plain_codec():
                yield from self._plain_faults(judged)

    def _plain_faults(self, judged: Judged) -> Iterator[str]:
        """The same of the codec that is not in use."""
        if fault := byte_difference(self.sent.encode(self.version), judged.encoded):
            yield f"the bytes, those of plain Python and Java's, differ at {fault}"
        if fault := self._read(judged.encoded):
            yield f"in plain Python {fault}"

    def _read(self, encoded: bytes) -> str | None:
        """What is wrong with how we read Java's bytes."""
        try:
            read = self.message.decode(encoded, self.version)
        except KafkaError as error:
            return f"we do not read Java's bytes: {error}"
        if read != self.sent and (fault := difference(self.sent, read)):
            return f"we read Java's bytes as something else at {fault}"
        return None


@dataclass
class Tally:
    """How much has been compared."""

    messages: int = 0
    bytes: int = 0
    versions: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])

    def add(self, case: Case) -> None:
        """Count one message."""
        self.messages += 1
        self.bytes += len(case.ours)
        self.versions.add((case.message.__name__, case.version))

    def __str__(self) -> str:
        kinds = len({name for name, _ in self.versions})
        return (
            f"{self.messages:,} messages of {kinds} kinds in {len(self.versions)} versions, "
            f"{self.bytes:,} bytes, codec {' and '.join(CODECS)}"
        )


def run(options: Options) -> Outcome:
    """Compare random messages of every version asked for."""
    tally, outcome = Tally(), Outcome()
    with Judge() as judge:
        for case, judged in judge.judged(questions(options)):
            tally.add(case)
            for fault in case.faults(judged):
                name = f"{case.message.__name__}:{case.version}"
                outcome.differ(options, name, f"message {case.number}: {fault}")
    outcome.summary = str(tally)
    return outcome


def questions(options: Options) -> Iterator[Question[Case]]:
    """Every random message that the options ask for, as it is put to Java."""
    for message, version in all_versions():
        if options.wants(message.__name__, version):
            for number in range(options.count):
                yield question(message, version, number, options.seed)


def question(message: type[Message], version: int, number: int, seed: int) -> Question[Case]:
    """One random message, as it is put to Java."""
    sent = sample(message, version, f"{seed} {number}", nan=True)
    case = Case(message, version, number, sent, tree_of(sent, version))
    try:
        case.ours = sent.encode(version)
    except KafkaError as error:
        case.refusal = str(error)
    return judge_question(case, message.__name__, version, case.tree, case.ours)
