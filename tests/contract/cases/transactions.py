"""The APIs of producer ids and transactions."""

from __future__ import annotations

import uuid
from typing import Any, Final

from tests.contract.cases.groups import committed, committed_by, stable
from tests.contract.cases.log import UNKNOWN_TOPIC_ID, fetch, offsets, produce
from tests.contract.model import (
    TOPIC,
    Batch,
    Fields,
    Scenario,
    SendRequest,
    TopicId,
    group,
    reply,
    topic,
    txn,
)

BUSY: Final = (14, 51)
"""Errors after which a producer sends its request again: the markers are being written."""

MARKER: Final = '"control": true'
MARKERS: Final = '"base_offset": 4, "base_sequence": -1'
"""Text that a response contains once the markers can be read."""
UNVERIFIED: Final = (6, 19)
"""Errors after which a producer sends a batch again: its partition is being verified."""


def init(
    name: Any = None, *, timeout: int = 60_000, producer: Any = None, epoch: Any = None
) -> Fields:
    """Return an InitProducerId request."""
    fields: Fields = {
        "transactional_id": txn() if name is None else name,
        "transaction_timeout_ms": timeout,
    }
    if producer is not None:
        fields |= {"producer_id": producer, "producer_epoch": epoch}
    return fields


def begin(version: int = 4, name: Any = None, label: str = "p") -> SendRequest:
    """Return the step that gives the scenario's producer its id."""
    return SendRequest("InitProducerId", version, init(name), label=label, retry=BUSY, setup=True)


ME: Final = reply("p", "producer_id")
EPOCH: Final = reply("p", "producer_epoch")
OLD: Final = reply("p", "producer_epoch", plus=-1)
NEXT: Final = reply("p", "producer_epoch", plus=1)


def of(producer: Any, epoch: Any, name: Any = None) -> Fields:
    """Return the fields that say who the producer is."""
    return {
        "transactional_id": txn() if name is None else name,
        "producer_id": producer,
        "producer_epoch": epoch,
    }


def add(producer: Any = ME, epoch: Any = EPOCH, name: Any = None, topics: Any = None) -> Fields:
    """Return an AddPartitionsToTxn request before version 4."""
    rows = [{"name": topic(), "partitions": [0]}] if topics is None else topics
    prefixed = {f"v3_and_below_{key}": value for key, value in of(producer, epoch, name).items()}
    return {**prefixed, "v3_and_below_topics": rows}


def add_bulk(
    producer: Any = ME,
    epoch: Any = EPOCH,
    name: Any = None,
    topics: Any = None,
    *,
    verify: bool = False,
) -> Fields:
    """Return an AddPartitionsToTxn request of version 4 or later."""
    rows = [{"name": topic(), "partitions": [0]}] if topics is None else topics
    return {"transactions": [{**of(producer, epoch, name), "verify_only": verify, "topics": rows}]}


def add_offsets(
    producer: Any = ME, epoch: Any = EPOCH, name: Any = None, group_id: Any = None
) -> Fields:
    """Return an AddOffsetsToTxn request."""
    return {**of(producer, epoch, name), "group_id": group() if group_id is None else group_id}


def end(committed: bool = True, producer: Any = ME, epoch: Any = EPOCH, name: Any = None) -> Fields:
    """Return an EndTxn request."""
    return {**of(producer, epoch, name), "committed": committed}


def offset(
    producer: Any = ME,
    epoch: Any = EPOCH,
    name: Any = None,
    *,
    group_id: Any = None,
    where: Fields | None = None,
    index: int = 0,
    metadata: str = "m",
    **member: Any,
) -> Fields:
    """Return a TxnOffsetCommit request for one partition."""
    row = {"partition_index": index, "committed_offset": 7, "committed_metadata": metadata}
    return {
        **of(producer, epoch, name),
        "group_id": group() if group_id is None else group_id,
        "topics": [{**({"name": topic()} if where is None else where), "partitions": [row]}],
        **member,
    }


