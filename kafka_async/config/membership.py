"""Options of members of a group, which consumers and group members share."""

from __future__ import annotations

from typing import Final, Protocol

from kafka_async.config.spelling import option_error, spell

LOOP_WATCHDOG: Final = (
    "Log a warning with the stack of what blocks the event loop, if it has not run for half of "
    "session_timeout_ms; recommended in production."
)


class Member(Protocol):
    """The options of a member that are checked together."""

    @property
    def group_instance_id(self) -> str | None:
        """Id of a static member."""
        ...

    @property
    def session_timeout_ms(self) -> int:
        """Time without heartbeats."""
        ...

    @property
    def heartbeat_interval_ms(self) -> int:
        """Time between heartbeats."""
        ...


def check_instance_id(config: Member) -> None:
    """Raise for an empty group_instance_id."""
    if config.group_instance_id == "":
        raise option_error(
            "group_instance_id",
            " is empty: name the static member, uniquely in its group, or leave the option out "
            "for a dynamic member",
        )


def check_heartbeat_interval(config: Member) -> None:
    """Raise for heartbeats that are not more frequent than the session timeout."""
    if config.heartbeat_interval_ms >= config.session_timeout_ms:
        raise option_error(
            "heartbeat_interval_ms",
            f" must be below {spell('session_timeout_ms')} (a third of it is usual)",
        )
