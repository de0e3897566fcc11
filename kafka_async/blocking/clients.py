"""The blocking clients.

Made by tools/generate_blocking.py from the asyncio clients; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

from typing_extensions import TypeVar

from kafka_async.blocking.portal import (
    BlockingClient,
    RecordIteration,
    RequestHandle,
    call,
    delaying_forks,
    run,
    start,
    unwrap,
)

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime
    from typing import Literal

    from typing_extensions import Unpack

    from kafka_async.admin.admin import Admin as AsyncAdmin
    from kafka_async.admin.quota_values import QuotaEntity, ResolvedQuota
    from kafka_async.admin.security_values import (
        AclBinding,
        AclFilter,
        DelegationToken,
        ScramAlteration,
        ScramCredential,
    )
    from kafka_async.admin.values import (
        ClusterDescription,
        ConfigEntry,
        ConfigResource,
        GroupDescription,
        GroupListing,
        NewTopic,
        OffsetTarget,
        ShareGroupOffset,
        TopicDescription,
        TopicListing,
        TransactionDescription,
        TransactionListing,
    )
    from kafka_async.client.client import Client as AsyncClient
    from kafka_async.client.client import ResponseT
    from kafka_async.client.metadata.request_router import Destination
    from kafka_async.config import (
        ClientConfig,
        ClientOptions,
        ConsumerConfig,
        ConsumerOptions,
        ProducerConfig,
        ProducerOptions,
        ShareConsumerConfig,
        ShareConsumerOptions,
    )
    from kafka_async.consumer.consumer import Consumer as AsyncConsumer
    from kafka_async.consumer.consumer import Offsets, Partitions
    from kafka_async.consumer.delivery.partition_batch import PartitionBatch
    from kafka_async.consumer.group.rebalance_listener import Callback, RebalanceListener
    from kafka_async.consumer.share.share_consumer import AcknowledgementCallback
    from kafka_async.consumer.share.share_consumer import ShareConsumer as AsyncShareConsumer
    from kafka_async.consumer.share.share_record import ShareRecord
    from kafka_async.consumer.statistics import ConsumerStatistics, ShareConsumerStatistics
    from kafka_async.errors import KafkaError
    from kafka_async.foundation.clock import Clock, Dialer
    from kafka_async.group.explanation import AssignmentExplanation
    from kafka_async.hooks import Hooks
    from kafka_async.kernel import Delivery, Record
    from kafka_async.producer.producer import Producer as AsyncProducer
    from kafka_async.producer.statistics import ProducerStatistics
    from kafka_async.producer.transactions.transaction import Transaction as AsyncTransaction
    from kafka_async.protocol.message import Request
    from kafka_async.records.batch import RecordBatch
    from kafka_async.secrets import Secret, SecretBytes
    from kafka_async.types import (
        ArrowData,
        GroupMetadata,
        Headers,
        Health,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        PreparedTransaction,
        ProducerRecord,
        RecordMetadata,
        TopicPartition,
    )

K = TypeVar("K", default=bytes)
V = TypeVar("V", default=bytes)


class Client(BlockingClient):
    """A connection to a cluster with blocking calls.

    Options, arguments and errors are those of `kafka_async.Client`.
    """

    _client: AsyncClient

    @property
    def asynchronous(self) -> AsyncClient:
        """Asyncio client behind this one; it belongs to the background event loop."""
        return self._client

    def __init__(
        self,
        servers: str | Sequence[str] | None = None,
        /,
        *,
        config: ClientConfig | None = None,
        hooks: Hooks | None = None,
        clock: Clock | None = None,
        dialer: Dialer | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        with delaying_forks():
            from kafka_async.client.client import Client as AsyncClient
            from kafka_async.config import hide_secrets

        servers, options = hide_secrets(servers), hide_secrets(options)
        super().__init__(
            AsyncClient(servers, config=config, hooks=hooks, clock=clock, dialer=dialer, **options)
        )

    def start(self) -> None:
        """Connect and fetch the first metadata.

        Raises:
            BootstrapError: No bootstrap server could be used within default_api_timeout_ms, or
                all have refused connections for bootstrap_refused_timeout_ms. If the failure of
                every server is permanent, it is raised at once. The message has the cause for each
                server, and the remedy.
            InvalidConfigurationError: A certificate or key that an option names cannot be used.
            SslAuthenticationError: The client does not accept a broker's certificate, or a broker
                not the client's; raised at once, as every AuthenticationError.
            ClientClosedError: The client was stopped during the start.
            IllegalStateError: The client was started before.
        """
        start(self._client.start)

    def stop(self, timeout: float | None = None) -> None:
        """Close all connections; requests in flight fail. May be called again.

        It completes even if the caller is cancelled. A start in progress is cancelled,
        and raises ClientClosedError.

        Args:
            timeout: Maximum time for an orderly close, in seconds (default: close_timeout_ms);
                connections that are still open then are aborted. Closing waits only for brokers
                that have not read the last bytes, for at most 2 s.

        Raises:
            IllegalStateError: The client was started in another process.
        """
        run(self._client.stop, timeout)

    def health(self) -> Health:
        """Return a snapshot of the client's health; no request is sent.

        This may be called in any thread at any time, also before `start` and after `stop`. The
        state of a running client is "degraded" after a connection has failed or a request has timed
        out, while no broker is connected and responding. It is also "degraded" while a broker has
        not responded for 5 s to a request that it does not hold back: `last_error` then has that
        broker. An idle client stays "running". The fields of producers and consumers keep their
        defaults.
        """
        return call(self._client.health)

    def reload_certificates(self) -> bool:
        """Read the files of ssl_cafile, ssl_certfile and ssl_keyfile again.

        This happens automatically at the next connection after the modification time of a file has
        changed. New connections use the new certificates; open connections are not closed.

        Returns:
            False if the files cannot be used: the old certificates stay in use, and a warning
            contains the cause.

        Raises:
            InvalidConfigurationError: The client does not use TLS, or was given an ssl_context.
            ClientClosedError: The client was not started, or is closed.
        """
        return run(self._client.reload_certificates)

    def set_sasl_credentials(self, username: str, password: str | Secret) -> None:
        """Authenticate with another user name and password from now on.

        New connections use them, and open ones at their next authentication, before their session
        ends (KIP-368). A connection whose user changes is then replaced by a new one. Open
        connections whose session has no end keep their user until they are closed.

        Later calls raise no error of the former credentials, unless they report records or a
        transaction that failed earlier. Attempts to connect do not wait for the reconnect backoff
        of rejected attempts. Setting equal credentials changes nothing.

        Args:
            username: The user name, or a delegation token's id.
            password: The password, or a delegation token's HMAC; it is never shown.

        Raises:
            InvalidConfigurationError: The client does not authenticate with a user name and a
                password, or these cannot be sent.
            IllegalStateError: The client was started in another process.
        """
        from kafka_async.config import hide_secret

        password = hide_secret("password", password)
        run(self._client.set_sasl_credentials, username, password)

    def request(
        self,
        request: Request[ResponseT],
        *,
        to: Destination,
        timeout: float | None = None,
        retry: bool = True,
        max_version: int | None = None,
    ) -> ResponseT:
        """Send a request and return its response; errors in the response are not raised.

        A Produce request with acks=0 has no response: the call returns an empty one after the
        request was written. The broker may or may not receive it.

        A response that requires the client to bootstrap again (KIP-1102) is handled as a lost
        connection.

        Args:
            request: The request.
            to: The destination, such as `AnyBroker()` or `Leader(partition)`.
            timeout: Maximum time in seconds, retries included (default: default_api_timeout_ms).
            retry: Whether to send the request again after a lost connection, a timeout, or a
                top-level error after which the destination is looked up again (default: True). Use
                False for a request that must not be executed twice.
            max_version: Upper limit for the negotiated version.

        Raises:
            KafkaTimeoutError: There was no response within `timeout`.
            KafkaConnectionError: There is no connection, or it was lost.
            UnknownTopicOrPartitionError: The partition did not exist within `timeout`.
            LeaderNotAvailableError: The partition had no leader within `timeout`.
            CoordinatorNotAvailableError: There was no coordinator within `timeout`.
            AuthenticationError: The broker refuses the credentials.
            BrokerNotAvailableError: The cluster has no such broker.
            UnsupportedVersionError: The broker does not support this API.
        """
        return run(
            self._client.request,
            request,
            to=to,
            timeout=timeout,
            retry=retry,
            max_version=max_version,
        )

    def submit(
        self,
        request: Request[ResponseT],
        *,
        to: Destination,
        timeout: float | None = None,
        retry: bool = True,
        max_version: int | None = None,
    ) -> RequestHandle[ResponseT]:
        """Start a request and return its handle, without waiting.

        It is retried as by `request`, even if the handle is dropped. Requests that are submitted
        one after another may be sent in another order, since a connection or a leader may have to
        be found first.

        Args:
            request: The request, which must not be changed before it is done.
            to: The destination, such as `AnyBroker()` or `Leader(partition)`.
            timeout: Maximum time in seconds, retries included (default: default_api_timeout_ms).
            retry: Whether to send the request again, as in `request`.
            max_version: Upper limit for the negotiated version.

        Returns:
            A handle, which can be awaited and then raises the errors of `request`.

        Raises:
            ClientClosedError: The client was not started, or is closed.
        """
        return RequestHandle(
            call(
                self._client.submit,
                request,
                to=to,
                timeout=timeout,
                retry=retry,
                max_version=max_version,
            )
        )

    def quota_usage(self, *, timeout: float | None = None) -> dict[tuple[int, str], float | None]:
        """Return the fraction of its quotas that this client uses, by broker and kind (KIP-13).

        The fraction is the client's rate over 11 s, divided by the quota that applies to its user
        and client id; a broker throttles it at 1. It is too low if other clients share the quota.
        The kinds are "produce" and "fetch": a client cannot measure request_percentage. Brokers
        without any produce or fetch request are left out.

        `statistics()` of producers and consumers uses the quotas that the last call has found.

        Args:
            timeout: Maximum time to look up the quotas, in seconds (default:
                default_api_timeout_ms).

        Returns:
            By (broker id, kind), a number from 0 to 1, and 0 without a quota. It is None if the
            quotas are unknown: the client may not DESCRIBE_CONFIGS of the cluster, the cluster has
            no such API, or the client has no user name, as with a certificate.

        Raises:
            KafkaTimeoutError: There was no response within `timeout`.
        """
        return run(self._client.quota_usage, timeout=timeout)


class Producer(BlockingClient, Generic[K, V]):
    """Sends records with blocking calls.

    Options, arguments and errors are those of `kafka_async.Producer`.
    """

    _client: AsyncProducer[K, V]

    @property
    def asynchronous(self) -> AsyncProducer[K, V]:
        """Asyncio client behind this one; it belongs to the background event loop."""
        return self._client

    def __init__(
        self,
        servers: str | Sequence[str] | Client | None = None,
        /,
        *,
        config: ProducerConfig | None = None,
        hooks: Hooks | None = None,
        clock: Clock | None = None,
        dialer: Dialer | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        with delaying_forks():
            from kafka_async.config import hide_secrets
            from kafka_async.producer.producer import Producer as AsyncProducer

        servers, options = hide_secrets(servers), hide_secrets(options)
        super().__init__(
            AsyncProducer(
                unwrap(servers), config=config, hooks=hooks, clock=clock, dialer=dialer, **options
            )
        )

    def start(self) -> None:
        """Connect; a transactional producer obtains its producer id, which fences an earlier one.

        Raises:
            BootstrapError: None of the bootstrap servers could be used.
            ApplicationRecoverableError: A transactional producer could use none of the bootstrap
                servers, or received no producer id within max_block_ms; its cause has the reason.
                Start a new producer.
            InvalidConfigurationError: An option or a permission must be changed first.
            ClientClosedError: The producer was stopped during the start.
            IllegalStateError: The producer was started before.
        """
        start(self._client.start)

    def stop(self, timeout: float | None = None) -> None:
        """Abort an open transaction, deliver what was enqueued, and close.

        Records of the aborted transaction that were not sent yet fail. Does nothing if the producer
        is already stopped. While another call stops it, this one waits for the other, within the
        other's timeout, and raises nothing. A start in progress is cancelled, and raises
        ClientClosedError.

        Args:
            timeout: Maximum time for all of it, in seconds (default: close_timeout_ms). With 0 the
                producer is closed at once and everything undelivered fails.

        Raises:
            DeliveryError: Some records were not delivered; it counts them, and `failures` has one
                entry per batch.
            IllegalStateError: The producer was started in another process.
        """
        run(self._client.stop, timeout)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything enqueued is acknowledged or has failed.

        Lingering batches are sent at once.

        Args:
            timeout: Maximum time in seconds (default: no limit but delivery_timeout_ms).

        Raises:
            DeliveryError: Records failed whose deliveries no task has awaited; `failures` has one
                entry per batch.
            KafkaTimeoutError: The timeout has passed.
        """
        run(self._client.flush, timeout)

    def purge(self, *, queued: bool = True, in_flight: bool = False) -> int:
        """Drop records that are not acknowledged; their deliveries raise RecordPurgedError.

        `flush` and `stop` do not report these records. In a transaction, records that were purged
        make it abortable only: its calls raise TransactionAbortableError until `abort`.

        Args:
            queued: Drop records that were not sent yet.
            in_flight: Drop records that were sent, in flight or to be sent again. They may or may
                not be in the log. An idempotent producer continues with a new epoch, so that
                records sent later are still written once and in order.

        Returns:
            The number of records dropped.

        Raises:
            ClientClosedError: The producer was stopped.
        """
        return call(self._client.purge, queued=queued, in_flight=in_flight)

    def statistics(self) -> ProducerStatistics:
        """Return counts since the start, under Kafka's metric names.

        This may be called in any thread at any time: before `start` all counts are 0, and after
        `stop` they are the last ones.
        """
        return call(self._client.statistics)

    def health(self) -> Health:
        """Return a snapshot of the producer's condition; no request is sent.

        This may be called in any thread at any time, also before `start` and after `stop`. Brokers
        are counted by the client, which may be shared. `in_flight` counts the producer's own
        requests, and `buffered_bytes` the bytes of buffer_memory that unacknowledged records use.
        """
        return call(self._client.health)

    def transaction(self, *, ignore_failed_sends: bool = False) -> Transaction[K, V]:
        """Return a transaction for `with producer.transaction() as txn`.

        Args:
            ignore_failed_sends: Let it commit without the records of calls that raised; by default
                `commit` raises TransactionAbortableError then.

        Raises:
            TransactionStateError: The producer has no transactional_id.
            ApplicationRecoverableError: The producer is closed or has failed.
        """
        return Transaction(call(self._client.transaction, ignore_failed_sends=ignore_failed_sends))

    def begin(self, *, ignore_failed_sends: bool = False) -> Transaction[K, V]:
        """Open a transaction; commit or abort it.

        If the calls that ended the previous transaction were cancelled, this waits for its end
        first, up to max_block_ms.

        Args:
            ignore_failed_sends: See `transaction`.

        Raises:
            TransactionStateError: A transaction is open.
            TransactionAbortableError, InvalidConfigurationError: The previous transaction, whose
                `commit` was cancelled, was not committed. It is aborted; begin again.
            ApplicationRecoverableError: The producer cannot continue.
        """
        return Transaction(run(self._client.begin, ignore_failed_sends=ignore_failed_sends))

    def init_transactions(self, *, timeout: float | None = None) -> None:
        """Obtain a new epoch, which fences earlier producers with the same transactional_id.

        The coordinator aborts a transaction that one of them, or a commit with an unknown outcome,
        left open.

        `start()` has done it once. Call it after an unknown outcome, or to fence another producer
        with the same id.

        Args:
            timeout: Maximum time in seconds (default: max_block_ms).

        Raises:
            TransactionStateError: A transaction is open.
            ApplicationRecoverableError: There is no new epoch; its cause has the reason.
            InvalidConfigurationError: An option or a permission must be changed first.
        """
        run(self._client.init_transactions, timeout=timeout)

    def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> RecordMetadata:
        """Append a record and wait until it is acknowledged.

        Cancelling this call after the record was appended does not withdraw it.

        Args:
            topic: Name of the topic.
            value: The value; bytes, or what `value_serializer` accepts. None is a tombstone.
            key: The key; bytes, or what `key_serializer` accepts.
            partition: The partition; by default the key's, or for records without a key one that
                changes after about batch_size bytes (KIP-794).
            timestamp: Milliseconds since the epoch; by default the client's clock.
            headers: Pairs of a name and a value, which is bytes or None.

        Raises:
            KafkaError: What `enqueue` raises, or the error with which the record failed.
        """
        return run(self._client.send, topic, value, key, partition, timestamp, headers)

    def send_many(
        self,
        topic: str,
        values: Sequence[V | None],
        keys: Sequence[K | None] | None = None,
        *,
        partition: int | None = None,
    ) -> list[Delivery]:
        """Append many records without waiting for acknowledgements, and return their handles.

        If it raises, the records before the bad one are appended.

        Args:
            topic: Name of the topic.
            values: The values; see `send`.
            keys: One key per value, or None.
            partition: The partition of all records; by default chosen as by `send`.

        Raises:
            ValueError: There are not as many keys as values.
            KafkaError: What `enqueue` raises, with the index of the record in its message.
        """
        return run(self._client.send_many, topic, values, keys, partition=partition)

    def send_records(self, records: Iterable[ProducerRecord]) -> list[Delivery]:
        """Append records of any topics without waiting for acknowledgements; return their handles.

        If it raises, the records before the bad one are appended.

        Args:
            records: The records.

        Raises:
            KafkaError: What `enqueue` raises, with the index of the record in its message.
        """
        return run(self._client.send_records, records)

    def send_arrow(self, rows: ArrowData, topic: str | None = None) -> int:
        """Append the rows of Arrow data as records without waiting for acknowledgements.

        Faster than `send_many`: no Python object is made per row. There are no handles: `flush()`
        raises the failures. All rows are checked before the first one is appended. Rows of the same
        partition keep their order. It waits for the topic's metadata, and up to max_block_ms while
        buffer_memory is full. Cancelling it may leave some rows appended.

        | Column | Type |
        |---|---|
        | `value` | binary or string, null for a tombstone; required |
        | `key` | binary or string |
        | `topic` | string; the argument `topic` overrides it |
        | `partition` | int32; null: chosen as by `send` |
        | `timestamp` | a timestamp, or int64 in milliseconds; null: the client's clock |
        | `headers` | list of structs of `key` (string) and `value` (binary) |

        Strings become UTF-8. Serializers are not applied; with the option `partitioner`, rows
        become objects as by `send`.

        Args:
            rows: A record batch or table of pyarrow, or of a library with the same interface.
            topic: Topic of all rows; by default that of the column `topic`.

        Returns:
            The number of rows.

        Raises:
            TypeError: `rows` is not Arrow data, or a column has the wrong type.
            ValueError: A column is missing or unknown, or a topic, timestamp or header is not
                valid; the message names the row.
            RecordTooLargeError: A row is larger than max_request_size or buffer_memory; the message
                names it.
            UnknownTopicOrPartitionError: A topic does not exist, or it lacks the partition of a
                row; the message names it.
            InvalidConfigurationError: pyarrow is not installed.
            KafkaError: What `enqueue` raises.
        """
        return run(self._client.send_arrow, rows, topic)

    def send_batch(self, partition: TopicPartition, batch: RecordBatch) -> Delivery:
        """Append a ready-made batch to its partition, without waiting for acknowledgements.

        It comes after the other batches of the partition. Called in a loop, this yields to the
        event loop about once per millisecond. It waits up to max_block_ms while buffer_memory is
        full.

        Args:
            partition: Topic and partition.
            batch: The batch.

        Returns:
            The handle of its first record.

        Raises:
            KafkaTimeoutError: buffer_memory stayed full for max_block_ms.
            RecordTooLargeError: The batch is larger than max_request_size or buffer_memory.
            TypeError: An argument has the wrong type.
            ValueError: The partition is out of range, or the topic is empty.
            ClientClosedError: The producer was not started, or is stopped.
            IllegalStateError: The producer is transactional and records go through a transaction.
        """
        return run(self._client.send_batch, partition, batch)

    def enqueue(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> Delivery:
        """Append a record to its batch; wait up to max_block_ms while buffer_memory is full.

        Args:
            topic: Topic name.
            value: Bytes, or the object that `value_serializer` takes. None is a tombstone.
            key: Bytes, or the object that `key_serializer` takes.
            partition: Partition number; by default the key's partition, or without a key, a
                partition that changes after about batch_size bytes (KIP-794).
            timestamp: Milliseconds since the epoch; by default the client's clock.
            headers: (name, value) pairs; a value is bytes or None.

        Returns:
            A handle of the record. It may be dropped: `flush()` raises the
            failures of records that nothing awaited.

        Raises:
            KafkaTimeoutError: buffer_memory stayed full for max_block_ms.
            RecordTooLargeError: The record is larger than max_request_size or buffer_memory.
            SerializationError: A serializer failed; its exception is the cause.
            TypeError: An argument has the wrong type.
            ValueError: The partition or the timestamp is out of range, or the topic is empty.
            ClientClosedError: The producer was stopped.
            IllegalStateError: The producer was not started, or it is transactional and records go
                through a transaction.
        """
        return run(self._client.enqueue, topic, value, key, partition, timestamp, headers)

    def enqueue_nowait(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> Delivery:
        """Append a record to its batch without waiting.

        Takes the arguments of `enqueue` and returns the same handle. It never yields to the event
        loop: no batch is sent until the caller awaits something else.

        Raises:
            BufferFullError: buffer_memory is used up.
            RecordTooLargeError: The record is larger than max_request_size or buffer_memory.
            SerializationError: A serializer failed; its exception is the cause.
            TypeError, ValueError, ClientClosedError, IllegalStateError: As for `enqueue`.
        """
        return call(self._client.enqueue_nowait, topic, value, key, partition, timestamp, headers)


class Transaction(BlockingClient, Generic[K, V]):
    """Writes records and offsets atomically with blocking calls.

    Options, arguments and errors are those of `kafka_async.Transaction`.
    """

    _client: AsyncTransaction[K, V]

    @property
    def asynchronous(self) -> AsyncTransaction[K, V]:
        """Asyncio client behind this one; it belongs to the background event loop."""
        return self._client

    def commit_offsets(
        self,
        offsets: Consumer[Any, Any] | Mapping[TopicPartition, OffsetAndMetadata | int],
        group: GroupMetadata | str | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Commit offsets of a consumer group with the transaction (KIP-447).

        Args:
            offsets: A consumer, for the positions of the records that it has returned and not
                committed, with its metadata of the group. Or offsets of the next records to read.
            group: Metadata or id of the group, if `offsets` is not a consumer.
            timeout: Maximum time in seconds (default: max_block_ms).

        Raises:
            TransactionAbortableError: The offsets may not be part of the transaction: abort.
            TransactionStateError: The transaction is not open.
            ApplicationRecoverableError: The producer cannot continue.
            InvalidConfigurationError: An option or a permission must be changed first: abort.
        """
        run(self._client.commit_offsets, unwrap(offsets), group, timeout=timeout)

    def commit(self, *, timeout: float | None = None) -> None:
        """Deliver what was enqueued, and commit.

        Args:
            timeout: Maximum time for both, in seconds (default: delivery_timeout_ms for the
                records, then max_block_ms).

        Raises:
            TransactionAbortableError: A record was not delivered, a call that sends has raised, or
                the cluster requires it: abort.
            TransactionOutcomeUnknownError: The commit was sent and no response was received. Call
                `commit()` again; until it returns, `producer.init_transactions()` is the only other
                call that works.
            ApplicationRecoverableError: The producer cannot continue.
            InvalidConfigurationError: An option or a permission must be changed first: abort.
        """
        run(self._client.commit, timeout=timeout)

    def prepare(self, *, timeout: float | None = None) -> PreparedTransaction | None:
        """Deliver what was enqueued, and leave the transaction open for another process to end.

        This is the first phase of a two-phase commit. `Admin.end_transaction` commits or aborts it,
        even in another process or after this producer was stopped; `commit` and `abort` do it here.
        The end of a block leaves a prepared transaction open; an exception aborts it. The
        coordinator aborts it after transaction_timeout_ms, counted from its first record.

        Args:
            timeout: Maximum time in seconds (default: delivery_timeout_ms).

        Returns:
            What another process needs to end the transaction, or None if it had neither records nor
            offsets and has ended.

        Raises:
            TransactionAbortableError: A record was not delivered, a call that sends has raised, or
                the cluster requires it: abort.
            TransactionStateError: The transaction is not open.
            ApplicationRecoverableError: The producer cannot continue.
            InvalidConfigurationError: An option or a permission must be changed first: abort.
        """
        return run(self._client.prepare, timeout=timeout)

    def abort(self, *, timeout: float | None = None) -> None:
        """Abort the transaction; never raises TransactionAbortableError.

        If the coordinator cannot be reached in time, the producer requests a new epoch, which ends
        an open transaction.

        Args:
            timeout: Maximum time in seconds (default: max_block_ms).

        Raises:
            ApplicationRecoverableError: The producer cannot continue.
            InvalidConfigurationError: The coordinator refused to abort it: an option or a
                permission must be changed first. The producer can begin another transaction then.
            TransactionStateError: The transaction was not begun, or is over.
        """
        run(self._client.abort, timeout=timeout)

    def send(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> RecordMetadata:
        """Append a record and wait until it is acknowledged.

        Cancelling this call after the record was appended does not withdraw it.

        Args:
            topic: Name of the topic.
            value: The value; bytes, or what `value_serializer` accepts. None is a tombstone.
            key: The key; bytes, or what `key_serializer` accepts.
            partition: The partition; by default the key's, or for records without a key one that
                changes after about batch_size bytes (KIP-794).
            timestamp: Milliseconds since the epoch; by default the client's clock.
            headers: Pairs of a name and a value, which is bytes or None.

        Raises:
            KafkaError: What `enqueue` raises, or the error with which the record failed.
        """
        return run(self._client.send, topic, value, key, partition, timestamp, headers)

    def send_many(
        self,
        topic: str,
        values: Sequence[V | None],
        keys: Sequence[K | None] | None = None,
        *,
        partition: int | None = None,
    ) -> list[Delivery]:
        """Append many records without waiting for acknowledgements, and return their handles.

        If it raises, the records before the bad one are appended.

        Args:
            topic: Name of the topic.
            values: The values; see `send`.
            keys: One key per value, or None.
            partition: The partition of all records; by default chosen as by `send`.

        Raises:
            ValueError: There are not as many keys as values.
            KafkaError: What `enqueue` raises, with the index of the record in its message.
        """
        return run(self._client.send_many, topic, values, keys, partition=partition)

    def send_records(self, records: Iterable[ProducerRecord]) -> list[Delivery]:
        """Append records of any topics without waiting for acknowledgements; return their handles.

        If it raises, the records before the bad one are appended.

        Args:
            records: The records.

        Raises:
            KafkaError: What `enqueue` raises, with the index of the record in its message.
        """
        return run(self._client.send_records, records)

    def send_arrow(self, rows: ArrowData, topic: str | None = None) -> int:
        """Append the rows of Arrow data as records without waiting for acknowledgements.

        Faster than `send_many`: no Python object is made per row. There are no handles: `flush()`
        raises the failures. All rows are checked before the first one is appended. Rows of the same
        partition keep their order. It waits for the topic's metadata, and up to max_block_ms while
        buffer_memory is full. Cancelling it may leave some rows appended.

        | Column | Type |
        |---|---|
        | `value` | binary or string, null for a tombstone; required |
        | `key` | binary or string |
        | `topic` | string; the argument `topic` overrides it |
        | `partition` | int32; null: chosen as by `send` |
        | `timestamp` | a timestamp, or int64 in milliseconds; null: the client's clock |
        | `headers` | list of structs of `key` (string) and `value` (binary) |

        Strings become UTF-8. Serializers are not applied; with the option `partitioner`, rows
        become objects as by `send`.

        Args:
            rows: A record batch or table of pyarrow, or of a library with the same interface.
            topic: Topic of all rows; by default that of the column `topic`.

        Returns:
            The number of rows.

        Raises:
            TypeError: `rows` is not Arrow data, or a column has the wrong type.
            ValueError: A column is missing or unknown, or a topic, timestamp or header is not
                valid; the message names the row.
            RecordTooLargeError: A row is larger than max_request_size or buffer_memory; the message
                names it.
            UnknownTopicOrPartitionError: A topic does not exist, or it lacks the partition of a
                row; the message names it.
            InvalidConfigurationError: pyarrow is not installed.
            KafkaError: What `enqueue` raises.
        """
        return run(self._client.send_arrow, rows, topic)

    def send_batch(self, partition: TopicPartition, batch: RecordBatch) -> Delivery:
        """Append a ready-made batch to its partition, without waiting for acknowledgements.

        It comes after the other batches of the partition. Called in a loop, this yields to the
        event loop about once per millisecond. It waits up to max_block_ms while buffer_memory is
        full.

        Args:
            partition: Topic and partition.
            batch: The batch.

        Returns:
            The handle of its first record.

        Raises:
            KafkaTimeoutError: buffer_memory stayed full for max_block_ms.
            RecordTooLargeError: The batch is larger than max_request_size or buffer_memory.
            TypeError: An argument has the wrong type.
            ValueError: The partition is out of range, or the topic is empty.
            ClientClosedError: The producer was not started, or is stopped.
            IllegalStateError: The producer is transactional and records go through a transaction.
        """
        return run(self._client.send_batch, partition, batch)

    def enqueue(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> Delivery:
        """Append a record to its batch; wait up to max_block_ms while buffer_memory is full.

        Args:
            topic: Topic name.
            value: Bytes, or the object that `value_serializer` takes. None is a tombstone.
            key: Bytes, or the object that `key_serializer` takes.
            partition: Partition number; by default the key's partition, or without a key, a
                partition that changes after about batch_size bytes (KIP-794).
            timestamp: Milliseconds since the epoch; by default the client's clock.
            headers: (name, value) pairs; a value is bytes or None.

        Returns:
            A handle of the record. It may be dropped: `flush()` raises the
            failures of records that nothing awaited.

        Raises:
            KafkaTimeoutError: buffer_memory stayed full for max_block_ms.
            RecordTooLargeError: The record is larger than max_request_size or buffer_memory.
            SerializationError: A serializer failed; its exception is the cause.
            TypeError: An argument has the wrong type.
            ValueError: The partition or the timestamp is out of range, or the topic is empty.
            ClientClosedError: The producer was stopped.
            IllegalStateError: The producer was not started, or it is transactional and records go
                through a transaction.
        """
        return run(self._client.enqueue, topic, value, key, partition, timestamp, headers)

    def enqueue_nowait(
        self,
        topic: str,
        value: V | None = None,
        key: K | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> Delivery:
        """Append a record to its batch without waiting.

        Takes the arguments of `enqueue` and returns the same handle. It never yields to the event
        loop: no batch is sent until the caller awaits something else.

        Raises:
            BufferFullError: buffer_memory is used up.
            RecordTooLargeError: The record is larger than max_request_size or buffer_memory.
            SerializationError: A serializer failed; its exception is the cause.
            TypeError, ValueError, ClientClosedError, IllegalStateError: As for `enqueue`.
        """
        return call(self._client.enqueue_nowait, topic, value, key, partition, timestamp, headers)


class Consumer(RecordIteration["Record[K, V]"], Generic[K, V]):
    """Reads records with blocking calls.

    Options, arguments and errors are those of `kafka_async.Consumer`.
    """

    _client: AsyncConsumer[K, V]

    @property
    def asynchronous(self) -> AsyncConsumer[K, V]:
        """Asyncio client behind this one; it belongs to the background event loop."""
        return self._client

    def __init__(
        self,
        servers: str | Sequence[str] | Client | None = None,
        /,
        *,
        topics: Iterable[str] | None = None,
        partitions: Iterable[TopicPartition] | None = None,
        listener: RebalanceListener | None = None,
        config: ConsumerConfig | None = None,
        hooks: Hooks | None = None,
        clock: Clock | None = None,
        dialer: Dialer | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        with delaying_forks():
            from kafka_async.config import hide_secrets
            from kafka_async.consumer.consumer import Consumer as AsyncConsumer

        servers, options = hide_secrets(servers), hide_secrets(options)
        super().__init__(
            AsyncConsumer(
                unwrap(servers),
                topics=topics,
                partitions=partitions,
                listener=listener,
                config=config,
                hooks=hooks,
                clock=clock,
                dialer=dialer,
                **options,
            )
        )

    def start(self) -> None:
        """Connect and start to read.

        Raises:
            BootstrapError: No bootstrap server could be used.
            RetriableError: With group_protocol="auto", the group's coordinator was not available
                for default_api_timeout_ms.
            ClientClosedError: The consumer was stopped during the start.
            IllegalStateError: The consumer was started before.
        """
        start(self._client.start)

    def stop(self, timeout: float | None = None) -> None:
        """Stop reading, commit processed records with auto-commit, leave the group and close.

        The records of the last `poll`, and the current one of an iteration, do not count as
        processed: end the `async with` block instead to commit them, or call `commit` before.

        A warning lists offsets that could not be committed in time. Without anything to commit, it
        returns within 2 s even if no broker responds. It is completed even if the caller is
        cancelled; a cancelled `stop` does not commit, and leaves the group within 1 s. Safe to call
        again. A start in progress is cancelled, and raises ClientClosedError.

        In a handler of `process` or a task of `partition_streams` it returns at once: the consumer
        closes after the handlers have returned, and `process`, or the block of `partition_streams`,
        then ends. In a task that a rebalance listener has created it also returns at once, and the
        consumer closes after the listener has returned.

        Args:
            timeout: Maximum total time in seconds (default: close_timeout_ms).

        Raises:
            KafkaError: The group rejected the automatic commit; the consumer is closed.
            IllegalStateError: A rebalance listener calls it, or the consumer was started
                in another process.
            Exception: A rebalance listener raised it, and no poll has raised it before; the
                consumer is closed.
        """
        run(self._client.stop, timeout)

    def subscribe(
        self,
        topics: Iterable[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Subscribe to topics, or to all topics whose full name matches a pattern.

        Replaces the former subscription, in the background. Manually assigned partitions stay.

        Args:
            topics: The topics.
            pattern: A regular expression, instead of `topics`. With group_protocol="consumer"
                (KIP-848) the broker matches a str, in the syntax of RE2/J, and this client matches
                a compiled one; otherwise, and with "auto", this client matches both.
            listener: Listener for changes of the assignment, added to the existing listeners.

        Raises:
            TypeError: Not exactly one of `topics` and `pattern`, or one of another type.
            ValueError: `pattern` is not a regular expression.
        """
        call(self._client.subscribe, topics, pattern=pattern, listener=listener)

    def unsubscribe(self) -> None:
        """Unsubscribe from all topics, leave the group and return when that is done.

        Manually assigned partitions stay. If `subscribe` is called during this call, it replaces
        it: then this returns early, perhaps without having left the group. It does not clear the
        error of a consumer that the group rejected for good, which each poll raises until the
        consumer is closed.

        Raises:
            IllegalStateError: A rebalance listener calls it, or a handler of `process` or of a
                stream.
        """
        run(self._client.unsubscribe)

    def assign(self, partitions: Partitions) -> None:
        """Set the manually assigned partitions; subscribed topics stay.

        Args:
            partitions: The partitions.
        """
        call(self._client.assign, partitions)

    def subscription(self) -> frozenset[str]:
        """Return the subscribed topics."""
        return call(self._client.subscription)

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions assigned by the group or manually."""
        return call(self._client.assignment)

    def on_assigned(self, callback: Callback) -> Callback:
        """Add a callback for newly assigned partitions.

        Args:
            callback: Called with the partitions; a plain function or `async def`.

        Returns:
            The callback, so that this can be used as a decorator.
        """
        return call(self._client.on_assigned, callback)

    def on_revoked(self, callback: Callback) -> Callback:
        """Add a callback for partitions about to be revoked.

        Args:
            callback: Called with the partitions; a plain function or `async def`.

        Returns:
            The callback, so that this can be used as a decorator.
        """
        return call(self._client.on_revoked, callback)

    def on_lost(self, callback: Callback) -> Callback:
        """Add a callback for lost partitions, which other members may own already.

        Args:
            callback: Called with the partitions; a plain function or `async def`.

        Returns:
            The callback, so that this can be used as a decorator.
        """
        return call(self._client.on_lost, callback)

    def pause(self, partitions: Partitions = ()) -> None:
        """Return no records of these partitions until `resume`; they stay assigned.

        Args:
            partitions: The partitions (default: all assigned).
        """
        call(self._client.pause, partitions)

    def resume(self, partitions: Partitions = ()) -> None:
        """Undo `pause`.

        Args:
            partitions: The partitions (default: all assigned).
        """
        call(self._client.resume, partitions)

    def paused(self) -> frozenset[TopicPartition]:
        """Return the paused partitions."""
        return call(self._client.paused)

    def poll(
        self, *, timeout: float | None = 1.0, max_records: int | None = None
    ) -> list[Record[K, V]]:
        """Return records of any partitions once there are any, or an empty list at the timeout.

        One poll parses records for at most 2.5 ms, so it may return fewer than were fetched.

        Args:
            timeout: Maximum time in seconds (None: no limit).
            max_records: Maximum number of records (default: max_poll_records).

        Raises:
            CorruptRecordError: The next record cannot be read; `seek` past it to continue.
            RecordDeserializationError: The next record cannot be deserialized; `seek` past it to
                continue.
            NoOffsetForPartitionError: There is no committed offset, and auto_offset_reset is
                "none".
            OffsetOutOfRangeError: The position is out of range, and auto_offset_reset is "none".
            RecordTooLargeError: The next batch is larger than the bytes fetched: raise
                max_partition_fetch_bytes, or `seek` past it to continue.
            TopicAuthorizationError: The principal may not read a subscribed or assigned topic;
                raised once for all its partitions, and again only after it could be read. Other
                topics continue, and this one once the principal may read it.
            UnknownTopicOrPartitionError: A subscribed topic or a manually assigned partition has
                not existed for default_api_timeout_ms, and allow_auto_create_topics is False;
                raised once, other topics continue.
            IllegalStateError: There is nothing to read, another task polls, an iteration is in
                progress, or a rebalance listener polls.
            ClientClosedError: The consumer is not started, or is stopped.
            AuthenticationError: The brokers reject the credentials. Positions and the membership in
                the group are kept: polls continue once the credentials are right again.
            GroupAuthorizationError: The principal may not join the group or be a member of it.
                Polls continue once it may.
            KafkaError: The group rejected this consumer, or a task of it has died. If joining
                again cannot help, as with FencedInstanceIdError, each poll raises the group's error
                until the consumer is closed.
            Exception: An exception of a rebalance listener or of an assignor.
            TypeError: An argument has another type.
            ValueError: `max_records` is less than 1, or `timeout` is negative.
        """
        return run(self._client.poll, timeout=timeout, max_records=max_records)

    def poll_batches(self, *, timeout: float | None = 1.0) -> list[PartitionBatch]:
        """Return all fetched batches by partition, for Arrow or to parse elsewhere.

        Waits like `poll` and raises the same errors except RecordDeserializationError:
        deserializers are not used.

        Args:
            timeout: Maximum time in seconds (None: no limit).
        """
        return run(self._client.poll_batches, timeout=timeout)

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Set the position of a partition; its returned records no longer count as unprocessed.

        Args:
            partition: The partition.
            offset: Offset of the next record to return.

        Raises:
            IllegalStateError: The partition is not assigned: seek in a callback of `on_assigned`,
                or once `assignment()` contains it. Another member of the group may have it.
        """
        call(self._client.seek, partition, offset)

    def seek_to_beginning(self, partitions: Partitions = ()) -> None:
        """Seek to the first record.

        Args:
            partitions: The partitions (default: all assigned).
        """
        run(self._client.seek_to_beginning, partitions)

    def seek_to_end(self, partitions: Partitions = ()) -> None:
        """Seek to the offset after the last record.

        Args:
            partitions: The partitions (default: all assigned).
        """
        run(self._client.seek_to_end, partitions)

    def seek_to_time(
        self,
        when: float | datetime | Mapping[TopicPartition, float | datetime],
        partitions: Partitions = (),
        *,
        timeout: float | None = None,
    ) -> None:
        """Seek to the first record not older than a time, or to the end if there is none.

        Args:
            when: Seconds since the epoch, or a datetime; or one for each partition.
            partitions: The partitions (default: all assigned).
            timeout: Maximum time in seconds (default: default_api_timeout_ms).
        """
        run(self._client.seek_to_time, when, partitions, timeout=timeout)

    def position(self, partition: TopicPartition, *, timeout: float | None = None) -> int:
        """Return the offset of the next record to return, after waiting until it is known.

        Args:
            partition: The partition.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Raises:
            KafkaTimeoutError: The position was not found in time.
        """
        return run(self._client.position, partition, timeout=timeout)

    def rewind(
        self, offsets: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Rewind partitions of the running group, including those that other members own.

        Each owner finishes the records that it has returned, commits the offset, seeks to it and
        reports it; the other partitions continue. If the log does not have an offset, the nearest
        one is used. Partitions of this member are rewound at once, as with `seek`, unless another
        task or handlers process records.

        If other members own partitions, all members must be consumers of this package. In the
        classic protocol they rebalance; in the consumer protocol (KIP-848) they do not, and all
        need rewind_check_interval_ms.

        Args:
            offsets: Offset of the next record to read, by partition.
            timeout: Maximum time in seconds (default: default_api_timeout_ms). If other members own
                partitions and this one has returned records, the application must continue to poll
                in another task. Use this argument in place of `asyncio.wait_for`, which calls from
                another task on Python 3.11.

        Returns:
            The offsets that were committed.

        Raises:
            IllegalStateError: The consumer has no group or no subscription, a member is of another
                client or has no rewind_check_interval_ms, no member subscribes to a partition, an
                owner could not commit, or a rebalance listener, or a handler of `process` or of a
                stream, calls.
            KafkaTimeoutError: Not all owners have reported in time; they may still rewind.
            ClientClosedError: The consumer was closed during the call; owners may still rewind.
        """
        return run(self._client.rewind, offsets, timeout=timeout)

    def beginning_offsets(
        self, partitions: Partitions, *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset of the first record of each partition.

        Args:
            partitions: The partitions.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).
        """
        return run(self._client.beginning_offsets, partitions, timeout=timeout)

    def end_offsets(
        self, partitions: Partitions, *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last record that isolation_level lets this consumer read.

        Args:
            partitions: The partitions.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).
        """
        return run(self._client.end_offsets, partitions, timeout=timeout)

    def offsets_for_times(
        self, times: Mapping[TopicPartition, float | datetime], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the offset and time of the first record not older than a time, or None.

        Args:
            times: Seconds since the epoch, or a datetime, by partition.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).
        """
        return run(self._client.offsets_for_times, times, timeout=timeout)

    def commit(
        self, what: str | TopicPartition | Offsets | None = None, *, timeout: float | None = None
    ) -> None:
        """Commit the positions, which include the records returned last.

        A commit that the coordinator rejects because of a rebalance is retried after the rebalance.
        Offsets of deleted topics are dropped with a warning in the log. Partitions whose offset
        another member commits are left out (`RedundantAssignor`), as are partitions that are
        manually assigned while the consumer subscribes to topics: they are not the group's.

        Handlers of `process`, tasks of `partition_streams` and `on_revoked` may also commit while
        `stop` waits for them, and make the other calls that do not request further records.

        Args:
            what: A topic or a partition to commit alone, or the offsets to commit: the offset of
                the next record to read, by partition (default: all partitions).
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Raises:
            TypeError: `what` is something else, such as a record.
            UnknownTopicOrPartitionError: `what` has an offset of a topic that does not exist.
            CommitFailedError: The group has assigned a partition to another member.
            IllegalStateError: `what` contains a partition that is left out otherwise, or a topic
                that is neither assigned nor subscribed to.
            RebalanceInProgressError: A rebalance has not ended in time. Raised at once while this
                member revokes, loses or takes over partitions, as in a listener's callback.
            KafkaTimeoutError: Not committed in time.
            ClientClosedError: The consumer is not started, or is stopped.
        """
        run(self._client.commit, what, timeout=timeout)

    def committed(
        self, partitions: Partitions = (), *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets, None for partitions without one.

        Args:
            partitions: The partitions (default: all assigned).
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Raises:
            UnknownTopicOrPartitionError: A topic does not exist.
            KafkaTimeoutError: No response in time.
        """
        return run(self._client.committed, partitions, timeout=timeout)

    def group_metadata(self) -> GroupMetadata:
        """Return this consumer's identity in its group (KIP-447).

        Raises:
            IllegalStateError: The consumer has no group_id.
        """
        return call(self._client.group_metadata)

    def seek_to_committed(
        self, partitions: Partitions = (), *, timeout: float | None = None
    ) -> None:
        """Seek to the committed offsets, as after an aborted transaction.

        A partition without a committed offset follows auto_offset_reset or, if it is new,
        auto_offset_reset_new_partitions. Partitions that are manually assigned while the consumer
        subscribes to topics stay where they are. A `seek` of another task during this call is
        undone.

        Args:
            partitions: The partitions (default: all assigned).
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Raises:
            KafkaTimeoutError: No response in time.
        """
        run(self._client.seek_to_committed, partitions, timeout=timeout)

    def topics(self, *, timeout: float | None = None) -> frozenset[str]:
        """Return the names of all topics except internal ones.

        Args:
            timeout: Maximum time in seconds (default: default_api_timeout_ms).
        """
        return run(self._client.topics, timeout=timeout)

    def partitions_for(self, topic: str, *, timeout: float | None = None) -> list[int]:
        """Return the numbers of a topic's partitions. It never creates the topic.

        Args:
            topic: Name of the topic.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Raises:
            UnknownTopicOrPartitionError: A broker responded that the topic does not exist.
            KafkaTimeoutError: No broker responded in time.
        """
        return run(self._client.partitions_for, topic, timeout=timeout)

    def statistics(self) -> ConsumerStatistics:
        """Return a snapshot of the statistics since `start`.

        This may be called in any thread at any time: before `start` all counts are 0, and after
        `stop` they are the last ones.
        """
        return call(self._client.statistics)

    def explain(self) -> AssignmentExplanation:
        """Explain the group's current assignment: the partitions of each member, and the reasons.

        Only the group leader has the assignment of all members; other members have their own.

        Returns:
            The generation, the assignor, the reason of the rebalance and the members, with a reason
            for each partition; without members before the first assignment.

        Raises:
            IllegalStateError: The consumer has no group_id.
        """
        return call(self._client.explain)

    def health(self) -> Health:
        """Return a snapshot of the consumer's condition; sends no request.

        This may be called in any thread at any time, also before `start` and after `stop`. The
        state is "failed" once a task has died or the group has rejected this member for good, and
        "degraded" while no broker is both connected and responding. Brokers are counted by the
        client, which may be shared; `in_flight` counts the consumer's own requests.
        """
        return call(self._client.health)

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """Return the offset after the last record that all in-sync replicas have; no request.

        It is as of the last fetch response, or None before the first one of this partition.

        Args:
            partition: The partition.

        Raises:
            IllegalStateError: The partition is not assigned to this consumer.
        """
        return call(self._client.high_watermark, partition)

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """Return the offset below which no transaction is open; sends no request (KIP-98).

        Records below it are what `isolation_level="read_committed"` lets a consumer read. It is as
        of the last fetch response, or None before the first one of this partition.

        Args:
            partition: The partition.

        Raises:
            IllegalStateError: The partition is not assigned to this consumer.
        """
        return call(self._client.last_stable_offset, partition)


class ShareConsumer(RecordIteration["ShareRecord[K, V]"], Generic[K, V]):
    """Reads records of a share group with blocking calls.

    Options, arguments and errors are those of `kafka_async.ShareConsumer`.
    """

    _client: AsyncShareConsumer[K, V]

    @property
    def asynchronous(self) -> AsyncShareConsumer[K, V]:
        """Asyncio client behind this one; it belongs to the background event loop."""
        return self._client

    def __init__(
        self,
        servers: str | Sequence[str] | Client | None = None,
        /,
        *,
        topics: Iterable[str],
        config: ShareConsumerConfig | None = None,
        hooks: Hooks | None = None,
        clock: Clock | None = None,
        dialer: Dialer | None = None,
        **options: Unpack[ShareConsumerOptions],
    ) -> None:
        with delaying_forks():
            from kafka_async.config import hide_secrets
            from kafka_async.consumer.share.share_consumer import (
                ShareConsumer as AsyncShareConsumer,
            )

        servers, options = hide_secrets(servers), hide_secrets(options)
        super().__init__(
            AsyncShareConsumer(
                unwrap(servers),
                topics=topics,
                config=config,
                hooks=hooks,
                clock=clock,
                dialer=dialer,
                **options,
            )
        )

    def health(self) -> Health:
        """Return a snapshot of the consumer's condition; no request is sent.

        This may be called in any thread at any time. Brokers are counted by the client, which
        may be shared. A share consumer has no lag: see `Admin.list_share_group_offsets` for the
        group's lag.
        """
        return call(self._client.health)

    def statistics(self) -> ShareConsumerStatistics:
        """Return a snapshot of the statistics since `start`.

        This may be called in any thread at any time: before `start` all counts are 0, and after
        `stop` they are the last ones.
        """
        return call(self._client.statistics)

    def subscription(self) -> frozenset[str]:
        """Return the subscribed topics."""
        return call(self._client.subscription)

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions assigned to this member, which other members may have too."""
        return call(self._client.assignment)

    def poll(
        self, *, timeout: float | None = 1.0, max_records: int | None = None
    ) -> list[ShareRecord[K, V]]:
        """Return acquired records as soon as there are any, or an empty list at the timeout.

        Records are acquired only while a poll waits for them. A record whose lock has been renewed
        is returned again before others (KIP-1222).

        Args:
            timeout: Maximum time in seconds (None: no limit).
            max_records: Maximum number of records (default: max_poll_records). With
                share_acquire_mode="batch_optimized" more may be acquired, for the next polls.

        Raises:
            IllegalStateError: With share_acknowledgement_mode="explicit", a record of the last poll
                is not acknowledged; or another task polls.
            CorruptRecordError: A record cannot be read, and was rejected; the next poll continues.
            RecordDeserializationError: A record cannot be deserialized, and was released; the next
                poll continues.
            UnsupportedVersionError: The brokers have no share groups; each poll raises it.
            GroupIdNotFoundError: The group has members of another protocol; each poll raises it.
            GroupMaxSizeReachedError: The group is full; the next poll joins again.
            GroupAuthorizationError: The principal may not READ the group.
            TopicAuthorizationError: The principal may not DESCRIBE or READ a topic.
            UnknownTopicOrPartitionError: A topic has not existed for default_api_timeout_ms; raised
                once, and the next poll continues. Warnings are logged before.
            ClientClosedError: The consumer is not started, or is stopped.
            AuthenticationError: The brokers reject the credentials.
            KafkaError: A task of the consumer has died.
            TypeError: An argument has another type.
            ValueError: `max_records` is less than 1, or `timeout` is negative.
        """
        return run(self._client.poll, timeout=timeout, max_records=max_records)

    def acknowledge(
        self,
        record: ShareRecord[Any, Any],
        type: Literal["accept", "release", "reject", "renew"] = "accept",
    ) -> None:
        """Acknowledge a record of the last poll; the next poll or `commit` sends that.

        Until then another call replaces the acknowledgement.

        Args:
            record: The record.
            type: "accept": it was processed; "release": deliver it again, to any member; "reject":
                it cannot be processed, do not deliver it again; "renew": it is still being
                processed, prolong its lock, and return it from a later poll (KIP-1222).

        Raises:
            IllegalStateError: The acknowledgement mode is "implicit", the last poll did not return
                the record, or its acknowledgement was sent already.
            ClientClosedError: The consumer is not started, or is stopped.
            ValueError: `type` is none of these.
        """
        call(self._client.acknowledge, record, type)

    def commit(self, *, timeout: float | None = None) -> dict[TopicPartition, KafkaError | None]:
        """Send all acknowledgements that have no response, and wait for the responses.

        With share_acknowledgement_mode="implicit" it accepts the records of the last poll first. An
        error means that the broker has recorded no acknowledgement of that request in the
        partition: the records are delivered again, up to the group's limit. After
        KafkaConnectionError or KafkaTimeoutError it is unknown whether the broker has recorded
        them, so the records may or may not be delivered again.

        Args:
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Returns:
            For each partition with acknowledgements None, or its first error:
            InvalidRecordStateError if a lock has ended, NotLeaderOrFollowerError if the partition
            has another leader, ShareSessionNotFoundError if the broker has ended the session,
            KafkaConnectionError if the connection was lost, or KafkaTimeoutError if there was no
            response in time.

        Raises:
            ClientClosedError: The consumer is not started, or is stopped.
            KafkaError: A task of the consumer has died.
        """
        return run(self._client.commit, timeout=timeout)

    def on_acknowledged(self, callback: AcknowledgementCallback) -> AcknowledgementCallback:
        """Add a callback for the outcome of all acknowledgements, with or without `commit`.

        Without a callback, failed acknowledgements are logged as warnings. Its exceptions go to the
        event loop's exception handler.

        Args:
            callback: A plain function, called with the partition, a frozenset of offsets, and the
                error: None if the broker has recorded the acknowledgements.

        Returns:
            The callback, so that this can be used as a decorator.
        """
        return call(self._client.on_acknowledged, callback)

    def start(self) -> None:
        """Connect and begin to join the group. Calls for results wait until it has joined.

        Raises:
            BootstrapError: No bootstrap server could be used.
            ClientClosedError: The client was stopped during the start.
            IllegalStateError: The client was started before.
        """
        start(self._client.start)

    def stop(self, timeout: float | None = None) -> None:
        """Leave the group and close; calls that wait raise ClientClosedError.

        It is completed even if the caller is cancelled. Safe to call again. A start in progress is
        cancelled, and raises ClientClosedError.

        Args:
            timeout: Maximum time in seconds (default: close_timeout_ms).

        Raises:
            IllegalStateError: The client was started in another process.
        """
        run(self._client.stop, timeout)

    @property
    def acquisition_lock_timeout_ms(self) -> int | None:
        """Time for which a broker locks a record for this member; None before any response.

        It is the group's share.record.lock.duration.ms. A renewal restarts it.
        """
        return self._client.acquisition_lock_timeout_ms


class Admin(BlockingClient):
    """Administers a cluster with blocking calls.

    Options, arguments and errors are those of `kafka_async.Admin`.
    """

    _client: AsyncAdmin

    @property
    def asynchronous(self) -> AsyncAdmin:
        """Asyncio client behind this one; it belongs to the background event loop."""
        return self._client

    def __init__(
        self,
        servers: str | Sequence[str] | Client | None = None,
        /,
        *,
        config: ClientConfig | None = None,
        hooks: Hooks | None = None,
        clock: Clock | None = None,
        dialer: Dialer | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        with delaying_forks():
            from kafka_async.admin.admin import Admin as AsyncAdmin
            from kafka_async.config import hide_secrets

        servers, options = hide_secrets(servers), hide_secrets(options)
        super().__init__(
            AsyncAdmin(
                unwrap(servers), config=config, hooks=hooks, clock=clock, dialer=dialer, **options
            )
        )

    def start(self) -> None:
        """Connect.

        Raises:
            BootstrapError: No bootstrap server can be used.
            ClientClosedError: The client was stopped while it started.
            IllegalStateError: The client was started before.
        """
        start(self._client.start)

    def stop(self, timeout: float | None = None) -> None:
        """Close the connections, unless the client is shared. May be called again.

        A start in progress is cancelled, and raises ClientClosedError.

        Args:
            timeout: Maximum time for an orderly close, in seconds (default: close_timeout_ms).

        Raises:
            IllegalStateError: The client was started in another process.
        """
        run(self._client.stop, timeout)

    def health(self) -> Health:
        """Return a snapshot of the client's health, see `Client.health`; no request is sent."""
        return call(self._client.health)

    def create_topics(
        self,
        new_topics: Iterable[NewTopic],
        *,
        wait: bool = True,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> dict[str, TopicListing]:
        """Create topics.

        Args:
            new_topics: The topics to create.
            wait: Whether to return only when every partition has a leader in the metadata.
            validate_only: Check the request without creating topics.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Returns:
            The created topics by name.

        Raises:
            TopicExistsError: A topic exists.
            InvalidTopicError: A name is not allowed.
            InvalidReplicationFactorError: There are fewer brokers than replicas.
        """
        return run(
            self._client.create_topics,
            new_topics,
            wait=wait,
            validate_only=validate_only,
            timeout=timeout,
        )

    def delete_topics(
        self, names: Iterable[str], *, wait: bool = True, timeout: float | None = None
    ) -> None:
        """Delete topics and all their records.

        Args:
            names: Names of the topics.
            wait: Whether to return only when the metadata no longer contains the topics.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Raises:
            UnknownTopicOrPartitionError: The topic does not exist.
        """
        run(self._client.delete_topics, names, wait=wait, timeout=timeout)

    def list_topics(
        self, *, internal: bool = False, timeout: float | None = None
    ) -> dict[str, TopicListing]:
        """Return all topics by name.

        Args:
            internal: Whether to include Kafka's internal topics.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).
        """
        return run(self._client.list_topics, internal=internal, timeout=timeout)

    def describe_topics(
        self, names: Iterable[str], *, timeout: float | None = None
    ) -> dict[str, TopicDescription]:
        """Return topics with their partitions, leaders and replicas.

        Args:
            names: Names of the topics.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Raises:
            UnknownTopicOrPartitionError: The topic does not exist.
        """
        return run(self._client.describe_topics, names, timeout=timeout)

    def create_partitions(
        self, counts: Mapping[str, int], *, wait: bool = True, timeout: float | None = None
    ) -> None:
        """Increase the number of partitions of topics.

        Args:
            counts: New total number of partitions by topic.
            wait: Whether to return only when every partition has a leader in the metadata.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Raises:
            InvalidPartitionsError: A count is not above the current one.
            UnknownTopicOrPartitionError: The topic does not exist.
        """
        run(self._client.create_partitions, counts, wait=wait, timeout=timeout)

    def describe_cluster(self, *, timeout: float | None = None) -> ClusterDescription:
        """Return the cluster's id, brokers and controller.

        Args:
            timeout: Maximum time in seconds (default: default_api_timeout_ms).
        """
        return run(self._client.describe_cluster, timeout=timeout)

    def describe_configs(
        self, resources: Iterable[ConfigResource], *, timeout: float | None = None
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Return the configuration of topics, brokers or groups.

        Args:
            resources: The resources.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Returns:
            Entries by resource and option name.
        """
        return run(self._client.describe_configs, resources, timeout=timeout)

    def alter_configs(
        self,
        changes: Mapping[ConfigResource, Mapping[str, str | None]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Change some options of topics, brokers or groups; the others keep their values (KIP-339).

        Args:
            changes: Values by resource and option name, such as {"share.auto.offset.reset":
                "earliest"}; None resets an option to its default.
            validate_only: Whether only to check the changes.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Raises:
            InvalidConfigurationError: An option does not exist, or its value is not allowed.
            InvalidRequestError: An option cannot be changed.
            UnknownTopicOrPartitionError: The topic does not exist.
            TopicAuthorizationError, GroupAuthorizationError, ClusterAuthorizationError: The
                client's principal may not ALTER_CONFIGS.
        """
        run(self._client.alter_configs, changes, validate_only=validate_only, timeout=timeout)

    def list_groups(
        self,
        *,
        states: Sequence[str] = (),
        types: Sequence[str] = (),
        session_timeouts: bool = False,
        timeout: float | None = None,
    ) -> dict[str, GroupListing]:
        """Return the groups of all brokers by id.

        Args:
            states: Only groups in these states: "Empty", "PreparingRebalance",
                "CompletingRebalance", "Stable", "Dead", "Assigning", "Reconciling" and "NotReady",
                in upper or lower case.
            types: Only groups of these types: "classic", "consumer", "share" and "streams".
            session_timeouts: Whether to read the session time-outs of consumer-protocol groups and
                share groups from their configurations (default: False).
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Raises:
            ValueError: A state or type does not exist.
        """
        return run(
            self._client.list_groups,
            states=states,
            types=types,
            session_timeouts=session_timeouts,
            timeout=timeout,
        )

    def describe_groups(
        self,
        group_ids: Iterable[str],
        *,
        session_timeouts: bool = False,
        timeout: float | None = None,
    ) -> dict[str, GroupDescription]:
        """Return groups with their states, members and assignments.

        For share groups, use `describe_share_groups`.

        Args:
            group_ids: Ids of the groups.
            session_timeouts: Whether to read the session time-outs of consumer-protocol groups from
                their configurations (default: False).
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Raises:
            GroupIdNotFoundError: The group does not exist, or it is new and its coordinator has
                just moved to another broker, which finds the group within about a second.
        """
        return run(
            self._client.describe_groups,
            group_ids,
            session_timeouts=session_timeouts,
            timeout=timeout,
        )

    def delete_groups(self, group_ids: Iterable[str], *, timeout: float | None = None) -> None:
        """Delete groups without members, and their committed offsets.

        Args:
            group_ids: Ids of the groups.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Raises:
            GroupNotEmptyError: A group has members.
            GroupIdNotFoundError: The group does not exist.
        """
        run(self._client.delete_groups, group_ids, timeout=timeout)

    def describe_share_groups(
        self,
        group_ids: Iterable[str],
        *,
        session_timeouts: bool = False,
        timeout: float | None = None,
    ) -> dict[str, GroupDescription]:
        """Return share groups with their states, members and assignments (KIP-932).

        Args:
            group_ids: Ids of the groups.
            session_timeouts: Whether to read the session time-outs from the groups'
                configurations (default: False).
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Raises:
            GroupIdNotFoundError: The share group does not exist, or it is new and its coordinator
                has just moved to another broker, which finds the group within about a second.
        """
        return run(
            self._client.describe_share_groups,
            group_ids,
            session_timeouts=session_timeouts,
            timeout=timeout,
        )

    def list_share_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[TopicPartition, ShareGroupOffset]:
        """Return the start offsets of a share group; partitions without one are left out (KIP-932).

        Args:
            group_id: Id of the group.
            partitions: Only these partitions (None: all).
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Raises:
            GroupIdNotFoundError: The share group does not exist.
            UnknownTopicOrPartitionError: A given partition does not exist; further ones are in the
                notes.
        """
        return run(self._client.list_share_group_offsets, group_id, partitions, timeout=timeout)

    def alter_share_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> None:
        """Set the start offsets of a share group without members (KIP-932).

        Args:
            group_id: Id of the group; one that does not exist is created.
            offsets: Offset of the first record to deliver, by partition.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Raises:
            GroupNotEmptyError: The group has members.
            UnknownTopicOrPartitionError: A partition does not exist; further ones are in the notes.
        """
        run(self._client.alter_share_group_offsets, group_id, offsets, timeout=timeout)

    def delete_share_group_offsets(
        self, group_id: str, topics: Iterable[str], *, timeout: float | None = None
    ) -> None:
        """Delete the offsets of topics from a share group without members (KIP-932).

        Args:
            group_id: Id of the group.
            topics: Names of the topics.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Raises:
            GroupNotEmptyError: The group has members.
            GroupIdNotFoundError: The share group does not exist.
            UnknownTopicOrPartitionError: A topic does not exist; further ones are in the notes.
        """
        run(self._client.delete_share_group_offsets, group_id, topics, timeout=timeout)

    def list_offsets(
        self,
        partitions: Mapping[TopicPartition, OffsetTarget],
        *,
        isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Return the earliest or latest offset of partitions, or the first at or after a time.

        Args:
            partitions: By partition an `OffsetSpec`, or a time: seconds since the epoch, or a
                datetime, which without a time zone is local time.
            isolation_level: With "read_committed", the latest offset is the last stable offset.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Returns:
            Offset and timestamp by partition; the offset is -1 if no record is that late.
        """
        return run(
            self._client.list_offsets, partitions, isolation_level=isolation_level, timeout=timeout
        )

    def list_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of a group; partitions without one are left out.

        Args:
            group_id: Id of the group.
            partitions: Only these partitions (None: all).
            require_stable: Whether to wait for transactions with pending offsets (KIP-447) and to
                read all commits. Otherwise offsets may be older than the last commit for a while
                after the group's coordinator has changed (default: False).
            timeout: Maximum time in seconds (default: default_api_timeout_ms).
        """
        return run(
            self._client.list_group_offsets,
            group_id,
            partitions,
            require_stable=require_stable,
            timeout=timeout,
        )

    def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        *,
        timeout: float | None = None,
    ) -> None:
        """Commit offsets to a group without members; a group that does not exist is created.

        Args:
            group_id: Id of the group.
            offsets: The next offset to read, or an OffsetAndMetadata, by partition.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Raises:
            GroupNotEmptyError: The group has members; see `Consumer.rewind`.
            UnknownTopicOrPartitionError: The partition does not exist.
        """
        run(self._client.alter_group_offsets, group_id, offsets, timeout=timeout)

    def list_transactions(
        self,
        *,
        states: Sequence[str] = (),
        pattern: str | None = None,
        timeout: float | None = None,
    ) -> dict[str, TransactionListing]:
        """Return the transactional ids of the cluster that the client may describe (KIP-664).

        Args:
            states: Only ids in one of these states, such as "Ongoing" (empty: all).
            pattern: Only ids that this regular expression matches as a whole (None: all). Brokers
                before 4.1 return all ids; the client then filters them (KIP-1152).
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Returns:
            The listings by transactional id.
        """
        return run(self._client.list_transactions, states=states, pattern=pattern, timeout=timeout)

    def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout: float | None = None
    ) -> dict[str, TransactionDescription]:
        """Return state, producer and partitions of transactional ids (KIP-664).

        Args:
            transactional_ids: The transactional ids.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Returns:
            The descriptions by transactional id.

        Raises:
            TransactionalIdNotFoundError: A transactional id was never used, or has expired.
            TransactionalIdAuthorizationError: The client's principal may not DESCRIBE an id.
        """
        return run(self._client.describe_transactions, transactional_ids, timeout=timeout)

    def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout: float | None = None
    ) -> None:
        """Fence the producers of transactional ids, and abort their open transactions.

        Args:
            transactional_ids: The transactional ids.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Raises:
            TransactionalIdAuthorizationError: The client's principal may not WRITE to an id.
        """
        run(self._client.fence_producers, transactional_ids, timeout=timeout)

    def end_transaction(
        self, prepared: PreparedTransaction, *, commit: bool = True, timeout: float | None = None
    ) -> None:
        """Commit or abort a transaction that `Transaction.prepare` has left open.

        The call may be repeated, even from another process, until a producer uses the transactional
        id again: brokers respond to the second EndTxn as to the first. After one of the last three
        errors, read the records to find out if they were committed: `describe_transactions` does
        not show it.

        Args:
            prepared: The value that `Transaction.prepare` returned.
            commit: True to commit (the default), False to abort.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Raises:
            TransactionalIdAuthorizationError: The client's principal may not WRITE to the id.
            InvalidTxnStateError: The transaction was ended the other way, as after its time-out
                with transactions v2.
            ProducerFencedError, InvalidProducerEpochError, InvalidPidMappingError: The transaction
                has timed out, or a producer has used its transactional id since.
        """
        run(self._client.end_transaction, prepared, commit=commit, timeout=timeout)

    def describe_client_quotas(
        self,
        entity: QuotaEntity | None = None,
        *,
        strict: bool = False,
        timeout: float | None = None,
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Return client quotas by entity (KIP-546).

        Args:
            entity: Names that the entities must have, with QuotaName.DEFAULT for the default and
                QuotaName.ANY for every name (None: all entities).
            strict: Leave out entities that have further names: `QuotaEntity(user="u")` then selects
                the user's quota and not the quotas of the user's client ids.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Returns:
            Quotas by entity and Kafka's names: producer_byte_rate and consumer_byte_rate in bytes
            per second, request_percentage, controller_mutation_rate in partitions per second, and
            connection_creation_rate of addresses in connections per second.

        Raises:
            ValueError: No quota can have this combination of names.
            ClusterAuthorizationError: The principal may not DESCRIBE_CONFIGS of the cluster.
        """
        return run(self._client.describe_client_quotas, entity, strict=strict, timeout=timeout)

    def alter_client_quotas(
        self,
        entries: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Set and remove client quotas, which apply at once (KIP-546).

        Args:
            entries: Values by entity and the names of `describe_client_quotas`. None removes a
                quota; other quotas keep their values.
            validate_only: Check the request without changing quotas.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Raises:
            ValueError: Kafka does not allow an entity, name or value; no request is sent.
            TypeError: A value is not a number; no request is sent.
            ClusterAuthorizationError: The principal may not ALTER_CONFIGS of the cluster.
        """
        run(self._client.alter_client_quotas, entries, validate_only=validate_only, timeout=timeout)

    def resolve_client_quotas(
        self, entity: QuotaEntity, *, timeout: float | None = None
    ) -> dict[str, ResolvedQuota]:
        """Return the quotas that apply to one client, in Kafka's precedence.

        A quota of both user and client id has precedence over a quota of the user, and that over a
        quota of the client id. At each level, a name has precedence over the default.

        Args:
            entity: The client's user and client id, or its ip. Without a user it is "ANONYMOUS".
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Returns:
            Value and entity by the names of `describe_client_quotas`. Quotas that do not limit the
            client are left out.

        Raises:
            ValueError: The entity does not describe one client.
            ClusterAuthorizationError: The principal may not DESCRIBE_CONFIGS of the cluster.
        """
        return run(self._client.resolve_client_quotas, entity, timeout=timeout)

    def set_quota_enforcement(
        self, entity: QuotaEntity, on: bool, *, timeout: float | None = None
    ) -> dict[str, float]:
        """Switch the quotas of an entity off, or on again.

        Kafka has no such switch. "Off" sets quotas that no client reaches, and this object keeps
        the old values. "On" restores them, or removes the unreachable quotas if there were no old
        values. To switch quotas on from another object, pass the values that "off" returned to
        `alter_client_quotas`.

        Args:
            entity: The entity, such as `QuotaEntity(user="u", client_id="mirror")`.
            on: Whether the quotas limit clients.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Returns:
            The entity's quotas: the old values after "off", the restored values after "on".

        Raises:
            TypeError: `on` is not a bool; no request is sent.
            ValueError: Kafka does not allow the entity; no request is sent.
            ClusterAuthorizationError: The client's principal may not DESCRIBE_CONFIGS or
                ALTER_CONFIGS of the cluster.
        """
        return run(self._client.set_quota_enforcement, entity, on, timeout=timeout)

    def create_acls(self, bindings: Iterable[AclBinding], *, timeout: float | None = None) -> None:
        """Create ACLs; an ACL that exists is not an error (KIP-140, KIP-290).

        Args:
            bindings: The ACLs with the resources that they apply to.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Raises:
            ClusterAuthorizationError: The client's principal may not ALTER the cluster.
            SecurityDisabledError: The cluster has no authorizer.
            InvalidRequestError: An ACL is not valid; the only cluster name is "kafka-cluster".
        """
        run(self._client.create_acls, bindings, timeout=timeout)

    def describe_acls(
        self, acl_filter: AclFilter | None = None, *, timeout: float | None = None
    ) -> list[AclBinding]:
        """Return the ACLs that a filter selects (KIP-140, KIP-290).

        Args:
            acl_filter: Selects ACLs (None: all).
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Raises:
            ClusterAuthorizationError: The client's principal may not DESCRIBE the cluster.
            SecurityDisabledError: The cluster has no authorizer.
        """
        return run(self._client.describe_acls, acl_filter, timeout=timeout)

    def delete_acls(
        self, filters: Iterable[AclFilter], *, timeout: float | None = None
    ) -> dict[AclFilter, list[AclBinding]]:
        """Delete the ACLs that filters select (KIP-140, KIP-290).

        Args:
            filters: Select ACLs; `AclFilter()` selects all.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Returns:
            The deleted ACLs by filter.

        Raises:
            ClusterAuthorizationError: The client's principal may not ALTER the cluster.
            SecurityDisabledError: The cluster has no authorizer.
        """
        return run(self._client.delete_acls, filters, timeout=timeout)

    def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> dict[str, tuple[ScramCredential, ...]]:
        """Return mechanisms and iterations of users' SCRAM credentials (KIP-554).

        Args:
            users: Names of the users (None: all with credentials).
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Returns:
            Credentials by user.

        Raises:
            ResourceNotFoundError: A user has no credential.
            ClusterAuthorizationError: The client's principal may not DESCRIBE the cluster.
        """
        return run(self._client.describe_user_scram_credentials, users, timeout=timeout)

    def alter_user_scram_credentials(
        self, alterations: Iterable[ScramAlteration], *, timeout: float | None = None
    ) -> None:
        """Set and delete SCRAM credentials of users (KIP-554).

        Passwords are not sent: a thread computes salted hashes for the brokers.

        Args:
            alterations: `UserScramCredentialUpsertion` and `UserScramCredentialDeletion` objects,
                at most one per user.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Raises:
            DuplicateResourceError: A user has two alterations.
            UnacceptableCredentialError: The cluster does not accept the number of iterations.
            ResourceNotFoundError: A credential to delete does not exist.
            ClusterAuthorizationError: The client's principal may not ALTER the cluster.
        """
        run(self._client.alter_user_scram_credentials, alterations, timeout=timeout)

    def create_delegation_tokens(
        self,
        owners: Iterable[str] | None = None,
        *,
        renewers: Iterable[str] = (),
        max_lifetime_ms: int | None = None,
        timeout: float | None = None,
    ) -> list[DelegationToken]:
        """Create delegation tokens (KIP-48, KIP-373).

        The connection must be authenticated, but not with a delegation token.

        Args:
            owners: Principals such as "User:alice"; each gets a token (None: one token for the
                client's principal).
            renewers: Further principals that may renew the tokens, apart from owner and requester.
            max_lifetime_ms: Milliseconds after which the tokens cannot be renewed (None: the
                broker's `delegation.token.max.lifetime.ms`).
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Returns:
            The tokens, in the order of `owners`.

        Raises:
            DelegationTokenDisabledError: The cluster does not use delegation tokens.
            UnsupportedByAuthenticationError: The connection is not authenticated, or by a token.
            DelegationTokenAuthorizationError: The client's principal may not create tokens for an
                owner: it needs CREATE_TOKENS on that user.
        """
        return run(
            self._client.create_delegation_tokens,
            owners,
            renewers=renewers,
            max_lifetime_ms=max_lifetime_ms,
            timeout=timeout,
        )

    def renew_delegation_tokens(
        self,
        tokens: Iterable[DelegationToken | SecretBytes],
        *,
        renew_period_ms: int | None = None,
        timeout: float | None = None,
    ) -> list[int]:
        """Renew delegation tokens (KIP-48).

        Args:
            tokens: The tokens, or their HMACs.
            renew_period_ms: Milliseconds from now for which they are valid (None: the broker's
                `delegation.token.expiry.time.ms`).
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Returns:
            The new expiry times in milliseconds since the epoch, in the order of `tokens`.

        Raises:
            DelegationTokenNotFoundError: The token does not exist.
            DelegationTokenExpiredError: A token has expired.
            DelegationTokenOwnerMismatchError: The client's principal may not renew a token.
        """
        return run(
            self._client.renew_delegation_tokens,
            tokens,
            renew_period_ms=renew_period_ms,
            timeout=timeout,
        )

    def expire_delegation_tokens(
        self,
        tokens: Iterable[DelegationToken | SecretBytes],
        *,
        expiry_period_ms: int | None = None,
        timeout: float | None = None,
    ) -> list[int]:
        """Change when delegation tokens expire, or remove them (KIP-48).

        Args:
            tokens: The tokens, or their HMACs.
            expiry_period_ms: Milliseconds from now after which they expire (None: they expire at
                once and are removed).
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Returns:
            The new expiry times in milliseconds since the epoch, in the order of `tokens`.

        Raises:
            DelegationTokenNotFoundError: The token does not exist.
            DelegationTokenExpiredError: A token has expired.
            DelegationTokenOwnerMismatchError: The client's principal may not change a token.
        """
        return run(
            self._client.expire_delegation_tokens,
            tokens,
            expiry_period_ms=expiry_period_ms,
            timeout=timeout,
        )

    def describe_delegation_tokens(
        self, owners: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> list[DelegationToken]:
        """Return the delegation tokens that the client's principal may see (KIP-48).

        Args:
            owners: Only tokens of these principals, such as "User:alice" (None: all).
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Raises:
            DelegationTokenDisabledError: The cluster does not use delegation tokens.
            UnsupportedByAuthenticationError: The connection is not authenticated, or by a token.
        """
        return run(self._client.describe_delegation_tokens, owners, timeout=timeout)
