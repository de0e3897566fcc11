"""Looks up topics, partitions and offsets for the driver of a read."""

from __future__ import annotations

import logging
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from kafka_async import blocking
from kafka_async.admin.call import Call
from kafka_async.admin.groups import alter_group_offsets
from kafka_async.admin.topics import list_offsets
from kafka_async.client.fan_out import call_each
from kafka_async.client.metadata.request_router import Broker, Leader
from kafka_async.client.wire.requested_rows import requested_row
from kafka_async.client.wire.topic_ids import LAST_VERSION_WITH_NAMES
from kafka_async.errors import (
    InvalidConfigurationError,
    KafkaError,
    RetriableError,
    UnknownTopicOrPartitionError,
    error_for,
)
from kafka_async.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafka_async.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kafka_async.records.batch import iter_batches
from kafka_async.spark.offsets import EARLIEST, LATEST, Bound, ByTimestamp, Offsets
from kafka_async.spark.source.data_loss import LogState, find_losses
from kafka_async.spark.source.stream_offset import StreamOffset
from kafka_async.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    import uuid

    from kafka_async.admin import TopicDescription
    from kafka_async.client.client import Client
    from kafka_async.spark.source.source_options import SourceOptions
    from kafka_async.types import OffsetAndTimestamp

logger = logging.getLogger("kafka_async.spark")

COMMIT_TIMEOUT: Final = 10.0
"""Maximum seconds for which a query waits to commit its progress."""
METADATA_TIMEOUT: Final = 10.0
"""Maximum seconds for a new topic to appear in the metadata."""
METADATA_INTERVAL: Final = 0.1
"""Seconds between look-ups of a missing topic."""
SAMPLE_BYTES: Final = 65_536
"""Bytes fetched per partition to estimate the size of its records."""


class Partitions(NamedTuple):
    """Holds the partitions of a read, and their topics."""

    topics: dict[str, TopicDescription]
    partitions: list[TopicPartition]


class Available(NamedTuple):
    """Holds first offsets, offsets after the last readable record, and leader epochs."""

    earliest: Offsets
    latest: Offsets
    leader_epochs: dict[TopicPartition, int]


