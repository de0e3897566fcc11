"""Handling of each error of KIP-1050 in each request of a transactional producer, as one table.

`tests/producer/test_transaction_error_table.py` injects each error into each request and checks
each cell; `tools/generate_errors.py` writes the table into docs/errors.md.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kafka_async.errors import Category


class Handling(NamedTuple):
    """Describes a word in the table.

    Attributes:
        category: Category of the error that the application sees; None if it sees none.
        by_itself: Action of the producer before it raises the error.
        afterwards: State of the producer after the error.
    """

    category: Category | None
    by_itself: str
    afterwards: str


HANDLINGS: Final = {
    "retry": Handling(Category.ABORTABLE, "retries until the deadline", "abort"),
    "refresh": Handling(
        Category.ABORTABLE,
        "finds the leader or the coordinator again and retries until the deadline",
        "abort",
    ),
    "retry-init": Handling(
        Category.APPLICATION_RECOVERABLE, "retries until the deadline", "init_transactions"
    ),
    "refresh-init": Handling(
        Category.APPLICATION_RECOVERABLE,
        "finds the coordinator again and retries until the deadline",
        "init_transactions",
    ),
    "retry-commit": Handling(
        Category.APPLICATION_RECOVERABLE, "retries until the deadline", "commit"
    ),
    "refresh-commit": Handling(
        Category.APPLICATION_RECOVERABLE,
        "finds the coordinator again and retries until the deadline",
        "commit",
    ),
    "unknown": Handling(Category.APPLICATION_RECOVERABLE, "", "commit"),
    "epoch": Handling(None, "aborts by requesting a new epoch", "usable"),
    "split": Handling(
        Category.INVALID_CONFIGURATION, "splits the batch; a single record fails", "abort"
    ),
    "abort": Handling(Category.ABORTABLE, "", "abort"),
    "init": Handling(Category.APPLICATION_RECOVERABLE, "", "init_transactions"),
    "configure": Handling(Category.INVALID_CONFIGURATION, "", "abort"),
    "restart": Handling(Category.APPLICATION_RECOVERABLE, "", "close"),
}
"""By word in the table. `afterwards` names the call after which the producer is usable: "usable"
needs none, "close" means that it is not usable."""

STEPS: Final = (
    "Produce",
    "InitProducerId",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "TxnOffsetCommit",
    "EndTxn (commit)",
    "EndTxn (abort)",
    "FindCoordinator (transaction)",
    "FindCoordinator (group)",
)
"""Requests of a transactional producer: the columns of the table."""

_TABLE: Final = """
                                       Produce   InitPid      AddPart   AddOffs   TxnOffs   Commit         Abort     Find txn     Find group
