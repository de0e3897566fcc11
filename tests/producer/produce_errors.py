"""Faults of one batch of a transaction: which batch, and what each error code leads to."""

from __future__ import annotations

from itertools import cycle, product
from typing import Final, NamedTuple

from kafka_async import errors
from kafka_async.errors import Category, KafkaError, Path, RetriableError, category_of, for_code


class Layout(NamedTuple):
    """Describes the batches around the failing one, each of one record.

    Attributes:
        before: Batches that are acknowledged before it is sent.
        behind: Batches in flight behind it.
        queued: Batches that are not sent yet.
    """

    before: int
    behind: int
    queued: int


LAYOUTS: Final = tuple(
    Layout(before, behind, queued)
    for before, queued in ((0, 2), (2, 2), (2, 0))  # the first, a middle one, the last
    for behind in (0, 1, 4)
)

CODES: Final = tuple(
    code for code in range(-1, 150) if code and (code == -1 or for_code(code).code == code)
)
"""All error codes."""

VERSIONS: Final = (1, 2)
"""Versions of transactions."""

CASES: Final = (
    *((code, *each) for code, each in zip(CODES, cycle(product(LAYOUTS, VERSIONS)), strict=False)),
    *product(
        (errors.RecordTooLargeError.code, errors.OutOfOrderSequenceError.code), LAYOUTS, VERSIONS
    ),
)
"""Each code with one layout and version, two codes with all of them."""

_DELIVERED: Final = (errors.DuplicateSequenceError.code, errors.RebootstrapRequiredError.code)
"""Codes that are not retriable and after which a batch is delivered: KIP-1102 bootstraps again."""

FATAL_CODES: Final = frozenset(
    {errors.InvalidPidMappingError.code, errors.ProducerFencedError.code}
)
"""Codes after which the producer cannot be used."""

JAVA_IS_STRICTER: Final = frozenset(
    {
        errors.ClusterAuthorizationError.code,
        errors.TransactionalIdAuthorizationError.code,
        errors.UnsupportedVersionError.code,
    }
)
"""Codes after which Java's producer must be closed, and ours is usable again once a permission was
added."""


def handling_of(code: int | None) -> Category | None:
    """Return the category of the error of a batch that is refused once; None if it is delivered."""
    assert code is not None
    kind: type[KafkaError] = for_code(code)
    if code in _DELIVERED or issubclass(kind, RetriableError):
        return None
    if code in FATAL_CODES:
        return Category.APPLICATION_RECOVERABLE
    found = category_of(kind(), Path.PRODUCE)
    return found if found is Category.INVALID_CONFIGURATION else Category.ABORTABLE