def write(
    sequence: int, *, producer: Any = ME, epoch: Any = EPOCH, name: Any = None, **more: Any
) -> Fields:
    """Return a Produce request in the transaction."""
    batch = Batch(
        producer_id=producer, epoch=epoch, sequence=sequence, transactional=True, timestamp=None
    )
    return produce(batch, transactional_id=txn() if name is None else name, **more)


def _corrupt(
    patches: tuple[tuple[int, bytes], ...], *, good_crc: bool = False, topic_key: str = "t"
) -> Fields:
    """Return a Produce request in the transaction with a batch that is damaged."""
    batch = Batch(
        producer_id=ME,
        epoch=EPOCH,
        sequence=0,
        transactional=True,
        timestamp=None,
        patches=patches,
        good_crc=good_crc,
    )
    return produce(batch, transactional_id=txn(), name=topic(topic_key))


def member(generation: int = 1, member_id: Any = None) -> Fields:
    """Return the fields of a TxnOffsetCommit request that name a member of the group."""
    known = reply("join", "member_id") if member_id is None else member_id
    return {"member_id": known, "generation_id_or_member_epoch": generation}


DESCRIBE: Final[Fields] = {"transactional_ids": [txn()]}

INIT: Final = [
    Scenario(
        "init-producer-id",
        [
            *[SendRequest("InitProducerId", version, init(), retry=BUSY) for version in range(6)],
            SendRequest(
                "InitProducerId",
                4,
                {"transactional_id": None, "transaction_timeout_ms": 1},
            ),
            SendRequest(
                "InitProducerId",
                0,
                {"transactional_id": None, "transaction_timeout_ms": -1},
            ),
            SendRequest("InitProducerId", 4, init(timeout=0)),
            SendRequest("InitProducerId", 4, init(timeout=-5)),
            SendRequest("InitProducerId", 4, init(timeout=900_001)),
            SendRequest("InitProducerId", 0, init(timeout=900_001)),
            SendRequest("InitProducerId", 4, init("")),
            SendRequest("InitProducerId", 4, init(txn("far", on_other_broker=True))),
            SendRequest("InitProducerId", 1, init(txn("far", on_other_broker=True))),
            begin(),
            SendRequest("InitProducerId", 4, init(producer=ME, epoch=EPOCH), label="q"),
            SendRequest("InitProducerId", 4, init(producer=ME, epoch=EPOCH)),
            SendRequest("InitProducerId", 4, init(producer=ME, epoch=OLD)),
            SendRequest("InitProducerId", 3, init(producer=ME, epoch=OLD)),
            SendRequest("InitProducerId", 4, init(producer=987_654_321, epoch=0)),
            SendRequest("InitProducerId", 4, init(producer=-1, epoch=3)),
            SendRequest("InitProducerId", 4, init(producer=ME, epoch=-1)),
            SendRequest(
                "InitProducerId",
                4,
                init(producer=-1, epoch=3) | {"transactional_id": None},
            ),
            SendRequest(
                "InitProducerId",
                4,
                {
                    "transactional_id": None,
                    "transaction_timeout_ms": 1,
                    "producer_id": 5,
                    "producer_epoch": 3,
                },
            ),
            SendRequest("InitProducerId", 4, init(txn("y"), producer=5, epoch=3)),
            SendRequest("InitProducerId", 4, init(), cut=2),
            SendRequest("InitProducerId", 99, {}),
        ],
    ),
    Scenario(
        "init-during-transaction",
        [
            begin(),
            SendRequest("AddPartitionsToTxn", 3, add(), setup=True),
            SendRequest("InitProducerId", 4, init()),
            SendRequest("InitProducerId", 4, init(), label="q", retry=BUSY),
            SendRequest("DescribeTransactions", 0, DESCRIBE),
            SendRequest("EndTxn", 4, end()),
            SendRequest("EndTxn", 1, end()),
            SendRequest("AddPartitionsToTxn", 3, add()),
            SendRequest("AddPartitionsToTxn", 1, add()),
            SendRequest("AddOffsetsToTxn", 3, add_offsets()),
            SendRequest("AddOffsetsToTxn", 1, add_offsets()),
            SendRequest("Produce", 11, write(0), retry=UNVERIFIED),
            SendRequest("Produce", 12, write(0), retry=UNVERIFIED),
            SendRequest("TxnOffsetCommit", 3, offset()),
            SendRequest("TxnOffsetCommit", 5, offset()),
        ],
        TOPIC,
    ),
]

