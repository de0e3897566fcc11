"""Errors: one class per broker error code, and the categories of KIP-1050 on each path."""

from __future__ import annotations

import pickle

import pytest

from kafka_async import errors
from kafka_async.errors import Category, KafkaError, Path, category_of, to_transaction_error
from tests.rows import row


def test_every_error_code_has_one_class() -> None:
    # Kafka 4.4.0 numbers its errors from -1 to 136; 0 is success.
    expected = set(range(-1, 137)) - {0}
    assert {code for code in range(-50, 500) if errors.for_code(code).code == code} == expected


def test_a_code_cannot_belong_to_two_classes() -> None:
    with pytest.raises(TypeError, match="already belongs to NotCoordinatorError"):
        type("Twin", (KafkaError,), {}, code=16)


def test_message_of_an_unknown_code_has_the_code() -> None:
    error = errors.error_for(9999, "from the future")
    assert type(error) is errors.UnknownServerError
    assert "9999" in str(error)
    assert "from the future" in str(error)


def test_error_without_a_message_shows_that_of_its_class() -> None:
    assert repr(errors.IllegalGenerationError()) == (
        'IllegalGenerationError("The generation is not the group\'s current one.")'
    )


def test_text_has_partition_message_and_code() -> None:
    error = errors.error_for(6, topic="clicks", partition=3)
    assert str(error).startswith("clicks-3: ")
    assert str(error).endswith("[NOT_LEADER_OR_FOLLOWER 6]")


def test_text_shows_an_empty_topic_name() -> None:
    assert str(errors.error_for(17, topic="")).startswith("topic '': ")


def test_raise_for_raises_nothing_for_success() -> None:
    errors.raise_for(0)
    with pytest.raises(errors.CoordinatorNotAvailableError):
        errors.raise_for(15)


def test_errors_survive_pickling() -> None:
    error = pickle.loads(pickle.dumps(errors.error_for(1, "gone", topic="t", offset=7)))
    assert type(error) is errors.OffsetOutOfRangeError
    assert (error.message, error.topic, error.offset) == ("gone", "t", 7)


@pytest.mark.parametrize(
    ("builtin", "ours"),
    [
        (TimeoutError, errors.KafkaTimeoutError),
        (TimeoutError, errors.RequestTimedOutError),
        (ConnectionError, errors.KafkaConnectionError),
        (ConnectionError, errors.BootstrapError),
    ],
)
def test_errors_derive_from_pythons_equivalent(
    builtin: type[Exception], ours: type[KafkaError]
) -> None:
    assert issubclass(ours, builtin)


KIP_1050: dict[Category | None, str] = {
    Category.RETRIABLE: (
        "CorruptRecordError NotEnoughReplicasAfterAppendError NotEnoughReplicasError "
        "KafkaTimeoutError ConcurrentTransactionsError CoordinatorLoadInProgressError"
    ),
    Category.REFRESH_RETRIABLE: (
        "UnknownTopicOrPartitionError NotLeaderOrFollowerError NotCoordinatorError "
        "CoordinatorNotAvailableError"
    ),
    Category.ABORTABLE: "TransactionAbortableError",
    Category.APPLICATION_RECOVERABLE: (
        "InvalidProducerEpochError ProducerFencedError InvalidPidMappingError "
        "FencedInstanceIdError UnknownMemberIdError IllegalGenerationError "
        "CorrelationIdMismatchError"
    ),
    Category.INVALID_CONFIGURATION: (
        "AuthenticationError SaslAuthenticationError ClusterAuthorizationError "
        "TransactionalIdAuthorizationError UnsupportedVersionError "
        "UnsupportedForMessageFormatError InvalidRecordError InvalidRequiredAcksError "
        "RecordBatchTooLargeError InvalidTopicError TopicAuthorizationError "
        "GroupAuthorizationError"
    ),
    None: "OutOfOrderSequenceError UnknownProducerIdError",
}
"""Errors by category, for a producer and in a transaction."""


def test_categories_of_kip_1050() -> None:
    for name, producer, transaction in [
        *((name, each, each) for each, names in KIP_1050.items() for name in names.split()),
        ("CommitFailedError", None, Category.APPLICATION_RECOVERABLE),
        ("InvalidTxnStateError", Category.ABORTABLE, Category.APPLICATION_RECOVERABLE),
    ]:
        with row(name, producer, transaction):
            error = getattr(errors, name)()
            assert category_of(error, Path.PRODUCE) is producer
            assert category_of(error, Path.TRANSACTION) is transaction


def test_errors_have_a_category() -> None:
    assert errors.NotLeaderOrFollowerError().category is Category.REFRESH_RETRIABLE
    assert errors.TopicAuthorizationError().category is Category.INVALID_CONFIGURATION
    assert errors.OutOfOrderSequenceError().category is None
    late = errors.KafkaTimeoutError("late")
    assert to_transaction_error(late).category is Category.ABORTABLE


def test_transaction_errors_are_of_a_category_class() -> None:
    cases: list[tuple[Exception, type[KafkaError]]] = [
        (errors.NotCoordinatorError("moved"), errors.TransactionAbortableError),
        (errors.KafkaTimeoutError("late"), errors.TransactionAbortableError),
        (errors.ProducerFencedError("fenced"), errors.ProducerFencedError),
        (errors.CommitFailedError("rebalanced"), errors.ApplicationRecoverableError),
        (errors.OutOfOrderSequenceError("gap"), errors.ApplicationRecoverableError),
        (errors.UnknownServerError("?"), errors.ApplicationRecoverableError),
        (ValueError("not ours"), errors.ApplicationRecoverableError),
        (errors.TopicAuthorizationError("no"), errors.TopicAuthorizationError),
    ]
    for raised, expected in cases:
        converted = to_transaction_error(raised)
        assert type(converted) is expected
        assert converted is raised or converted.__cause__ is raised


@pytest.mark.parametrize("path", [Path.PRODUCE, Path.TRANSACTION])
def test_each_error_of_a_transaction_has_a_category_class(path: Path) -> None:
    classes = (
        errors.TransactionAbortableError,
        errors.ApplicationRecoverableError,
        errors.InvalidConfigurationError,
    )
    for code in range(-1, 200):
        if code:
            converted = to_transaction_error(errors.error_for(code), path=path)
            assert isinstance(converted, classes), code
            assert converted.category is not None


@pytest.mark.parametrize(
    ("raised", "text"),
    [
        (errors.error_for(16, "moved"), "moved [NOT_COORDINATOR 16]"),
        (
            errors.error_for(19, "too few", topic="t", partition=3),
            "t-3: too few [NOT_ENOUGH_REPLICAS 19]",
        ),
        (errors.error_for(120, "abort"), "abort [TRANSACTION_ABORTABLE 120]"),
        (errors.KafkaTimeoutError("late", topic="t"), "t: late"),
        (ValueError("not ours"), "not ours"),
        (ValueError(), "ValueError"),
    ],
)
def test_transaction_errors_show_the_brokers_code(raised: Exception, text: str) -> None:
    converted = to_transaction_error(raised)
    assert str(converted) == str(pickle.loads(pickle.dumps(converted))) == text
    assert getattr(raised, "topic", None) == converted.topic


def test_commit_of_unknown_outcome_is_not_abortable() -> None:
    lost = errors.KafkaConnectionError("reset")
    converted = to_transaction_error(lost, commit_sent=True)
    assert type(converted) is errors.TransactionOutcomeUnknownError
    assert converted.category is Category.APPLICATION_RECOVERABLE
    assert converted.__cause__ is lost
