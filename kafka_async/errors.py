"""Exceptions: one class per broker error code, and the category of each error (KIP-1050).

Each category of KIP-1050 is a class and stands for one action:

    KafkaError
    ├── RetriableError                    the client retries by itself
    │   └── RefreshRetriableError         ... after it has refreshed metadata or the coordinator
    │       └── InvalidMetadataError
    ├── TransactionAbortableError         abort the transaction, then go on with the same producer
    ├── ApplicationRecoverableError       close the client, restart from the committed offsets
    │   ├── LeadershipLostError
    │   ├── TransactionOutcomeUnknownError
    │   └── TransactionStateError         ... is an IllegalStateError too
    ├── InvalidConfigurationError         change the configuration of the client or the cluster
    │   ├── AuthorizationError
    │   └── AuthenticationError
    ├── ProtocolError                     bytes that violate Kafka's protocol
    │   ├── DecodeError
    │   └── EncodeError
    ├── BrokerError                       a broker's error code without a category
    └── IllegalStateError, DeliveryError, RecordDeserializationError, ...

The class of an error follows from its code, the required action from its category. `category_of`
takes the path into account: a few codes mean one thing in a produce response and another in a
response of the transaction coordinator. KIP-1050's table is the class hierarchy plus `OVERRIDES`.
In a transaction, an error that neither covers is application-recoverable.
"""

from __future__ import annotations

import enum
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence
    from typing import Self

E = TypeVar("E", bound=Exception)
T = TypeVar("T")


class Path(enum.Enum):
    """Names the part of the client in which an error occurred."""

    PRODUCE = "produce"
    TRANSACTION = "transaction"
    CONSUMER = "consumer"
    ADMIN = "admin"


class Category(enum.Enum):
    """Names the action that an error requires (KIP-1050)."""

    RETRIABLE = "retriable"
    REFRESH_RETRIABLE = "refresh-retriable"
    ABORTABLE = "abortable"
    APPLICATION_RECOVERABLE = "application-recoverable"
    INVALID_CONFIGURATION = "invalid-configuration"


_BY_CODE: Final[dict[int, type[KafkaError]]] = {}


class KafkaError(Exception):
    """Base class of the errors that this package raises.

    Attributes:
        code: The broker's error code; None for an error that the client detected.
        name: Kafka's name of the code, such as "NOT_LEADER_OR_FOLLOWER"; None if the client
            detected the error.
        message: The message without topic, partition, offset and code.
        topic: The topic, if known.
        partition: The partition, if known.
        offset: The offset, if known.
    """

    code: ClassVar[int | None] = None
    name: ClassVar[str | None] = None

    def __init_subclass__(cls, *, code: int | None = None, name: str | None = None) -> None:
        super().__init_subclass__()
        cls.code, cls.name = code, name
        if code is None:
            return
        if code in _BY_CODE:
            raise TypeError(f"error code {code} already belongs to {_BY_CODE[code].__name__}")
        _BY_CODE[code] = cls

    def __init__(
        self,
        message: str | None = None,
        *,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
    ) -> None:
        self.message: str = message or (type(self).__doc__ or type(self).__name__).splitlines()[0]
        super().__init__(self.message)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self._category: Category | None = None
        self._label = "" if self.code is None else f" [{self.name} {self.code}]"

    @classmethod
    def from_cause(cls, error: Exception, category: Category) -> Self:
        """Return an error of this class, caused by `error`, with its message, location and code."""
        if isinstance(error, KafkaError):
            converted = cls(
                error.message, topic=error.topic, partition=error.partition, offset=error.offset
            )
            converted._label = error._label  # noqa: SLF001  # private to this class
            if isinstance(error, InvalidConfigurationError) and isinstance(
                converted, InvalidConfigurationError
            ):
                converted.option = error.option
        else:
            converted = cls(str(error) or type(error).__name__)
            converted._label = ""
        converted._category = category
        converted.__cause__ = error
        return converted

    @property
    def category(self) -> Category | None:
        """Action that the error requires on its path, or None if KIP-1050 lists none."""
        return self._category or _category_of_class(self)

    @category.setter
    def category(self, category: Category | None) -> None:
        self._category = category

    @property
    def retriable(self) -> bool:
        """True if a retry may succeed."""
        return isinstance(self, RetriableError)

    def __str__(self) -> str:
        place = "" if self.topic is None else self.topic or "topic ''"
        if self.partition is not None:
            place += f"-{self.partition}"
        if self.offset is not None:
            place += f" at offset {self.offset}"
        return f"{place}: {self.message}{self._label}" if place else self.message + self._label


# -- categories -----------------------------------------------------------------------------------


class RetriableError(KafkaError):
    """The same request may succeed later; the client retries it."""


class RefreshRetriableError(RetriableError):
    """The request may succeed after a refresh of the metadata or a new coordinator lookup."""


class InvalidMetadataError(RefreshRetriableError):
    """The client's view of the cluster is out of date."""


class TransactionAbortableError(KafkaError, code=120, name="TRANSACTION_ABORTABLE"):
    """The transaction must be aborted; the producer stays usable."""


