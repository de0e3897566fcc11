"""Compares which messages can be encoded in a version: both sides encode a message, or both refuse.

Each case is a message with one unusual value:

- a value, the default, or None in a field that the version does not have;
- None in a field that is not nullable in the version;
- a string of the maximum size, or one byte longer.

Java reads the message as JSON of a version that can represent it (the source version), and encodes
it in the other. A value that no version can represent is set by the field's setter. If Java refuses
a message, we must refuse it and name the field; if Java drops a value, we must drop it. Java has no
null for numbers, so no case has None in a number.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kafka_async.errors import EncodeError, UnsupportedVersionError
from kafka_async.protocol.spec import RECORDS, STRING, UUID, Array, Field, Fixed, Sized
from kafka_async.protocol.wire import MAX_STRING
from tools.conformance.java import JavaProcess
from tools.conformance.messages import JavaMessage, plain_codec
from tools.conformance.parts import PartResult
from tools.conformance.samples import all_classes, any_value, versions
from tools.conformance.trees import SETTERS, byte_difference, camel, tree_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kafka_async.protocol.message import Message
    from kafka_async.protocol.spec import Struct
    from tools.conformance.java import Query
    from tools.conformance.parts import Options

ABSENT: Final = "fields that the version does not have"
FORBIDDEN_NULL: Final = "None in fields that are not nullable"
LONG_STRING: Final = "longest strings"


@dataclass(frozen=True)
class FieldPath:
    """Path to a field of a message: each field contains the next one."""

    fields: tuple[Field, ...]

    @property
    def field(self) -> Field:
        """The last field of the path."""
        return self.fields[-1]

    def is_reachable(self, version: int) -> bool:
        """Return True if a version has all structures on the path."""
        return all(each.versions.contains(version) for each in self.fields[:-1])

    def is_present(self, version: int) -> bool:
        """Return True if a version has the field and all structures on the path."""
        return all(each.versions.contains(version) for each in self.fields)

    def is_nullable(self, version: int) -> bool:
        """Return True if the field may be None in a version."""
        return self.is_present(version) and self.field.nullable.contains(version)

    def __str__(self) -> str:
        return ".".join(each.name for each in self.fields)


@dataclass
class Case:
    """Message with `value` in one field, to be encoded in `version`."""

    kind: str
    message: type[Message]
    version: int
    path: FieldPath
    value: object
    source_version: int
    """Version of the JSON for Java: one that can represent the value, if there is one."""

    def __post_init__(self) -> None:
        self.whole = build(self.message, self.path.fields, self.value, self.source_version)
        self.ours, self.refusal = self._encoded()
        with plain_codec():
            self.plain = self._encoded()

    def _encoded(self) -> tuple[bytes | None, str]:
        try:
            return self.whole.encode(self.version), ""
        except (EncodeError, UnsupportedVersionError) as error:
            return None, str(error)

    def query(self) -> Query:
        """Return the query to Java."""
        field = self.path.field
        if self.representable:
            tree = tree_of(self.whole, self.source_version)
        else:
            default = b"" if field.type is RECORDS else field.default
            ordinary = build(self.message, self.path.fields, default, self.source_version)
            tree = tree_of(ordinary, self.source_version)
            self._add_setter_argument(tree)
        return {
            "operation": "encode",
            "message": self.message.__name__,
            "source_version": self.source_version,
            "version": self.version,
            "tree": tree,
        }

    @property
    def representable(self) -> bool:
        """True if the JSON of the source version can represent the value."""
        if self.value is None:
            return self.path.is_nullable(self.source_version)
        return self.path.is_present(self.source_version)

    def _add_setter_argument(self, tree: Any) -> None:
        """Add the value to the JSON as an argument for the field's setter."""
        at = tree
        for field in self.path.fields[:-1]:
            inner = structure(field)
            assert inner is not None
            # The tree has no tagged structures that have their default.
            at = at.setdefault(camel(field.name), tree_of(inner(), self.source_version))
            at = at[0] if isinstance(field.type, Array) else at
        at[SETTERS] = {camel(self.path.field.name): self.value}

    def differences(self, java_result: JavaMessage) -> Iterator[str]:
        """Yield the differences from Java's result."""
        if self.plain != (self.ours, self.refusal):
            yield f"our codecs differ, in plain Python: {self.plain}"
        if java_result.failure:
            yield f"Java {java_result.failure}"
        elif java_result.refusal and self.ours is not None:
            yield f"Java refuses it, we do not: {java_result.refusal}"
        elif java_result.refusal:
            yield from self._check_names(java_result)
        elif self.ours is None:
            yield f"we refuse it, Java does not: {self.refusal}"
        elif found := byte_difference(self.ours, java_result.encoded):
            yield f"the bytes, ours and Java's, differ at {found}"

    def _check_names(self, java_result: JavaMessage) -> Iterator[str]:
        """Check that both errors name the field; Java's NullPointerException does not."""
        name = self.path.field.name
        if name not in self.refusal:
            yield f"our refusal does not name {name}: {self.refusal}"
        if camel(name) not in java_result.refusal and "NullPointer" not in java_result.refusal:
            yield f"Java refuses something else: {java_result.refusal}"


