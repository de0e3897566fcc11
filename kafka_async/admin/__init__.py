"""The admin client: topics, groups, offsets, configuration."""

from kafka_async.admin.admin import Admin
from kafka_async.admin.values import (
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    GroupDescription,
    GroupListing,
    MemberDescription,
    NewTopic,
    OffsetSpec,
    PartitionDescription,
    ResourceType,
    TopicDescription,
    TopicListing,
)

__all__ = [
    "Admin",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "GroupDescription",
    "GroupListing",
    "MemberDescription",
    "NewTopic",
    "OffsetSpec",
    "PartitionDescription",
    "ResourceType",
    "TopicDescription",
    "TopicListing",
]