class ApplicationRecoverableError(KafkaError):
    """The client must be closed and the application restarted from the committed offsets."""


class InvalidConfigurationError(KafkaError):
    """An option, a permission or the cluster's configuration must be changed first.

    Attributes:
        option: Name of the option at fault, in Python's writing, such as "linger_ms", or of Spark's
            data source, such as "sinkId"; None if the error is not about one option. If two
            options contradict each other, it is the one to change, and the message names both.
            The message names options as the caller writes them: "linger.ms" in properties, for
            example. An option that does not exist has its name as it was given.
    """

    def __init__(
        self,
        message: str | None = None,
        *,
        option: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
    ) -> None:
        super().__init__(message, topic=topic, partition=partition, offset=offset)
        self.option = option


class AuthorizationError(InvalidConfigurationError):
    """The principal is not allowed to do this."""


class AuthenticationError(InvalidConfigurationError):
    """The broker rejected the client's credentials."""


class SslAuthenticationError(AuthenticationError):
    """The client rejected the broker's certificate, or the broker rejected the client's."""


class BrokerError(KafkaError):
    """A broker returned an error code that has no category."""


# -- errors that the client detects ----------------------------------------------------------------


class KafkaTimeoutError(RetriableError, TimeoutError):
    """A deadline passed before the response arrived."""


class KafkaConnectionError(RefreshRetriableError, ConnectionError):
    """The connection could not be opened, or was lost."""


class BootstrapError(KafkaConnectionError):
    """None of the bootstrap servers could be used."""


class ProtocolError(KafkaError):
    """The peer sent bytes that violate Kafka's protocol."""


class DecodeError(ProtocolError):
    """A frame or message is malformed."""


class IncompleteResponseError(RetriableError, ProtocolError):
    """A response lacks an item that was requested; a missing item is never an empty result."""


class EncodeError(ProtocolError):
    """A message holds a value that the protocol cannot encode."""


class IllegalStateError(KafkaError):
    """The call does not fit the state of the object."""


class ClientClosedError(IllegalStateError):
    """The client has been closed, or was never started."""


class TaskDiedError(IllegalStateError):
    """A task of the client failed, and so did the client; `__cause__` is the task's exception."""


class BufferFullError(RetriableError):
    """buffer_memory is used up and the call does not wait."""


class SerializationError(KafkaError):
    """A serializer failed on a key or a value."""


class RecordDeserializationError(KafkaError):
    """A deserializer failed; `record` is raw, and the message explains how to skip it."""

    def __init__(
        self,
        message: str | None = None,
        *,
        record: object = None,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
    ) -> None:
        super().__init__(message, topic=topic, partition=partition, offset=offset)
        self.record = record


class DeliveryError(KafkaError):
    """Records could not be delivered; `failures` has one entry for each failed batch."""

    def __init__(
        self, message: str | None = None, *, failures: Sequence[DeliveryFailure] = ()
    ) -> None:
        super().__init__(message)
        self.failures: tuple[DeliveryFailure, ...] = tuple(failures)


@dataclass(slots=True, eq=False)
class DeliveryFailure:
    """Describes a batch that was not delivered.

    Attributes:
        topic: Its topic.
        partition: Its partition; None before the partitioner has chosen one.
        count: Number of records in it.
        error: The reason.
    """

    topic: str
    partition: int | None
    count: int
    error: Exception

    def __repr__(self) -> str:
        place = self.topic if self.partition is None else f"{self.topic}-{self.partition}"
        records = "1 record" if self.count == 1 else f"{self.count} records"
        return f"DeliveryFailure({place}, {records}, {self.error})"


class AssignorError(KafkaError):
    """The group's assignor has failed, so no partitions were assigned; the next poll joins again.

    On the group leader, `__cause__` is the assignor's exception.
    """


class CommitFailedError(KafkaError):
    """Offsets were not committed: the group has assigned the partitions to another member."""


class RecordPurgedError(KafkaError):
    """`Producer.purge` has removed the record before it was acknowledged."""


class CorrelationIdMismatchError(ProtocolError):
    """A response does not belong to the oldest request of its connection."""


class DataLossError(KafkaError):
    """Records were deleted before a Spark query read them, or the topic was created again.

    `topic`, `partition` and `offset` are the position that cannot be read.
    """


class NoOffsetForPartitionError(KafkaError):
    """The group has no offset for the partition and auto_offset_reset is "none"."""


class IncompleteTransactionError(TransactionAbortableError):
    """A call to send records of the transaction raised, so it is not committed."""


class TransactionOutcomeUnknownError(ApplicationRecoverableError):
    """The commit was sent and no response came; `commit()` may be awaited again."""


class LeadershipLostError(ApplicationRecoverableError):
    """The process is no longer the leader or the single writer: another process took over."""


class TransactionStateError(IllegalStateError, ApplicationRecoverableError):
    """The call does not fit the state of the transaction, such as `commit()` after `abort()`."""


