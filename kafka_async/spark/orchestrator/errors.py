"""Categories of job errors, and the reaction to each. Pure.

Errors are classified by the names of their class and its bases, so that pyspark need not be
imported. The first matching row counts; an error without a row fails the job at once.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafka_async.errors import ApplicationRecoverableError, IllegalStateError, KafkaTimeoutError
from kafka_async.foundation.backoff import delay_after
from kafka_async.spark.orchestrator.ranges import bisect_ranges

if TYPE_CHECKING:
    from kafka_async.spark.orchestrator.ranges import Ranges


class DriverFencedError(ApplicationRecoverableError):
    """Another driver is active, or this driver has lost the control topic's partition."""


class JobFailedError(IllegalStateError):
    """A job has failed; the cause is its function's error."""


class JobCancelledError(IllegalStateError):
    """A job was cancelled by its tag."""


class JobTimeoutError(KafkaTimeoutError):
    """A job has not ended within its timeout."""


class JobNotStoppedError(IllegalStateError):
    """The thread of a cancelled job has not ended; it occupies a slot until then."""


class PoisonRecordError(ValueError):
    """Raise this in a job if a record of its ranges cannot be processed."""


class ErrorCategory(enum.Enum):
    """Reaction to an error of a job's function."""

    TRANSIENT = "transient"
    DATA = "data"
    CONFIGURATION = "configuration"
    UNKNOWN = "unknown"


# (names of classes, text in the message or "", category)
ERROR_TABLE: Final[tuple[tuple[frozenset[str], str, ErrorCategory], ...]] = (
    (frozenset({"PoisonRecordError"}), "", ErrorCategory.DATA),
    # Kafka, by KIP-1050's category.
    (
        frozenset({"InvalidConfigurationError", "IllegalStateError"}),
        "",
        ErrorCategory.CONFIGURATION,
    ),
    (frozenset({"CorruptRecordError", "RecordDeserializationError"}), "", ErrorCategory.DATA),
    (
        frozenset({"RetriableError", "ApplicationRecoverableError", "TransactionAbortableError"}),
        "",
        ErrorCategory.TRANSIENT,
    ),
    # Spark: the plan is wrong for any records.
    (
        frozenset(
            {
                *("AnalysisException", "ParseException", "IllegalArgumentException"),
                *("PySparkAttributeError", "PySparkTypeError", "PySparkImportError"),
                *("TempTableAlreadyExistsException", "UnsupportedOperationException"),
            }
        ),
        "",
        ErrorCategory.CONFIGURATION,
    ),
    # Spark: lost machines, reported as Py4JJavaError or SparkException.
    *(
        (frozenset({"PySparkException", "Py4JError"}), text, ErrorCategory.TRANSIENT)
        for text in (
            *("ExecutorLostFailure", "FetchFailed", "Connection refused"),
            *("Connection reset", "KafkaTimeoutError"),
        )
    ),
    (frozenset({"Py4JNetworkError"}), "", ErrorCategory.TRANSIENT),
    (
        frozenset(
            {
                *("PythonException", "ArithmeticException", "ArrayIndexOutOfBoundsException"),
                *("DateTimeException", "NumberFormatException", "SparkRuntimeException"),
                *("SparkUpgradeException", "PySparkValueError"),
            }
        ),
        "",
        ErrorCategory.DATA,
    ),
    (frozenset({"PySparkException", "Py4JJavaError"}), "stage failure", ErrorCategory.DATA),
    # Python.
    (
        frozenset({"ConnectionError", "TimeoutError", "BlockingIOError", "InterruptedError"}),
        "",
        ErrorCategory.TRANSIENT,
    ),
    (
        frozenset(
            {
                *("ImportError", "NameError", "AttributeError", "TypeError", "SyntaxError"),
                *("NotImplementedError", "PermissionError", "FileNotFoundError"),
            }
        ),
        "",
        ErrorCategory.CONFIGURATION,
    ),
    (frozenset({"ValueError", "ArithmeticError", "LookupError"}), "", ErrorCategory.DATA),
)


def category_of(error: BaseException) -> ErrorCategory:
    """Return the category of an error raised by a job's function."""
    names = {cls.__name__ for cls in type(error).__mro__}
    message = str(error)
    for classes, text, category in ERROR_TABLE:
        if names & classes and text in message:
            return category
    return ErrorCategory.UNKNOWN


# -- reactions ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Limits for retries and dead letters.

    Attributes:
        max_attempts: Attempts of a part after transient errors, including the first.
        initial_delay: Seconds before the second attempt; each later delay is twice as long.
        max_delay: Maximum seconds between attempts.
        max_dead_letters: Maximum dead letters of a job; if more records fail, the job fails and
            writes no dead letter.
    """

    max_attempts: int = 5
    initial_delay: float = 1.0
    max_delay: float = 60.0
    max_dead_letters: int = 10


@dataclass(frozen=True, slots=True)
class Retry:
    """Run the part again after a delay in seconds."""

    delay: float


@dataclass(frozen=True, slots=True)
class Bisect:
    """Run both halves of the part instead."""

    first: Ranges
    second: Ranges


@dataclass(frozen=True, slots=True)
class WriteDeadLetter:
    """Write the part's only record to the dead-letter topic once all parts have ended."""


@dataclass(frozen=True, slots=True)
class Fail:
    """Fail the job."""

    reason: str


def react(
    error: BaseException,
    *,
    attempts: int,
    part: Ranges,
    dead_letters: int,
    policy: RetryPolicy,
) -> Retry | Bisect | WriteDeadLetter | Fail:
    """Return the reaction to an error of a part.

    Args:
        error: The error of the last attempt.
        attempts: Attempts of this part, including the last one.
        part: The ranges of the part; empty for a job without ranges.
        dead_letters: Records of this job already chosen as dead letters.
        policy: The limits.
    """
    category = category_of(error)
    if category is ErrorCategory.TRANSIENT:
        if attempts >= policy.max_attempts:
            return Fail(f"{attempts} attempts have failed")
        return Retry(delay_after(attempts - 1, policy.initial_delay, policy.max_delay))
    if category is not ErrorCategory.DATA or not part:
        return Fail(f"an error of category {category.value} is not retried")
    halves = bisect_ranges(part)
    if halves is not None:
        return Bisect(*halves)
    if dead_letters >= policy.max_dead_letters:
        return Fail(
            f"more than max_dead_letters={policy.max_dead_letters} records fail, so the function "
            "is probably wrong; no dead letter was written"
        )
    return WriteDeadLetter()
