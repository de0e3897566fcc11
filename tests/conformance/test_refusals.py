"""What a version cannot say: every case is there, and our answer is as Kafka's rules have it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from kafka_async.protocol.messages.list_offsets import ListOffsetsRequest
from kafka_async.protocol.messages.share_fetch import ShareFetchRequest
from kafka_async.protocol.spec import UUID, Array, Fixed, Sized
from tools.conformance.judge import Verdict
from tools.conformance.refusals import ABSENT, FORBIDDEN_NULL, LONG_TEXT, Case, cases, places
from tools.conformance.samples import all_classes, versions

if TYPE_CHECKING:
    from kafka_async.protocol.message import Message, Struct


@pytest.fixture(scope="module")
def every() -> list[Case]:
    return list(cases(seed=1))


def absent_fields(
    message: type[Message], struct: type[Struct], version: int, way: str = ""
) -> set[tuple[str, int, str]]:
    """Every field a version lacks, in the structures it carries."""
    found: set[tuple[str, int, str]] = set()
    for field in struct.SPEC.fields:
        path = f"{way}{field.name}"
        kind = field.type.element if isinstance(field.type, Array) else field.type
        if not field.versions.contains(version):
            found.add((message.__name__, version, path))
        elif not isinstance(kind, Fixed | Sized | Array):
            found |= absent_fields(message, kind, version, f"{path}.")
    return found


def test_every_field_that_any_version_lacks_is_set_in_a_case(every: list[Case]) -> None:
    expected = {
        case
        for message in all_classes()
        for version in versions(message)
        for case in absent_fields(message, message, version)
    }
    set_in = {
        (case.message.__name__, case.version, str(case.place))
        for case in every
        if case.kind == ABSENT and case.value not in (None, case.place.field.default)
    }
    assert set_in == expected
    assert len(expected) > 600


def test_a_field_that_the_version_lacks_is_refused_by_name_unless_it_may_be_dropped(
    every: list[Case],
) -> None:
    seen = Counter[bool]()
    for case in every:
        if case.kind != ABSENT:
            continue
        field = case.place.field
        refused = not field.ignorable and case.value != field.default and case.value != []
        assert (case.ours is None) == refused, (case.message, case.version, str(case.place))
        assert not refused or f".{field.name}, but it is set" in case.refusal
        seen[refused] += 1
    assert min(seen[True], seen[False]) > 100


def test_none_and_texts_that_are_too_long_are_refused_by_name(every: list[Case]) -> None:
    for case in every:
        if case.kind == FORBIDDEN_NULL or (case.kind == LONG_TEXT and case.value == "x" * 32768):
            assert case.ours is None
            assert case.place.field.name in case.refusal
        elif case.kind == LONG_TEXT:
            assert case.ours is not None


def test_none_is_tried_in_every_field_that_java_could_leave_empty(every: list[Case]) -> None:
    tried = {(case.message, case.version, case.place) for case in every if case.value is None}
    expected = {
        (message, version, place)
        for message in all_classes()
        for version in versions(message)
        for place in places(message)
        if place.reached(version)
        and (place.field.type is UUID or not isinstance(place.field.type, Fixed))
        and not place.nullable(version)
    }
    assert tried == expected
    assert len(expected) > 2_000


def test_what_no_version_can_say_is_told_beside_the_json(every: list[Case]) -> None:
    told = [case for case in every if not case.sayable]
    nulls = [case for case in told if case.value is None]
    assert all(b'"_aside":{' in case.question().wire for case in told)
    assert len(nulls) > 2_000
    # One field is carried by no version that is left.
    assert {(case.message, str(case.place)) for case in told if case.value is not None} == {
        (ShareFetchRequest, "topics.partitions.partition_max_bytes")
    }


# -- what a comparison finds ----------------------------------------------------------------------


def absent_case() -> Case:
    """A value that the first version of ListOffsets cannot carry and must not drop."""
    place = next(each for each in places(ListOffsetsRequest) if str(each) == "isolation_level")
    return Case(ABSENT, ListOffsetsRequest, 1, place, 1, said_in=2)


JAVA_REFUSES = Verdict(None, "UnsupportedVersionException: non-default isolationLevel at version 1")


def test_two_refusals_of_the_same_field_agree() -> None:
    assert list(absent_case().faults(JAVA_REFUSES)) == []


@pytest.mark.parametrize(
    ("verdict", "fault"),
    [
        (Verdict(b"bytes"), "we refuse it, Java does not"),
        (Verdict(None, "something about replicaId"), "Java refuses something else"),
        (Verdict(None, broken="could not read the JSON"), "Java could not read the JSON"),
    ],
)
def test_a_disagreement_with_our_refusal_is_found(verdict: Verdict, fault: str) -> None:
    assert [found[: len(fault)] for found in absent_case().faults(verdict)] == [fault]


def test_a_refusal_that_does_not_name_the_field_is_found() -> None:
    case = absent_case()
    case.refusal = "no"
    case.plain = (None, "no")
    assert list(case.faults(JAVA_REFUSES)) == ["our refusal does not name isolation_level: no"]


def test_what_we_write_and_java_refuses_or_writes_otherwise_is_found() -> None:
    case = absent_case()
    case.ours, case.refusal = case.plain = b"\1\2", ""
    (refused,) = case.faults(JAVA_REFUSES)
    assert refused.startswith("Java refuses it, we do not: Unsupported")
    (differs,) = case.faults(Verdict(b"\1\3"))
    assert "differ at byte 1 of 2, 2" in differs


def test_codecs_of_ours_that_do_not_agree_are_found() -> None:
    case = absent_case()
    case.plain = (b"", "")
    assert list(case.faults(JAVA_REFUSES)) == ["our codecs differ, in plain Python: (b'', '')"]
