"""Reads Kafka's message definitions from a kafka-clients jar.

A definition is JSON with comments: fields with types, version ranges, tags and defaults. The
`about` texts are not read.
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
class Versions:
    """Version range in the notation of the schema: `none`, `3`, `3-5` or `3+` (`last` is None)."""

    first: int
    last: int | None

    @classmethod
    def parse(cls, text: str) -> Versions:
        if text == "none":
            return cls(0, -1)
        if text.endswith("+"):
            return cls(int(text[:-1]), None)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def covers(self, valid: Versions) -> bool:
        """Return True if the range contains every version of `valid`."""
        assert valid.last is not None
        return self.first <= valid.first and (self.last is None or self.last >= valid.last)

    def intersection(self, other: Versions) -> Versions:
        """Return the versions in both ranges; `other` must have an end."""
        assert other.last is not None
        last = other.last if self.last is None else min(self.last, other.last)
        return Versions(max(self.first, other.first), last)

    def hull(self, other: Versions) -> Versions:
        """Return the smallest range that contains both; both must have an end."""
        assert self.last is not None
        assert other.last is not None
        if self.last < self.first:
            return other
        return Versions(min(self.first, other.first), max(self.last, other.last))

    @property
    def empty(self) -> bool:
        return self.last is not None and self.last < self.first

    def literal(self, valid: Versions) -> str:
        """Return the expression for a SPEC in which only the versions `valid` occur."""
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
    """Structure of one message: its class name, its fields, and the fields of its type."""

    name: str
    fields: list[dict[str, Any]]
    valid: Versions
    """Versions of the message in which the structure can occur."""

    uses: list[str] = field(default_factory=list[str])


@dataclass
class Definition:
    """One definition file: a request, a response, a header or a message without an API key."""

    name: str
    kind: str
    key: int | None
    valid: Versions
    flexible: Versions
    unstable: bool
    listeners: list[str]
    structs: list[Struct]
    """Structures in the order of definition: each after those it contains, the message last."""

    @property
    def api(self) -> str:
        return re.sub(r"(Request|Response)$", "", self.name) if self.key is not None else self.name

    @property
    def removed(self) -> bool:
        return self.valid.empty


def snake(name: str) -> str:
    """Convert one of Kafka's names to snake case: `TopicId` to `topic_id`."""
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()


def element_of(type_name: str) -> str:
    return type_name.removeprefix("[]")


def is_struct(type_name: str) -> bool:
    return element_of(type_name)[0].isupper()


def read_definitions(jar: Path) -> list[Definition]:
    """Read all message definitions of the jar, in the order of their names."""
    with zipfile.ZipFile(jar) as archive:
        names = [n for n in archive.namelist() if re.fullmatch(rf"{DEFINITIONS}\w+\.json", n)]
        texts = [archive.read(name).decode() for name in sorted(names)]
    if not texts:
        raise SystemExit(f"{jar} contains no {DEFINITIONS}*.json")
    return [read_definition(json.loads(re.sub(r"(?m)^\s*//.*$", "", text))) for text in texts]


def read_definition(raw: dict[str, Any]) -> Definition:
    common = {struct["name"]: struct["fields"] for struct in raw.get("commonStructs", [])}
    structs: dict[str, Struct] = {}
    add_struct(raw["name"], raw.get("fields", []), common, structs)
    valid = Versions.parse(raw["validVersions"])
    set_versions(structs, raw["name"], valid)
    return Definition(
        name=raw["name"],
        kind=raw["type"],
        key=raw.get("apiKey"),
        valid=valid,
        flexible=Versions.parse(raw.get("flexibleVersions", "none")),
        unstable=raw.get("latestVersionUnstable", False),
        listeners=raw.get("listeners", ["broker"]),
        structs=list(structs.values()),
    )


def add_struct(
    name: str, fields: list[dict[str, Any]], common: dict[str, Any], structs: dict[str, Struct]
) -> None:
    """Add a structure to `structs`, after the structures that it contains."""
    for spec in fields:
        if is_struct(spec["type"]):
            inner = element_of(spec["type"])
            if inner not in structs:
                add_struct(inner, spec.get("fields") or common[inner], common, structs)
            structs[inner].uses.append(f"{name}.{snake(spec['name'])}")
    structs[name] = Struct(name, fields, Versions.parse("none"))


def set_versions(structs: dict[str, Struct], name: str, valid: Versions) -> None:
    """Set the versions in which each structure can occur, from the message down."""
    structs[name].valid = structs[name].valid.hull(valid)
    for spec in structs[name].fields:
        if is_struct(spec["type"]):
            present = Versions.parse(spec["versions"]).intersection(valid)
            set_versions(structs, element_of(spec["type"]), present)


def prefix_name_clashes(definitions: list[Definition]) -> None:
    """Prefix structures with their message's name where request and response share the name."""
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
