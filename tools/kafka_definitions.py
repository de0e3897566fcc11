"""Kafka's message definitions as a kafka-clients jar holds them, read into plain facts.

A definition is JSON with comments: fields with types, version ranges, tags and defaults. Kafka's
own sentences about them are not read.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

DEFINITIONS: Final = "common/message/"


@dataclass(frozen=True)
class Span:
    """A version range as the schema writes it: `none`, `3`, `3-5` or `3+` (last is None)."""

    first: int
    last: int | None

    @classmethod
    def parse(cls, text: str) -> Span:
        if text == "none":
            return cls(0, -1)
        if text.endswith("+"):
            return cls(int(text[:-1]), None)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def covers(self, valid: Span) -> bool:
        """Whether every valid version lies within."""
        assert valid.last is not None
        return self.first <= valid.first and (self.last is None or self.last >= valid.last)

    def within(self, other: Span) -> Span:
        """The versions that both hold; `other` has an end."""
        assert other.last is not None
        last = other.last if self.last is None else min(self.last, other.last)
        return Span(max(self.first, other.first), last)

    def hull(self, other: Span) -> Span:
        """The smallest range that holds both; both have an end."""
        assert self.last is not None
        assert other.last is not None
        if self.last < self.first:
            return other
        return Span(min(self.first, other.first), max(self.last, other.last))

    @property
    def empty(self) -> bool:
        return self.last is not None and self.last < self.first

    def literal(self, valid: Span) -> str:
        """How a SPEC writes it where only the versions `valid` can occur."""
        assert valid.last is not None
        if self.covers(valid):
            return "ALWAYS"
        if self.empty:
            return "NEVER"
        if self.last is None or self.last >= valid.last:
            return f"since({self.first})"
        if self.first <= valid.first:
            return f"until({self.last})"
        return f"VersionRange({self.first}, {self.last})"


@dataclass
class Struct:
    """A structure of one message: its class name, its fields, and where it is used."""

    name: str
    fields: list[dict[str, Any]]
    valid: Span
    """The versions of the message in which the structure can occur."""

    uses: list[str] = field(default_factory=list[str])


@dataclass
class Definition:
    """One definition file: a request, a response, a header or a message without a key."""

    name: str
    kind: str
    key: int | None
    valid: Span
    flexible: Span
    unstable: bool
    listeners: list[str]
    structs: list[Struct]
    """In the order in which they must be defined; the message itself is the last."""

    @property
    def api(self) -> str:
        return re.sub(r"(Request|Response)$", "", self.name) if self.key is not None else self.name

    @property
    def removed(self) -> bool:
        return self.valid.empty


def snake(name: str) -> str:
    """snake_case of one of Kafka's names: `TopicId` is `topic_id`."""
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()


def element_of(type_name: str) -> str:
    return type_name.removeprefix("[]")


def is_struct(type_name: str) -> bool:
    return element_of(type_name)[0].isupper()


def read_definitions(jar: Path) -> list[Definition]:
    """Every message definition of the jar, by name."""
    with zipfile.ZipFile(jar) as archive:
        names = [n for n in archive.namelist() if re.fullmatch(rf"{DEFINITIONS}\w+\.json", n)]
        texts = [archive.read(name).decode() for name in sorted(names)]
    if not texts:
        raise SystemExit(f"{jar} holds no {DEFINITIONS}*.json")
    return [read_definition(json.loads(re.sub(r"(?m)^\s*//.*$", "", text))) for text in texts]


def read_definition(raw: dict[str, Any]) -> Definition:
    common = {struct["name"]: struct["fields"] for struct in raw.get("commonStructs", [])}
    structs: dict[str, Struct] = {}
    visit(raw["name"], raw.get("fields", []), common, structs)
    valid = Span.parse(raw["validVersions"])
    set_versions(structs, raw["name"], valid)
    return Definition(
        name=raw["name"],
        kind=raw["type"],
        key=raw.get("apiKey"),
        valid=valid,
        flexible=Span.parse(raw.get("flexibleVersions", "none")),
        unstable=raw.get("latestVersionUnstable", False),
        listeners=raw.get("listeners", ["broker"]),
        structs=list(structs.values()),
    )


def visit(
    name: str, fields: list[dict[str, Any]], common: dict[str, Any], structs: dict[str, Struct]
) -> None:
    """Collect a structure after those it needs."""
    for spec in fields:
        if is_struct(spec["type"]):
            inner = element_of(spec["type"])
            if inner not in structs:
                visit(inner, spec.get("fields") or common[inner], common, structs)
            structs[inner].uses.append(f"{name}.{snake(spec['name'])}")
    structs[name] = Struct(name, fields, Span.parse("none"))


def set_versions(structs: dict[str, Struct], name: str, valid: Span) -> None:
    """Find out in which versions each structure can occur, from the message down."""
    structs[name].valid = structs[name].valid.hull(valid)
    for spec in structs[name].fields:
        if is_struct(spec["type"]):
            carried = Span.parse(spec["versions"]).within(valid)
            set_versions(structs, element_of(spec["type"]), carried)


def prefix_clashes(definitions: list[Definition]) -> None:
    """Name structures after their message where request and response have one of the same name."""
    names = Counter(struct.name for each in definitions for struct in each.structs)
    for each in definitions:
        renamed = {s.name: each.name + s.name for s in each.structs if names[s.name] > 1}
        for struct in each.structs:
            struct.name = renamed.get(struct.name, struct.name)
            struct.uses = [
                ".".join([renamed.get(use.split(".")[0], use.split(".")[0]), use.split(".")[1]])
                for use in struct.uses
            ]
            for spec in struct.fields:
                inner = element_of(spec["type"])
                if inner in renamed and spec["type"] not in renamed.values():
                    spec["type"] = spec["type"].replace(inner, renamed[inner])