CORRUPT_MESSAGE                        retry     retry-init   retry     retry     retry     retry-commit   epoch     retry-init   retry
NOT_ENOUGH_REPLICAS_AFTER_APPEND       retry     retry-init   retry     retry     retry     retry-commit   epoch     retry-init   retry
NOT_ENOUGH_REPLICAS                    retry     retry-init   retry     retry     retry     retry-commit   epoch     retry-init   retry
REQUEST_TIMED_OUT                      retry     refresh-init refresh   refresh   refresh   refresh-commit epoch     retry-init   retry
CONCURRENT_TRANSACTIONS                retry     retry-init   retry     retry     retry     retry-commit   epoch     retry-init   retry
COORDINATOR_LOAD_IN_PROGRESS           retry     retry-init   retry     retry     retry     retry-commit   epoch     retry-init   retry
no response                            refresh   refresh-init refresh   refresh   refresh   refresh-commit epoch     retry-init   retry
UNKNOWN_TOPIC_OR_PARTITION             refresh   refresh-init refresh   refresh   refresh   refresh-commit epoch     retry-init   retry
NOT_LEADER_OR_FOLLOWER                 refresh   refresh-init refresh   refresh   refresh   refresh-commit epoch     retry-init   retry
NOT_COORDINATOR                        refresh   refresh-init refresh   refresh   refresh   refresh-commit epoch     retry-init   retry
COORDINATOR_NOT_AVAILABLE              refresh   refresh-init refresh   refresh   refresh   refresh-commit epoch     retry-init   retry
connection lost                        refresh   refresh-init refresh   refresh   refresh   refresh-commit epoch     retry-init   retry
TRANSACTION_ABORTABLE                  abort     init         abort     abort     abort     abort          epoch     init         abort
UNKNOWN_SERVER_ERROR                   abort     restart      restart   restart   restart   unknown        epoch     restart      restart
INVALID_PRODUCER_EPOCH                 abort     restart      restart   restart   restart   restart        restart   restart      restart
PRODUCER_FENCED                        restart   restart      restart   restart   restart   restart        restart   restart      restart
INVALID_PRODUCER_ID_MAPPING            restart   restart      restart   restart   restart   restart        restart   restart      restart
FENCED_INSTANCE_ID                     abort     restart      restart   restart   restart   restart        epoch     restart      restart
UNKNOWN_MEMBER_ID                      abort     restart      restart   restart   restart   restart        epoch     restart      restart
ILLEGAL_GENERATION                     abort     restart      restart   restart   restart   restart        epoch     restart      restart
INVALID_TXN_STATE                      abort     restart      restart   restart   restart   restart        epoch     restart      restart
OUT_OF_ORDER_SEQUENCE_NUMBER           abort     restart      restart   restart   restart   restart        epoch     restart      restart
UNKNOWN_PRODUCER_ID                    abort     restart      restart   restart   restart   restart        epoch     restart      restart
KafkaError                             restart   restart      restart   restart   restart   restart        epoch     restart      restart
RuntimeError                           restart   restart      restart   restart   restart   restart        epoch     restart      restart
IllegalStateError                      restart   restart      restart   restart   restart   restart        epoch     restart      restart
CommitFailedError                      restart   restart      restart   restart   restart   restart        epoch     restart      restart
CorrelationIdMismatchError             restart   restart      restart   restart   restart   restart        epoch     restart      restart
AuthenticationError                    configure configure    configure configure configure configure      epoch     configure    configure
CLUSTER_AUTHORIZATION_FAILED           configure configure    configure configure configure configure      epoch     configure    configure
TRANSACTIONAL_ID_AUTHORIZATION_FAILED  configure configure    configure configure configure configure      configure configure    configure
UNSUPPORTED_VERSION                    configure configure    configure configure configure configure      epoch     configure    configure
UNSUPPORTED_FOR_MESSAGE_FORMAT         configure configure    configure configure configure configure      epoch     configure    configure
INVALID_RECORD                         configure configure    configure configure configure configure      epoch     configure    configure
INVALID_REQUIRED_ACKS                  configure configure    configure configure configure configure      epoch     configure    configure
RECORD_LIST_TOO_LARGE                  split     configure    configure configure configure configure      epoch     configure    configure
INVALID_TOPIC_EXCEPTION                configure configure    configure configure configure configure      epoch     configure    configure
TOPIC_AUTHORIZATION_FAILED             configure configure    configure configure configure configure      epoch     configure    configure
GROUP_AUTHORIZATION_FAILED             configure configure    configure configure configure configure      epoch     configure    configure
KAFKA_STORAGE_ERROR                    refresh   refresh-init refresh   refresh   refresh   refresh-commit epoch     retry-init   retry
UNKNOWN_TOPIC_ID                       refresh   refresh-init refresh   refresh   refresh   refresh-commit epoch     retry-init   retry
GROUP_ID_NOT_FOUND                     abort     restart      restart   restart   restart   restart        epoch     restart      restart
STALE_MEMBER_EPOCH                     abort     restart      restart   restart   restart   restart        epoch     restart      restart
"""  # noqa: E501  # a table


def _parse(text: str) -> dict[str, dict[str, str]]:
    table: dict[str, dict[str, str]] = {}
    for line in text.strip("\n").splitlines()[1:]:
        table[line[:39].strip()] = dict(zip(STEPS, line[39:].split(), strict=True))
    return table


TABLE: Final = _parse(_TABLE)
"""By error, then by request: a word of HANDLINGS.

