"""Secrets that tests plant, and a search for them in what the package shows."""

from __future__ import annotations

import base64
import traceback
from collections.abc import Iterator
from pathlib import Path

import kafka_async

PACKAGE = str(Path(kafka_async.__file__).parent)

PASSWORD = "planted-Pa55word-7f3a"
CLIENT_SECRET = "planted-Cl1ent-5ecret-91bd"
KEY_PASSWORD = "planted-Key-Pa55word-c04e"
KEY_TEXT = "planted+Private/Key+Text+e5d2"
PASSPHRASE = "planted-Pa55phrase-3b8c"
TOKEN = "planted.T0ken.a6f1"
NEW_PASSWORD = "planted-Scram-Pa55word-d27e"

SECRETS = {
    "password": PASSWORD,
    "client secret": CLIENT_SECRET,
    "key password": KEY_PASSWORD,
    "private key": KEY_TEXT,
    "passphrase": PASSPHRASE,
    "token": TOKEN,
    "SCRAM password": NEW_PASSWORD,
}
KEY_PEM = (
    f"-----BEGIN ENCRYPTED PRIVATE KEY-----\n{KEY_TEXT}\n-----END ENCRYPTED PRIVATE KEY-----\n"
)


def secrets_in(text: str | bytes) -> set[str]:
    """Return the names of the planted secrets that a text contains, plain or in base64."""
    data = text.encode("utf-8", "replace") if isinstance(text, str) else text
    return {
        name
        for name, secret in SECRETS.items()
        if secret.encode() in data or any(form in data for form in _base64(secret.encode()))
    }


def _base64(secret: bytes) -> Iterator[bytes]:
    """Yield the middle of a secret in base64, at each alignment within a longer text."""
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + secret).rstrip(b"=")
        yield encoded[4 if before else 0 : len(encoded) // 4 * 4 - 4]


def text_of(error: BaseException) -> str:
    """Return all that a report of an exception may show, with its causes.

    This includes the local variables of the frames of the package, which error reporters collect.
    The frames of the test itself hold what it has planted.
    """
    shown = [repr(error), str(error), repr(vars(error))]
    report: traceback.TracebackException | None
    reports = [traceback.TracebackException.from_exception(error, capture_locals=True)]
    while reports:
        report = reports.pop()
        shown += report.format_exception_only()
        shown += getattr(report, "__notes__", None) or []
        for frame in report.stack:
            if frame.filename.startswith(PACKAGE):
                shown += [
                    f"{frame.name}: {name} = {value}"
                    for name, value in (frame.locals or {}).items()
                ]
        reports += [each for each in (report.__cause__, report.__context__) if each is not None]
        reports += report.exceptions or []
    return "\n".join(shown)
