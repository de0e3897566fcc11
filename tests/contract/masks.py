"""The one table of what may differ between two clusters, by field, and how responses are written.

A response becomes plain data: fields that its version lacks and fields with their default are left
out. Names and ids of the run are replaced by the scenario's own, so they are compared too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast
from uuid import UUID

from kafka_async.embedded.state.topics import OFFSETS_TOPIC
from kafka_async.protocol.spec import Struct
from kafka_async.records.batch import HEADER_SIZE, BatchHeader

if TYPE_CHECKING:
    from kafka_async.protocol.message import Message


class Names:
    """Maps values of a run to their names in the record."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._ids: dict[UUID, str] = {}
        self._numbers: dict[tuple[str, Any], str] = {}

    def bind(self, value: str, name: str) -> None:
        """Call a topic, group or transactional id by its name in the scenario."""
        self._texts[value] = f"<{name}>"

    def bind_id(self, value: UUID, name: str) -> None:
        """Call a topic id by its name in the scenario."""
        self._ids[value] = f"<{name}>"

    def text(self, value: str) -> str:
        """Replace the names of the run in a text."""
        for real in sorted(self._texts, key=len, reverse=True):
            value = value.replace(real, self._texts[real])
        return value

    def octets(self, value: bytes) -> str:
        """Replace the names of the run in bytes, and return them in hexadecimal."""
        return "0x" + self.text(value.decode("latin-1")).encode("latin-1").hex()

    def id(self, value: UUID) -> str:
        """Return the name of a topic id."""
        return "" if value.int == 0 else self._ids.get(value) or self.number("uuid", value)

    def number(self, kind: str, value: Any) -> str:
        """Return a name that counts the different values of a kind."""
        return self._numbers.setdefault(
            (kind, value),
            f"<{kind} {1 + sum(known == kind for known, _ in self._numbers)}>",
        )


Mask: TypeAlias = "Callable[[Names, Any, Struct | None], Any]"
"""Given the names of the run, a field's value and the structure that holds it; None in a batch."""


def _present(names: Names, value: Any, owner: Struct | None) -> Any:
    return value if value in (None, "", -1) else "<any>"


def _counted(kind: str, *unchanged: int) -> Mask:
    def mask(names: Names, value: Any, owner: Struct | None) -> Any:
        return value if value in unchanged else names.number(kind, value)

    return mask


def _member(names: Names, value: Any, owner: Struct | None) -> Any:
    if not isinstance(value, str):
        return value
    if _CONSUMER_MEMBER.fullmatch(value):
        return names.number("member", value)
    found = _GENERATED.fullmatch(value)
    return names.text(value) if found is None else f"{found[1]}-{names.number('member', found[2])}"


def _time(names: Names, value: Any, owner: Struct | None) -> Any:
    return "<time>" if value > _RECENT else value


def _offsets_partition(names: Names, value: Any, owner: Struct | None) -> Any:
    """Mask which partition of the offsets topic holds a group: a hash of the group's id."""
    return "<any>" if getattr(owner, "topic", "") == OFFSETS_TOPIC else sorted(value)


_producer: Final = _counted("producer", -1)
_GENERATED: Final = re.compile(r"(.*?)-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")
_CONSUMER_MEMBER: Final = re.compile(r"[A-Za-z0-9_-]{22}")
"""An id that the coordinator has chosen: a UUID in base 64."""
_RECENT: Final = 1_600_000_000_000

MASKS: Final[dict[str, Mask]] = {
    "throttle_time_ms": lambda names, value, owner: "<throttled>" if value else 0,
    "host": _present,
    "port": _present,
    "cluster_id": _present,
    "controller_id": _present,
    "client_host": _present,
    "error_message": _present,
    "acknowledge_error_message": _present,
    "batch_index_error_message": _present,
    "member_id": _member,
    "leader": _member,
    "producer_id": _producer,
    "session_id": _counted("session", 0),
    "log_append_time_ms": _time,
    "last_timestamp": _time,
    "timestamp": _time,
    "transaction_start_time_ms": _time,
    "finalized_features_epoch": _present,
    "TopicData.partitions": _offsets_partition,
}
"""The mask of a field's value, by its name, or by its structure's name and its own.

Topic ids and names are replaced in every field.
"""

