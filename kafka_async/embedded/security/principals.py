"""Principals of authenticated clients and client certificates. Pure.

A principal is `type:name`, as in Kafka: "User:alice". A certificate's principal is its subject as
Java formats it, in RFC 2253 order: "User:CN=alice,O=Example".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

USER: Final = "User"
ANONYMOUS: Final = "User:ANONYMOUS"
"""Principal of a client that has not authenticated."""


def user_principal(name: str) -> str:
    """Return the principal of a user."""
    return f"{USER}:{name}"


def split_principal(principal: str) -> tuple[str, str]:
    """Return a principal's type and name."""
    kind, _, name = principal.partition(":")
    return kind, name


def certificate_principal(
    certificate: bytes | None, name_of: Callable[[str], str | None] | None = None
) -> str | None:
    """Return the principal of a client certificate in DER; ANONYMOUS without one.

    `name_of` maps the subject to a name. The principal is None if there is no name for it.
    """
    if certificate is None:
        return ANONYMOUS
    subject = subject_name(certificate)
    name = subject if name_of is None else name_of(subject)
    return None if name is None else user_principal(name)


def subject_name(certificate: bytes) -> str:
    """Return the subject of a valid certificate in DER, as Java's X500Principal.getName does."""
    (outer,) = _elements(certificate)
    to_be_signed = next(_elements(outer.content))
    fields = [field for field in _elements(to_be_signed.content) if field.tag != _VERSION]
    subject = fields[_SUBJECT_AT]
    names = [_relative_name(element.content) for element in _elements(subject.content)]
    return ",".join(reversed(names))


class _Element(NamedTuple):
    """Holds an element of DER; `raw` includes tag and length."""

    tag: int
    content: bytes
    raw: bytes


_VERSION: Final = 0xA0
_SUBJECT_AT: Final = 4
"""Number of fields before the subject: serial number, signature algorithm, issuer, validity."""

_ENCODINGS: Final = {
    0x0C: "utf-8",  # UTF8String
    0x13: "ascii",  # PrintableString
    0x14: "latin-1",  # T61String
    0x16: "ascii",  # IA5String
    0x1B: "ascii",  # GeneralString
    0x1C: "utf-32-be",  # UniversalString
    0x1E: "utf-16-be",  # BMPString
}
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_ESCAPED: Final = frozenset(',=+<>#;"\\')


def _elements(data: bytes) -> Iterator[_Element]:
    at = 0
    while at < len(data):
        start, tag, size = at, data[at], data[at + 1]
        at += 2
        if size & 0x80:
            octets = size & 0x7F
            size = int.from_bytes(data[at : at + octets])
            at += octets
        end = at + size
        yield _Element(tag, data[at:end], data[start:end])
        at = end


def _relative_name(data: bytes) -> str:
    """Return a relative distinguished name: one attribute, or several joined with plus signs."""
    return "+".join(_attribute(element.content) for element in _elements(data))


def _attribute(data: bytes) -> str:
    type_, value = _elements(data)
    oid = _object_identifier(type_.content)
    keyword, encoding = _KEYWORDS.get(oid), _ENCODINGS.get(value.tag)
    if keyword is None or encoding is None:
        return f"{keyword or oid}=#{value.raw.hex()}"
    return f"{keyword}={_escape(value.content.decode(encoding, 'replace'))}"


def _escape(text: str) -> str:
    leading = len(text) - len(text.lstrip(" "))
    trailing = len(text.rstrip(" "))
    return "".join(
        "\\00"
        if char == "\0"
        else f"\\{char}"
        if char in _ESCAPED or (char == " " and not leading <= index < trailing)
        else char
        for index, char in enumerate(text)
    )


def _object_identifier(data: bytes) -> str:
    arcs: list[int] = []
    value = 0
    for octet in data:
        value = value << 7 | octet & 0x7F
        if not octet & 0x80:
            arcs.append(value)
            value = 0
    first = min(arcs[0] // 40, 2)
    return ".".join(map(str, (first, arcs[0] - 40 * first, *arcs[1:])))
