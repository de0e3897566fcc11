"""Options of a writer of `format("kafka_async")`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafka_async.config import ProducerConfig
from kafka_async.spark.options import client_options, hide_option_secrets, own_options
from kafka_async.spark.properties import Properties

if TYPE_CHECKING:
    from collections.abc import Mapping

# Spark's connector rejects the serializers too.
REFUSED: Final = {
    "kafka.key.serializer": "columns are bytes: cast them in Spark",
    "kafka.value.serializer": "columns are bytes: cast them in Spark",
    "kafka.transactional.id": "the sink is at-least-once",
}


@dataclass(frozen=True)
class SinkOptions:
    """Holds a writer's options; `topic` overrides the column of that name."""

    properties: Properties[ProducerConfig]
    topic: str | None = None

    def config(self) -> ProducerConfig:
        """Return the configuration of a producer, with secrets read in this process."""
        return self.properties.config()


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Parse and check a writer's options; InvalidConfigurationError names the option."""
    options = hide_option_secrets(options)
    own = own_options(options)
    properties = Properties(ProducerConfig, client_options(options, REFUSED))
    return SinkOptions(properties, topic=own.get("topic"))