class TornEpochError(ApplicationRecoverableError):
    """A Spark exactly-once sink has committed only some partitions of an epoch: repair it.

    Attributes:
        epoch: The epoch; 0 for a batch write.
        partitions: "committed", "aborted" or "unknown" by Spark partition.
        offsets: By Spark partition: topic, Kafka partition, first and last offset of the records.
    """

    def __init__(
        self,
        message: str | None = None,
        *,
        epoch: int = -1,
        partitions: Mapping[int, str] | None = None,
        offsets: Mapping[int, Sequence[tuple[str, int, int, int]]] | None = None,
    ) -> None:
        super().__init__(message)
        self.epoch = epoch
        self.partitions: dict[int, str] = dict(partitions or {})
        self.offsets: dict[int, Sequence[tuple[str, int, int, int]]] = dict(offsets or {})


# -- one class per broker error code ---------------------------------------------------------------


class UnknownServerError(BrokerError, code=-1, name="UNKNOWN_SERVER_ERROR"):
    """The broker failed with an error that it does not specify."""


class OffsetOutOfRangeError(BrokerError, code=1, name="OFFSET_OUT_OF_RANGE"):
    """The offset is not in the partition's log: retention removed it, or it was never written."""


class CorruptRecordError(RetriableError, code=2, name="CORRUPT_MESSAGE"):
    """A record batch is damaged: bad CRC, bad length, or a null key on a compacted topic."""


class UnknownTopicOrPartitionError(InvalidMetadataError, code=3, name="UNKNOWN_TOPIC_OR_PARTITION"):
    """The broker does not host this topic or partition."""


class InvalidFetchSizeError(BrokerError, code=4, name="INVALID_FETCH_SIZE"):
    """The fetch size is not valid."""


class LeaderNotAvailableError(InvalidMetadataError, code=5, name="LEADER_NOT_AVAILABLE"):
    """The partition has no leader; an election is in progress."""


class NotLeaderOrFollowerError(InvalidMetadataError, code=6, name="NOT_LEADER_OR_FOLLOWER"):
    """The broker is no longer the leader (or a replica) of the partition."""


class RequestTimedOutError(KafkaTimeoutError, code=7, name="REQUEST_TIMED_OUT"):
    """The broker timed out, usually waiting for replicas; the request may have taken effect."""


class BrokerNotAvailableError(BrokerError, code=8, name="BROKER_NOT_AVAILABLE"):
    """The broker is not available."""


class ReplicaNotAvailableError(InvalidMetadataError, code=9, name="REPLICA_NOT_AVAILABLE"):
    """The replica is not available on this broker."""


class RecordTooLargeError(BrokerError, code=10, name="MESSAGE_TOO_LARGE"):
    """The batch is larger than the broker accepts (max.message.bytes)."""


class ControllerMovedError(BrokerError, code=11, name="STALE_CONTROLLER_EPOCH"):
    """The controller moved to another broker."""


class OffsetMetadataTooLargeError(BrokerError, code=12, name="OFFSET_METADATA_TOO_LARGE"):
    """The metadata string of a committed offset is too long."""


class NetworkError(InvalidMetadataError, code=13, name="NETWORK_EXCEPTION"):
    """A broker reports that it lost its connection to another broker."""


class CoordinatorLoadInProgressError(RetriableError, code=14, name="COORDINATOR_LOAD_IN_PROGRESS"):
    """The coordinator is still loading its state."""


class CoordinatorNotAvailableError(
    RefreshRetriableError, code=15, name="COORDINATOR_NOT_AVAILABLE"
):
    """The coordinator is not available."""


class NotCoordinatorError(RefreshRetriableError, code=16, name="NOT_COORDINATOR"):
    """The broker does not coordinate this group or transactional id."""


class InvalidTopicError(InvalidConfigurationError, code=17, name="INVALID_TOPIC_EXCEPTION"):
    """The topic name has characters other than a-z A-Z 0-9 . _ -, or the topic is read-only."""


class RecordBatchTooLargeError(InvalidConfigurationError, code=18, name="RECORD_LIST_TOO_LARGE"):
    """The batch is larger than a log segment of the topic."""


class NotEnoughReplicasError(RetriableError, code=19, name="NOT_ENOUGH_REPLICAS"):
    """Fewer replicas are in sync than min.insync.replicas requires; nothing was written."""


class NotEnoughReplicasAfterAppendError(
    RetriableError, code=20, name="NOT_ENOUGH_REPLICAS_AFTER_APPEND"
):
    """The batch was written, but to fewer replicas than min.insync.replicas requires."""


class InvalidRequiredAcksError(InvalidConfigurationError, code=21, name="INVALID_REQUIRED_ACKS"):
    """acks is not -1, 0 or 1."""


class IllegalGenerationError(ApplicationRecoverableError, code=22, name="ILLEGAL_GENERATION"):
    """The generation is not the group's current one."""


class InconsistentGroupProtocolError(BrokerError, code=23, name="INCONSISTENT_GROUP_PROTOCOL"):
    """The member supports none of the protocols that the group's members share."""


class InvalidGroupIdError(BrokerError, code=24, name="INVALID_GROUP_ID"):
    """The group id is not valid."""


class UnknownMemberIdError(ApplicationRecoverableError, code=25, name="UNKNOWN_MEMBER_ID"):
    """The coordinator has removed this member, or it never joined."""