CLASSIC: Final = [
    Scenario(
        f"transaction-v1-{'commit' if committing else 'abort'}",
        [
            begin(),
            SendRequest("Produce", 11, write(0), retry=UNVERIFIED),
            SendRequest("Produce", 10, write(0), retry=UNVERIFIED),
            SendRequest("Produce", 9, write(0), retry=UNVERIFIED),
            *[SendRequest("AddPartitionsToTxn", version, add()) for version in range(4)],
            *[SendRequest("AddOffsetsToTxn", version, add_offsets()) for version in range(5)],
            SendRequest("Produce", 11, write(0), retry=UNVERIFIED),
            SendRequest("Produce", 3, write(1), retry=UNVERIFIED),
            SendRequest("Produce", 9, produce(Batch(producer_id=ME, epoch=EPOCH, sequence=2))),
            *[SendRequest("TxnOffsetCommit", version, offset()) for version in range(5)],
            SendRequest("DescribeTransactions", 0, DESCRIBE),
            SendRequest("ListTransactions", 2, {}, own=True),
            SendRequest("OffsetFetch", 7, committed() | {"require_stable": True}),
            SendRequest("OffsetFetch", 7, committed()),
            SendRequest("OffsetFetch", 9, committed_by(require_stable=True)),
            SendRequest("Fetch", 12, fetch(isolation_level=1)),
            SendRequest("ListOffsets", 8, offsets(-1) | {"isolation_level": 1}),
            SendRequest("ListOffsets", 8, offsets(-1)),
            SendRequest("EndTxn", 4, end(committing)),
            *[SendRequest("EndTxn", version, end(committing), retry=BUSY) for version in range(5)],
            SendRequest("EndTxn", 4, end(not committing)),
            SendRequest("DescribeTransactions", 0, DESCRIBE),
            SendRequest("OffsetFetch", 7, committed() | {"require_stable": True}),
            SendRequest("Fetch", 12, fetch(isolation_level=1), awaiting=MARKER),
            SendRequest("ListOffsets", 8, offsets(-1) | {"isolation_level": 1}),
            SendRequest("ListOffsets", 8, offsets(1_000) | {"isolation_level": 1}),
        ],
        TOPIC,
    )
    for committing in (True, False)
]

MODERN: Final = [
    Scenario(
        f"transaction-v2-{'commit' if committing else 'abort'}",
        [
            begin(5),
            SendRequest("Produce", 12, write(0), retry=UNVERIFIED),
            SendRequest("Produce", 12, write(1), retry=UNVERIFIED),
            SendRequest("Produce", 12, write(9), retry=UNVERIFIED),
            SendRequest("TxnOffsetCommit", 5, offset()),
            SendRequest("DescribeTransactions", 0, DESCRIBE),
            SendRequest("Fetch", 18, fetch(by_id=True, isolation_level=1)),
            SendRequest("EndTxn", 5, end(committing), label="e"),
            SendRequest("EndTxn", 5, end(committing), retry=BUSY),
            SendRequest("EndTxn", 5, end(not committing), retry=BUSY),
            SendRequest("EndTxn", 5, end(epoch=OLD), retry=BUSY),
            SendRequest("Produce", 12, write(2), retry=UNVERIFIED),
            SendRequest("Produce", 12, write(5, epoch=NEXT), retry=BUSY),
            SendRequest("Produce", 12, write(0, epoch=NEXT), retry=BUSY),
            SendRequest("EndTxn", 5, end(epoch=NEXT), retry=BUSY),
            SendRequest("DescribeTransactions", 0, DESCRIBE, passing="Prepare"),
            SendRequest(
                "EndTxn", 5, end(False, epoch=reply("p", "producer_epoch", plus=2)), retry=BUSY
            ),
            SendRequest(
                "EndTxn", 5, end(True, epoch=reply("p", "producer_epoch", plus=3)), retry=BUSY
            ),
            SendRequest("Fetch", 18, fetch(by_id=True, isolation_level=1), awaiting=MARKERS),
        ],
        TOPIC,
    )
    for committing in (True, False)
]