class ClusterOffsets:
    """Looks up partitions and offsets for a read; connects on first use.

    Every call takes at most the client's default_api_timeout_ms.

    Args:
        options: The options of the read.
        pause: Waits for a number of seconds between attempts.
    """

    def __init__(self, options: SourceOptions, pause: Callable[[float], None] = time.sleep) -> None:
        self._options = options
        self._pause = pause
        self._client: blocking.Admin | None = None
        config = options.config()
        self._isolation = config.isolation_level
        self._timeout = config.default_api_timeout_ms / 1000

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.stop()
            self._client = None

    def _admin(self) -> blocking.Admin:
        if self._client is None:
            client = blocking.Admin(config=self._options.config())
            client.start()
            self._client = client
        return self._client

    # -- partitions -------------------------------------------------------------------------------

    def find_partitions(self) -> Partitions:
        """Return the partitions to read, at the start of a read.

        A partition of the option assign that does not exist is left out, with a warning; a stream
        reads it once it exists.

        Raises:
            UnknownTopicOrPartitionError: A topic of the options does not exist.
        """
        for _ in range(round(METADATA_TIMEOUT / METADATA_INTERVAL) - 1):
            with suppress(UnknownTopicOrPartitionError):
                found = self._partitions(missing_allowed=False)
                if not self._missing(found):
                    return found
            self._pause(METADATA_INTERVAL)
        found = self._partitions(missing_allowed=False)
        if missing := self._missing(found):
            logger.warning(
                "%s, which the option assign names, does not exist and is not read", min(missing)
            )
        return found

    def _missing(self, found: Partitions) -> set[TopicPartition]:
        """Return the partitions of the option assign that do not exist."""
        return set(self._options.partitions or ()) - set(found.partitions)

    def _partitions(self, *, missing_allowed: bool) -> Partitions:
        options = self._options
        if options.pattern is not None:
            pattern = re.compile(options.pattern)
            names = {n for n in self._admin().list_topics() if pattern.search(n)}
        elif options.topics is not None:
            names = set(options.topics)
        else:
            names = {tp.topic for tp in options.partitions or ()}
        topics = self._describe(names, missing_allowed=missing_allowed or bool(options.pattern))
        existing = [
            TopicPartition(name, row.partition)
            for name, topic in topics.items()
            for row in topic.partitions
        ]
        if options.partitions is None:
            return Partitions(topics, sorted(existing))
        return Partitions(topics, sorted(set(options.partitions) & set(existing)))

    def _describe(
        self, names: Iterable[str], *, missing_allowed: bool
    ) -> dict[str, TopicDescription]:
        wanted = set(names)
        while wanted:
            try:
                return self._admin().describe_topics(sorted(wanted))
            except UnknownTopicOrPartitionError as error:
                if not missing_allowed or error.topic not in wanted:
                    raise
                wanted.discard(error.topic)
        return {}

    # -- offsets ----------------------------------------------------------------------------------

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], isolation: str | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Return offsets by timestamp in milliseconds, EARLIEST or LATEST."""
        if not wanted:
            return {}
        committed = (isolation or self._isolation) == "read_committed"
        client = self._admin().asynchronous.client

        async def look_up() -> dict[TopicPartition, OffsetAndTimestamp]:
            return await list_offsets(Call(client, None), wanted, read_committed=committed)

        return blocking.run(look_up)

    def available(self, partitions: Iterable[TopicPartition]) -> Available:
        """Return the bounds of the readable records of each partition."""
        chosen = list(partitions)
        earliest = self.list_offsets(dict.fromkeys(chosen, EARLIEST))
        latest = self.list_offsets(dict.fromkeys(chosen, LATEST))
        return Available(
            {tp: found.offset for tp, found in earliest.items()},
            {tp: found.offset for tp, found in latest.items()},
            leader_epochs(latest),
        )

    def latest_position(self) -> StreamOffset:
        """Return the position after the last readable record of each existing partition."""
        topics, partitions = self._partitions(missing_allowed=True)
        _, latest, epochs = self.available(partitions)
        topic_ids = {name: topic.topic_id for name, topic in topics.items()}
        return StreamOffset(latest, topic_ids, epochs)

    def resolve(
        self,
        bound: Bound,
        option: str,
        partitions: Iterable[TopicPartition],
        earliest: Mapping[TopicPartition, int],
        latest: Mapping[TopicPartition, int],
    ) -> Offsets:
        """Resolve a bound to offsets.

        Args:
            bound: The bound.
            option: "startingOffsets" or "endingOffsets", for errors.
            partitions: The partitions to read.
            earliest: The first offsets.
            latest: The last offsets.

        Raises:
            InvalidConfigurationError: The bound contains another partition, lacks one, or has a
                timestamp later than every record.
        """
        chosen = list(partitions)
        if isinstance(bound, ByTimestamp):
            bound = self._at_times(bound, option, chosen)
        if isinstance(bound, int):
            bound = dict.fromkeys(chosen, bound)
        _check_named(bound, option, chosen, "offset")
        return {
            tp: {EARLIEST: earliest[tp], LATEST: latest[tp]}.get(offset, offset)
            for tp, offset in bound.items()
        }

    def _at_times(self, bound: ByTimestamp, option: str, chosen: list[TopicPartition]) -> Offsets:
        times = bound.timestamps
        wanted = dict.fromkeys(chosen, times) if isinstance(times, int) else dict(times)
        option = f"{option}ByTimestamp"
        _check_named(wanted, option, chosen, "timestamp")
        offsets: Offsets = {}
        for tp, found in self.list_offsets(wanted).items():
            if found.offset < 0 and not bound.latest_if_none:
                raise InvalidConfigurationError(
                    f"{tp} has no record at or after the timestamp {wanted[tp]}: use an earlier "
                    "one, or startingOffsetsByTimestampStrategy=latest"
                )
            offsets[tp] = LATEST if found.offset < 0 else found.offset
        return offsets

    # -- the logs of a streaming query ------------------------------------------------------------

    def state(self, start: StreamOffset) -> LogState:
        """Return the state of the partitions to read, to compare it with a query's position.

        Brokers may briefly return stale metadata and offsets, so a state with lost records is
        looked up again, up to fetchOffset.numRetries times in all.
        """
        for _ in range(self._options.attempts - 1):
            try:
                state = self._state(start)
            except RetriableError as error:
                logger.warning("the offsets are looked up again after an error: %s", error)
            else:
                if not find_losses(start, state)[1]:
                    return state
            self._pause(self._options.retry_interval)
        return self._state(start)

    def _state(self, start: StreamOffset) -> LogState:
        topics, partitions = self._partitions(missing_allowed=True)
        topic_ids = {name: topic.topic_id for name, topic in topics.items()}
        listed = self.list_offsets(dict.fromkeys(partitions, LATEST))
        latest = {tp: found.offset for tp, found in listed.items()}
        earliest = self._earliest(start, topic_ids, latest)
        epochs = leader_epochs(listed)
        behind = [tp for tp in partitions if latest[tp] < start.offsets.get(tp, 0)]
        if behind and self._isolation == "read_committed":
            # An open transaction may hold the last stable offset before the position of a query
            # that has read uncommitted records.
            ends = self.list_offsets(dict.fromkeys(behind, LATEST), "read_uncommitted")
            for tp in behind:
                latest[tp] = min(start.offsets[tp], ends[tp].offset)
        ends_of_epochs = self.epoch_ends(start, topic_ids, epochs)
        return LogState(topic_ids, epochs, earliest, latest, ends_of_epochs)

    def _earliest(
        self,
        start: StreamOffset,
        topic_ids: Mapping[str, uuid.UUID],
        latest: Mapping[TopicPartition, int],
    ) -> Offsets:
        """Return the first offsets; for logs without new records, the query's position."""
        earliest = {tp: start.offsets.get(tp, 0) for tp in latest}
        to_list = [
            tp
            for tp, offset in latest.items()
            # Saves a request for partitions without new records; retention cannot have passed the
            # end.
            if start.offsets.get(tp) != offset
            or start.topic_ids.get(tp.topic) != topic_ids.get(tp.topic)
        ]
        listed = self.list_offsets(dict.fromkeys(to_list, EARLIEST))
        return {**earliest, **{tp: found.offset for tp, found in listed.items()}}

    def epoch_ends(
        self,
        position: StreamOffset,
        topic_ids: Mapping[str, object],
        epochs: Mapping[TopicPartition, int],
    ) -> Offsets:
        """Return the end offsets of a position's leader epochs, where the epoch has changed."""
        ended = {
            tp: epoch
            for tp, epoch in position.epochs.items()
            if position.topic_ids.get(tp.topic) == topic_ids.get(tp.topic)
            and tp in position.offsets
            and epochs.get(tp, -1) > epoch
        }
        if not ended:
            return {}
        client = self._admin().asynchronous.client
        ends = blocking.run(call_each, ended, lambda tp: self._epoch_end(client, tp, ended[tp]))
        # A negative end offset: the broker no longer has the epoch.
        return {tp: end for tp, end in ends.items() if end >= 0}

    async def _epoch_end(self, client: Client, tp: TopicPartition, epoch: int) -> int:
        row = OffsetForLeaderPartition(partition=tp.partition, leader_epoch=epoch)
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic=tp.topic, partitions=[row])]
        )
        response = await client.request(request, to=Leader(tp), timeout=self._timeout)
        topic = requested_row(tp.topic, response.topics, lambda row: row.topic)
        found = requested_row(tp.partition, topic.partitions, lambda row: row.partition)
        if found.error_code:
            raise error_for(found.error_code, topic=tp.topic, partition=tp.partition)
        return found.end_offset

    # -- sizes and commits ------------------------------------------------------------------------

    def bytes_per_offset(self, starts: Mapping[TopicPartition, int]) -> dict[TopicPartition, float]:
        """Return the average record size by partition, from a sample at its first offset.

        Sizes are as stored, that is, compressed. A partition without a sample is left out.
        """
        names = {tp.topic for tp in starts}
        leaders: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        for name, topic in self._describe(names, missing_allowed=True).items():
            for row in topic.partitions:
                tp = TopicPartition(name, row.partition)
                if row.leader is not None and tp in starts:
                    leaders[row.leader].append(tp)
        if not leaders:
            return {}
        client = self._admin().asynchronous.client
        samples = blocking.run(
            call_each,
            leaders,
            lambda node_id: self._sample(
                client, node_id, {tp: starts[tp] for tp in leaders[node_id]}
            ),
        )
        return {tp: size for sizes in samples.values() for tp, size in sizes.items()}

    async def _sample(
        self, client: Client, node_id: int, starts: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, float]:
        rows: defaultdict[str, list[FetchPartition]] = defaultdict(list)
        for tp, offset in starts.items():
            rows[tp.topic].append(
                FetchPartition(
                    partition=tp.partition, fetch_offset=offset, partition_max_bytes=SAMPLE_BYTES
                )
            )
        request = FetchRequest(
            max_bytes=SAMPLE_BYTES * len(starts),
            topics=[FetchTopic(topic=topic, partitions=each) for topic, each in rows.items()],
        )
        response = await client.request(
            request,
            to=Broker(node_id),
            timeout=self._timeout,
            max_version=LAST_VERSION_WITH_NAMES[FetchRequest.API_KEY],
        )
        sizes: dict[TopicPartition, float] = {}
        for topic in response.responses:
            for row in topic.partitions:
                batches = list(iter_batches(row.records or b""))
                offsets = sum(batch.header.last_offset_delta + 1 for batch in batches)
                if offsets:
                    size = sum(len(batch.raw) for batch in batches)
                    sizes[TopicPartition(topic.topic, row.partition_index)] = size / offsets
        return sizes

    def commit(self, group_id: str, offsets: StreamOffset) -> None:
        """Commit offsets to a consumer group without members.

        Raises:
            KafkaError: The coordinator refused the commit, as for a group with members.
        """
        committed = {
            tp: OffsetAndMetadata(offset, offsets.epochs.get(tp))
            for tp, offset in offsets.offsets.items()
        }
        client = self._admin().asynchronous.client

        async def commit() -> None:
            await alter_group_offsets(Call(client, COMMIT_TIMEOUT), group_id, committed)

        try:
            blocking.run(commit)
        except KafkaError as error:
            raise KafkaError(
                f"the progress of the query cannot be committed to group {group_id}: name a group "
                f"that no consumer uses and that the user may READ ({error})"
            ) from error


def leader_epochs(
    listed: Mapping[TopicPartition, OffsetAndTimestamp],
) -> dict[TopicPartition, int]:
    """Return the epochs of the leaders that returned offsets, where known.

    Epochs in the metadata may be older than the offset: a new leader may have written the record
    before it. The older epoch then ends before the offset although no record is lost.
    """
    return {
        tp: found.leader_epoch for tp, found in listed.items() if found.leader_epoch is not None
    }


def _check_named(
    named: Mapping[TopicPartition, int], option: str, chosen: list[TopicPartition], kind: str
) -> None:
    """Raise unless a bound contains exactly the partitions to read."""
    if others := set(named) - set(chosen):
        raise InvalidConfigurationError(
            f"{option} names {min(others)}, which is not read: name only partitions of the topics "
            "that are read"
        )
    if missing := set(chosen) - set(named):
        raise InvalidConfigurationError(
            f"{option} has no {kind} for {min(missing)}: name every partition"
        )
