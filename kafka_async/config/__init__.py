"""Options of clients, producers and consumers: frozen dataclasses, validated when they are created.

Names are Kafka's in snake_case and keep Kafka's units (`_ms`, bytes). The code counts in seconds;
only `seconds()` converts. Each client has a module: client, producer, consumer (share consumers
too) and group_member. `options` defines and checks one option.
"""

from kafka_async.config.addresses import parse_servers, split_server
from kafka_async.config.arguments import ConfigT, resolve_config
from kafka_async.config.client import ClientConfig, ClientOptions
from kafka_async.config.consumer import (
    BY_DURATION,
    ConsumerConfig,
    ConsumerOptions,
    ReaderConfig,
    ReaderOptions,
    ShareConsumerConfig,
    ShareConsumerOptions,
    reset_duration,
)
from kafka_async.config.group_member import GroupMemberConfig, GroupMemberOptions
from kafka_async.config.hidden import hide_secret, hide_secrets
from kafka_async.config.option_types import (
    Compression,
    Deserializer,
    DeserializerObject,
    Partitioner,
    SecretSource,
    Serializer,
    SerializerObject,
    TokenProvider,
)
from kafka_async.config.options import MAX_INT32, MAX_INT64, request_ms, seconds
from kafka_async.config.producer import ProducerConfig, ProducerOptions
from kafka_async.config.security import (
    MECHANISMS_WITHOUT_PASSWORD,
    SASL_MECHANISMS,
    SECURITY_PROTOCOLS,
)

__all__ = [
    "BY_DURATION",
    "MAX_INT32",
    "MAX_INT64",
    "MECHANISMS_WITHOUT_PASSWORD",
    "SASL_MECHANISMS",
    "SECURITY_PROTOCOLS",
    "ClientConfig",
    "ClientOptions",
    "Compression",
    "ConfigT",
    "ConsumerConfig",
    "ConsumerOptions",
    "Deserializer",
    "DeserializerObject",
    "GroupMemberConfig",
    "GroupMemberOptions",
    "Partitioner",
    "ProducerConfig",
    "ProducerOptions",
    "ReaderConfig",
    "ReaderOptions",
    "SecretSource",
    "Serializer",
    "SerializerObject",
    "ShareConsumerConfig",
    "ShareConsumerOptions",
    "TokenProvider",
    "hide_secret",
    "hide_secrets",
    "parse_servers",
    "request_ms",
    "reset_duration",
    "resolve_config",
    "seconds",
    "split_server",
]
