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


_POSITIONS: Final = ((0, 2), (2, 2), (2, 0))
"""Batches before the failing one, and queued: it is the first, a middle one, the last."""
_BEHIND: Final = (0, 1, 4)

LAYOUTS: Final = tuple(
    Layout(before, behind, queued) for before, queued in _POSITIONS for behind in _BEHIND
)

CODES: Final = tuple(
    code for code in range(-1, 150) if code and (code == -1 or for_code(code).code == code)
)
"""All error codes."""

VERSIONS: Final = (1, 2)
"""Versions of transactions."""

_WITH_ALL_LAYOUTS: Final = tuple(
    code
    for code in CODES
    if for_code(code) in (errors.RecordTooLargeError, errors.OutOfOrderSequenceError)
)

CASES: Final = (
    *((code, *each) for code, each in zip(CODES, cycle(product(LAYOUTS, VERSIONS)), strict=False)),
    *product(_WITH_ALL_LAYOUTS, LAYOUTS, VERSIONS),
)
"""Each code with one layout and version, two codes with all of them."""

A_THIRD: Final = tuple(
    (code, Layout(before, _BEHIND[(number + position + version) % len(_BEHIND)], queued), version)
    for number, code in enumerate(CODES)
    for position, (before, queued) in enumerate(_POSITIONS)
    for version in VERSIONS
)
"""A third of all cases. Each code has each position with each version, and each number of batches
behind it with each version; of three successive codes, one has each layout with each version."""

_DELIVERED: Final = (errors.DuplicateSequenceError.code, errors.RebootstrapRequiredError.code)
"""Codes that are not retriable and after which a batch is delivered: KIP-1102 bootstraps again."""

FATAL_CODES: Final = frozenset(
    {errors.InvalidPidMappingError.code, errors.ProducerFencedError.code}
)
"""Codes after which the producer cannot be used."""

RETRIED_BY_JAVA: Final = errors.UnknownProducerIdError.code
"""Code that fails a batch of ours. Java retries it, for brokers before Kafka 2.5: no later one
responds with it (KIP-360)."""

JAVA_IS_STRICTER: Final = frozenset(
    {
        errors.ClusterAuthorizationError.code,
        errors.TransactionalIdAuthorizationError.code,
        errors.UnsupportedVersionError.code,
    }
)
"""Codes after which Java's producer must be closed, and ours is usable again once a permission was
added."""

CATEGORIES_IN_JAVA: Final = {
    errors.RecordTooLargeError.code: Category.ABORTABLE,
    **dict.fromkeys(
        (
            errors.IllegalGenerationError.code,
            errors.UnknownMemberIdError.code,
            errors.InvalidProducerEpochError.code,
            errors.FencedInstanceIdError.code,
        ),
        Category.APPLICATION_RECOVERABLE,
    ),
}
"""Categories by code that differ from ours. Java's exception for a record that is too large has no
category, though the record must change. The others ask for a restart, because of their meaning for
groups and epochs; after a refused batch, Java's producer can abort and continue, as ours can."""


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
