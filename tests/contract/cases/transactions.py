"""The APIs of producer ids and transactions."""

from __future__ import annotations

import uuid
from typing import Any, Final

from tests.contract.cases.consumer_groups import BY_ID
from tests.contract.cases.consumer_groups import join as join_consumer_group
from tests.contract.cases.groups import committed, committed_by, stable
from tests.contract.cases.log import UNKNOWN_TOPIC_ID, fetch, offsets, produce
from tests.contract.model import (
    BY_NAME,
    GROUP,
    TOPIC,
    TXN,
    Batch,
    Fields,
    SendRequest,
    T,
    group,
    reply,
    request,
    scenario,
    send,
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
FIRST_PARTITION: Final = [{"name": T, "partitions": [0]}]


@request("InitProducerId")
def init(name: Any = TXN, timeout: int = 60_000) -> Fields:
    """Return an InitProducerId request."""
    return {"transactional_id": name, "transaction_timeout_ms": timeout}


def begin(version: int = 4, **fields: Any) -> SendRequest:
    """Return the step that gives the scenario's producer its id."""
    return init(version, label="p", retry=BUSY, setup=True, **fields)


ME: Final = reply("p", "producer_id")
EPOCH: Final = reply("p", "producer_epoch")
OLD: Final = reply("p", "producer_epoch", plus=-1)
NEXT: Final = reply("p", "producer_epoch", plus=1)


def of(producer: Any, epoch: Any, name: Any) -> Fields:
    """Return the fields that say who the producer is."""
    return {"transactional_id": name, "producer_id": producer, "producer_epoch": epoch}


@request("AddPartitionsToTxn")
def add(
    producer: Any = ME, epoch: Any = EPOCH, name: Any = TXN, topics: Any = FIRST_PARTITION
) -> Fields:
    """Return an AddPartitionsToTxn request before version 4."""
    prefixed = {f"v3_and_below_{key}": value for key, value in of(producer, epoch, name).items()}
    return {**prefixed, "v3_and_below_topics": topics}


@request("AddPartitionsToTxn")
def add_bulk(
    producer: Any = ME,
    epoch: Any = EPOCH,
    name: Any = TXN,
    topics: Any = FIRST_PARTITION,
    *,
    verify: bool = False,
) -> Fields:
    """Return an AddPartitionsToTxn request of version 4 or later."""
    row = {**of(producer, epoch, name), "verify_only": verify, "topics": topics}
    return {"transactions": [row]}


@request("AddOffsetsToTxn")
def add_offsets(producer: Any = ME, epoch: Any = EPOCH, name: Any = TXN) -> Fields:
    """Return an AddOffsetsToTxn request."""
    return {**of(producer, epoch, name), "group_id": GROUP}


@request("EndTxn")
def end(committed: bool = True, producer: Any = ME, epoch: Any = EPOCH, name: Any = TXN) -> Fields:
    """Return an EndTxn request."""
    return {**of(producer, epoch, name), "committed": committed}


@request("TxnOffsetCommit")
def offset(
    producer: Any = ME,
    epoch: Any = EPOCH,
    name: Any = TXN,
    *,
    where: Fields = BY_NAME,
    index: int = 0,
    metadata: str = "m",
) -> Fields:
    """Return a TxnOffsetCommit request for one partition."""
    row = {"partition_index": index, "committed_offset": 7, "committed_metadata": metadata}
    topics = [{**where, "partitions": [row]}]
    return {**of(producer, epoch, name), "group_id": GROUP, "topics": topics}


@request("Produce")
def write(
    sequence: int,
    *,
    producer: Any = ME,
    epoch: Any = EPOCH,
    index: int = 0,
    topic: Any = T,
    patches: tuple[tuple[int, bytes], ...] = (),
    good_crc: bool = True,
) -> Fields:
    """Return a Produce request in the transaction, with a damaged batch if it has patches."""
    batch = Batch(
        producer_id=producer,
        epoch=epoch,
        sequence=sequence,
        transactional=True,
        timestamp=None,
        patches=patches,
        good_crc=good_crc,
    )
    return produce.fields(batch, index=index, name=topic) | {"transactional_id": TXN}


def member(generation: Any = 1, member_id: Any = reply("join", "member_id")) -> Fields:  # noqa: B008  # immutable
    """Return the fields of a TxnOffsetCommit request that name a member of the group."""
    return {"member_id": member_id, "generation_id_or_member_epoch": generation}


@request("DescribeTransactions")
def describe(*names: Any) -> Fields:
    """Return a DescribeTransactions request."""
    return {"transactional_ids": [*names]}


INIT: Final = [
    scenario(
        "init-producer-id",
        {},
        init(range(6), retry=BUSY),
        init(4, None, 1),
        init(0, None, -1),
        init(4, timeout=0),
        init(4, timeout=-5),
        init(4, timeout=900_001),
        init(0, timeout=900_001),
        init(4, ""),
        init(4, txn("far", on_other_broker=True)),
        init(1, txn("far", on_other_broker=True)),
        begin(),
        init(4, producer_id=ME, producer_epoch=EPOCH, label="q"),
        init(4, producer_id=ME, producer_epoch=EPOCH),
        init(4, producer_id=ME, producer_epoch=OLD),
        init(3, producer_id=ME, producer_epoch=OLD),
        init(4, producer_id=987_654_321, producer_epoch=0),
        init(4, producer_id=-1, producer_epoch=3),
        init(4, producer_id=ME, producer_epoch=-1),
        init(4, None, producer_id=-1, producer_epoch=3),
        init(4, None, 1, producer_id=5, producer_epoch=3),
        init(4, txn("y"), producer_id=5, producer_epoch=3),
        init(4, cut=2),
        send("InitProducerId", 99),
    ),
    scenario(
        "init-during-transaction",
        TOPIC,
        begin(),
        add(3, setup=True),
        init(4),
        init(4, label="q", retry=BUSY),
        describe(0, TXN),
        end(4),
        end(1),
        add(3),
        add(1),
        add_offsets(3),
        add_offsets(1),
        write(11, 0, retry=UNVERIFIED),
        write(12, 0, retry=UNVERIFIED),
        offset(3),
        offset(5),
    ),
]

CLASSIC: Final = [
    scenario(
        f"transaction-v1-{'commit' if committing else 'abort'}",
        TOPIC,
        begin(),
        write(11, 0, retry=UNVERIFIED),
        write(10, 0, retry=UNVERIFIED),
        write(9, 0, retry=UNVERIFIED),
        add(range(4)),
        add_offsets(range(5)),
        write(11, 0, retry=UNVERIFIED),
        write(3, 1, retry=UNVERIFIED),
        produce(9, Batch(producer_id=ME, epoch=EPOCH, sequence=2)),
        offset(range(5)),
        describe(0, TXN),
        send("ListTransactions", 2, own=True),
        committed(7, require_stable=True),
        committed(7),
        committed_by(9, require_stable=True),
        fetch(12, isolation_level=1),
        offsets(8, -1, isolation_level=1),
        offsets(8, -1),
        end(4, committing),
        end(range(5), committing, retry=BUSY),
        end(4, not committing),
        describe(0, TXN),
        committed(7, require_stable=True),
        fetch(12, isolation_level=1, awaiting=MARKER),
        offsets(8, -1, isolation_level=1),
        offsets(8, 1_000, isolation_level=1),
    )
    for committing in (True, False)
]

MODERN: Final = [
    scenario(
        f"transaction-v2-{'commit' if committing else 'abort'}",
        TOPIC,
        begin(5),
        write(12, 0, retry=UNVERIFIED),
        write(12, 1, retry=UNVERIFIED),
        write(12, 9, retry=UNVERIFIED),
        offset(5),
        describe(0, TXN),
        fetch(18, by_id=True, isolation_level=1),
        end(5, committing, label="e"),
        end(5, committing, retry=BUSY),
        end(5, not committing, retry=BUSY),
        end(5, epoch=OLD, retry=BUSY),
        write(12, 2, retry=UNVERIFIED),
        write(12, 5, epoch=NEXT, retry=BUSY),
        write(12, 0, epoch=NEXT, retry=BUSY),
        end(5, epoch=NEXT, retry=BUSY),
        describe(0, TXN, passing="Prepare"),
        end(5, False, epoch=reply("p", "producer_epoch", plus=2), retry=BUSY),
        end(5, True, epoch=reply("p", "producer_epoch", plus=3), retry=BUSY),
        fetch(18, by_id=True, isolation_level=1, awaiting=MARKERS),
    )
    for committing in (True, False)
]

REFUSED: Final = [
    scenario(
        "transaction-v2-bad-batches",
        {"t": {}, "far": {"leader": 2}},
        begin(5),
        write(12, 0, patches=((16, b"\x03"),)),
        write(
            12, 0, topic=topic("far"), patches=((0, b"\x01"),), good_crc=False, retry=UNVERIFIED[1:]
        ),
        describe(0, TXN),
        write(12, 0, patches=((60, b"\x55"),), good_crc=False, retry=UNVERIFIED),
        describe(0, TXN),
        end(5, False),
    ),
    scenario(
        "transaction-v2-first-sequence",
        TOPIC,
        begin(5),
        write(12, 5, retry=UNVERIFIED),
        write(12, 0, retry=UNVERIFIED),
        end(5, False),
    ),
    scenario(
        "transaction-v2-late-end",
        TOPIC,
        begin(5),
        init(5, label="again"),
        *[end(5, committing) for committing in (True, False)],
        write(12, 0, epoch=NEXT, retry=UNVERIFIED),
        *[end(5, committing) for committing in (True, False)],
        end(5, epoch=NEXT),
    ),
    scenario(
        "transaction-v2-without-writes",
        {},
        begin(5),
        end(5),
        end(5, False),
        describe(0, TXN, passing="Prepare"),
        end(5, False, retry=BUSY),
        end(5, retry=BUSY),
        end(5, False, epoch=NEXT, retry=BUSY),
    ),
    scenario(
        "transaction-v2-offsets",
        TOPIC,
        begin(5),
        offset(5, retry=BUSY),
        committed_by(9, require_stable=True),
        end(5, False),
        describe(0, TXN, passing="Prepare"),
        committed_by(9, require_stable=True, passing="error_code"),
        offset(5, retry=BUSY),
        offset(5, epoch=NEXT, retry=BUSY),
        end(5, epoch=NEXT),
        committed_by(9, require_stable=True, awaiting='"committed_offset": 7'),
    ),
    scenario(
        "transaction-v2-timeout",
        TOPIC,
        init(5, TXN, 1_000, label="p", retry=BUSY, setup=True),
        write(12, 0, retry=UNVERIFIED),
        describe(0, TXN, awaiting="CompleteAbort"),
        write(12, 1, retry=UNVERIFIED),
        end(5, retry=BUSY),
        end(5, False, retry=BUSY),
    ),
    scenario(
        "transaction-v1-second",
        TOPIC,
        begin(),
        add(3, setup=True),
        write(11, 0, retry=UNVERIFIED),
        end(4),
        describe(0, TXN, passing="Prepare"),
        write(11, 1, retry=UNVERIFIED),
        add(3, retry=BUSY),
        write(11, 1, retry=UNVERIFIED),
        end(4, False),
        describe(0, TXN, passing="Prepare"),
        end(4, False, retry=BUSY),
    ),
    scenario(
        "transaction-offsets-of-members",
        TOPIC,
        *stable(),
        begin(),
        add_offsets(3, setup=True),
        offset(3, **member()),
        offset(3),
        offset(3, **member(2)),
        offset(3, **member(member_id="stranger")),
        add_offsets(3, group_id=group("none"), setup=True),
        offset(3, group_id=group("none"), **member()),
        offset(6, where=BY_ID, group_id=group("none"), **member()),
        end(4),
    ),
    scenario(
        "transaction-offsets-of-consumer-group",
        TOPIC,
        join_consumer_group(1, label="join"),
        begin(),
        add_offsets(3, setup=True),
        *[
            offset(version, where=where, **member(epoch))
            for version, where in ((3, BY_NAME), (5, BY_NAME), (6, BY_ID))
            for epoch in (reply("join", "member_epoch"), 0, 99)
        ],
        offset(6, where=BY_ID, **member(99, "stranger")),
        offset(6, where=BY_ID),
        end(4),
    ),
    scenario(
        "transaction-strangers",
        TOPIC,
        add((0, 3), 77, 0),
        add(3, 77, 0, ""),
        add(3, 77, 0, txn("far", on_other_broker=True)),
        add_offsets((0, 4), 77, 0),
        add_offsets(4, 77, 0, ""),
        add_offsets(4, 77, 0, group_id=""),
        add_offsets(4, 77, 0, txn("far", on_other_broker=True)),
        end(range(6), True, 77, 0),
        end(5, True, 77, 0, ""),
        end(5, True, 77, 0, txn("far", on_other_broker=True)),
        end(5, True, -1, -1),
        offset((0, 3, 4, 5), 77, 0),
        offset(3, 77, 0, ""),
        offset(3, 77, 0, group_id=""),
        offset(3, 77, 0, group_id=group("far", on_other_broker=True)),
        write(12, 0, producer=77, epoch=0, retry=UNVERIFIED),
        write(11, 0, producer=77, epoch=0, retry=UNVERIFIED),
        write(12, 0, producer=77, epoch=0, transactional_id="", retry=UNVERIFIED),
        describe(0, TXN),
        describe(0, ""),
        describe(0),
        describe(0, txn("far", on_other_broker=True)),
    ),
    scenario(
        "transaction-refused",
        TOPIC,
        begin(),
        add((1, 3), epoch=NEXT),
        add_offsets((1, 3), epoch=NEXT),
        end((1, 4, 5), epoch=NEXT),
        offset((2, 3, 5), epoch=NEXT),
        add(3, 99),
        add_offsets(3, 99),
        end(4, producer=99),
        end(5, producer=99),
        offset(3, 99),
        end(4),
        end(4, False),
        end(5),
        add(3, topics=[{"name": T, "partitions": [0, 7]}]),
        add(0, topics=[{"name": "contract-missing", "partitions": [0]}]),
        add(3, topics=[]),
        offset(3),
        offset(4),
        add_offsets(3, setup=True),
        offset(3, index=7),
        offset(3, where={"name": "contract-missing"}),
        offset(3, metadata="x" * 5_000),
        offset(6, where=BY_ID),
        offset(6, where={"topic_id": UNKNOWN_TOPIC_ID}),
        offset(6, where={"topic_id": uuid.UUID(int=0)}),
        offset(3, member_id="stranger", generation_id_or_member_epoch=1),
        offset(3, generation_id_or_member_epoch=1),
        offset(3, member_id="stranger"),
        offset(3, group_instance_id="i"),
        offset(3, topics=[]),
        produce(11, Batch(transactional=True), transactional_id=TXN),
        produce(11, Batch(), transactional_id=TXN),
        write(11, 0, index=4),
        write(11, 0, transactional_id=txn("far", on_other_broker=True), retry=UNVERIFIED),
        end(4, cut=1),
        add(3, cut=1),
        add_offsets(4, cut=1),
        offset(3, cut=1),
        send("TxnOffsetCommit", 99),
    ),
    scenario(
        "transaction-bulk",
        {"t": {}, "u": {}},
        begin(),
        add_bulk((4, 5)),
        add_bulk((4, 5), verify=True),
        add_bulk(4, verify=True, topics=[{"name": topic("u"), "partitions": [0]}]),
        add_bulk(4, 77, 0, verify=True),
        add_bulk(4, 77, 0),
        add_bulk(4, epoch=NEXT, verify=True),
        add_bulk(4, 77, 0, txn("y"), verify=True),
        add_bulk(4, 77, 0, txn("far", on_other_broker=True)),
        describe(0, TXN),
    ),
    scenario(
        "list-transactions",
        TOPIC,
        begin(),
        send("ListTransactions", (0, 1, 2), own=True),
        send("ListTransactions", 0, state_filters=["Empty"], own=True),
        send("ListTransactions", 0, state_filters=["Ongoing"], own=True),
        send("ListTransactions", 0, state_filters=["Empty", "Nonsense"], own=True),
        send("ListTransactions", 0, producer_id_filters=[ME], own=True),
        send("ListTransactions", 0, producer_id_filters=[987_654], own=True),
        send("ListTransactions", 1, duration_filter=0, own=True),
        send("ListTransactions", 2, transactional_id_pattern=".*", own=True),
        send("ListTransactions", 2, transactional_id_pattern="nothing", own=True),
        send("ListTransactions", 2, transactional_id_pattern="*(", own=True),
        send("ListTransactions", 2, transactional_id_pattern="", own=True),
        add(3, setup=True),
        send("ListTransactions", 1, duration_filter=3_600_000, own=True),
        send("ListTransactions", 0, state_filters=["Ongoing"], own=True),
        send("ListTransactions", 2, cut=1),
        send("ListTransactions", 99),
    ),
]

SCENARIOS: Final = [*INIT, *CLASSIC, *MODERN, *REFUSED]
