"""Errors: one row a broker code, and KIP-1050's category on each path."""

from __future__ import annotations

import pickle

import pytest

from kafka_async import errors
from kafka_async.errors import Category, KafkaError, Path, category_of, to_transaction_error


def test_every_code_of_the_protocol_has_a_row_and_one_only() -> None:
    # Kafka 4.4.0 numbers its errors from -1 to 136; 0 is success.
    expected = set(range(-1, 137)) - {0}
    assert {code for code in range(-50, 500) if errors.for_code(code).code == code} == expected


def test_a_code_cannot_belong_to_two_classes() -> None:
    with pytest.raises(TypeError, match="belongs to NotCoordinatorError"):
        type("Twin", (KafkaError,), {}, code=16)


def test_an_unknown_code_names_itself() -> None:
    error = errors.error_for(9999, "from the future")
    assert type(error) is errors.UnknownServerError
    assert "9999" in str(error)
    assert "from the future" in str(error)


def test_the_text_names_place_cause_and_code() -> None:
    error = errors.error_for(6, topic="clicks", partition=3)
    assert str(error).startswith("clicks-3: ")
    assert str(error).endswith("[NOT_LEADER_OR_FOLLOWER 6]")


def test_a_topic_without_a_name_is_named_as_such() -> None:
    assert str(errors.error_for(17, topic="")).startswith("topic '': ")


def test_success_is_no_error() -> None:
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
def test_errors_that_python_has_a_name_for_are_those_too(
    builtin: type[Exception], ours: type[KafkaError]
) -> None:
    assert issubclass(ours, builtin)


# KIP-1050's table, row by row: the error, its category for a producer, and in a transaction.
KIP_1050 = [
    ("CorruptRecordError", Category.RETRIABLE, Category.RETRIABLE),
    ("NotEnoughReplicasAfterAppendError", Category.RETRIABLE, Category.RETRIABLE),
    ("NotEnoughReplicasError", Category.RETRIABLE, Category.RETRIABLE),
    ("KafkaTimeoutError", Category.RETRIABLE, Category.RETRIABLE),
    ("ConcurrentTransactionsError", Category.RETRIABLE, Category.RETRIABLE),
    ("CoordinatorLoadInProgressError", Category.RETRIABLE, Category.RETRIABLE),
    (
        "UnknownTopicOrPartitionError",
        Category.REFRESH_RETRIABLE,
        Category.REFRESH_RETRIABLE,
    ),
    ("NotLeaderOrFollowerError", Category.REFRESH_RETRIABLE, Category.REFRESH_RETRIABLE),
    ("NotCoordinatorError", Category.REFRESH_RETRIABLE, Category.REFRESH_RETRIABLE),
    ("CoordinatorNotAvailableError", Category.REFRESH_RETRIABLE, Category.REFRESH_RETRIABLE),
    ("TransactionAbortableError", Category.ABORTABLE, Category.ABORTABLE),
    *(
        (name, Category.APPLICATION_RECOVERABLE, Category.APPLICATION_RECOVERABLE)
        for name in (
            "InvalidProducerEpochError",
            "ProducerFencedError",
            "InvalidPidMappingError",
            "FencedInstanceIdError",
            "UnknownMemberIdError",
            "IllegalGenerationError",
            "CorrelationIdMismatchError",
        )
    ),
    ("CommitFailedError", None, Category.APPLICATION_RECOVERABLE),
    ("InvalidTxnStateError", Category.ABORTABLE, Category.APPLICATION_RECOVERABLE),
    *(
        (name, Category.INVALID_CONFIGURATION, Category.INVALID_CONFIGURATION)
        for name in (
            "AuthenticationError",
            "SaslAuthenticationError",
            "ClusterAuthorizationError",
            "TransactionalIdAuthorizationError",
            "UnsupportedVersionError",
            "UnsupportedForMessageFormatError",
            "InvalidRecordError",
            "InvalidRequiredAcksError",
            "RecordBatchTooLargeError",
            "InvalidTopicError",
            "TopicAuthorizationError",
            "GroupAuthorizationError",
        )
    ),
    ("OutOfOrderSequenceError", None, None),
    ("UnknownProducerIdError", None, None),
]


@pytest.mark.parametrize(("name", "producer", "transaction"), KIP_1050)
def test_the_table_of_kip_1050(
    name: str, producer: Category | None, transaction: Category | None
) -> None:
    error = getattr(errors, name)()
    assert category_of(error, Path.PRODUCE) is producer
    assert category_of(error, Path.TRANSACTION) is transaction


def test_an_error_says_its_category_wherever_it_is_caught() -> None:
    assert errors.NotLeaderOrFollowerError().category is Category.REFRESH_RETRIABLE
    assert errors.TopicAuthorizationError().category is Category.INVALID_CONFIGURATION
    assert errors.OutOfOrderSequenceError().category is None
    late = errors.KafkaTimeoutError("late")
    assert to_transaction_error(late).category is Category.ABORTABLE


def test_what_leaves_a_transactional_call_is_always_of_a_category_class() -> None:
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
        left = to_transaction_error(raised)
        assert type(left) is expected
        assert left is raised or left.__cause__ is raised


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
def test_what_leaves_a_transactional_call_has_the_brokers_code_and_no_other(
    raised: Exception, text: str
) -> None:
    left = to_transaction_error(raised)
    assert str(left) == str(pickle.loads(pickle.dumps(left))) == text
    assert getattr(raised, "topic", None) == left.topic


def test_a_commit_of_unknown_outcome_is_never_abortable() -> None:
    lost = errors.KafkaConnectionError("reset")
    left = to_transaction_error(lost, commit_sent=True)
    assert type(left) is errors.TransactionOutcomeUnknownError
    assert left.category is Category.APPLICATION_RECOVERABLE
    assert left.__cause__ is lost
