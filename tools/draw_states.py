"""Writes the tables of docs/states.md: state machines and error handling, from the code.

    python tools/draw_states.py [--check]

The tables are Python mappings that the client and the embedded cluster use; each becomes a Markdown
table.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from kafka_async.consumer.group.commit_errors import COMMIT_ERRORS
from kafka_async.embedded.error_codes import ErrorCode
from kafka_async.embedded.groups import classic_group_state
from kafka_async.embedded.transactions import transaction_state as coordinator_state
from kafka_async.group import member_states as member
from kafka_async.producer.produce_errors import PRODUCE_ERROR_ACTIONS
from kafka_async.producer.transactions import state as transaction_state
from tools import generated_page

if TYPE_CHECKING:
    from kafka_async.errors import KafkaError

Transitions = Mapping[tuple[Any, Any], Any]


def make() -> str:
    """Return the page."""
    beating = [each.value for each in member.MemberState if each in member.HEARTBEAT_STATES]
    group_errors = {
        "JoinGroup": member.JOIN_ERRORS,
        "SyncGroup": member.SYNC_ERRORS,
        "Heartbeat": member.HEARTBEAT_ERRORS,
    }
    blocks = {
        "heartbeats": f"{', '.join(beating)}.",
        "group member": transitions(member.TRANSITIONS),
        "posted events": generated_page.table(
            ["State", "Posted events, the most important first"],
            ((name(s), ", ".join(map(name, taken))) for s, taken in member.POSTED_EVENTS.items()),
        ),
        "group errors": error_table(group_errors),
        "commit errors": action_table("Commit", COMMIT_ERRORS),
        "produce errors": action_table("Producer", PRODUCE_ERROR_ACTIONS),
        "transaction reasons": generated_page.table(
            ["State", "Reason in the error"],
            ((state.value, why) for state, why in transaction_state.STATE_ERRORS.items()),
        ),
        "transactional producer": transitions(transaction_state.TRANSITIONS),
        "embedded group": matrix(
            classic_group_state.TABLE, list(classic_group_state.ClassicGroupState)
        ),
        "embedded transaction": matrix(
            coordinator_state.TABLE, list(coordinator_state.TransactionState)
        ),
    }
    return generated_page.filled("states.md", blocks)


def action_table(title: str, actions: Mapping[Any, enum.Enum]) -> str:
    """Return a table with the action for each class of errors."""
    rows = ((f"`{cls.__name__}`", action.value) for cls, action in actions.items())
    return generated_page.table(["Error", title], rows)


def transitions(table: Transitions) -> str:
    """Return a row for each transition; one row if an event has the same result in all states."""
    states = cast("type[enum.Enum]", type(next(iter(table))[0]))
    rows: dict[tuple[str, ...], None] = {}
    for (state, event), after in table.items():
        always = all(table.get((other, event)) is after for other in states)
        rows["any" if always else name(state), name(event), name(after)] = None
    return generated_page.table(["State", "Event", "Next state"], rows)


def error_table(tables: Mapping[str, member.MembershipErrorTable]) -> str:
    """Return a table of errors, with a column for each request."""
    classes = list(dict.fromkeys(cls for table in tables.values() for cls in table))
    rows = ([f"`{cls.__name__}`", *actions_for(cls, tables.values())] for cls in classes)
    return generated_page.table(["Error", *tables], rows)


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
    if action.raised:
        words.insert(0, "raise to polls")
    if action.invalidates:
        words.append(f"invalidates {action.invalidates.name.lower().replace('_', ' ')}")
    return ", ".join(words)


def matrix(table: Mapping[Any, Mapping[Any, Any]], states: Sequence[enum.Enum]) -> str:
    """Return a table of events, with a column for each state."""
    rows = (
        [name(event), *(name(row[state]) if state in row else "" for state in states)]
        for event, row in table.items()
    )
    return generated_page.table(["Event", *map(name, states)], rows)


def name(value: enum.Enum) -> str:
    """Return the name of a state, an event, a reaction or an error code."""
    if isinstance(value, ErrorCode):
        return value.name
    return str(value.value)


if __name__ == "__main__":
    sys.exit(generated_page.main("states.md", make))
