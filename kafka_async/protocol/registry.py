"""The APIs of the protocol, by key and by name, without loading any message.

`api.py` is the generated table; a row names the module its messages live in, and `Api.request` and
`Api.response` import that module when somebody asks. Negotiation (KIP-35) is here as well: it needs
nothing but the ranges.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, overload

from kafka_async.errors import UnsupportedVersionError
from kafka_async.protocol.spec import VersionRange

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafka_async.protocol.message import Message, Request, Response

_MESSAGES = "kafka_async.protocol.messages"


class Api:
    """One API of the protocol.

    Attributes:
        key: Kafka's number for it.
        name: Kafka's name for it, such as `ListOffsets`.
        module: the module under `messages` that holds its request and response.
        versions: the stable versions; empty for an API that Kafka has removed.
        flexible_from: the first version with compact encoding and tagged fields, None when there is
            none.
        unstable: the version that Kafka has not released yet, None when there is none. It is never
            negotiated unless asked for.
        listeners: which kinds of server answer it: "broker", "controller".
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
        """Whether Kafka keeps the key but has dropped every version of the API."""
        return self.versions.empty

    @property
    def request(self) -> type[Request[Any]]:
        """The class of its requests.

        Raises:
            UnsupportedVersionError: the API has been removed.
        """
        return self._message("Request")

    @property
    def response(self) -> type[Response]:
        """The class of its responses.

        Raises:
            UnsupportedVersionError: the API has been removed.
        """
        return self._message("Response")

    def is_flexible(self, version: int) -> bool:
        """Whether `version` uses compact encoding and tagged fields."""
        return self.flexible_from is not None and version >= self.flexible_from

    def negotiate(self, offered: VersionRange | None, *, unstable: bool = False) -> int:
        """The highest version that both this package and a broker know.

        Args:
            offered: the broker's range for this API, None when it does not offer the API at all.
            unstable: whether a version that Kafka has not released may be chosen.

        Raises:
            UnsupportedVersionError: there is none; it names the API and both ranges.
        """
        ours = self.versions
        if unstable and self.unstable is not None:
            ours = VersionRange(ours.min, self.unstable)
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
    """Looks APIs up by key or name, and messages that have no key by name."""

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
        """The API of that key or name, or the class of a message that has no key.

        Args:
            key_or_name: `18`, `"ApiVersions"`, `"ApiVersionsRequest"` or `"EndTxnMarker"`.

        Raises:
            UnsupportedVersionError: nothing of that key or name is known.
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