An error is a broker's error code, an exception of the client that handling a request raises, a
lost connection, or a request without a response. The fault lasts until the call has failed.
"""

JAVA_EXCEPTIONS: Final = {
    "CorruptRecordException": "CORRUPT_MESSAGE",
    "NotEnoughReplicasAfterAppendException": "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "NotEnoughReplicasException": "NOT_ENOUGH_REPLICAS",
    "TimeoutException": "REQUEST_TIMED_OUT",
    "ConcurrentTransactionsException": "CONCURRENT_TRANSACTIONS",
    "CoordinatorLoadInProgressException": "COORDINATOR_LOAD_IN_PROGRESS",
    "UnknownTopicOrPartitionException": "UNKNOWN_TOPIC_OR_PARTITION",
    "NotLeaderOrFollowerException": "NOT_LEADER_OR_FOLLOWER",
    "NotCoordinatorException": "NOT_COORDINATOR",
    "CoordinatorNotAvailableException": "COORDINATOR_NOT_AVAILABLE",
    "TransactionAbortableException": "TRANSACTION_ABORTABLE",
    "IllegalStateException": "IllegalStateError",
    "KafkaException": "KafkaError",
    "RuntimeException": "RuntimeError",
    "InvalidProducerEpochException": "INVALID_PRODUCER_EPOCH",
    "ProducerFencedException": "PRODUCER_FENCED",
    "InvalidPidMappingException": "INVALID_PRODUCER_ID_MAPPING",
    "FencedInstanceIdException": "FENCED_INSTANCE_ID",
    "CommitFailedException": "CommitFailedError",
    "UnknownMemberIdException": "UNKNOWN_MEMBER_ID",
    "IllegalGenerationException": "ILLEGAL_GENERATION",
    "CorrelationIdMismatchException": "CorrelationIdMismatchError",
    "InvalidTxnStateException": "INVALID_TXN_STATE",
    "AuthenticationException": "AuthenticationError",
    "ClusterAuthorizationException": "CLUSTER_AUTHORIZATION_FAILED",
    "TransactionalIdAuthorizationException": "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "UnsupportedVersionException": "UNSUPPORTED_VERSION",
    "UnsupportedForMessageFormatException": "UNSUPPORTED_FOR_MESSAGE_FORMAT",
    "InvalidRecordException": "INVALID_RECORD",
    "InvalidRequiredAcksException": "INVALID_REQUIRED_ACKS",
    "RecordBatchTooLargeException": "RECORD_LIST_TOO_LARGE",
    "InvalidTopicException": "INVALID_TOPIC_EXCEPTION",
    "TopicAuthorizationException": "TOPIC_AUTHORIZATION_FAILED",
    "GroupAuthorizationException": "GROUP_AUTHORIZATION_FAILED",
    "OutOfOrderSequenceException": "OUT_OF_ORDER_SEQUENCE_NUMBER",
    "UnknownProducerIdException": "UNKNOWN_PRODUCER_ID",
}
"""The exceptions that KIP-1050 names, and their rows in the table."""

OTHER_ERRORS: Final = frozenset(
    {
        *("UNKNOWN_SERVER_ERROR", "KAFKA_STORAGE_ERROR", "UNKNOWN_TOPIC_ID"),
        *("GROUP_ID_NOT_FOUND", "STALE_MEMBER_EPOCH", "no response", "connection lost"),
    }
)
"""Rows that KIP-1050 does not name."""

FIRST_VERSIONS: Final = {
    "Produce": {"KAFKA_STORAGE_ERROR": 4, "TRANSACTION_ABORTABLE": 11, "UNKNOWN_TOPIC_ID": 13},
    "InitProducerId": {"PRODUCER_FENCED": 4, "TRANSACTION_ABORTABLE": 5},
    "AddPartitionsToTxn": {"PRODUCER_FENCED": 2, "TRANSACTION_ABORTABLE": 5},
    "AddOffsetsToTxn": {"PRODUCER_FENCED": 2, "TRANSACTION_ABORTABLE": 4},
    "TxnOffsetCommit": {
        "ILLEGAL_GENERATION": 3,
        "UNKNOWN_MEMBER_ID": 3,
        "FENCED_INSTANCE_ID": 3,
        "TRANSACTION_ABORTABLE": 4,
        "GROUP_ID_NOT_FOUND": 6,
        "STALE_MEMBER_EPOCH": 6,
        "UNKNOWN_TOPIC_ID": 6,
    },
    "EndTxn": {"PRODUCER_FENCED": 2, "TRANSACTION_ABORTABLE": 4},
    "FindCoordinator": {"TRANSACTION_ABORTABLE": 5},
}
"""First version of an API that returns an error, from the message definitions of Kafka 4.4.0."""