class InvalidSessionTimeoutError(BrokerError, code=26, name="INVALID_SESSION_TIMEOUT"):
    """session_timeout_ms is outside the bounds that the broker sets."""


class RebalanceInProgressError(BrokerError, code=27, name="REBALANCE_IN_PROGRESS"):
    """The group is rebalancing and the member must join again."""


class InvalidCommitOffsetSizeError(BrokerError, code=28, name="INVALID_COMMIT_OFFSET_SIZE"):
    """The committed offset does not fit into a record of the offsets topic."""


class TopicAuthorizationError(AuthorizationError, code=29, name="TOPIC_AUTHORIZATION_FAILED"):
    """The principal may not do this on the topic."""


class GroupAuthorizationError(AuthorizationError, code=30, name="GROUP_AUTHORIZATION_FAILED"):
    """The principal may not use the group."""


class ClusterAuthorizationError(AuthorizationError, code=31, name="CLUSTER_AUTHORIZATION_FAILED"):
    """The principal may not do this on the cluster."""


class InvalidTimestampError(BrokerError, code=32, name="INVALID_TIMESTAMP"):
    """A record's timestamp is outside the range that the topic accepts."""


class UnsupportedSaslMechanismError(
    AuthenticationError, code=33, name="UNSUPPORTED_SASL_MECHANISM"
):
    """The broker does not offer the SASL mechanism."""


class IllegalSaslStateError(AuthenticationError, code=34, name="ILLEGAL_SASL_STATE"):
    """The request does not fit the state of the SASL exchange."""


class UnsupportedVersionError(InvalidConfigurationError, code=35, name="UNSUPPORTED_VERSION"):
    """Client and broker share no version of the API, or a field needs a newer one."""


class TopicExistsError(BrokerError, code=36, name="TOPIC_ALREADY_EXISTS"):
    """A topic of this name exists already."""


class InvalidPartitionsError(BrokerError, code=37, name="INVALID_PARTITIONS"):
    """The number of partitions is not valid."""


class InvalidReplicationFactorError(
    InvalidConfigurationError, code=38, name="INVALID_REPLICATION_FACTOR"
):
    """The replication factor is below one or above the number of brokers."""


class InvalidReplicaAssignmentError(BrokerError, code=39, name="INVALID_REPLICA_ASSIGNMENT"):
    """The replica assignment is not valid."""


class InvalidConfigError(InvalidConfigurationError, code=40, name="INVALID_CONFIG"):
    """The broker rejected a configuration value."""


class NotControllerError(RetriableError, code=41, name="NOT_CONTROLLER"):
    """The broker is not the controller."""


class InvalidRequestError(BrokerError, code=42, name="INVALID_REQUEST"):
    """The broker rejected the request as malformed."""


class UnsupportedForMessageFormatError(
    InvalidConfigurationError, code=43, name="UNSUPPORTED_FOR_MESSAGE_FORMAT"
):
    """The topic's message format does not support the request."""


class PolicyViolationError(BrokerError, code=44, name="POLICY_VIOLATION"):
    """A policy of the cluster forbids the operation."""


class OutOfOrderSequenceError(BrokerError, code=45, name="OUT_OF_ORDER_SEQUENCE_NUMBER"):
    """The batch does not continue the producer's sequence on the partition."""


class DuplicateSequenceError(BrokerError, code=46, name="DUPLICATE_SEQUENCE_NUMBER"):
    """The batch was written before."""


class InvalidProducerEpochError(
    ApplicationRecoverableError, code=47, name="INVALID_PRODUCER_EPOCH"
):
    """The producer's epoch is older than the broker's."""


class InvalidTxnStateError(BrokerError, code=48, name="INVALID_TXN_STATE"):
    """The transactional request does not fit the transaction's state."""


class InvalidPidMappingError(
    ApplicationRecoverableError, code=49, name="INVALID_PRODUCER_ID_MAPPING"
):
    """The producer id does not belong to the transactional id."""


class InvalidTxnTimeoutError(BrokerError, code=50, name="INVALID_TRANSACTION_TIMEOUT"):
    """transaction_timeout_ms is above the broker's transaction.max.timeout.ms."""


class ConcurrentTransactionsError(RetriableError, code=51, name="CONCURRENT_TRANSACTIONS"):
    """The coordinator is still completing the previous transaction or its last step."""


class TransactionCoordinatorFencedError(
    BrokerError, code=52, name="TRANSACTION_COORDINATOR_FENCED"
):
    """A former transaction coordinator tried to write a marker."""


class TransactionalIdAuthorizationError(
    AuthorizationError, code=53, name="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
):
    """The principal may not use the transactional id."""


class SecurityDisabledError(BrokerError, code=54, name="SECURITY_DISABLED"):
    """The broker runs without an authorizer."""


class OperationNotAttemptedError(BrokerError, code=55, name="OPERATION_NOT_ATTEMPTED"):
    """The broker did not attempt this part of the request."""


class KafkaStorageError(InvalidMetadataError, code=56, name="KAFKA_STORAGE_ERROR"):
    """The broker cannot read or write the partition's log directory."""


