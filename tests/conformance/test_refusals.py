"""Cases that a version cannot represent, and our handling of them by Kafka's rules."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from kafka_async.protocol.messages.list_offsets import ListOffsetsRequest
from kafka_async.protocol.messages.share_fetch import ShareFetchRequest
from kafka_async.protocol.spec import Array, Fixed, Sized
from tools.conformance.messages import JavaMessage
from tools.conformance.refusals import ABSENT, FORBIDDEN_NULL, LONG_STRING, Case, cases, paths
from tools.conformance.samples import all_classes, versions
from tools.conformance.trees import SETTERS

if TYPE_CHECKING:
    from kafka_async.protocol.message import Message
    from kafka_async.protocol.spec import Struct


@pytest.fixture(scope="module")
def every() -> list[Case]:
    return list(cases(seed=1))


def absent_fields(
    message: type[Message], struct: type[Struct], version: int, outer: str = ""
) -> set[tuple[str, int, str]]:
    """Return the paths of fields that a version does not have, in structures that it has."""
    found: set[tuple[str, int, str]] = set()
    for field in struct.SPEC.fields:
        path = f"{outer}{field.name}"
        kind = field.type.element if isinstance(field.type, Array) else field.type
        if not field.versions.contains(version):
            found.add((message.__name__, version, path))
        elif not isinstance(kind, Fixed | Sized | Array):
            found |= absent_fields(message, kind, version, f"{path}.")
    return found


def test_cases_set_every_absent_field(every: list[Case]) -> None:
    expected = {
        case
        for message in all_classes()
        for version in versions(message)
        for case in absent_fields(message, message, version)
    }
    set_in = {
        (case.message.__name__, case.version, str(case.path))
        for case in every
        if case.kind == ABSENT and case.value not in (None, case.path.field.default)
    }
    assert set_in == expected
    assert len(expected) > 600


def test_cases_have_absent_fields_forbidden_nulls_and_long_strings(every: list[Case]) -> None:
    kinds = Counter(case.kind for case in every)
    assert kinds[ABSENT] > 2_000
    assert kinds[FORBIDDEN_NULL] > 2_200
    assert kinds[LONG_STRING] > 2_600


def test_refuses_absent_field_by_name_unless_ignorable(every: list[Case]) -> None:
    seen = Counter[bool]()
    for case in every:
        if case.kind != ABSENT:
            continue
        field = case.path.field
        refused = not field.ignorable and case.value != field.default and case.value != []
        assert (case.ours is None) == refused, (case.message, case.version, str(case.path))
        assert not refused or f".{field.name}, but it is set" in case.refusal
        seen[refused] += 1
    assert min(seen[True], seen[False]) > 100


def test_refuses_none_and_too_long_strings_by_name(every: list[Case]) -> None:
    for case in every:
        if case.kind == FORBIDDEN_NULL or (case.kind == LONG_STRING and case.value == "x" * 32768):
            assert case.ours is None
            assert case.path.field.name in case.refusal
        elif case.kind == LONG_STRING:
            assert case.ours is not None


def test_query_has_setter_arguments_for_unrepresentable_values(every: list[Case]) -> None:
    unrepresentable = [case for case in every if not case.representable]
    nulls = [case for case in unrepresentable if case.value is None]
    assert all(f"'{SETTERS}': {{" in str(case.query()["tree"]) for case in unrepresentable)
    assert len(nulls) > 2_000
    # No supported version has this field.
    assert {
        (case.message, str(case.path)) for case in unrepresentable if case.value is not None
    } == {(ShareFetchRequest, "topics.partitions.partition_max_bytes")}


# -- comparisons ----------------------------------------------------------------------------------


def absent_case() -> Case:
    """Return a case with a value that ListOffsets 1 does not have and must not drop."""
    path = next(each for each in paths(ListOffsetsRequest) if str(each) == "isolation_level")
    return Case(ABSENT, ListOffsetsRequest, 1, path, 1, source_version=2)


JAVA_REFUSES = JavaMessage(
    refusal="UnsupportedVersionException: non-default isolationLevel at version 1"
)


def test_two_refusals_of_same_field_have_no_difference() -> None:
    assert list(absent_case().differences(JAVA_REFUSES)) == []


@pytest.mark.parametrize(
    ("java_result", "difference"),
    [
        (JavaMessage(encoded=b"bytes"), "we refuse it, Java does not"),
        (JavaMessage(refusal="something about replicaId"), "Java refuses something else"),
        (JavaMessage(failure="could not read the JSON"), "Java could not read the JSON"),
    ],
)
def test_reports_difference_from_our_refusal(java_result: JavaMessage, difference: str) -> None:
    assert [found[: len(difference)] for found in absent_case().differences(java_result)] == [
        difference
    ]


def test_reports_refusal_that_does_not_name_field() -> None:
    case = absent_case()
    case.refusal = "no"
    case.plain = (None, "no")
    assert list(case.differences(JAVA_REFUSES)) == ["our refusal does not name isolation_level: no"]


def test_reports_message_that_java_refuses_or_encodes_differently() -> None:
    case = absent_case()
    case.ours, case.refusal = case.plain = b"\1\2", ""
    (refused,) = case.differences(JAVA_REFUSES)
    assert refused.startswith("Java refuses it, we do not: Unsupported")
    (differs,) = case.differences(JavaMessage(encoded=b"\1\3"))
    assert "differ at byte 1 of 2, 2" in differs


def test_reports_difference_between_our_codecs() -> None:
    case = absent_case()
    case.plain = (b"", "")
    assert list(case.differences(JAVA_REFUSES)) == ["our codecs differ, in plain Python: (b'', '')"]
