"""Finds APIs by key and by name, and negotiates versions (KIP-35), without importing messages.

`api.py` is the generated table of APIs. `Api.request` and `Api.response` import the module of the
messages on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, overload

from kafka_async.errors import UnsupportedVersionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafka_async.protocol.message import Message, Request, Response
    from kafka_async.protocol.spec import VersionRange

_MESSAGES = "kafka_async.protocol.messages"


class Api:
    """API of the protocol.

    Attributes:
        key: Kafka's number of the API.
        name: Kafka's name of the API, for example `ListOffsets`.
        module: the module in `messages` with its request and response.
        versions: the stable versions; empty for an API that Kafka has removed.
        flexible_from: the first version with compact encoding and tagged fields (KIP-482), or None.
        unstable: the unreleased version, or None. It is never negotiated.
        listeners: the kinds of server that support the API: "broker", "controller".
    """

    __slots__ = ("flexible_from", "key", "listeners", "module", "name", "unstable", "versions")

    def __init__(
        self,
        key: int,
        name: str,
        module: str,
        versions: VersionRange,
        *,
        flexible_from: int | None,
        listeners: tuple[str, ...] = ("broker",),
        unstable: int | None = None,
    ) -> None:
        self.key = key
        self.name = name
        self.module = module
        self.versions = versions
        self.flexible_from = flexible_from
        self.listeners = listeners
        self.unstable = unstable

    @property
    def removed(self) -> bool:
        """True if Kafka has removed all versions of the API."""
        return self.versions.empty

    @property
    def request(self) -> type[Request[Any]]:
        """Class of the API's requests; raises UnsupportedVersionError if Kafka removed the API."""
        return self._message("Request")

    @property
    def response(self) -> type[Response]:
        """Class of the API's responses; raises UnsupportedVersionError if Kafka removed the API."""
        return self._message("Response")

    def is_flexible(self, version: int) -> bool:
        """Return True if `version` has compact encoding and tagged fields (KIP-482)."""
        return self.flexible_from is not None and version >= self.flexible_from

    def negotiate(self, offered: VersionRange | None) -> int:
        """Return the highest version that both this package and a broker support.

        `offered` are the broker's versions of this API, None if it does not support the API. Raises
        UnsupportedVersionError if there is no common version.
        """
        ours = self.versions
        if offered is None:
            raise UnsupportedVersionError(f"the broker does not offer {self.name} (we know {ours})")
        common = ours.intersection(offered)
        if common.empty:
            raise UnsupportedVersionError(
                f"no common version of {self.name}: we know {ours}, the broker offers {offered}"
            )
        return common.max

    def _message(self, kind: str) -> Any:
        if self.removed:
            raise UnsupportedVersionError(f"{self.name} was removed from the protocol")
        return getattr(import_module(f"{_MESSAGES}.{self.module}"), self.name + kind)

    def __repr__(self) -> str:
        return f"<Api {self.key} {self.name} {self.versions}>"


class Registry:
    """Finds APIs by key or name, and messages without an API key by name."""

    __slots__ = ("_by_key", "_by_name", "_keyless")

    def __init__(self, apis: tuple[Api, ...], keyless: Mapping[str, str]) -> None:
        self._by_key = {api.key: api for api in apis}
        self._by_name = {
            api.name + kind: api for api in apis for kind in ("", "Request", "Response")
        }
        self._keyless = keyless

    @overload
    def lookup(self, key_or_name: int) -> Api: ...

    @overload
    def lookup(self, key_or_name: str) -> Api | type[Message]: ...

    def lookup(self, key_or_name: int | str) -> Api | type[Message]:
        """Return an API, or the class of a message without an API key.

        It takes `18`, `"ApiVersions"`, `"ApiVersionsRequest"` or `"EndTxnMarker"`, and raises
        UnsupportedVersionError for anything else.
        """
        if isinstance(key_or_name, int):
            api = self._by_key.get(key_or_name)
        else:
            api = self._by_name.get(key_or_name)
            if api is None and (module := self._keyless.get(key_or_name)):
                return getattr(import_module(f"{_MESSAGES}.{module}"), key_or_name)
        if api is None:
            raise UnsupportedVersionError(f"no API or message is called {key_or_name!r}")
        return api
