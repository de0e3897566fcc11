"""Changes each error code of the embedded cluster in turn and checks that the record notices.

python -m tests.contract.mutants                    all mutants, with the scenarios that reach them
python -m tests.contract.mutants --sample 40 --seed 7

A mutant is one place in kafka_async/embedded with an error code or a raised error, replaced by
another one. A mutant that no scenario kills must be in `KILLED_BY_UNIT_TEST`, with the unit test
that kills it, or in `UNREACHABLE`, with the reason.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import CodeType, FrameType

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ROOT / "kafka_async" / "embedded"
REPLACEMENT_CODE: Final = "ErrorCode.STALE_BROKER_EPOCH"
"""The code that replaces others; the embedded cluster never returns it."""
REPLACEMENT_ERROR: Final = "__import__('kafka_async.errors').errors.StaleBrokerEpochError"
EXCLUDED_MODULES: Final = (
    "faults.py",
    "requests/error_responses.py",
    "__main__.py",
)
"""Modules with error codes that they do not send in responses."""
ENVIRONMENT: Final = "KAFKA_ASYNC_MUTANT"
RELOADED_MODULES: Final = ("kafka_async.embedded", "kafka_async.testing", "tests.contract.")
"""Modules that a fork imports anew."""
MUTANT_TIMEOUT: Final = 60
"""Seconds after which a mutant counts as killed."""

MUTANTS_BY_UNIT_TEST: Final[dict[str, tuple[str, ...]]] = {
    "test_acl_apis.py::test_create_acls_rejects_an_invalid_acl_and_adds_the_others": (
        "handlers/acls.py::_acl::raise InvalidRequestError",
        "handlers/acls.py::_acl::raise InvalidRequestError #2",
        "handlers/acls.py::_acl::raise InvalidRequestError #3",
        "handlers/acls.py::_acl::raise InvalidRequestError #4",
    ),
    "test_acl_apis.py::test_filters_with_unknown_codes_select_nothing": (
        "handlers/acls.py::delete_acls::ErrorCode.INVALID_REQUEST",
    ),
    "test_permissions.py::test_error_codes_depend_on_acls[add_internal_partitions_to_txn]": (
        "handlers/transactions.py::_add_or_verify::ErrorCode.TOPIC_AUTHORIZATION_FAILED",
    ),
    "test_permissions.py::test_error_codes_depend_on_acls[delete_a_missing_topic]": (
        "handlers/topics.py::_delete_topic::raise UnknownTopicOrPartitionError",
    ),
    "test_permissions.py::test_error_codes_depend_on_acls[describe_acls]": (
        "requests/authorization.py::::ErrorCode.CLUSTER_AUTHORIZATION_FAILED",
    ),
    "test_permissions.py::test_error_codes_depend_on_acls[end_txn]": (
        "requests/authorization.py::::ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    ),
    "test_permissions.py::test_error_codes_depend_on_acls[fetch]": (
        "requests/authorization.py::::ErrorCode.TOPIC_AUTHORIZATION_FAILED",
    ),
    "test_permissions.py::test_error_codes_depend_on_acls[heartbeat]": (
        "requests/authorization.py::Authorization.guard.handle::ErrorCode.NONE",
    ),
    "test_permissions.py::test_error_codes_depend_on_acls[join_group]": (
        "requests/authorization.py::::ErrorCode.GROUP_AUTHORIZATION_FAILED",
    ),
    "test_classic_group.py::test_commit_extends_session": (
        "groups/classic_group.py::ClassicGroup.validate_offset_commit::ErrorCode.NONE #4",
    ),
    "test_classic_group.py::test_deleted_group_rejects_requests": (
        "groups/classic_group_state.py::::ErrorCode.COORDINATOR_NOT_AVAILABLE",
        "groups/classic_group_state.py::::ErrorCode.COORDINATOR_NOT_AVAILABLE #2",
        "groups/classic_group_state.py::::ErrorCode.COORDINATOR_NOT_AVAILABLE #3",
        "groups/classic_group_state.py::::ErrorCode.COORDINATOR_NOT_AVAILABLE #4",
        "groups/classic_group_state.py::::ErrorCode.GROUP_ID_NOT_FOUND",
    ),
    "test_classic_group.py::test_empty_group_rejects_members": (
        "groups/classic_group_state.py::::ErrorCode.UNKNOWN_MEMBER_ID #2",
    ),
    "test_classic_group.py::test_full_group_rejects_new_member": (
        "groups/classic_group.py::ClassicGroup.join::ErrorCode.GROUP_MAX_SIZE_REACHED",
    ),
    "test_classic_group.py::test_loading_group_rejects_requests": (
        "groups/classic_group_state.py::::ErrorCode.COORDINATOR_LOAD_IN_PROGRESS",
        "groups/classic_group_state.py::::ErrorCode.COORDINATOR_LOAD_IN_PROGRESS #2",
        "groups/classic_group_state.py::::ErrorCode.COORDINATOR_LOAD_IN_PROGRESS #3",
        "groups/classic_group_state.py::::ErrorCode.COORDINATOR_LOAD_IN_PROGRESS #4",
        "groups/classic_group_state.py::::ErrorCode.COORDINATOR_LOAD_IN_PROGRESS #5",
    ),
    "test_classic_group.py::test_reload_fails_pending_requests_and_restores_generation": (
        "groups/classic_group.py::ClassicGroup.reload::ErrorCode.NOT_COORDINATOR",
    ),
    "test_cluster.py::test_move_leader_elects_requested_broker": (
        "cluster.py::EmbeddedCluster.move_leader.move::raise UnknownTopicOrPartitionError",
    ),
    "test_delegation_tokens.py::test_acls_protect_tokens_of_others": (
        "handlers/delegation_tokens.py::create::ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED",
    ),
    "test_delegation_tokens.py::test_expired_tokens_are_removed_at_the_next_check": (
        "security/delegation_tokens.py::"
        "DelegationTokens.expire::ErrorCode.DELEGATION_TOKEN_EXPIRED",
        "security/delegation_tokens.py::DelegationTokens.renew::ErrorCode.DELEGATION_TOKEN_EXPIRED",
        "security/delegation_tokens.py::"
        "DelegationTokens.renew::ErrorCode.DELEGATION_TOKEN_NOT_FOUND",
    ),
    "test_delegation_tokens.py::test_owner_ends_a_token_at_once": (
        "security/delegation_tokens.py::"
        "DelegationTokens.expire::ErrorCode.DELEGATION_TOKEN_NOT_FOUND",
        "security/delegation_tokens.py::"
        "DelegationTokens.expire::ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH",
        "security/delegation_tokens.py::DelegationTokens.expire::ErrorCode.NONE",
        "security/delegation_tokens.py::DelegationTokens._set_expiry::ErrorCode.NONE",
    ),
    "test_delegation_tokens.py::test_renewers_are_users": (
        "handlers/delegation_tokens.py::create::ErrorCode.INVALID_PRINCIPAL_TYPE",
    ),
    "test_delegation_tokens.py::test_renewers_extend_tokens_up_to_the_maximum": (
        "security/delegation_tokens.py::"
        "DelegationTokens.renew::ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH",
    ),
    "test_delegation_tokens.py::test_token_authenticates_as_its_owner": (
        "handlers/delegation_tokens.py::_check::ErrorCode.NONE",
    ),
    "test_delegation_tokens.py::test_tokens_may_be_disabled": (
        "handlers/delegation_tokens.py::create::ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED",
        "handlers/delegation_tokens.py::describe::ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED",
        "handlers/delegation_tokens.py::expire::ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED",
        "handlers/delegation_tokens.py::renew::ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED",
    ),
    "test_sasl.py::test_mechanism_cannot_change": (
        "security/sasl_server_authenticator.py::SaslServerAuthenticator.handshake::ErrorCode.NONE",
    ),
    "test_sasl.py::test_requests_between_the_messages_get_an_error": (
        "kafka_apis.py::KafkaApis._handle_request::ErrorCode.ILLEGAL_SASL_STATE",
    ),
    "test_sasl.py::test_scram_accepts_the_right_password": (
        "security/sasl_server_authenticator.py::"
        "SaslServerAuthenticator.authenticate::ErrorCode.NONE",
        "security/sasl_server_authenticator.py::"
        "SaslServerAuthenticator.authenticate::ErrorCode.NONE #2",
        "security/sasl_server_authenticator.py::"
        "SaslServerAuthenticator.handshake::ErrorCode.NONE #2",
    ),
    "test_sasl.py::test_scram_fails_alike_for_unknown_users_and_wrong_passwords": (
        "security/sasl_server_authenticator.py::"
        "SaslServerAuthenticator._fail::ErrorCode.SASL_AUTHENTICATION_FAILED",
    ),
    "test_sasl.py::test_unknown_mechanism_gets_the_list_of_mechanisms": (
        "security/sasl_server_authenticator.py::"
        "SaslServerAuthenticator.handshake::ErrorCode.UNSUPPORTED_SASL_MECHANISM",
    ),
    "test_faults.py::test_error_without_code_is_unknown_server_error": (
        "error_codes.py::error_code_of::ErrorCode.UNKNOWN_SERVER_ERROR",
    ),
    "test_faults.py::test_exception_of_handler_is_recorded_and_returned": (
        "kafka_apis.py::KafkaApis._call_handler::ErrorCode.UNKNOWN_SERVER_ERROR",
    ),
    "test_fetch.py::test_validates_leader_epoch_and_detects_divergence": (
        "handlers/fetch.py::::ErrorCode.FENCED_LEADER_EPOCH",
    ),
    "test_consumer_group_apis.py::test_group_version_zero_has_the_classic_protocol_only": (
        "handlers/consumer_groups.py::consumer_group_describe::ErrorCode.UNSUPPORTED_VERSION",
        "handlers/consumer_groups.py::consumer_group_heartbeat::ErrorCode.UNSUPPORTED_VERSION",
    ),
    "test_consumer_group_apis.py::test_limits_the_number_of_members": (
        "groups/consumer_group.py::ConsumerGroup._require_space::raise GroupMaxSizeReachedError",
    ),
    "test_consumer_group_apis.py::test_loads_members_when_the_coordinator_moves": (
        "groups/consumer_group.py::"
        "ConsumerGroup._require_loaded::raise CoordinatorLoadInProgressError",
        "groups/consumer_group.py::ConsumerGroup.delete::ErrorCode.COORDINATOR_LOAD_IN_PROGRESS",
        "groups/group_coordinator.py::"
        "GroupCoordinator.join::ErrorCode.COORDINATOR_LOAD_IN_PROGRESS",
        "handlers/consumer_groups.py::_describe_group::ErrorCode.COORDINATOR_LOAD_IN_PROGRESS",
    ),
    "test_group_migration.py::test_classic_group_that_is_too_large_is_not_converted": (
        "groups/group_coordinator.py::GroupCoordinator._upgrade::raise GroupIdNotFoundError #2",
    ),
    "test_group_migration.py::test_disabled_policy_keeps_the_protocols_apart": (
        "groups/group_coordinator.py::GroupCoordinator._upgrade::raise GroupIdNotFoundError",
        "groups/group_coordinator.py::"
        "GroupCoordinator.join::ErrorCode.INCONSISTENT_GROUP_PROTOCOL #2",
    ),
    "test_group_migration.py::test_new_coordinator_loads_members_of_both_protocols": (
        "groups/group_coordinator.py::"
        "GroupCoordinator._upgrade::raise CoordinatorLoadInProgressError",
    ),
    "test_permissions.py::test_error_codes_depend_on_acls[consumer_group_heartbeat]": (
        "handlers/consumer_groups.py::"
        "consumer_group_heartbeat::ErrorCode.TOPIC_AUTHORIZATION_FAILED",
    ),
    "test_permissions.py::test_hides_consumer_groups_with_a_denied_topic": (
        "handlers/consumer_groups.py::_hide_denied_topics::ErrorCode.TOPIC_AUTHORIZATION_FAILED",
    ),
    "test_permissions.py::test_error_codes_depend_on_acls[share_group_heartbeat]": (
        "handlers/share_groups.py::share_group_heartbeat::ErrorCode.TOPIC_AUTHORIZATION_FAILED",
    ),
    "test_permissions.py::test_hides_share_groups_with_a_denied_topic": (
        "handlers/share_groups.py::_hide_denied_topics::ErrorCode.TOPIC_AUTHORIZATION_FAILED",
    ),
    "test_share_group_apis.py::test_acknowledgement_fails_after_offsets_were_deleted": (
        "groups/share_states.py::ShareStates.write::raise UnknownTopicOrPartitionError",
    ),
    "test_share_group_apis.py::test_altered_offsets_fence_a_leader_with_the_former_state": (
        "groups/share_states.py::ShareStates.write::raise NotLeaderOrFollowerError",
        "handlers/share_fetch.py::_acknowledge_response::ErrorCode.NOT_LEADER_OR_FOLLOWER",
    ),
    "test_share_group_apis.py::test_broker_limits_its_sessions": (
        "state/share_sessions.py::"
        "ShareSessionCache.session_for::raise ShareSessionLimitReachedError",
    ),
    "test_share_group_apis.py::test_limits_the_number_of_members": (
        "groups/share_group.py::ShareGroup.heartbeat::raise GroupMaxSizeReachedError",
    ),
    "test_share_group_apis.py::test_loads_members_when_the_coordinator_moves": (
        "groups/share_group.py::ShareGroup._require_loaded::raise CoordinatorLoadInProgressError",
        "groups/share_group.py::ShareGroup.delete::ErrorCode.COORDINATOR_LOAD_IN_PROGRESS",
        "handlers/share_groups.py::_describe_group::ErrorCode.COORDINATOR_LOAD_IN_PROGRESS",
    ),
    "test_share_group_apis.py::test_share_version_zero_has_no_share_groups": (
        "handlers/share_fetch.py::_require_member::raise UnsupportedVersionError",
        "handlers/share_groups.py::share_group_describe::ErrorCode.UNSUPPORTED_VERSION",
        "handlers/share_groups.py::share_group_heartbeat::ErrorCode.UNSUPPORTED_VERSION",
        "handlers/share_offsets.py::_check::ErrorCode.UNSUPPORTED_VERSION",
        "handlers/share_offsets.py::describe::ErrorCode.UNSUPPORTED_VERSION",
    ),
    "test_group_apis.py::test_new_coordinator_responds_load_in_progress": (
        "handlers/groups.py::list_groups::ErrorCode.COORDINATOR_LOAD_IN_PROGRESS",
    ),
    "test_group_apis.py::test_rejects_requests_while_group_loads": (
        "groups/group_coordinator.py::"
        "GroupCoordinator.validate_offset_delete::ErrorCode.COORDINATOR_LOAD_IN_PROGRESS",
        "handlers/groups.py::_describe_group::ErrorCode.COORDINATOR_LOAD_IN_PROGRESS",
        "groups/group_coordinator.py::"
        "GroupCoordinator.validate_offset_fetch::ErrorCode.COORDINATOR_LOAD_IN_PROGRESS",
    ),
    "test_metadata.py::test_leaders_move_when_broker_stops_and_isr_recovers": (
        "handlers/metadata.py::partition_fields::ErrorCode.LEADER_NOT_AVAILABLE",
    ),
    "test_metadata.py::test_topic_is_not_created_with_too_few_brokers": (
        "handlers/metadata.py::_create_missing::ErrorCode.INVALID_REPLICATION_FACTOR",
    ),
    "test_produce.py::test_not_leader_response_has_leader_from_version_10": (
        "state/topics.py::TopicTable.leader_partition::raise NotLeaderOrFollowerError",
    ),
    "test_produce.py::test_too_few_in_sync_replicas_reject_acks_all_only": (
        "handlers/produce.py::_Append._check_min_insync_replicas::raise NotEnoughReplicasError",
    ),
    "test_log.py::test_marker_of_fenced_epoch_is_rejected": (
        "state/producer_state_manager.py::"
        "ProducerStateManager.check_marker_epoch::raise InvalidProducerEpochError",
    ),
    "test_transaction_apis.py::test_end_txn_while_markers_are_pending": (
        "transactions/transaction_state.py::::ErrorCode.CONCURRENT_TRANSACTIONS #2",
        "transactions/transaction_state.py::::ErrorCode.CONCURRENT_TRANSACTIONS #3",
        "transactions/transaction_state.py::::ErrorCode.CONCURRENT_TRANSACTIONS #4",
        "transactions/transaction_state.py::::ErrorCode.CONCURRENT_TRANSACTIONS #5",
        "transactions/transaction_state.py::::ErrorCode.INVALID_TXN_STATE #2",
        "transactions/transaction_state.py::::ErrorCode.INVALID_TXN_STATE #4",
        "transactions/transaction_state.py::::ErrorCode.PRODUCER_FENCED #2",
        "transactions/transaction_state.py::::ErrorCode.PRODUCER_FENCED #3",
    ),
    "test_transaction_apis.py::test_late_v1_write_to_ending_transaction_is_retriable": (
        "transactions/transaction_coordinator.py::"
        "TransactionCoordinator.check_produce::ErrorCode.CONCURRENT_TRANSACTIONS",
        "transactions/transaction_coordinator.py::"
        "TransactionCoordinator.check_produce::ErrorCode.NOT_ENOUGH_REPLICAS",
    ),
    "test_transaction_apis.py::test_requests_before_marker_are_concurrent_transactions": (
        "transactions/transaction_state.py::::ErrorCode.CONCURRENT_TRANSACTIONS",
    ),
    "test_transaction_apis.py::test_transaction_survives_stop_of_coordinator": (
        "transactions/transaction_coordinator.py::"
        "TransactionCoordinator.check_coordinator::ErrorCode.COORDINATOR_LOAD_IN_PROGRESS",
    ),
    "test_transaction_metadata.py::test_idle_transactional_id_expires_except_in_transaction": (
        "transactions/transaction_state.py::::ErrorCode.INVALID_PRODUCER_ID_MAPPING",
    ),
}
"""Mutants that the scenarios cannot reach, by the test in tests/embedded that kills them."""

KILLED_BY_UNIT_TEST: Final = {
    mutant: test for test, names in MUTANTS_BY_UNIT_TEST.items() for mutant in names
}

UNREACHABLE: Final[dict[str, str]] = {
    "groups/classic_group_state.py::::ErrorCode.UNKNOWN_MEMBER_ID": (
        "a member that joins a group without members again is unknown before the table is read"
    ),
    "handlers/metadata.py::_find_coordinator::ErrorCode.COORDINATOR_NOT_AVAILABLE": (
        "a broker that responds is alive, and then every key has a coordinator"
    ),
}
"""Mutants that no request can reach, with the reason."""


@dataclass(frozen=True)
class Mutant:
    """Identifies a place: module, line and columns of the expression, and a stable name."""

    module: str
    line: int
    column: int
    end_column: int
    name: str
    at_import: bool
    """The expression runs when its module is imported, as that of a table."""

    @property
    def spot(self) -> str:
        """Return the place as text, for the environment of a process."""
        return f"{self.module}:{self.line}:{self.column}:{self.end_column}"


class _Finder(ast.NodeVisitor):
    """Collects the places of a module."""

    def __init__(self, module: str) -> None:
        self.found: list[Mutant] = []
        self._module = module
        self._path: list[str] = []
        self._times: Counter[str] = Counter()
        self._functions = 0

    def visit_ClassDef(self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._path.append(node.name)
        if not isinstance(node, ast.ClassDef):
            self.visit(node.args)  # defaults run when the function is defined
            self._functions += 1
            for statement in node.body:
                self.visit(statement)
            self._functions -= 1
        else:
            self.generic_visit(node)
        self._path.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if (
            isinstance(node.value, ast.Name)
            and node.value.id == "ErrorCode"
            and node.attr.isupper()
        ):
            self._add(node, f"ErrorCode.{node.attr}")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        if isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
            name = node.exc.func.id
            if name in broker_errors():
                self._add(node.exc.func, f"raise {name}")
        self.generic_visit(node)

    def _add(self, node: ast.expr, what: str) -> None:
        name = f"{self._module}::{'.'.join(self._path)}::{what}"
        self._times[name] += 1
        if self._times[name] > 1:
            name += f" #{self._times[name]}"
        assert node.end_lineno == node.lineno
        assert node.end_col_offset is not None
        place = node.lineno, node.col_offset, node.end_col_offset
        self.found.append(Mutant(self._module, *place, name, at_import=not self._functions))


def install(spot: str) -> None:
    """Make the import of a mutant's module change it; `spot` is `Mutant.spot`."""
    module, *place = spot.split(":")
    line, start, end = map(int, place)
    path = str(PACKAGE / module)
    assert not any(name.startswith("kafka_async.embedded") for name in sys.modules)
    get_code = SourceFileLoader.get_code

    def mutated_code(self: SourceFileLoader, fullname: str) -> CodeType | None:
        if self.path != path:
            return get_code(self, fullname)
        lines = Path(path).read_bytes().splitlines(keepends=True)
        row = lines[line - 1]  # columns count its bytes
        new = REPLACEMENT_ERROR if row[start:end].endswith(b"Error") else REPLACEMENT_CODE
        lines[line - 1] = row[:start] + new.encode() + row[end:]
        return compile(b"".join(lines), path, "exec", dont_inherit=True)

    SourceFileLoader.get_code = mutated_code


