"""Reactions to the errors of jobs."""

from __future__ import annotations

import pytest

from kafka_async import errors as kafka_errors
from kafka_async.spark.offsets import OffsetRange
from kafka_async.spark.orchestrator.errors import (
    Bisect,
    ErrorCategory,
    Fail,
    PoisonRecordError,
    Retry,
    RetryPolicy,
    WriteDeadLetter,
    category_of,
    react,
)
from kafka_async.spark.orchestrator.ranges import Ranges, size_of
from tests.rows import row

POLICY = RetryPolicy(max_attempts=3, initial_delay=1, max_delay=60, max_dead_letters=2)
PART: Ranges = (OffsetRange("a", 0, 0, 8),)
ONE: Ranges = (OffsetRange("a", 0, 3, 4),)


def spark_error(name: str, *bases: str) -> type[Exception]:
    parents = tuple(type(base, (Exception,), {}) for base in bases)
    return type(name, parents or (Exception,), {})


def test_class_decides_the_category() -> None:
    for error, category in [
        (PoisonRecordError("row 3"), ErrorCategory.DATA),
        (ValueError("row 3"), ErrorCategory.DATA),
        (KeyError("column"), ErrorCategory.DATA),
        (ZeroDivisionError(), ErrorCategory.DATA),
        (kafka_errors.CorruptRecordError(), ErrorCategory.DATA),
        (kafka_errors.KafkaTimeoutError(), ErrorCategory.TRANSIENT),
        (kafka_errors.LeaderNotAvailableError(), ErrorCategory.TRANSIENT),
        (ConnectionResetError(), ErrorCategory.TRANSIENT),
        (kafka_errors.TopicAuthorizationError(), ErrorCategory.CONFIGURATION),
        (kafka_errors.IllegalStateError("x"), ErrorCategory.CONFIGURATION),
        (TypeError(), ErrorCategory.CONFIGURATION),
        (ImportError(), ErrorCategory.CONFIGURATION),
        (spark_error("AnalysisException", "PySparkException")(), ErrorCategory.CONFIGURATION),
        (spark_error("PythonException", "PySparkException")(), ErrorCategory.DATA),
        (spark_error("Py4JNetworkError", "Py4JError")(), ErrorCategory.TRANSIENT),
        (
            spark_error("Py4JJavaError", "Py4JError")("Job aborted due to stage failure: ..."),
            ErrorCategory.DATA,
        ),
        (
            spark_error("Py4JJavaError", "Py4JError")("stage failure: ExecutorLostFailure"),
            ErrorCategory.TRANSIENT,
        ),
        (RuntimeError("?"), ErrorCategory.UNKNOWN),
        (MemoryError(), ErrorCategory.UNKNOWN),
    ]:
        with row(error, category):
            assert category_of(error) is category


def reaction(error: Exception, attempts: int = 1, part: Ranges = PART, dead: int = 0) -> object:
    return react(error, attempts=attempts, part=part, dead_letters=dead, policy=POLICY)


def test_retries_transient_errors_with_growing_delays() -> None:
    error = ConnectionResetError()
    assert [reaction(error, attempts) for attempts in (1, 2)] == [Retry(1), Retry(2)]
    assert reaction(error, 3) == Fail("3 attempts have failed")


def test_bisects_down_to_one_record() -> None:
    halves = reaction(ValueError("bad"))
    assert isinstance(halves, Bisect)
    assert (size_of(halves.first), size_of(halves.second)) == (4, 4)
    assert reaction(ValueError("bad"), part=ONE) == WriteDeadLetter()


def test_fails_when_too_many_records_fail() -> None:
    found = reaction(ValueError("bad"), part=ONE, dead=2)
    assert isinstance(found, Fail)
    assert "max_dead_letters=2" in found.reason


@pytest.mark.parametrize("error", [TypeError(), RuntimeError(), kafka_errors.KafkaError()])
def test_fails_at_once_for_other_errors(error: Exception) -> None:
    assert isinstance(reaction(error), Fail)


def test_data_error_of_a_job_without_ranges_fails_it() -> None:
    assert isinstance(reaction(ValueError("bad"), part=()), Fail)