class LogDirNotFoundError(BrokerError, code=57, name="LOG_DIR_NOT_FOUND"):
    """The broker has no such log directory."""


class SaslAuthenticationError(AuthenticationError, code=58, name="SASL_AUTHENTICATION_FAILED"):
    """The broker refused the credentials."""


class UnknownProducerIdError(OutOfOrderSequenceError, code=59, name="UNKNOWN_PRODUCER_ID"):
    """The broker no longer has this producer's state on the partition."""


class ReassignmentInProgressError(BrokerError, code=60, name="REASSIGNMENT_IN_PROGRESS"):
    """A reassignment of the partition is in progress."""


class DelegationTokenDisabledError(BrokerError, code=61, name="DELEGATION_TOKEN_AUTH_DISABLED"):
    """The cluster does not use delegation tokens."""


class DelegationTokenNotFoundError(BrokerError, code=62, name="DELEGATION_TOKEN_NOT_FOUND"):
    """The delegation token does not exist."""


class DelegationTokenOwnerMismatchError(
    BrokerError, code=63, name="DELEGATION_TOKEN_OWNER_MISMATCH"
):
    """The principal neither owns the token nor may renew it."""


class UnsupportedByAuthenticationError(
    BrokerError, code=64, name="DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"
):
    """Delegation tokens cannot be requested over this kind of connection."""


class DelegationTokenAuthorizationError(
    AuthorizationError, code=65, name="DELEGATION_TOKEN_AUTHORIZATION_FAILED"
):
    """The principal may not use the delegation token."""


class DelegationTokenExpiredError(BrokerError, code=66, name="DELEGATION_TOKEN_EXPIRED"):
    """The delegation token has expired."""


class InvalidPrincipalTypeError(BrokerError, code=67, name="INVALID_PRINCIPAL_TYPE"):
    """The type of the principal is not supported."""


class GroupNotEmptyError(BrokerError, code=68, name="NON_EMPTY_GROUP"):
    """The group still has members."""


class GroupIdNotFoundError(BrokerError, code=69, name="GROUP_ID_NOT_FOUND"):
    """The group does not exist."""


class FetchSessionIdNotFoundError(RetriableError, code=70, name="FETCH_SESSION_ID_NOT_FOUND"):
    """The broker no longer has the fetch session."""


class InvalidFetchSessionEpochError(RetriableError, code=71, name="INVALID_FETCH_SESSION_EPOCH"):
    """The fetch session's epoch is not the expected one."""


class ListenerNotFoundError(InvalidMetadataError, code=72, name="LISTENER_NOT_FOUND"):
    """The leader has no listener of the kind this connection uses."""


class TopicDeletionDisabledError(BrokerError, code=73, name="TOPIC_DELETION_DISABLED"):
    """The cluster does not allow topics to be deleted."""


class FencedLeaderEpochError(InvalidMetadataError, code=74, name="FENCED_LEADER_EPOCH"):
    """The client's leader epoch is older than the broker's."""


class UnknownLeaderEpochError(RetriableError, code=75, name="UNKNOWN_LEADER_EPOCH"):
    """The client's leader epoch is newer than the broker's."""


class UnsupportedCompressionTypeError(BrokerError, code=76, name="UNSUPPORTED_COMPRESSION_TYPE"):
    """The partition holds a compression that this request version cannot carry."""


class StaleBrokerEpochError(BrokerError, code=77, name="STALE_BROKER_EPOCH"):
    """The broker's epoch has changed."""


class OffsetNotAvailableError(RetriableError, code=78, name="OFFSET_NOT_AVAILABLE"):
    """A new leader has not established its high watermark yet."""


class MemberIdRequiredError(BrokerError, code=79, name="MEMBER_ID_REQUIRED"):
    """The member must join again with the member id it was given (KIP-394)."""


class PreferredLeaderNotAvailableError(
    InvalidMetadataError, code=80, name="PREFERRED_LEADER_NOT_AVAILABLE"
):
    """The preferred leader is not available."""


class GroupMaxSizeReachedError(BrokerError, code=81, name="GROUP_MAX_SIZE_REACHED"):
    """The group has reached its maximum size."""


class FencedInstanceIdError(ApplicationRecoverableError, code=82, name="FENCED_INSTANCE_ID"):
    """Another member uses the same group_instance_id."""


class EligibleLeadersNotAvailableError(
    InvalidMetadataError, code=83, name="ELIGIBLE_LEADERS_NOT_AVAILABLE"
):
    """No replica may become leader."""


class ElectionNotNeededError(InvalidMetadataError, code=84, name="ELECTION_NOT_NEEDED"):
    """The partition already has the requested leader."""


class NoReassignmentInProgressError(BrokerError, code=85, name="NO_REASSIGNMENT_IN_PROGRESS"):
    """No reassignment of the partition is in progress."""


class GroupSubscribedToTopicError(BrokerError, code=86, name="GROUP_SUBSCRIBED_TO_TOPIC"):
    """Offsets cannot be deleted while the group subscribes to the topic."""


class InvalidRecordError(InvalidConfigurationError, code=87, name="INVALID_RECORD"):
    """The broker's validation refused a record."""


