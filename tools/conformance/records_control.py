"""Random control batches of the Raft log, and our encoding of them."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

import kafka_async.kernel
from kafka_async.protocol import api
from kafka_async.records.batch import encode_batch
from kafka_async.records.compression import Codec
from tools.conformance.records_plan import NOW
from tools.conformance.samples import sample

if TYPE_CHECKING:
    import random

    from kafka_async.protocol.message import Message

_KEY: Final = struct.Struct(">hh")
_VERSION: Final = 0
_MESSAGES: Final = {
    2: "LeaderChangeMessage",
    3: "SnapshotHeaderRecord",
    4: "SnapshotFooterRecord",
    5: "KRaftVersionRecord",
    6: "VotersRecord",
}


@dataclass(frozen=True)
class ControlSample:
    """Control batch of the type `kind` with an encoded message."""

    kind: int
    body: bytes
    base_offset: int
    timestamp: int
    leader_epoch: int

    def write(self) -> bytes:
        """Return the encoded batch."""
        section = kafka_async.kernel.OpenBatch(None, 1 << 30)
        section.append(self.timestamp, _KEY.pack(_VERSION, self.kind), self.body)
        return encode_batch(
            section.close(),
            codec=Codec.none,
            count=1,
            base_timestamp=self.timestamp,
            max_timestamp=self.timestamp,
            control=True,
            base_offset=self.base_offset,
            leader_epoch=self.leader_epoch,
        )


def random_control_batch(rng: random.Random, kind: int) -> ControlSample:
    """Return a random batch with a control record of type `kind`."""
    message = cast("type[Message]", api.lookup(_MESSAGES[kind]))
    return ControlSample(
        kind,
        sample(message, _VERSION, str(rng.random())).encode(_VERSION),
        base_offset=rng.choice([0, rng.randrange(1 << 62)]),
        timestamp=rng.choice([0, NOW]),
        leader_epoch=rng.choice([0, rng.randrange(1 << 31)]),
    )