def broker_errors() -> frozenset[str]:
    """Return the names of the errors that have a code on the wire."""
    from kafka_async import errors

    return frozenset(
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and getattr(value, "code", None) is not None
    )


def mutants() -> list[Mutant]:
    """Return every place where the embedded cluster names an error code or raises an error."""
    found: list[Mutant] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        module = str(path.relative_to(PACKAGE))
        if module not in EXCLUDED_MODULES:
            finder = _Finder(module)
            finder.visit(ast.parse(path.read_text()))
            found += finder.found
    return found


# -- the scenarios that reach a line --------------------------------------------------------------


def scenarios_by_line() -> dict[str, list[str]]:
    """Return the scenarios by the lines of the embedded cluster that they run."""
    from kafka_async.testing import run_virtual
    from tests.contract.compare import run_embedded
    from tests.contract.scenarios import SCENARIOS

    prefix, found = str(PACKAGE), dict[str, list[str]]()
    for scenario in SCENARIOS:
        lines: set[str] = set()

        def local(frame: FrameType, event: str, argument: object, into: set[str] = lines) -> Any:
            module = frame.f_code.co_filename[len(prefix) + 1 :]
            into.add(f"{module}:{frame.f_lineno}")
            return local

        def trace(frame: FrameType, event: str, argument: object, inner: Any = local) -> Any:
            return inner if frame.f_code.co_filename.startswith(prefix) else None

        sys.settrace(trace)
        try:
            run_virtual(run_embedded(scenario))
        finally:
            sys.settrace(None)
        for line in lines:
            found.setdefault(line, []).append(scenario.name)
    return found