class UnstableOffsetCommitError(RetriableError, code=88, name="UNSTABLE_OFFSET_COMMIT"):
    """Offsets of an open transaction are pending for the partition."""


class ThrottlingQuotaExceededError(RetriableError, code=89, name="THROTTLING_QUOTA_EXCEEDED"):
    """The quota of controller mutations is used up.

    Attributes:
        throttle_time_ms: Time after which the request may succeed, in milliseconds.
    """

    throttle_time_ms: int = 0


class ProducerFencedError(ApplicationRecoverableError, code=90, name="PRODUCER_FENCED"):
    """A newer producer uses the same transactional id."""


class ResourceNotFoundError(BrokerError, code=91, name="RESOURCE_NOT_FOUND"):
    """The resource does not exist."""


class DuplicateResourceError(BrokerError, code=92, name="DUPLICATE_RESOURCE"):
    """The request contains a resource twice."""


class UnacceptableCredentialError(BrokerError, code=93, name="UNACCEPTABLE_CREDENTIAL"):
    """The credential does not meet the broker's rules."""


class InconsistentVoterSetError(BrokerError, code=94, name="INCONSISTENT_VOTER_SET"):
    """The sender or the receiver is not one of the expected voters."""


class InvalidUpdateVersionError(BrokerError, code=95, name="INVALID_UPDATE_VERSION"):
    """The version to update to is not valid."""


class FeatureUpdateFailedError(BrokerError, code=96, name="FEATURE_UPDATE_FAILED"):
    """The cluster could not update its finalized features."""


class PrincipalDeserializationError(BrokerError, code=97, name="PRINCIPAL_DESERIALIZATION_FAILURE"):
    """A forwarded request carries a principal that cannot be read."""


class SnapshotNotFoundError(BrokerError, code=98, name="SNAPSHOT_NOT_FOUND"):
    """The snapshot does not exist."""


class PositionOutOfRangeError(BrokerError, code=99, name="POSITION_OUT_OF_RANGE"):
    """The position is outside the snapshot."""


class UnknownTopicIdError(InvalidMetadataError, code=100, name="UNKNOWN_TOPIC_ID"):
    """The broker does not host a topic of this id."""


class DuplicateBrokerRegistrationError(BrokerError, code=101, name="DUPLICATE_BROKER_REGISTRATION"):
    """The broker id is in use."""


class BrokerIdNotRegisteredError(BrokerError, code=102, name="BROKER_ID_NOT_REGISTERED"):
    """The broker id is not registered."""


class InconsistentTopicIdError(InvalidMetadataError, code=103, name="INCONSISTENT_TOPIC_ID"):
    """The topic's id differs from the one in the log: the topic was deleted and created again."""


class InconsistentClusterIdError(BrokerError, code=104, name="INCONSISTENT_CLUSTER_ID"):
    """The request is meant for another cluster."""


class TransactionalIdNotFoundError(BrokerError, code=105, name="TRANSACTIONAL_ID_NOT_FOUND"):
    """The transactional id does not exist, or has expired."""


class FetchSessionTopicIdError(RetriableError, code=106, name="FETCH_SESSION_TOPIC_ID_ERROR"):
    """The fetch session mixes topic names and topic ids."""


class IneligibleReplicaError(BrokerError, code=107, name="INELIGIBLE_REPLICA"):
    """The new in-sync set contains a replica that may not be in it."""


class NewLeaderElectedError(BrokerError, code=108, name="NEW_LEADER_ELECTED"):
    """The partition changed, and so did its leader."""


class OffsetMovedToTieredStorageError(BrokerError, code=109, name="OFFSET_MOVED_TO_TIERED_STORAGE"):
    """The offset lies in tiered storage."""


class FencedMemberEpochError(BrokerError, code=110, name="FENCED_MEMBER_EPOCH"):
    """The coordinator fenced the member's epoch; it must give up its partitions and join again."""


class UnreleasedInstanceIdError(BrokerError, code=111, name="UNRELEASED_INSTANCE_ID"):
    """The group_instance_id is still held by another member."""


class UnsupportedAssignorError(BrokerError, code=112, name="UNSUPPORTED_ASSIGNOR"):
    """The group does not support the assignor."""


class StaleMemberEpochError(BrokerError, code=113, name="STALE_MEMBER_EPOCH"):
    """The member's epoch is older than the coordinator's."""


class MismatchedEndpointTypeError(BrokerError, code=114, name="MISMATCHED_ENDPOINT_TYPE"):
    """The request went to an endpoint of another kind."""


class UnsupportedEndpointTypeError(BrokerError, code=115, name="UNSUPPORTED_ENDPOINT_TYPE"):
    """The kind of endpoint is not supported."""


class UnknownControllerIdError(BrokerError, code=116, name="UNKNOWN_CONTROLLER_ID"):
    """The controller id is unknown."""


class UnknownSubscriptionIdError(BrokerError, code=117, name="UNKNOWN_SUBSCRIPTION_ID"):
    """The telemetry subscription is not the current one."""


