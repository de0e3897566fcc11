"""The admin client. Each method calls the module of its subject.

    async with Admin("localhost:9092") as admin:
        await admin.create_topics([NewTopic("clicks", partitions=6, replication_factor=3)])

A method imports its module, and the messages that it needs, when it is called: importing `Admin`
loads no message. A call that fails for some items completes the others, then raises the first
failed item's error. Its message includes the topic, partition or group, and its notes the other
errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import Unpack

from kafka_async.admin.call import Call
from kafka_async.client.client import connect_with, services_of
from kafka_async.config import ClientConfig, hide_secrets
from kafka_async.foundation.arguments import check_timeout, instance_of
from kafka_async.foundation.start_guard import StartGuard

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Literal, Self

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
    from kafka_async.client.client import Client
    from kafka_async.config import ClientOptions
    from kafka_async.foundation.clock import Clock, Dialer
    from kafka_async.hooks import Hooks
    from kafka_async.secrets import SecretBytes
    from kafka_async.types import (
        Health,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        PreparedTransaction,
        TopicPartition,
    )


class Admin:
    """Administers a cluster.

    Every call has a `timeout` in seconds, retries included (default: default_api_timeout_ms), and
    raises KafkaTimeoutError after it.

    Args:
        servers: Addresses of brokers, as "host:port,host:port" or a sequence, which may also be
            given as `bootstrap_servers`; or a started `Client`: its connections are shared, and
            stay open.
        config: The options as an object, without other options.
        hooks: Receives the client's events; not with a `Client`.
        clock: Replaces the system's clocks, for tests; not with a `Client`.
        dialer: Replaces TCP connections, for tests; not with a `Client`.
        **options: Options of `ClientConfig`; not allowed with a `Client`.

    Raises:
        InvalidConfigurationError: An option is unknown or its value is not allowed.
    """

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
        servers, options = hide_secrets(servers), hide_secrets(options)
        self.config, self.client, self._owned = connect_with(
            servers, ClientConfig, config, options, hooks=hooks, clock=clock, dialer=dialer
        )
        self._start_guard = StartGuard(f"Admin {self.config.client_id}")
        self._switched_off: dict[QuotaEntity, dict[str, float]] = {}

    async def start(self) -> None:
        """Connect.

        Raises:
            BootstrapError: No bootstrap server can be used.
            ClientClosedError: The client was stopped while it started.
            IllegalStateError: The client was started before.
        """
        if self._owned:
            async with self._start_guard.starting():
                await self.client.start()
        else:
            services_of(self.client)  # raises unless the client runs

    async def stop(self, timeout: float | None = None) -> None:
        """Close the connections, unless the client is shared. May be called again.

        A start in progress is cancelled, and raises ClientClosedError.

        Args:
            timeout: Maximum time for an orderly close, in seconds (default: close_timeout_ms).

        Raises:
            IllegalStateError: The client was started in another event loop or process.
        """
        timeout = check_timeout(timeout)
        if self._owned:
            if not await self._start_guard.end():
                return
            await self.client.stop(timeout)

    def health(self) -> Health:
        """Return a snapshot of the client's health, see `Client.health`; no request is sent."""
        return self.client.health()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # -- topics -----------------------------------------------------------------------------------

    async def create_topics(
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
        from kafka_async.admin import topics

        call = Call(self.client, timeout)
        return await topics.create(call, new_topics, wait=wait, validate_only=validate_only)

    async def delete_topics(
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
        from kafka_async.admin import topics

        await topics.delete(Call(self.client, timeout), names, wait=wait)

    async def list_topics(
        self, *, internal: bool = False, timeout: float | None = None
    ) -> dict[str, TopicListing]:
        """Return all topics by name.

        Args:
            internal: Whether to include Kafka's internal topics.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).
        """
        from kafka_async.admin import topics

        return await topics.list_all(Call(self.client, timeout), internal=internal)

    async def describe_topics(
        self, names: Iterable[str], *, timeout: float | None = None
    ) -> dict[str, TopicDescription]:
        """Return topics with their partitions, leaders and replicas.

        Args:
            names: Names of the topics.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Raises:
            UnknownTopicOrPartitionError: The topic does not exist.
        """
        from kafka_async.admin import topics

        return await topics.describe(Call(self.client, timeout), names)

    async def create_partitions(
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
        from kafka_async.admin import topics

        await topics.create_partitions(Call(self.client, timeout), counts, wait=wait)

    # -- the cluster ------------------------------------------------------------------------------

    async def describe_cluster(self, *, timeout: float | None = None) -> ClusterDescription:
        """Return the cluster's id, brokers and controller.

        Args:
            timeout: Maximum time in seconds (default: default_api_timeout_ms).
        """
        from kafka_async.admin import cluster

        return await cluster.describe_cluster(Call(self.client, timeout))

    async def describe_configs(
        self, resources: Iterable[ConfigResource], *, timeout: float | None = None
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Return the configuration of topics, brokers or groups.

        Args:
            resources: The resources.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Returns:
            Entries by resource and option name.
        """
        from kafka_async.admin import cluster

        return await cluster.describe_configs(Call(self.client, timeout), resources)

    async def alter_configs(
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
        from kafka_async.admin import cluster

        await cluster.alter_configs(
            Call(self.client, timeout), changes, validate_only=validate_only
        )

    # -- groups -----------------------------------------------------------------------------------

    async def list_groups(
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
        from kafka_async.admin import groups

        return await groups.list_all(
            Call(self.client, timeout),
            states=states,
            types=types,
            session_timeouts=session_timeouts,
        )

    async def describe_groups(
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
        from kafka_async.admin import groups

        return await groups.describe(
            Call(self.client, timeout), group_ids, session_timeouts=session_timeouts
        )

    async def delete_groups(
        self, group_ids: Iterable[str], *, timeout: float | None = None
    ) -> None:
        """Delete groups without members, and their committed offsets.

        Args:
            group_ids: Ids of the groups.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Raises:
            GroupNotEmptyError: A group has members.
            GroupIdNotFoundError: The group does not exist.
        """
        from kafka_async.admin import groups

        await groups.delete(Call(self.client, timeout), group_ids)

    # -- share groups -----------------------------------------------------------------------------

    async def describe_share_groups(
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
        from kafka_async.admin import share_groups

        return await share_groups.describe(
            Call(self.client, timeout), group_ids, session_timeouts=session_timeouts
        )

    async def list_share_group_offsets(
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
        from kafka_async.admin import share_groups

        return await share_groups.list_offsets(Call(self.client, timeout), group_id, partitions)

    async def alter_share_group_offsets(
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
        from kafka_async.admin import share_groups

        await share_groups.alter_offsets(Call(self.client, timeout), group_id, offsets)

    async def delete_share_group_offsets(
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
        from kafka_async.admin import share_groups

        await share_groups.delete_offsets(Call(self.client, timeout), group_id, topics)

    # -- offsets ----------------------------------------------------------------------------------

    async def list_offsets(
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
        from kafka_async.admin import topics

        return await topics.list_offsets(
            Call(self.client, timeout),
            topics.offset_timestamps(partitions),
            read_committed=isolation_level == "read_committed",
        )

    async def list_group_offsets(
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
        from kafka_async.admin import groups

        return await groups.list_group_offsets(
            Call(self.client, timeout), group_id, partitions, require_stable=require_stable
        )

    async def alter_group_offsets(
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
        from kafka_async.admin import groups

        await groups.alter_group_offsets(Call(self.client, timeout), group_id, offsets)

    # -- transactions -----------------------------------------------------------------------------

    async def list_transactions(
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
        from kafka_async.admin import transactions

        return await transactions.list_all(
            Call(self.client, timeout), states=states, pattern=pattern
        )

    async def describe_transactions(
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
        from kafka_async.admin import transactions

        return await transactions.describe(Call(self.client, timeout), transactional_ids)

    async def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout: float | None = None
    ) -> None:
        """Fence the producers of transactional ids, and abort their open transactions.

        Args:
            transactional_ids: The transactional ids.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Raises:
            TransactionalIdAuthorizationError: The client's principal may not WRITE to an id.
        """
        from kafka_async.admin import transactions

        await transactions.fence(Call(self.client, timeout), transactional_ids)

    async def end_transaction(
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
        from kafka_async.admin import transactions

        await transactions.end(Call(self.client, timeout), prepared, commit=commit)

    # -- quotas -----------------------------------------------------------------------------------

    async def describe_client_quotas(
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
        from kafka_async.admin import quotas

        return await quotas.describe(Call(self.client, timeout), entity, strict=strict)

    async def alter_client_quotas(
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
        from kafka_async.admin import quotas

        await quotas.alter(Call(self.client, timeout), entries, validate_only=validate_only)

    async def resolve_client_quotas(
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
        from kafka_async.admin import quotas

        return await quotas.resolve(Call(self.client, timeout), entity)

    async def set_quota_enforcement(
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
        instance_of(on, bool, "on")
        from kafka_async.admin import quotas

        call = Call(self.client, timeout)
        values = await quotas.own_quotas(call, entity)
        limits = quotas.unlimited(entity)
        old = {key: value for key, value in values.items() if value != limits.get(key)}
        if not on:
            self._switched_off[entity] = old = self._switched_off.get(entity, {}) | old
            await quotas.alter(call, {entity: limits}, validate_only=False)
            return dict(old)
        kept = self._switched_off.get(entity, {}) | old
        changes = {key: kept.get(key) for key in {*limits, *kept}}
        await quotas.alter(call, {entity: changes}, validate_only=False)
        self._switched_off.pop(entity, None)
        return kept

    # -- security ---------------------------------------------------------------------------------

    async def create_acls(
        self, bindings: Iterable[AclBinding], *, timeout: float | None = None
    ) -> None:
        """Create ACLs; an ACL that exists is not an error (KIP-140, KIP-290).

        Args:
            bindings: The ACLs with the resources that they apply to.
            timeout: Maximum time in seconds (default: default_api_timeout_ms).

        Raises:
            ClusterAuthorizationError: The client's principal may not ALTER the cluster.
            SecurityDisabledError: The cluster has no authorizer.
            InvalidRequestError: An ACL is not valid; the only cluster name is "kafka-cluster".
        """
        from kafka_async.admin import security

        await security.create_acls(Call(self.client, timeout), bindings)

    async def describe_acls(
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
        from kafka_async.admin import security

        return await security.describe_acls(Call(self.client, timeout), acl_filter)

    async def delete_acls(
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
        from kafka_async.admin import security

        return await security.delete_acls(Call(self.client, timeout), filters)

    async def describe_user_scram_credentials(
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
        from kafka_async.admin import security

        return await security.describe_user_scram_credentials(Call(self.client, timeout), users)

    async def alter_user_scram_credentials(
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
        from kafka_async.admin import security

        await security.alter_user_scram_credentials(Call(self.client, timeout), alterations)

    async def create_delegation_tokens(
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
        from kafka_async.admin import security

        return await security.create_delegation_tokens(
            Call(self.client, timeout), owners, renewers=renewers, max_lifetime_ms=max_lifetime_ms
        )

    async def renew_delegation_tokens(
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
        from kafka_async.admin import security

        return await security.renew_delegation_tokens(
            Call(self.client, timeout), tokens, renew_period_ms=renew_period_ms
        )

    async def expire_delegation_tokens(
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
        from kafka_async.admin import security

        return await security.expire_delegation_tokens(
            Call(self.client, timeout), tokens, expiry_period_ms=expiry_period_ms
        )

    async def describe_delegation_tokens(
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
        from kafka_async.admin import security

        return await security.describe_delegation_tokens(Call(self.client, timeout), owners)
