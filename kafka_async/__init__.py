"""An asyncio-native Kafka client framework: producer, consumer, transactions, an embedded cluster.

    async with Producer("localhost:9092") as producer:
        await producer.send("greetings", b"hello")

The names below are loaded on first use, so that importing the package is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kafka_async import errors, serde, types
    from kafka_async.admin import Admin, NewTopic
    from kafka_async.client.client import Client
    from kafka_async.client.metadata.request_router import (
        AnyBroker,
        Broker,
        Controller,
        CoordinatorOfGroup,
        CoordinatorOfTransactionalId,
        Leader,
    )
    from kafka_async.client.request_handle import RequestHandle
    from kafka_async.consumer.consumer import Consumer, RebalanceListener
    from kafka_async.consumer.share.share_consumer import ShareConsumer
    from kafka_async.consumer.share.share_record import ShareRecord
    from kafka_async.embedded import EmbeddedCluster
    from kafka_async.group.group_member import GroupMember
    from kafka_async.kernel import Delivery, Record
    from kafka_async.producer.producer import Producer
    from kafka_async.producer.transactions.transaction import Transaction
    from kafka_async.records.batch import RecordBatch
    from kafka_async.runner import run
    from kafka_async.types import (
        GroupMetadata,
        Health,
        OffsetAndMetadata,
        PreparedTransaction,
        ProducerRecord,
        RecordMetadata,
        Token,
        TopicPartition,
    )

__version__ = "0.1.0"

__all__ = [
    "Admin",
    "AnyBroker",
    "Broker",
    "Client",
    "Consumer",
    "Controller",
    "CoordinatorOfGroup",
    "CoordinatorOfTransactionalId",
    "Delivery",
    "EmbeddedCluster",
    "GroupMember",
    "GroupMetadata",
    "Health",
    "Leader",
    "NewTopic",
    "OffsetAndMetadata",
    "PreparedTransaction",
    "Producer",
    "ProducerRecord",
    "RebalanceListener",
    "Record",
    "RecordBatch",
    "RecordMetadata",
    "RequestHandle",
    "ShareConsumer",
    "ShareRecord",
    "Token",
    "TopicPartition",
    "Transaction",
    "errors",
    "run",
    "serde",
    "types",
]

# The module that defines each name; None if the name is itself a module of the package.
_MODULES: Final[dict[str, str | None]] = {
    "Admin": "kafka_async.admin",
    "AnyBroker": "kafka_async.client.metadata.request_router",
    "Broker": "kafka_async.client.metadata.request_router",
    "Client": "kafka_async.client.client",
    "Consumer": "kafka_async.consumer.consumer",
    "Controller": "kafka_async.client.metadata.request_router",
    "CoordinatorOfGroup": "kafka_async.client.metadata.request_router",
    "CoordinatorOfTransactionalId": "kafka_async.client.metadata.request_router",
    "Delivery": "kafka_async.kernel",
    "EmbeddedCluster": "kafka_async.embedded",
    "GroupMember": "kafka_async.group.group_member",
    "GroupMetadata": "kafka_async.types",
    "Health": "kafka_async.types",
    "Leader": "kafka_async.client.metadata.request_router",
    "NewTopic": "kafka_async.admin",
    "OffsetAndMetadata": "kafka_async.types",
    "PreparedTransaction": "kafka_async.types",
    "Producer": "kafka_async.producer.producer",
    "ProducerRecord": "kafka_async.types",
    "RebalanceListener": "kafka_async.consumer.consumer",
    "Record": "kafka_async.kernel",
    "RecordBatch": "kafka_async.records.batch",
    "RecordMetadata": "kafka_async.types",
    "RequestHandle": "kafka_async.client.request_handle",
    "ShareConsumer": "kafka_async.consumer.share.share_consumer",
    "ShareRecord": "kafka_async.consumer.share.share_record",
    "Token": "kafka_async.types",
    "TopicPartition": "kafka_async.types",
    "Transaction": "kafka_async.producer.transactions.transaction",
    "errors": None,
    "run": "kafka_async.runner",
    "serde": None,
    "types": None,
}

_OTHER_CLIENTS: Final[dict[str, str]] = {
    "AIOConsumer": "Consumer",
    "AIOKafkaAdminClient": "Admin",
    "AIOKafkaConsumer": "Consumer",
    "AIOKafkaProducer": "Producer",
    "AIOProducer": "Producer",
    "AdminClient": "Admin",
    "KafkaAdminClient": "Admin",
    "KafkaConsumer": "Consumer",
    "KafkaProducer": "Producer",
}
"""The class to use, by the name of another client's class."""


def __getattr__(name: str) -> Any:
    if name in _OTHER_CLIENTS:
        raise AttributeError(
            f"{__name__} has no {name}: use {_OTHER_CLIENTS[name]}; the documentation has pages on "
            "the migration from aiokafka and from confluent-kafka"
        )
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _MODULES[name]
    value = (
        import_module(f"{__name__}.{name}")
        if module is None
        else getattr(import_module(module), name)
    )
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