class TelemetryTooLargeError(BrokerError, code=118, name="TELEMETRY_TOO_LARGE"):
    """The telemetry is larger than the broker accepts."""


class InvalidRegistrationError(BrokerError, code=119, name="INVALID_REGISTRATION"):
    """The controller refuses the broker's registration."""


class InvalidRecordStateError(BrokerError, code=121, name="INVALID_RECORD_STATE"):
    """The record is not in a state that allows the acknowledgement."""


class ShareSessionNotFoundError(RetriableError, code=122, name="SHARE_SESSION_NOT_FOUND"):
    """The broker no longer has the share session."""


class InvalidShareSessionEpochError(RetriableError, code=123, name="INVALID_SHARE_SESSION_EPOCH"):
    """The share session's epoch is not the expected one."""


class FencedStateEpochError(BrokerError, code=124, name="FENCED_STATE_EPOCH"):
    """The state epoch is not the coordinator's."""


class InvalidVoterKeyError(BrokerError, code=125, name="INVALID_VOTER_KEY"):
    """The voter key is not the receiving replica's."""


class DuplicateVoterError(BrokerError, code=126, name="DUPLICATE_VOTER"):
    """The voter is in the set already."""


class VoterNotFoundError(BrokerError, code=127, name="VOTER_NOT_FOUND"):
    """The voter is not in the set."""


class InvalidRegularExpressionError(BrokerError, code=128, name="INVALID_REGULAR_EXPRESSION"):
    """The regular expression is not valid."""


class RebootstrapRequiredError(BrokerError, code=129, name="REBOOTSTRAP_REQUIRED"):
    """The client has to rebootstrap (KIP-1102)."""


class StreamsInvalidTopologyError(BrokerError, code=130, name="STREAMS_INVALID_TOPOLOGY"):
    """The topology is not valid."""


class StreamsInvalidTopologyEpochError(
    BrokerError, code=131, name="STREAMS_INVALID_TOPOLOGY_EPOCH"
):
    """The topology's epoch is not valid."""


class StreamsTopologyFencedError(BrokerError, code=132, name="STREAMS_TOPOLOGY_FENCED"):
    """The topology's epoch is out of date."""


class ShareSessionLimitReachedError(RetriableError, code=133, name="SHARE_SESSION_LIMIT_REACHED"):
    """The broker has reached its maximum number of share sessions."""


class GroupDeletionFailedError(BrokerError, code=134, name="GROUP_DELETION_FAILED"):
    """The group could not be deleted."""


class StreamsTopologyDescriptionUpdateFailedError(
    BrokerError, code=135, name="STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED"
):
    """The broker could not store the topology's description."""


class ControllerIdNotRegisteredError(BrokerError, code=136, name="CONTROLLER_ID_NOT_REGISTERED"):
    """The controller id is not registered."""


# -- categories of errors on a path ----------------------------------------------------------------

_CATEGORIES: Final[tuple[tuple[type[KafkaError], Category], ...]] = (
    (RefreshRetriableError, Category.REFRESH_RETRIABLE),
    (RetriableError, Category.RETRIABLE),
    (TransactionAbortableError, Category.ABORTABLE),
    (ApplicationRecoverableError, Category.APPLICATION_RECOVERABLE),
    (InvalidConfigurationError, Category.INVALID_CONFIGURATION),
)

# KIP-1050 assigns these a category on some paths only, so it is not a base class. On a produce
# request INVALID_TXN_STATE means that the coordinator has ended the transaction (KIP-890), and
# aborting is enough.
OVERRIDES: Final[Mapping[tuple[type[KafkaError], Path], Category]] = {
    (InvalidTxnStateError, Path.PRODUCE): Category.ABORTABLE,
    (InvalidTxnStateError, Path.TRANSACTION): Category.APPLICATION_RECOVERABLE,
    (CommitFailedError, Path.TRANSACTION): Category.APPLICATION_RECOVERABLE,
    (CommitFailedError, Path.CONSUMER): Category.APPLICATION_RECOVERABLE,
    # Aborting is enough: the application itself has removed records of the transaction.
    (RecordPurgedError, Path.PRODUCE): Category.ABORTABLE,
    (RecordPurgedError, Path.TRANSACTION): Category.ABORTABLE,
    (CorrelationIdMismatchError, Path.PRODUCE): Category.APPLICATION_RECOVERABLE,
    (CorrelationIdMismatchError, Path.TRANSACTION): Category.APPLICATION_RECOVERABLE,
    (RecordTooLargeError, Path.PRODUCE): Category.INVALID_CONFIGURATION,
    (RecordTooLargeError, Path.TRANSACTION): Category.INVALID_CONFIGURATION,
    (InvalidTxnTimeoutError, Path.TRANSACTION): Category.INVALID_CONFIGURATION,
}

_LOST_PRODUCER_ID: Final = (ProducerFencedError, InvalidPidMappingError)
"""Produce errors after which the coordinator would refuse to abort the transaction."""