_HASHED: Final = "Kafka collects them in a hash map"
UNORDERED: Final[dict[str, str]] = {
    "Assignment.topic_partitions": _HASHED,
    "ConsumerGroupDescribeResponse.groups": "Kafka asks the coordinators of groups in a hash map",
    "ConsumerGroupHeartbeatResponseTopicPartitions.partitions": _HASHED,
    "Member.subscribed_topic_names": _HASHED,
    "TopicPartitions.partitions": _HASHED,
    "AddPartitionsToTxnTopicResult.results_by_partition": _HASHED,
    "AlterClientQuotasResponse.entries": _HASHED,
    "AlterClientQuotasResponseEntryData.entity": _HASHED,
    "AlterUserScramCredentialsResponse.results": _HASHED,
    "CreatePartitionsResponse.results": _HASHED,
    "DeleteGroupsResponse.results": "Kafka deletes by partition of the coordinator, in a hash map",
    "DeleteRecordsResponse.topics": _HASHED,
    "DescribeShareGroupOffsetsResponseGroup.topics": _HASHED,
    "ShareAcknowledgeResponse.responses": _HASHED,
    "ShareAcknowledgeTopicResponse.partitions": _HASHED,
    "ShareFetchResponse.responses": _HASHED,
    "ShareFetchableTopicResponse.partitions": _HASHED,
    "ShareGroupDescribeResponse.groups": "Kafka asks the coordinators of groups in a hash map",
    "DeleteRecordsTopicResult.partitions": _HASHED,
    "DeleteTopicsResponse.responses": _HASHED,
    "DescribeConfigsResult.configs": _HASHED,
    "DescribeClientQuotasResponse.entries": _HASHED,
    "DescribeUserScramCredentialsResponse.results": _HASHED,
    "EntryData.entity": _HASHED,
    "EntryData.values": _HASHED,
    "DescribeUserScramCredentialsResult.credential_infos": _HASHED,
    "DescribedGroup.members": _HASHED,
    "JoinGroupResponse.members": _HASHED,
    "ListOffsetsResponse.topics": _HASHED,
    "ListOffsetsTopicResponse.partitions": _HASHED,
    "ProduceResponse.responses": _HASHED,
    "TopicProduceResponse.partition_responses": _HASHED,
    "TransactionState.topics": _HASHED,
}
"""Arrays whose order Kafka does not define, and why; they are sorted before they are compared."""


def plain(response: Message, version: int, names: Names) -> Any:
    """Return a response as data that two clusters share."""
    return _struct(response, version, names)


def _struct(value: Struct, version: int, names: Names) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for spec in value.SPEC.fields:
        if not spec.versions.contains(version):
            continue
        found = getattr(value, spec.name)
        qualified = f"{type(value).__name__}.{spec.name}"
        mask = MASKS.get(qualified) or MASKS.get(spec.name)
        shown = _value(found, version, names) if mask is None else mask(names, found, value)
        if qualified in UNORDERED and shown is not None:
            shown = sorted(shown, key=lambda item: json.dumps(item, sort_keys=True))
        default = _value(spec.default, version, names)
        if shown != default:
            out[spec.name] = shown
    if value.unknown_tagged_fields:
        out["unknown_tagged_fields"] = [tag for tag, _ in value.unknown_tagged_fields]
    return out


def _value(value: Any, version: int, names: Names) -> Any:
    if isinstance(value, Struct):
        return _struct(value, version, names)
    if isinstance(value, list | tuple):
        return [_value(item, version, names) for item in cast("list[Any]", value)]
    if isinstance(value, UUID):
        return names.id(value)
    if isinstance(value, str):
        return names.text(value)
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(cast("bytes", value))
        return _batches(data, names) if _is_batch(data) else names.octets(data)
    return value


def _is_batch(data: bytes) -> bool:
    return len(data) >= HEADER_SIZE and data[16] == 2


def _batches(data: bytes, names: Names) -> list[Any]:
    """Return the headers of batches."""
    out: list[Any] = []
    while len(data) >= HEADER_SIZE:
        header = BatchHeader.unpack(memoryview(data))
        whole, data = data[: header.size], data[header.size :]
        row = {
            "base_offset": header.base_offset,
            "last_offset_delta": header.last_offset_delta,
            "leader_epoch": header.leader_epoch,
            "producer_id": _producer(names, header.producer_id, None),
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
            "transactional": header.is_transactional,
            "control": header.is_control,
            "max_timestamp": _time(names, header.max_timestamp, None),
        }
        if not header.is_control:
            row["body"] = whole[HEADER_SIZE:].hex()
        out.append(row)
    if data:
        out.append({"rest": len(data)})
    return out