def _lines(mutant: Mutant) -> Iterator[str]:
    """Return the lines whose run shows that the expression ran: its own, or its statement's."""
    tree = ast.parse((PACKAGE / mutant.module).read_text())
    smallest: ast.stmt | None = None
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and node.end_lineno is not None:
            within = node.lineno <= mutant.line <= node.end_lineno
            if within and (smallest is None or node.lineno >= smallest.lineno):
                smallest = node
    yield f"{mutant.module}:{mutant.line}"
    if smallest is not None and not isinstance(smallest, ast.FunctionDef | ast.ClassDef):
        yield f"{mutant.module}:{smallest.lineno}"


# -- one mutant -----------------------------------------------------------------------------------


def run_mutant(spot: str, names: Sequence[str]) -> int:
    """Run scenarios with a mutant in this process; 1 if a response differs from the record."""
    install(spot)
    from kafka_async.testing import run_virtual
    from tests.contract.compare import differences, read_record, run_embedded
    from tests.contract.scenarios import SCENARIOS

    record = read_record()
    for scenario in SCENARIOS:
        if scenario.name in names:
            try:
                found = json.loads(json.dumps(run_virtual(run_embedded(scenario)).results))
            except Exception:  # noqa: BLE001  # the cluster or the run broke: killed
                return 1
            if differences(record[scenario.name], found):
                return 1
    return 0