_CLASS_OF_CATEGORY: Final[Mapping[Category, type[KafkaError]]] = {
    Category.RETRIABLE: RetriableError,
    Category.REFRESH_RETRIABLE: RefreshRetriableError,
    Category.ABORTABLE: TransactionAbortableError,
    Category.APPLICATION_RECOVERABLE: ApplicationRecoverableError,
    Category.INVALID_CONFIGURATION: InvalidConfigurationError,
}


def for_code(code: int) -> type[KafkaError]:
    """Return the class of a broker's error code; `UnknownServerError` for an unknown code."""
    return _BY_CODE.get(code, UnknownServerError)


def error_for(
    code: int,
    message: str | None = None,
    *,
    topic: str | None = None,
    partition: int | None = None,
    offset: int | None = None,
    needs: str | None = None,
    name: str | None = None,
) -> KafkaError:
    """Return an exception for a broker's error code, which must not be 0.

    The message of an AuthorizationError includes the operation that the request `needs`, such as
    "WRITE", and the `name` of the group or transactional id: the broker's message has neither.
    """
    if code not in _BY_CODE:
        message = f"error code {code}" if message is None else f"error code {code}: {message}"
    elif needs is not None and (resource := _PROTECTED.get(code)) is not None:
        if name and code in _NAMED_BY_REQUEST:
            resource = f"{resource} {name}"
        message = f"the principal lacks {needs} on the {resource}: add an ACL that allows it"
    return for_code(code)(message, topic=topic, partition=partition, offset=offset)


def raise_for(code: int, message: str | None = None, *, needs: str | None = None) -> None:
    """Raise the exception of a broker's error code, see `error_for`; return if the code is 0."""
    if code:
        raise error_for(code, message, needs=needs)


_PROTECTED: Final = {
    TopicAuthorizationError.code: "topic",
    GroupAuthorizationError.code: "group",
    ClusterAuthorizationError.code: "cluster",
    TransactionalIdAuthorizationError.code: "transactional id",
    DelegationTokenAuthorizationError.code: "user",
}
"""ACL resource types by the error code for a missing permission."""
_NAMED_BY_REQUEST: Final = (GroupAuthorizationError.code, TransactionalIdAuthorizationError.code)
"""Errors that concern the group or transactional id of the request."""


def find_by_class(table: Mapping[type[E], T], error: E, *otherwise: T) -> T:
    """Return a table's entry for the error's class or for the nearest base class.

    Return `otherwise` if the table has no entry; a table that covers KafkaError needs no
    `otherwise`.
    """
    return next((table[cls] for cls in type(error).__mro__ if cls in table), *otherwise)


def category_of(error: BaseException, path: Path) -> Category | None:
    """Return the category of an error on a path, or None if KIP-1050 assigns no category."""
    for cls in type(error).__mro__:
        if (cls, path) in OVERRIDES:
            return OVERRIDES[cls, path]
    return _category_of_class(error)


def _category_of_class(error: BaseException) -> Category | None:
    return next((category for cls, category in _CATEGORIES if isinstance(error, cls)), None)


def to_transaction_error(
    error: Exception,
    *,
    commit_sent: bool = False,
    begun: bool = True,
    path: Path = Path.TRANSACTION,
) -> KafkaError:
    """Return the error that a transactional call raises in place of `error`, its cause.

    A retriable error whose deadline has passed becomes abortable. So does every error code of a
    batch that leaves the producer usable (KIP-360). Any other error without a category, and an
    exception of another library, becomes application-recoverable. An error that already has its
    category's class is returned unchanged.

    Args:
        error: The error that occurred.
        commit_sent: EndTxn(commit) was sent: a retriable error, and UNKNOWN_SERVER_ERROR, become
            `TransactionOutcomeUnknownError`.
        begun: A transaction is open. Otherwise there is nothing to abort, and an abortable error
            becomes application-recoverable.
        path: The path on which it occurred: PRODUCE for a transaction's records.
    """
    category = category_of(error, path) or Category.APPLICATION_RECOVERABLE
    if (
        path is Path.PRODUCE
        and category is Category.APPLICATION_RECOVERABLE
        and getattr(error, "code", None) is not None
        and not isinstance(error, _LOST_PRODUCER_ID)
    ):
        category = Category.ABORTABLE  # as in Java: the coordinator decides about the producer
    retriable = category in (Category.RETRIABLE, Category.REFRESH_RETRIABLE)
    if commit_sent and (retriable or isinstance(error, UnknownServerError)):
        return _convert(TransactionOutcomeUnknownError, error, Category.APPLICATION_RECOVERABLE)
    if retriable:
        category = Category.ABORTABLE
    if category is Category.ABORTABLE and not begun:
        category = Category.APPLICATION_RECOVERABLE
    return _convert(_CLASS_OF_CATEGORY[category], error, category)


@contextmanager
def convert_transaction_errors(*, begun: bool = True) -> Generator[None]:
    """Convert each KafkaError that the block raises with `to_transaction_error`."""
    try:
        yield
    except KafkaError as error:
        converted = to_transaction_error(error, begun=begun)
        if converted is error:
            raise
        raise converted from error


def _convert(cls: type[KafkaError], error: Exception, category: Category) -> KafkaError:
    if isinstance(error, cls):
        error.category = category
        return error
    return cls.from_cause(error, category)