def run(options: Options) -> PartResult:
    """Compare the results of all cases of the selected versions."""
    result = PartResult()
    compared, refused = Counter[str](), Counter[str]()
    selected = (
        case for case in cases(options.seed) if options.selects(case.message.__name__, case.version)
    )
    with JavaProcess() as java:
        for case, row in java.results((case, case.query()) for case in selected):
            java_result = JavaMessage.from_result(row)
            compared[case.kind] += 1
            refused[case.kind] += bool(java_result.refusal)
            for found in case.differences(java_result):
                shown = repr(case.value)[:60]
                name = f"{case.message.__name__}:{case.version}"
                result.add_difference(options, name, f"{case.path} = {shown}: {found}")
    counts = [f"{kind} {compared[kind]:,} ({refused[kind]:,} refused)" for kind in sorted(compared)]
    result.summary = f"{compared.total():,} cases: {', '.join(counts) or 'none'}"
    return result


def cases(seed: int) -> Iterator[Case]:
    """Yield all cases of all messages."""
    for message in all_classes():
        rng = random.Random(f"{message.__name__} {seed}")
        for path in paths(message):
            for version in versions(message):
                yield from _cases(message, path, version, rng)


def _cases(
    message: type[Message], path: FieldPath, version: int, rng: random.Random
) -> Iterator[Case]:
    field = path.field
    if not path.is_reachable(version):
        return
    every = versions(message)
    nullable = nearest(every, version, path.is_nullable)
    present = nearest(every, version, path.is_present)
    if not field.versions.contains(version):
        source = version if present is None else present
        for value in values(field, source, rng):
            yield Case(ABSENT, message, version, path, value, source)
        if may_be_none(field):
            source_version = source if nullable is None else nullable
            yield Case(ABSENT, message, version, path, None, source_version)
        return
    if field.type is STRING:
        for text in ("x" * MAX_STRING, "x" * MAX_STRING + "x"):
            yield Case(LONG_STRING, message, version, path, text, version)
    if may_be_none(field) and not field.nullable.contains(version):
        source_version = version if nullable is None else nullable
        yield Case(FORBIDDEN_NULL, message, version, path, None, source_version)


def may_be_none(field: Field) -> bool:
    """Return True if the field's type in Java can be null."""
    return field.type is UUID or not isinstance(field.type, Fixed)


def values(field: Field, version: int, rng: random.Random) -> list[object]:
    """Return a value other than the default, and the default unless it is None."""
    made = any_value(field, version, rng)
    while made == field.default or (isinstance(field.type, Array) and not made):
        made = any_value(field, version, rng)
    return [made] if field.default is None else [made, field.default]


def nearest(every: Iterable[int], version: int, fits: Callable[[int], bool]) -> int | None:
    """Return the version closest to `version` for which `fits` is true, or None."""
    return min(filter(fits, every), key=lambda other: abs(other - version), default=None)


def paths(struct: type[Struct], outer: tuple[Field, ...] = ()) -> Iterator[FieldPath]:
    """Yield the path of every field of a structure and of those in it, after the fields `outer`."""
    for field in struct.SPEC.fields:
        fields = (*outer, field)
        yield FieldPath(fields)
        if inner := structure(field):
            yield from paths(inner, fields)


def structure(field: Field) -> type[Struct] | None:
    """Return the structure type of a field or of its elements, None for other types."""
    kind = field.type.element if isinstance(field.type, Array) else field.type
    return None if isinstance(kind, Fixed | Sized | Array) else kind


def build(
    message: type[Message], fields: tuple[Field, ...], value: object, version: int
) -> Message:
    """Return a message with default values except for one field."""
    whole = message()
    at: Struct = whole
    set_required_fields(at, version)
    for field in fields[:-1]:
        inner = structure(field)
        assert inner is not None
        made = inner()
        set_required_fields(made, version)
        setattr(at, field.name, [made] if isinstance(field.type, Array) else made)
        at = made
    setattr(at, fields[-1].name, value)
    return whole


def set_required_fields(struct: Struct, version: int) -> None:
    """Set the fields whose default is None although the version does not allow None."""
    for field in struct.SPEC.fields:
        if field.default is None and not field.nullable.contains(version):
            zero = Field(field.name, field.type).default
            setattr(struct, field.name, b"" if zero is None else zero)
