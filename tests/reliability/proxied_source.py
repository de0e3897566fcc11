"""The data source `kafka_async_proxied`: the exactly-once sink, whose driver connects by proxies.

The option proxies is a JSON object with the port of a proxy by the port of each broker.
"""

from __future__ import annotations

import asyncio
import functools
import json
from typing import TYPE_CHECKING, Any

from kafka_async.client.client import Client
from kafka_async.spark import KafkaDataSource
from kafka_async.spark.sink import sink_cluster
from kafka_async.spark.sink.exactly_once import ExactlyOnceStreamWriter
from kafka_async.spark.sink.sink_options import sink_options

if TYPE_CHECKING:
    import ssl as ssl_module
    from collections.abc import Callable, Mapping, MutableMapping
    from typing import TypeVar

    from pyspark.sql.types import StructType

    P = TypeVar("P", bound=asyncio.BaseProtocol)


class ProxiedSource(KafkaDataSource):
    def __init__(self, options: MutableMapping[str, str]) -> None:
        given = dict(options)
        self.proxies = given.pop("proxies", "{}")
        super().__init__(given)

    @classmethod
    def name(cls) -> str:
        return "kafka_async_proxied"

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        return ProxiedStreamWriter(self.options, self.proxies, schema)


class ProxiedStreamWriter(ExactlyOnceStreamWriter):
    """Connects by the proxies where it is built, which is on the driver only."""

    def __init__(self, options: MutableMapping[str, str], proxies: str, schema: StructType) -> None:
        ports = {int(broker): proxy for broker, proxy in json.loads(proxies).items()}
        sink_cluster.Client = functools.partial(Client, dialer=ProxyDialer(ports))
        super().__init__(sink_options(options), schema)


class ProxyDialer:
    """Connects to the proxy of a broker. It is a `kafka_async.foundation.clock.Dialer`."""

    def __init__(self, ports: Mapping[int, int]) -> None:
        self._ports = ports

    async def dial(
        self,
        protocol_factory: Callable[[], P],
        host: str,
        port: int,
        *,
        ssl: ssl_module.SSLContext | None = None,
        server_hostname: str | None = None,
    ) -> tuple[asyncio.Transport, P]:
        """Connect to the proxy."""
        return await asyncio.get_running_loop().create_connection(
            protocol_factory, host, self._ports[port], ssl=ssl, server_hostname=server_hostname
        )