REFUSED: Final = [
    Scenario(
        "transaction-v2-bad-batches",
        [
            begin(5),
            SendRequest("Produce", 12, _corrupt(((16, b"\x03"),), good_crc=True)),
            SendRequest(
                "Produce", 12, _corrupt(((0, b"\x01"),), topic_key="far"), retry=UNVERIFIED[1:]
            ),
            SendRequest("DescribeTransactions", 0, DESCRIBE),
            SendRequest("Produce", 12, _corrupt(((60, b"\x55"),)), retry=UNVERIFIED),
            SendRequest("DescribeTransactions", 0, DESCRIBE),
            SendRequest("EndTxn", 5, end(False)),
        ],
        {"t": {}, "far": {"leader": 2}},
    ),
    Scenario(
        "transaction-v2-first-sequence",
        [
            begin(5),
            SendRequest("Produce", 12, write(5), retry=UNVERIFIED),
            SendRequest("Produce", 12, write(0), retry=UNVERIFIED),
            SendRequest("EndTxn", 5, end(False)),
        ],
        TOPIC,
    ),
    Scenario(
        "transaction-v2-late-end",
        [
            begin(5),
            SendRequest("InitProducerId", 5, init(), label="again"),
            *[SendRequest("EndTxn", 5, end(committing)) for committing in (True, False)],
            SendRequest("Produce", 12, write(0, epoch=NEXT), retry=UNVERIFIED),
            *[SendRequest("EndTxn", 5, end(committing)) for committing in (True, False)],
            SendRequest("EndTxn", 5, end(epoch=NEXT)),
        ],
        TOPIC,
    ),
    Scenario(
        "transaction-offsets-of-members",
        [
            *stable(),
            begin(),
            SendRequest("AddOffsetsToTxn", 3, add_offsets(), setup=True),
            SendRequest("TxnOffsetCommit", 3, offset(**member())),
            SendRequest("TxnOffsetCommit", 3, offset()),
            SendRequest("TxnOffsetCommit", 3, offset(**member(2))),
            SendRequest("TxnOffsetCommit", 3, offset(**member(member_id="stranger"))),
            SendRequest("AddOffsetsToTxn", 3, add_offsets(group_id=group("none")), setup=True),
            SendRequest("TxnOffsetCommit", 3, offset(group_id=group("none"), **member())),
            SendRequest("EndTxn", 4, end()),
        ],
        TOPIC,
    ),
    Scenario(
        "transaction-strangers",
        [
            *[SendRequest("AddPartitionsToTxn", version, add(77, 0)) for version in (0, 3)],
            SendRequest("AddPartitionsToTxn", 3, add(77, 0, "")),
            SendRequest("AddPartitionsToTxn", 3, add(77, 0, txn("far", on_other_broker=True))),
            *[SendRequest("AddOffsetsToTxn", version, add_offsets(77, 0)) for version in (0, 4)],
            SendRequest("AddOffsetsToTxn", 4, add_offsets(77, 0, "")),
            SendRequest("AddOffsetsToTxn", 4, add_offsets(77, 0, group_id="")),
            SendRequest("AddOffsetsToTxn", 4, add_offsets(77, 0, txn("far", on_other_broker=True))),
            *[SendRequest("EndTxn", version, end(True, 77, 0)) for version in range(6)],
            SendRequest("EndTxn", 5, end(True, 77, 0, "")),
            SendRequest("EndTxn", 5, end(True, 77, 0, txn("far", on_other_broker=True))),
            SendRequest("EndTxn", 5, end(True, -1, -1)),
            *[SendRequest("TxnOffsetCommit", version, offset(77, 0)) for version in (0, 3, 4, 5)],
            SendRequest("TxnOffsetCommit", 3, offset(77, 0, "")),
            SendRequest("TxnOffsetCommit", 3, offset(77, 0, group_id="")),
            SendRequest(
                "TxnOffsetCommit", 3, offset(77, 0, group_id=group("far", on_other_broker=True))
            ),
            SendRequest("Produce", 12, write(0, producer=77, epoch=0), retry=UNVERIFIED),
            SendRequest("Produce", 11, write(0, producer=77, epoch=0), retry=UNVERIFIED),
            SendRequest("Produce", 12, write(0, producer=77, epoch=0, name=""), retry=UNVERIFIED),
            SendRequest("DescribeTransactions", 0, DESCRIBE),
            SendRequest("DescribeTransactions", 0, {"transactional_ids": [""]}),
            SendRequest("DescribeTransactions", 0, {"transactional_ids": []}),
            SendRequest(
                "DescribeTransactions", 0, {"transactional_ids": [txn("far", on_other_broker=True)]}
            ),
        ],
        TOPIC,
    ),
    Scenario(
        "transaction-refused",
        [
            begin(),
            *[SendRequest("AddPartitionsToTxn", version, add(epoch=NEXT)) for version in (1, 3)],
            *[
                SendRequest("AddOffsetsToTxn", version, add_offsets(epoch=NEXT))
                for version in (1, 3)
            ],
            *[SendRequest("EndTxn", version, end(epoch=NEXT)) for version in (1, 4, 5)],
            *[SendRequest("TxnOffsetCommit", version, offset(epoch=NEXT)) for version in (2, 3, 5)],
            SendRequest("AddPartitionsToTxn", 3, add(99)),
            SendRequest("AddOffsetsToTxn", 3, add_offsets(99)),
            SendRequest("EndTxn", 4, end(producer=99)),
            SendRequest("EndTxn", 5, end(producer=99)),
            SendRequest("TxnOffsetCommit", 3, offset(99)),
            SendRequest("EndTxn", 4, end()),
            SendRequest("EndTxn", 4, end(False)),
            SendRequest("EndTxn", 5, end()),
            SendRequest(
                "AddPartitionsToTxn",
                3,
                add(topics=[{"name": topic(), "partitions": [0, 7]}]),
            ),
            SendRequest(
                "AddPartitionsToTxn",
                0,
                add(topics=[{"name": "contract-missing", "partitions": [0]}]),
            ),
            SendRequest("AddPartitionsToTxn", 3, add(topics=[])),
            SendRequest("TxnOffsetCommit", 3, offset()),
            SendRequest("TxnOffsetCommit", 4, offset()),
            SendRequest("AddOffsetsToTxn", 3, add_offsets(), setup=True),
            SendRequest("TxnOffsetCommit", 3, offset(index=7)),
            SendRequest("TxnOffsetCommit", 3, offset(where={"name": "contract-missing"})),
            SendRequest("TxnOffsetCommit", 3, offset(metadata="x" * 5_000)),
            SendRequest("TxnOffsetCommit", 6, offset(where={"topic_id": TopicId()})),
            SendRequest("TxnOffsetCommit", 6, offset(where={"topic_id": UNKNOWN_TOPIC_ID})),
            SendRequest("TxnOffsetCommit", 6, offset(where={"topic_id": uuid.UUID(int=0)})),
            SendRequest(
                "TxnOffsetCommit",
                3,
                offset(member_id="stranger", generation_id_or_member_epoch=1),
            ),
            SendRequest("TxnOffsetCommit", 3, offset(generation_id_or_member_epoch=1)),
            SendRequest("TxnOffsetCommit", 3, offset(member_id="stranger")),
            SendRequest("TxnOffsetCommit", 3, offset(group_instance_id="i")),
            SendRequest("TxnOffsetCommit", 3, {**offset(), "topics": []}),
            SendRequest("Produce", 11, produce(Batch(transactional=True), transactional_id=txn())),
            SendRequest("Produce", 11, produce(Batch(), transactional_id=txn())),
            SendRequest("Produce", 11, write(0, index=4)),
            SendRequest(
                "Produce", 11, write(0, name=txn("far", on_other_broker=True)), retry=UNVERIFIED
            ),
            SendRequest("EndTxn", 4, end(), cut=1),
            SendRequest("AddPartitionsToTxn", 3, add(), cut=1),
            SendRequest("AddOffsetsToTxn", 4, add_offsets(), cut=1),
            SendRequest("TxnOffsetCommit", 3, offset(), cut=1),
            SendRequest("TxnOffsetCommit", 99, {}),
        ],
        TOPIC,
    ),
    Scenario(
        "transaction-bulk",
        [
            begin(),
            *[SendRequest("AddPartitionsToTxn", version, add_bulk()) for version in (4, 5)],
            *[
                SendRequest("AddPartitionsToTxn", version, add_bulk(verify=True))
                for version in (4, 5)
            ],
            SendRequest(
                "AddPartitionsToTxn",
                4,
                add_bulk(verify=True, topics=[{"name": topic("u"), "partitions": [0]}]),
            ),
            SendRequest("AddPartitionsToTxn", 4, add_bulk(77, 0, verify=True)),
            SendRequest("AddPartitionsToTxn", 4, add_bulk(77, 0)),
            SendRequest("AddPartitionsToTxn", 4, add_bulk(epoch=NEXT, verify=True)),
            SendRequest("AddPartitionsToTxn", 4, add_bulk(77, 0, txn("y"), verify=True)),
            SendRequest("AddPartitionsToTxn", 4, add_bulk(77, 0, txn("far", on_other_broker=True))),
            SendRequest("DescribeTransactions", 0, DESCRIBE),
        ],
        {"t": {}, "u": {}},
    ),
    Scenario(
        "list-transactions",
        [
            begin(),
            *[SendRequest("ListTransactions", version, {}, own=True) for version in (0, 1, 2)],
            SendRequest("ListTransactions", 0, {"state_filters": ["Empty"]}, own=True),
            SendRequest("ListTransactions", 0, {"state_filters": ["Ongoing"]}, own=True),
            SendRequest("ListTransactions", 0, {"state_filters": ["Empty", "Nonsense"]}, own=True),
            SendRequest("ListTransactions", 0, {"producer_id_filters": [ME]}, own=True),
            SendRequest("ListTransactions", 0, {"producer_id_filters": [987_654]}, own=True),
            SendRequest("ListTransactions", 1, {"duration_filter": 0}, own=True),
            SendRequest("ListTransactions", 2, {"transactional_id_pattern": ".*"}, own=True),
            SendRequest("ListTransactions", 2, {"transactional_id_pattern": "nothing"}, own=True),
            SendRequest("ListTransactions", 2, {"transactional_id_pattern": "*("}, own=True),
            SendRequest("ListTransactions", 2, {"transactional_id_pattern": ""}, own=True),
            SendRequest("AddPartitionsToTxn", 3, add(), setup=True),
            SendRequest("ListTransactions", 1, {"duration_filter": 3_600_000}, own=True),
            SendRequest("ListTransactions", 0, {"state_filters": ["Ongoing"]}, own=True),
            SendRequest("ListTransactions", 2, {}, cut=1),
            SendRequest("ListTransactions", 99, {}),
        ],
        TOPIC,
    ),
]

SCENARIOS: Final = [*INIT, *CLASSIC, *MODERN, *REFUSED]
