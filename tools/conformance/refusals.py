"""What can be said in one version and not in another: both sides write it, or both refuse.

Each case is a message that holds one thing, somewhere, at the edge of what a version can say:

- a field that the version lacks, set, at its default, and None;
- None in a field that must not be None in this version;
- a text of the longest size, and one byte longer.

Java gets the message as JSON in a version that can say it, and writes it in the other. What no
version can say is set by the field's setter. Where Java refuses we must refuse, and name the field;
where it drops a value, so must we. Numbers are never None in Java, and so not here.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kafka_async.errors import EncodeError, UnsupportedVersionError
from kafka_async.protocol.spec import RECORDS, STRING, UUID, Array, Field, Fixed, Sized
from kafka_async.protocol.wire import MAX_STRING
from tools.conformance.codecs import plain_codec
from tools.conformance.judge import Judge, encode_question
from tools.conformance.parts import Outcome
from tools.conformance.samples import all_classes, any_value, versions
from tools.conformance.trees import ASIDE, byte_difference, camel, tree_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kafka_async.protocol.message import Message, Struct
    from tools.conformance.judge import Question, Verdict
    from tools.conformance.parts import Options

ABSENT: Final = "a field that the version lacks"
FORBIDDEN_NULL: Final = "None where it is forbidden"
LONG_TEXT: Final = "the longest texts"


@dataclass(frozen=True)
class Place:
    """A field of a message by the way to it: the last of these fields, inside the others."""

    way: tuple[Field, ...]

    @property
    def field(self) -> Field:
        """The field itself."""
        return self.way[-1]

    def reached(self, version: int) -> bool:
        """Whether a version carries everything around the field."""
        return all(each.versions.contains(version) for each in self.way[:-1])

    def carried(self, version: int) -> bool:
        """Whether a version carries the field, and everything around it."""
        return all(each.versions.contains(version) for each in self.way)

    def nullable(self, version: int) -> bool:
        """Whether the field may be None in a version."""
        return self.carried(version) and self.field.nullable.contains(version)

    def __str__(self) -> str:
        return ".".join(each.name for each in self.way)


@dataclass
class Case:
    """A message that holds `value` in one place, to be written in `version`."""

    kind: str
    message: type[Message]
    version: int
    place: Place
    value: object
    said_in: int
    """The version in which Java is told of it: if possible one that can say it."""

    def __post_init__(self) -> None:
        self.whole = build(self.message, self.place.way, self.value, self.said_in)
        self.ours, self.refusal = self._encoded()
        with plain_codec():
            self.plain = self._encoded()

    def _encoded(self) -> tuple[bytes | None, str]:
        """Our bytes, or our refusal."""
        try:
            return self.whole.encode(self.version), ""
        except (EncodeError, UnsupportedVersionError) as error:
            return None, str(error)

    def question(self) -> Question[Case]:
        """How it is put to Java."""
        field, name = self.place.field, self.message.__name__
        if self.sayable:
            tree = tree_of(self.whole, self.said_in)
        else:
            default = b"" if field.type is RECORDS else field.default
            ordinary = build(self.message, self.place.way, default, self.said_in)
            tree = tree_of(ordinary, self.said_in)
            self._set_aside(tree)
        return encode_question(self, name, self.said_in, self.version, tree)

    @property
    def sayable(self) -> bool:
        """Whether the JSON of the version it is said in has a place for the value."""
        if self.value is None:
            return self.place.nullable(self.said_in)
        return self.place.carried(self.said_in)

    def _set_aside(self, tree: Any) -> None:
        """Say beside the JSON what no version of it can say."""
        at = tree
        for field in self.place.way[:-1]:
            inner = structure(field)
            assert inner is not None
            # A tagged structure at its default was left out.
            at = at.setdefault(camel(field.name), tree_of(inner(), self.said_in))
            at = at[0] if isinstance(field.type, Array) else at
        at[ASIDE] = {camel(self.place.field.name): self.value}

    def faults(self, verdict: Verdict) -> Iterator[str]:
        """Whatever the two sides do not agree in."""
        if self.plain != (self.ours, self.refusal):
            yield f"our codecs differ, in plain Python: {self.plain}"
        if verdict.broken:
            yield f"Java {verdict.broken}"
        elif verdict.encoded is None and self.ours is not None:
            yield f"Java refuses it, we do not: {verdict.refusal}"
        elif verdict.encoded is not None and self.ours is None:
            yield f"we refuse it, Java does not: {self.refusal}"
        elif verdict.encoded is not None and self.ours is not None:
            if fault := byte_difference(self.ours, verdict.encoded):
                yield f"the bytes, ours and Java's, differ at {fault}"
        else:
            yield from self._names(verdict)

    def _names(self, verdict: Verdict) -> Iterator[str]:
        """Whether both refusals are about this field: Java names it unless it met its own null."""
        name = self.place.field.name
        if name not in self.refusal:
            yield f"our refusal does not name {name}: {self.refusal}"
        if camel(name) not in verdict.refusal and "NullPointer" not in verdict.refusal:
            yield f"Java refuses something else: {verdict.refusal}"


def run(options: Options) -> Outcome:
    """Compare the verdicts on all cases of the versions asked for."""
    outcome = Outcome()
    asked, refused = Counter[str](), Counter[str]()
    with Judge() as judge:
        wanted = (case.question() for case in cases(options.seed) if is_wanted(options, case))
        for case, verdict in judge.verdicts(wanted):
            asked[case.kind] += 1
            refused[case.kind] += verdict.encoded is None
            for fault in case.faults(verdict):
                shown = repr(case.value)[:60]
                name = f"{case.message.__name__}:{case.version}"
                outcome.differ(options, name, f"{case.place} = {shown}: {fault}")
    said = [f"{kind} {asked[kind]:,} ({refused[kind]:,} refused)" for kind in sorted(asked)]
    outcome.summary = f"{asked.total():,} cases: {', '.join(said) or 'none'}"
    return outcome


def is_wanted(options: Options, case: Case) -> bool:
    """Whether the command line asks for a case."""
    return options.wants(case.message.__name__, case.version)


def cases(seed: int) -> Iterator[Case]:
    """Every case of every message."""
    for message in all_classes():
        rng = random.Random(f"{message.__name__} {seed}")
        for place in places(message):
            for version in versions(message):
                yield from _cases(message, place, version, rng)


def _cases(
    message: type[Message], place: Place, version: int, rng: random.Random
) -> Iterator[Case]:
    field = place.field
    if not place.reached(version):
        return
    every = versions(message)
    nullable = nearest(every, version, place.nullable)
    carrying = nearest(every, version, place.carried)
    if not field.versions.contains(version):
        elsewhere = version if carrying is None else carrying
        for value in values(field, elsewhere, rng):
            yield Case(ABSENT, message, version, place, value, elsewhere)
        if may_be_none(field):
            said_in = elsewhere if nullable is None else nullable
            yield Case(ABSENT, message, version, place, None, said_in)
        return
    if field.type is STRING:
        for text in ("x" * MAX_STRING, "x" * MAX_STRING + "x"):
            yield Case(LONG_TEXT, message, version, place, text, version)
    if may_be_none(field) and not field.nullable.contains(version):
        said_in = version if nullable is None else nullable
        yield Case(FORBIDDEN_NULL, message, version, place, None, said_in)


def may_be_none(field: Field) -> bool:
    """Whether Java holds a field as something that can be null."""
    return field.type is UUID or not isinstance(field.type, Fixed)


def values(field: Field, version: int, rng: random.Random) -> list[object]:
    """A value other than the default, and the default unless that is None."""
    made = any_value(field, version, rng)
    while made == field.default or (isinstance(field.type, Array) and not made):
        made = any_value(field, version, rng)
    return [made] if field.default is None else [made, field.default]


def nearest(every: Iterable[int], version: int, fits: Callable[[int], bool]) -> int | None:
    """Of the versions that fit, the one next to `version`."""
    return min(filter(fits, every), key=lambda other: abs(other - version), default=None)


def places(message: type[Message]) -> Iterator[Place]:
    """Every field of a message and of the structures in it."""
    return _places(message, ())


def _places(struct: type[Struct], way: tuple[Field, ...]) -> Iterator[Place]:
    for field in struct.SPEC.fields:
        here = (*way, field)
        yield Place(here)
        inner = structure(field)
        if inner is not None:
            yield from _places(inner, here)


def structure(field: Field) -> type[Struct] | None:
    """The structure that a field holds, by itself or in an array."""
    kind = field.type.element if isinstance(field.type, Array) else field.type
    return None if isinstance(kind, Fixed | Sized | Array) else kind


def build(message: type[Message], way: tuple[Field, ...], value: object, version: int) -> Message:
    """A message that is all default but for one place."""
    whole = message()
    at: Struct = whole
    fill(at, version)
    for field in way[:-1]:
        inner = structure(field)
        assert inner is not None
        made = inner()
        fill(made, version)
        setattr(at, field.name, [made] if isinstance(field.type, Array) else made)
        at = made
    setattr(at, way[-1].name, value)
    return whole


def fill(struct: Struct, version: int) -> None:
    """Give a value to what has None as its default although the version forbids that."""
    for field in struct.SPEC.fields:
        if field.default is not None or field.nullable.contains(version):
            continue
        if isinstance(field.type, Array):
            setattr(struct, field.name, ())
        elif isinstance(field.type, Sized):
            setattr(struct, field.name, b"" if field.type is RECORDS else field.type.zero)
        else:
            setattr(
                struct,
                field.name,
                field.type.zero if isinstance(field.type, Fixed) else field.type(),
            )