def survives(mutant: Mutant, names: Sequence[str]) -> bool:
    """Run scenarios with a mutant in a fork of this process, which imports the cluster anew."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(MUTANT_TIMEOUT)
            devnull = os.open(os.devnull, os.O_WRONLY)
            os.dup2(devnull, 1)
            os.dup2(devnull, 2)
            for name in [it for it in sys.modules if it.startswith(RELOADED_MODULES)]:
                del sys.modules[name]
            status = run_mutant(mutant.spot, names)
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def killed_by_unit_test(mutant: Mutant, test: str) -> bool:
    """Run a unit test with a mutant; returns whether it fails."""
    options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "tests.contract.mutant_plugin"]
    command = [sys.executable, "-m", "pytest", *options, f"tests/embedded/{test}"]
    environment = {**os.environ, ENVIRONMENT: mutant.spot}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, env=environment, check=False)
    return done.returncode == 1


def check(chosen: Sequence[Mutant]) -> list[str]:
    """Return the names of mutants that survive though they should not."""
    lines = scenarios_by_line()
    every = [name for names in lines.values() for name in names]
    everything = sorted(set(every))

    def scenarios_of(mutant: Mutant) -> list[str]:
        if mutant.at_import:
            return everything
        return sorted({name for line in _lines(mutant) for name in lines.get(line, ())})

    def outcome(mutant: Mutant) -> str | None:
        if mutant.name in UNREACHABLE:
            return None
        if mutant.name in KILLED_BY_UNIT_TEST:
            test = KILLED_BY_UNIT_TEST[mutant.name]
            if killed_by_unit_test(mutant, test):
                return None
            return f"{mutant.name}: {test} does not kill it"
        names = scenarios_of(mutant)
        if names and not survives(mutant, names):
            return None
        return f"{mutant.name} (line {mutant.line}): {len(names)} scenarios reach it"

    survivors: list[str] = []
    for mutant in chosen:
        if (text := outcome(mutant)) is not None:
            print("survives:", text, flush=True)
            survivors.append(text)
    return survivors


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Mutants of the embedded cluster's error codes.")
    parser.add_argument("--sample", type=int, help="number of mutants, chosen by the seed")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", default="", help="mutants whose name contains this")
    arguments = parser.parse_args()
    everything = mutants()
    unknown = {*KILLED_BY_UNIT_TEST, *UNREACHABLE} - {it.name for it in everything}
    chosen = [it for it in everything if arguments.only in it.name]
    if arguments.sample is not None:
        seed = random.randrange(2**32) if arguments.seed is None else arguments.seed
        chosen = random.Random(seed).sample(chosen, min(arguments.sample, len(chosen)))
        print(f"seed {seed}")
    begun = time.monotonic()
    survivors = check(chosen)
    for name in sorted(unknown):
        print("no such mutant:", name)
    by_unit_test = sum(it.name in KILLED_BY_UNIT_TEST for it in chosen)
    unreachable = sum(it.name in UNREACHABLE for it in chosen)
    print(
        f"{len(chosen)} mutants of {len(everything)}: {len(survivors)} survive, "
        f"{len(chosen) - len(survivors) - by_unit_test - unreachable} killed by the record, "
        f"{by_unit_test} by unit tests, {unreachable} unreachable; "
        f"{time.monotonic() - begun:.0f} seconds"
    )
    return 1 if survivors or unknown else 0


if __name__ == "__main__":
    sys.exit(main())
