"""The admin client: wires the subjects to a client, and holds no logic of its own.

Each call imports its subject, and with it the messages: naming `Admin` loads none.

    async with Admin("localhost:9092") as admin:
        await admin.create_topics([NewTopic("clicks", partitions=6, replication_factor=3)])

A call that fails for one of several items does the others all the same, then raises the error of
the first, which names its topic, partition or group; the others' are in its notes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import Unpack

from kafka_async.admin.call import Call
from kafka_async.arguments import check_timeout
from kafka_async.cluster.client import Client
from kafka_async.config import ClientConfig
from kafka_async.foreign_names import ADMIN, add_foreign_names, check_construction, unknown_keyword

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Literal, Never, Self

    from kafka_async.admin.values import (
        At,
        ClusterDescription,
        ConfigEntry,
        ConfigResource,
        GroupDescription,
        GroupListing,
        NewTopic,
        TopicDescription,
        TopicListing,
    )
    from kafka_async.config import ClientOptions
    from kafka_async.types import Health, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition


class Admin:
    """Administers a cluster.

    `bootstrap_servers` are brokers to ask first, or a started `Client` whose connections are shared
    and not closed; options are for the former only (see `ClientConfig`). Every call takes `timeout`
    in seconds, retries included (default: default_api_timeout_ms), and raises KafkaTimeoutError
    after it.
    """

    if not TYPE_CHECKING:

        def __new__(cls, *args: Any, **options: Any) -> Self:
            """Refuse arguments in the form of other clients."""
            check_construction(cls, args, options)
            return super().__new__(cls)

    def __init__(
        self, bootstrap_servers: str | Sequence[str] | Client, **options: Unpack[ClientOptions]
    ) -> None:
        self._owns = not isinstance(bootstrap_servers, Client)
        if isinstance(bootstrap_servers, Client):
            ClientConfig.shared(bootstrap_servers.config, **options)  # refuses any option
            self.client = bootstrap_servers
        else:
            self.client = Client(bootstrap_servers, **options)

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> Self:
        """An admin client with options under Java's names."""
        admin = cls.__new__(cls)
        admin._owns, admin.client = True, Client.from_properties(properties)  # noqa: SLF001
        return admin

    async def start(self, **unknown: Never) -> None:
        """Connect; raises BootstrapError if no bootstrap server can be used."""
        if unknown:
            raise unknown_keyword(self.start, unknown)
        if self._owns:
            await self.client.start()
        else:
            self.client.supervisor.check()

    async def stop(self, timeout: float | None = None, **unknown: Never) -> None:
        """Close the connections, unless they are a shared client's. Safe to call again."""
        if unknown:
            raise unknown_keyword(self.stop, unknown)
        check_timeout(timeout)
        if self._owns:
            await self.client.stop(timeout)

    def health(self) -> Health:
        """Return a snapshot of the client's condition; no request is sent. See `Client.health`."""
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
        **unknown: Never,
    ) -> dict[str, TopicListing]:
        """Create topics; with `wait`, returns when every partition has a leader in metadata.

        `validate_only` checks what would happen and creates nothing.

        Raises:
            TopicExistsError, InvalidTopicError, InvalidReplicationFactorError ...: naming the
                topic.
        """
        if unknown:
            raise unknown_keyword(self.create_topics, unknown)
        from kafka_async.admin import topics

        call = Call(self.client, timeout)
        return await topics.create(call, new_topics, wait=wait, validate_only=validate_only)

    async def delete_topics(
        self,
        names: Iterable[str],
        *,
        wait: bool = True,
        timeout: float | None = None,
        **unknown: Never,
    ) -> None:
        """Delete topics and all their records; with `wait`, returns when metadata lacks them.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
        """
        if unknown:
            raise unknown_keyword(self.delete_topics, unknown)
        from kafka_async.admin import topics

        await topics.delete(Call(self.client, timeout), names, wait=wait)

    async def list_topics(
        self, *, internal: bool = False, timeout: float | None = None, **unknown: Never
    ) -> dict[str, TopicListing]:
        """All topics by name; Kafka's own only if `internal`."""
        if unknown:
            raise unknown_keyword(self.list_topics, unknown)
        from kafka_async.admin import topics

        return await topics.list_all(Call(self.client, timeout), internal=internal)

    async def describe_topics(
        self, names: Iterable[str], *, timeout: float | None = None, **unknown: Never
    ) -> dict[str, TopicDescription]:
        """Topics with their partitions, leaders and replicas.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
        """
        if unknown:
            raise unknown_keyword(self.describe_topics, unknown)
        from kafka_async.admin import topics

        return await topics.describe(Call(self.client, timeout), names)

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        wait: bool = True,
        timeout: float | None = None,
        **unknown: Never,
    ) -> None:
        """Grow topics to so many partitions in all; `wait` as with `create_topics`."""
        if unknown:
            raise unknown_keyword(self.create_partitions, unknown)
        from kafka_async.admin import topics

        await topics.create_partitions(Call(self.client, timeout), counts, wait=wait)

    # -- the cluster ------------------------------------------------------------------------------

    async def describe_cluster(
        self, *, timeout: float | None = None, **unknown: Never
    ) -> ClusterDescription:
        """The cluster's id, brokers and controller."""
        if unknown:
            raise unknown_keyword(self.describe_cluster, unknown)
        from kafka_async.admin import cluster

        return await cluster.describe(Call(self.client, timeout))

    async def describe_configs(
        self, resources: Iterable[ConfigResource], *, timeout: float | None = None, **unknown: Never
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """The configuration of topics, brokers or groups, by resource and option."""
        if unknown:
            raise unknown_keyword(self.describe_configs, unknown)
        from kafka_async.admin import configs

        return await configs.describe(Call(self.client, timeout), resources)

    # -- groups -----------------------------------------------------------------------------------

    async def list_groups(
        self,
        *,
        states: Sequence[str] = (),
        types: Sequence[str] = (),
        timeout: float | None = None,
        **unknown: Never,
    ) -> dict[str, GroupListing]:
        """All groups by id, from every broker; only those in `states` or of `types`, if given."""
        if unknown:
            raise unknown_keyword(self.list_groups, unknown)
        from kafka_async.admin import groups

        return await groups.list_all(Call(self.client, timeout), states=states, types=types)

    async def describe_groups(
        self, group_ids: Iterable[str], *, timeout: float | None = None, **unknown: Never
    ) -> dict[str, GroupDescription]:
        """Groups with their state, members and assignments, classic and KIP-848 alike.

        Raises:
            GroupIdNotFoundError: there is no such group.
        """
        if unknown:
            raise unknown_keyword(self.describe_groups, unknown)
        from kafka_async.admin import groups

        return await groups.describe(Call(self.client, timeout), group_ids)

    async def delete_groups(
        self, group_ids: Iterable[str], *, timeout: float | None = None, **unknown: Never
    ) -> None:
        """Delete groups without members, and what they have committed.

        Raises:
            GroupNotEmptyError: a group has members.
            GroupIdNotFoundError: there is no such group.
        """
        if unknown:
            raise unknown_keyword(self.delete_groups, unknown)
        from kafka_async.admin import groups

        await groups.delete(Call(self.client, timeout), group_ids)

    # -- offsets ----------------------------------------------------------------------------------

    async def list_offsets(
        self,
        partitions: Mapping[TopicPartition, At],
        *,
        isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
        timeout: float | None = None,
        **unknown: Never,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """The earliest or latest offset of partitions, or the first at or after a time.

        Times are milliseconds since the epoch; an offset of -1 says that there is no record so
        late. With "read_committed", the latest is the last stable offset.
        """
        if unknown:
            raise unknown_keyword(self.list_offsets, unknown)
        from kafka_async.admin import offsets

        return await offsets.list_offsets(
            Call(self.client, timeout),
            partitions,
            read_committed=isolation_level == "read_committed",
        )

    async def list_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
        timeout: float | None = None,
        **unknown: Never,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """What a group has committed, of these partitions or of all; none for one without.

        `require_stable` waits for transactions that have offsets pending (KIP-447).
        """
        if unknown:
            raise unknown_keyword(self.list_group_offsets, unknown)
        from kafka_async.admin import offsets

        return await offsets.list_group_offsets(
            Call(self.client, timeout), group_id, partitions, require_stable=require_stable
        )


add_foreign_names(Admin, ADMIN)
