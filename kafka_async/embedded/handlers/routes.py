"""The table of all APIs: versions, handlers and the handlers' dependencies.

A handler processes one request of one API:

    async def handle(..., context: RequestContext, request: MetadataRequest) -> MetadataResponse

The first parameters are parts of the cluster; the table below binds them. Handlers run in the
cluster's event loop, one at a time per connection: as on a broker, the next request of a connection
is read after the response was written. A handler may wait, as JoinGroup and Fetch do. It runs to
its end even if the client disconnects, and is cancelled only when its broker stops. An invalid
request gets a response with an error code. An exception is a bug of the embedded cluster: it is
added to `EmbeddedCluster.failures`, and the response has UNKNOWN_SERVER_ERROR if the API has a
field for an error code. If a handler returns None, no response is sent (Produce with acks=0).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kafka_async.embedded.handlers import (
    acls,
    client_quotas,
    configs,
    consumer_groups,
    delegation_tokens,
    fetch,
    groups,
    log,
    metadata,
    offsets,
    produce,
    sasl,
    scram_credentials,
    share_fetch,
    share_groups,
    share_offsets,
    topics,
    transactions,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafka_async.embedded.groups.group_configs import GroupConfigs
    from kafka_async.embedded.groups.group_coordinator import GroupCoordinator
    from kafka_async.embedded.groups.share_partition_manager import ShareBrokers
    from kafka_async.embedded.groups.share_states import ShareStates
    from kafka_async.embedded.quotas.quota_manager import QuotaManager
    from kafka_async.embedded.requests.authorization import Authorization
    from kafka_async.embedded.requests.context import RequestContext
    from kafka_async.embedded.security.credentials import Credentials
    from kafka_async.embedded.security.delegation_tokens import DelegationTokens
    from kafka_async.embedded.settings import Settings
    from kafka_async.embedded.state.brokers import Brokers
    from kafka_async.embedded.state.topics import TopicTable
    from kafka_async.embedded.transactions.transaction_coordinator import TransactionCoordinator

Handler: TypeAlias = "Callable[[RequestContext, Any], Awaitable[Any]]"
ApiVersionRanges: TypeAlias = "Mapping[int, tuple[int, int]]"


@dataclass(frozen=True, slots=True)
class Parts:
    """Holds the parts of a cluster that the table binds to handlers."""

    settings: Settings
    brokers: Brokers
    topics: TopicTable
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    authorization: Authorization
    credentials: Credentials
    tokens: DelegationTokens
    group_configs: GroupConfigs
    share_states: ShareStates
    share_brokers: ShareBrokers
    quotas: QuotaManager
    now_ms: Callable[[], int]
    supported: ApiVersionRanges
    """Lowest and highest versions in ApiVersions, by API key."""


@dataclass(frozen=True, slots=True)
class Route:
    """Maps an API and its supported versions to a handler.

    `bind` binds the handler's first parameters. `advertised` is the lowest version in ApiVersions
    if it differs from `lowest`.
    """

    api_key: int
    lowest: int
    highest: int
    bind: Callable[[Parts], Handler]
    advertised: int | None = None

    @property
    def lowest_advertised(self) -> int:
        """The lowest version in ApiVersions."""
        return self.lowest if self.advertised is None else self.advertised

    def narrowed(self, low: int, high: int) -> Route | None:
        """Return the route limited to versions `low` to `high`, or None if no version remains."""
        lowest, highest = max(low, self.lowest), min(high, self.highest)
        if lowest > highest:
            return None
        advertised = max(low, self.lowest_advertised)
        return replace(self, lowest=lowest, highest=highest, advertised=advertised)


def _share_parts(parts: Parts) -> share_fetch.ShareParts:
    return share_fetch.ShareParts(
        parts.settings,
        parts.brokers,
        parts.topics,
        parts.share_brokers,
        parts.group_configs,
        parts.authorization,
    )


ROUTES: Final[tuple[Route, ...]] = (
    Route(
        0,
        3,
        13,
        lambda it: partial(
            produce.handle, it.topics, it.transactions, it.brokers, it.now_ms, it.authorization
        ),
        # Version 0 stays advertised: otherwise librdkafka before 2.11 would not compress batches
        # (KIP-896).
        advertised=0,
    ),
    Route(
        1,
        4,
        18,
        lambda it: partial(fetch.handle, it.topics, it.brokers, it.settings, it.authorization),
    ),
    Route(2, 1, 11, lambda it: partial(log.list_offsets, it.topics, it.authorization)),
    Route(
        3,
        0,
        13,
        lambda it: partial(metadata.metadata, it.brokers, it.topics, it.settings, it.authorization),
    ),
    Route(
        8,
        2,
        10,
        lambda it: partial(
            offsets.offset_commit, it.groups, it.topics, it.settings, it.authorization
        ),
    ),
    Route(
        9, 1, 10, lambda it: partial(offsets.offset_fetch, it.groups, it.topics, it.authorization)
    ),
    Route(
        10,
        0,
        6,
        lambda it: partial(metadata.find_coordinator, it.brokers, it.topics, it.authorization),
    ),
    Route(11, 0, 9, lambda it: partial(groups.join_group, it.groups)),
    Route(12, 0, 4, lambda it: partial(groups.heartbeat, it.groups)),
    Route(13, 0, 5, lambda it: partial(groups.leave_group, it.groups)),
    Route(14, 0, 5, lambda it: partial(groups.sync_group, it.groups)),
    Route(15, 0, 6, lambda it: partial(groups.describe_groups, it.groups, it.authorization)),
    Route(16, 0, 5, lambda it: partial(groups.list_groups, it.groups, it.authorization)),
    Route(17, 0, 1, lambda _: sasl.sasl_handshake),
    Route(18, 0, 5, lambda it: partial(metadata.api_versions, it.settings, it.supported)),
    Route(
        19,
        2,
        7,
        lambda it: partial(
            topics.create_topics, it.topics, it.settings, it.authorization, it.quotas
        ),
    ),
    Route(
        20, 1, 6, lambda it: partial(topics.delete_topics, it.topics, it.authorization, it.quotas)
    ),
    Route(21, 0, 2, lambda it: partial(log.delete_records, it.topics, it.authorization)),
    Route(
        22,
        0,
        5,
        lambda it: partial(transactions.init_producer_id, it.transactions, it.authorization),
    ),
    Route(23, 2, 4, lambda it: partial(log.offset_for_leader_epoch, it.topics, it.authorization)),
    Route(
        24,
        0,
        5,
        lambda it: partial(
            transactions.add_partitions_to_txn, it.transactions, it.topics, it.authorization
        ),
    ),
    Route(
        25, 0, 4, lambda it: partial(transactions.add_offsets_to_txn, it.transactions, it.groups)
    ),
    Route(26, 0, 5, lambda it: partial(transactions.end_txn, it.transactions)),
    Route(
        28,
        0,
        6,
        lambda it: partial(
            offsets.txn_offset_commit,
            it.groups,
            it.transactions,
            it.topics,
            it.settings,
            it.authorization,
        ),
    ),
    Route(29, 1, 3, lambda it: partial(acls.describe_acls, it.authorization)),
    Route(30, 1, 3, lambda it: partial(acls.create_acls, it.authorization)),
    Route(31, 1, 3, lambda it: partial(acls.delete_acls, it.authorization)),
    Route(
        32,
        1,
        4,
        lambda it: partial(
            configs.describe_configs, it.topics, it.settings, it.group_configs, it.authorization
        ),
    ),
    Route(36, 0, 2, lambda it: partial(sasl.sasl_authenticate, it.now_ms)),
    Route(
        37,
        0,
        3,
        lambda it: partial(topics.create_partitions, it.topics, it.authorization, it.quotas),
    ),
    Route(
        38,
        1,
        3,
        lambda it: partial(delegation_tokens.create, it.tokens, it.authorization, it.now_ms),
    ),
    Route(39, 1, 2, lambda it: partial(delegation_tokens.renew, it.tokens, it.now_ms)),
    Route(40, 1, 2, lambda it: partial(delegation_tokens.expire, it.tokens, it.now_ms)),
    Route(41, 1, 3, lambda it: partial(delegation_tokens.describe, it.tokens, it.authorization)),
    Route(42, 0, 3, lambda it: partial(groups.delete_groups, it.groups, it.authorization)),
    Route(
        44,
        0,
        1,
        lambda it: partial(
            configs.incremental_alter_configs, it.topics, it.group_configs, it.authorization
        ),
    ),
    Route(
        47, 0, 0, lambda it: partial(offsets.offset_delete, it.groups, it.topics, it.authorization)
    ),
    Route(
        48,
        0,
        1,
        lambda it: partial(client_quotas.describe, it.quotas.quotas, it.authorization),
    ),
    Route(49, 0, 1, lambda it: partial(client_quotas.alter, it.quotas.quotas, it.authorization)),
    Route(
        50, 0, 0, lambda it: partial(scram_credentials.describe, it.credentials, it.authorization)
    ),
    Route(51, 0, 0, lambda it: partial(scram_credentials.alter, it.credentials)),
    Route(
        60,
        0,
        2,
        lambda it: partial(metadata.describe_cluster, it.brokers, it.settings, it.authorization),
    ),
    Route(61, 0, 0, lambda it: partial(log.describe_producers, it.topics, it.authorization)),
    Route(
        65,
        0,
        0,
        lambda it: partial(transactions.describe_transactions, it.transactions, it.authorization),
    ),
    Route(
        66,
        0,
        2,
        lambda it: partial(
            transactions.list_transactions, it.transactions, it.now_ms, it.authorization
        ),
    ),
    Route(
        68,
        0,
        1,
        lambda it: partial(
            consumer_groups.consumer_group_heartbeat, it.groups, it.settings, it.authorization
        ),
    ),
    Route(
        69,
        0,
        1,
        lambda it: partial(
            consumer_groups.consumer_group_describe,
            it.groups,
            it.topics,
            it.settings,
            it.authorization,
        ),
    ),
    Route(
        75,
        0,
        0,
        lambda it: partial(
            metadata.describe_topic_partitions, it.topics, it.brokers, it.authorization
        ),
    ),
    Route(
        76,
        1,
        1,
        lambda it: partial(
            share_groups.share_group_heartbeat, it.groups, it.settings, it.authorization
        ),
    ),
    Route(
        77,
        1,
        1,
        lambda it: partial(
            share_groups.share_group_describe, it.groups, it.topics, it.settings, it.authorization
        ),
    ),
    Route(78, 1, 2, lambda it: partial(share_fetch.share_fetch, _share_parts(it))),
    Route(79, 1, 2, lambda it: partial(share_fetch.share_acknowledge, _share_parts(it))),
    Route(
        90,
        0,
        1,
        lambda it: partial(
            share_offsets.describe,
            it.groups,
            it.share_states,
            it.topics,
            it.settings,
            it.authorization,
        ),
    ),
    Route(
        91,
        0,
        0,
        lambda it: partial(
            share_offsets.alter, it.groups, it.topics, it.settings, it.authorization
        ),
    ),
    Route(
        92,
        0,
        0,
        lambda it: partial(
            share_offsets.delete, it.groups, it.topics, it.settings, it.authorization
        ),
    ),
)


def routes_by_api_key(limits: ApiVersionRanges) -> dict[int, Route]:
    """Return the routes by API key, without the versions and APIs outside `limits`."""
    routes: dict[int, Route] = {}
    for route in ROUTES:
        low, high = limits.get(route.api_key, (route.lowest_advertised, route.highest))
        if (narrowed := route.narrowed(low, high)) is not None:
            routes[route.api_key] = narrowed
    return routes
