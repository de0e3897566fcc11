"""Writes docs/states.md: the state machines and the error handling, from their tables in the code.

    python tools/draw_states.py [--check]

The tables are Python mappings that the client and the embedded cluster use; each becomes a Markdown
table.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import generated_page

from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.groups import classic_group_state
from kafka_async.embedded.transactions import transaction_state as coordinator_state
from kafka_async.group import member_states as member
from kafka_async.producer import transaction_state
from kafka_async.producer.produce_errors import PRODUCE_ERROR_ACTIONS

if TYPE_CHECKING:
    from kafka_async.errors import KafkaError

PAGE: Final = "states.md"
SOURCES: Final = "the tables in group/, producer/ and embedded/"

Transitions = Mapping[tuple[Any, Any], Any]

OPENING: Final = """\
# State machines

Each state machine of this library is one table in one file, and so is the handling of brokers'
errors. This page is generated from those tables. In the client, a pair of state and event that is
not in the table raises `IllegalStateError`.
"""

MEMBER: Final = """\
## Group member

`kafka_async/group/member_states.py`: the client side of the classic group protocol. Members
send heartbeats in the states {heartbeating}.
"""

GROUP_ERRORS: Final = """\
### Errors of group requests

The row of an error's class applies, else that of its nearest base class. *Find coordinator* looks
the coordinator up first; *invalidates* names the part of the membership that is no longer valid.
"""

COMMITS: Final = """\
### Errors of commits
"""

BATCHES: Final = """\
## Errors of produce requests

`kafka_async/producer/produce_errors.py`: what a producer does with the error of a produce response.
Errors that are not in the table, and not subclasses of one that is, are raised to the caller.
"""

TRANSACTIONS: Final = """\
## Transactional producer

`kafka_async/producer/transaction_state.py`. The reason in the error of a call that a state does not
allow:
"""

GROUPS: Final = """\
## Group in the embedded cluster

`kafka_async/embedded/groups/classic_group_state.py`: the action of the group coordinator for an
event in each state. Words in capitals are error codes of the response.
"""

COORDINATOR: Final = """\
## Transaction in the embedded cluster

`kafka_async/embedded/transactions/transaction_state.py`: the next state, or the error code of the
response. NONE: the request is a retry, and there is nothing left to do.
"""


def make() -> str:
    """Return the page."""
    heartbeating = ", ".join(
        state.value for state in member.MemberState if state in member.HEARTBEAT_STATES
    )
    parts = [
        generated_page.notice("draw_states.py", SOURCES),
        OPENING,
        MEMBER.format(heartbeating=heartbeating),
        transitions(member.TRANSITIONS),
        GROUP_ERRORS,
        error_table(
            {
                "JoinGroup": member.JOIN_ERRORS,
                "SyncGroup": member.SYNC_ERRORS,
                "Heartbeat": member.HEARTBEAT_ERRORS,
            }
        ),
        COMMITS,
        generated_page.table(
            ["Error", "Commit"],
            ((f"`{cls.__name__}`", what.value) for cls, what in member.COMMIT_ERRORS.items()),
        ),
        "",
        BATCHES,
        generated_page.table(
            ["Error", "Producer"],
            ((f"`{cls.__name__}`", what.value) for cls, what in PRODUCE_ERROR_ACTIONS.items()),
        ),
        "",
        TRANSACTIONS,
        generated_page.table(
            ["State", "Reason in the error"],
            ((state.value, why) for state, why in transaction_state.STATE_ERRORS.items()),
        ),
        "",
        transitions(transaction_state.TRANSITIONS),
        GROUPS,
        matrix(classic_group_state.TABLE, list(classic_group_state.ClassicGroupState)),
        COORDINATOR,
        matrix(coordinator_state.TABLE, list(coordinator_state.TransactionState)),
    ]
    return "\n".join(parts)


def transitions(table: Transitions) -> str:
    """Return a row for each transition; one row if an event has the same result in all states."""
    states = cast("type[enum.Enum]", type(next(iter(table))[0]))
    rows: dict[tuple[str, ...], None] = {}
    for (state, event), after in table.items():
        always = all(table.get((other, event)) is after for other in states)
        rows["any" if always else name(state), name(event), name(after)] = None
    return generated_page.table(["State", "Event", "Next state"], rows) + "\n"


def error_table(tables: Mapping[str, member.MembershipErrorTable]) -> str:
    """Return a table of errors, with a column for each request."""
    classes = list(dict.fromkeys(cls for table in tables.values() for cls in table))
    rows = ([f"`{cls.__name__}`", *actions_for(cls, tables.values())] for cls in classes)
    return generated_page.table(["Error", *tables], rows) + "\n"


def actions_for(
    cls: type[KafkaError], tables: Iterable[member.MembershipErrorTable]
) -> Iterable[str]:
    """Return the action from each table for an error or its nearest base class."""
    return (describe(member.membership_error_action(table, cls())) for table in tables)


def describe(action: member.MembershipErrorAction) -> str:
    """Describe an action."""
    words = ["retry" if action.event is None else action.event.value]
    if action.find_coordinator:
        words.insert(0, "find coordinator")
    if action.invalidates:
        words.append(f"invalidates {action.invalidates.name.lower().replace('_', ' ')}")
    return ", ".join(words)


def matrix(table: Mapping[Any, Mapping[Any, Any]], states: Sequence[enum.Enum]) -> str:
    """Return a table of events, with a column for each state."""
    rows = (
        [name(event), *(name(row[state]) if state in row else "" for state in states)]
        for event, row in table.items()
    )
    return generated_page.table(["Event", *map(name, states)], rows) + "\n"


def name(value: enum.Enum) -> str:
    """Return the name of a state, an event, a reaction or an error code."""
    if isinstance(value, ErrorCode):
        return value.name
    return str(value.value)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the page; return the exit status."""
    return generated_page.main(PAGE, make, arguments)


if __name__ == "__main__":
    sys.exit(main())
