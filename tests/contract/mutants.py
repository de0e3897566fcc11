"""Changes each error code of the embedded cluster in turn and checks that the record notices.

python -m tests.contract.mutants                    all mutants
python -m tests.contract.mutants --only handlers/offsets

A mutant is one place in kafka_async/embedded with an error code or a raised error, replaced by
another one. A mutant that no scenario kills must be in `KILLED_BY_UNIT_TEST`, with the unit test
that kills it, or in `UNREACHABLE`, with the reason.

The modules are compiled once, with a call at each place that says whether its mutant is active and
notes that the place ran. Every mutant runs in a fork of one process, and only with the scenarios in
which its place runs. Results do not depend on the speed of the machine: the scenarios run on
virtual time, scenarios and unit tests must pass without a mutant, and a fork that ends without a
result, or not at all, is an error.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import gc
import importlib
import json
import os
import pkgutil
import signal
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import CodeType

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
SWITCH: Final = "__mutant__"
"""Name of the function that the changed modules call."""
RELOADED_MODULES: Final = ("kafka_async.embedded", "kafka_async.testing", "tests.")
"""Modules that a fork imports anew for a mutant whose place runs at import."""
NO_MUTANT: Final = "none"
"""Name for a run with modules that are imported anew, and without a mutant."""
FORK_TIMEOUT: Final = 120
"""Seconds after which a fork is stopped, without a result; no fork takes more than some seconds."""

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
    "test_classic_group.py::"
    "test_error_of_the_leaders_assignor_ends_the_generation_if_it_is_forwarded[True]": (
        "groups/classic_group.py::"
        "ClassicGroup._forward_assignor_error::ErrorCode.INCONSISTENT_GROUP_PROTOCOL",
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
    "test_permissions.py::test_hides_groups_with_a_denied_topic[consumer]": (
        "handlers/consumer_groups.py::_hide_denied_topics::ErrorCode.TOPIC_AUTHORIZATION_FAILED",
    ),
    "test_permissions.py::test_error_codes_depend_on_acls[share_group_heartbeat]": (
        "handlers/share_groups.py::share_group_heartbeat::ErrorCode.TOPIC_AUTHORIZATION_FAILED",
    ),
    "test_permissions.py::test_hides_groups_with_a_denied_topic[share]": (
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
    "test_produce.py::test_records_that_cannot_be_decompressed_are_an_unknown_error": (
        "request_validation.py::validate_batch::raise UnknownServerError #2",
    ),
    "test_topic_apis.py::test_refuses_more_than_10000_partitions_per_request": (
        "handlers/topics.py::create_topics::ErrorCode.POLICY_VIOLATION",
        "handlers/topics.py::_create_partitions_of::raise PolicyViolationError",
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


@dataclass
class Switch:
    """Says at each place whether its mutant is active, and notes the places that run.

    Attributes:
        active: name of the active mutant, empty for none.
        ran: names of the mutants whose places have run.
    """

    active: str = ""
    ran: set[str] = field(default_factory=set[str])

    def __call__(self, name: str) -> bool:
        """Return True if a mutant is active."""
        self.ran.add(name)
        return name == self.active


class _Changes(ast.NodeTransformer):
    """Makes each place of a module depend on the switch, and collects the mutants' lines."""

    def __init__(self, module: str) -> None:
        self.lines: dict[str, int] = {}
        self._module = module
        self._path: list[str] = []
        self._times: Counter[str] = Counter()
        self._errors = broker_errors()

    def visit_ClassDef(
        self, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    ) -> ast.AST:
        self._path.append(node.name)
        self.generic_visit(node)
        self._path.pop()
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        of_codes = isinstance(node.value, ast.Name) and node.value.id == "ErrorCode"
        if of_codes and node.attr.isupper():
            return self._choice(node, f"ErrorCode.{node.attr}", REPLACEMENT_CODE)
        return node

    def visit_Raise(self, node: ast.Raise) -> ast.Raise:
        if isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
            error = node.exc.func
            if error.id in self._errors:
                node.exc.func = self._choice(error, f"raise {error.id}", REPLACEMENT_ERROR)
        self.generic_visit(node)
        return node

    def _choice(self, node: ast.expr, what: str, replacement: str) -> ast.expr:
        name = f"{self._module}::{'.'.join(self._path)}::{what}"
        self._times[name] += 1
        if self._times[name] > 1:
            name += f" #{self._times[name]}"
        self.lines[name] = node.lineno
        choice = ast.parse(f"{replacement} if {SWITCH}({name!r}) else None", mode="eval").body
        assert isinstance(choice, ast.IfExp)
        for new in ast.walk(choice):
            ast.copy_location(new, node)
        choice.orelse = node
        return choice


def broker_errors() -> frozenset[str]:
    """Return the names of the errors that have a code on the wire."""
    from kafka_async import errors

    return frozenset(
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and getattr(value, "code", None) is not None
    )


def mutants() -> dict[str, int]:
    """Return the lines of every place that names an error code or raises an error, by mutant."""
    return {name: line for path in _changed_paths() for name, line in _changed(path)[0].items()}


def _changed_paths() -> list[Path]:
    return [
        path
        for path in sorted(PACKAGE.rglob("*.py"))
        if str(path.relative_to(PACKAGE)) not in EXCLUDED_MODULES
    ]


def _changed(path: Path) -> tuple[dict[str, int], ast.Module]:
    """Return the lines of a module's mutants and its changed tree."""
    changes = _Changes(str(path.relative_to(PACKAGE)))
    tree = changes.visit(ast.parse(path.read_text()))
    return changes.lines, tree


def install(switch: Switch) -> None:
    """Make imports of the embedded cluster's modules depend on the switch."""
    assert not any(name.startswith("kafka_async.embedded") for name in sys.modules)
    setattr(builtins, SWITCH, switch)
    get_code = SourceFileLoader.get_code
    codes = {
        str(path): compile(_changed(path)[1], path, "exec", dont_inherit=True)
        for path in _changed_paths()
    }

    def changed_code(self: SourceFileLoader, fullname: str) -> CodeType | None:
        return codes.get(self.path) or get_code(self, fullname)

    SourceFileLoader.get_code = changed_code


def import_cluster() -> None:
    """Import every module of the embedded cluster, and the scenarios."""
    package = importlib.import_module("kafka_async.embedded")
    for module in pkgutil.walk_packages(package.__path__, "kafka_async.embedded."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    importlib.import_module("tests.contract.compare")


# -- one mutant -----------------------------------------------------------------------------------


class NoResultError(Exception):
    """A fork raised an exception, or was stopped."""


def in_fork(function: Callable[[], Any]) -> Any:
    """Return a function's result, which JSON can represent, from a fork of this process."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(FORK_TIMEOUT)
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, 1)
        os.dup2(devnull, 2)
        try:
            message = {"result": function()}
        except BaseException as error:  # noqa: BLE001  # the parent raises it
            message = {"error": repr(error)}
        try:
            with open(writer, "w") as pipe:
                json.dump(message, pipe)
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader) as pipe:
        text = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    message = json.loads(text) if text else {"error": f"exit status {status}"}
    if "error" in message:
        raise NoResultError(message["error"])
    return message["result"]


def run_scenario(name: str) -> list[str]:
    """Return what differs between the record and the responses of a scenario."""
    from kafka_async.testing import run_virtual
    from tests.contract.compare import differences, read_record, run_embedded
    from tests.contract.scenarios import SCENARIOS

    [scenario] = [it for it in SCENARIOS if it.name == name]
    try:
        found = json.loads(json.dumps(run_virtual(run_embedded(scenario)).results))
    except Exception as error:  # noqa: BLE001  # the cluster or the run broke
        return [repr(error)]
    return differences(read_record()[name], found)


class _Failures:
    """Collects the tests that fail, as a plugin of pytest."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.names.append(report.nodeid)


def run_unit_tests(tests: Iterable[str]) -> tuple[int, list[str]]:
    """Run unit tests; return pytest's exit code and the tests that fail."""
    options = ["-q", "-p", "no:cacheprovider", "--rootdir", str(ROOT), "--timeout", "0"]
    paths = [str(ROOT / "tests" / "embedded" / test) for test in tests]
    failures = _Failures()
    code = pytest.main([*options, *paths], plugins=[failures])
    return int(code), failures.names


class Runner:
    """Runs mutants in forks of this process, which has imported the changed modules."""

    def __init__(self) -> None:
        self._switch = Switch()
        install(self._switch)
        import_cluster()
        from tests.contract.compare import read_record
        from tests.contract.runner import error_codes
        from tests.contract.scenarios import SCENARIOS

        self._names = [scenario.name for scenario in SCENARIOS]
        self._at_import = set(self._switch.ran)
        gc.freeze()  # forks share what is imported
        self._places: dict[str, list[str]] = {}
        """The mutants whose places run, by scenario."""
        self._codes = {
            name: set[int]().union(*map(error_codes, responses.values()))
            for name, responses in read_record().items()
        }

    def check_scenarios(self) -> list[str]:
        """Run every scenario without a mutant and note the places that run; return defects."""
        different, self._places = in_fork(self._all_places)
        again = self.killed_by(NO_MUTANT, self._names)
        return [*different, *([f"imported anew, {again} fails without a mutant"] if again else [])]

    def _all_places(self) -> tuple[list[str], dict[str, list[str]]]:
        failed: list[str] = []
        places: dict[str, list[str]] = {}
        for name in self._names:
            self._switch.ran.clear()
            failed += [f"{name} fails without a mutant: {text}" for text in run_scenario(name)]
            places[name] = sorted(self._switch.ran)
        return failed, places

    def scenarios_of(self, mutant: str) -> list[str]:
        """Return the scenarios in which a mutant's place runs, those of its code first.

        A place that runs at import may be used in any scenario.
        """
        names = self._names
        if mutant not in self._at_import:
            names = [name for name in names if mutant in self._places[name]]
        code = code_of(mutant)
        return sorted(names, key=lambda name: code not in self._codes[name])

    def killed_by(self, mutant: str, names: Sequence[str]) -> str:
        """Return the first of some scenarios that kills a mutant; empty if none does."""
        return in_fork(lambda: self._first_to_kill(mutant, names)) if names else ""

    def _first_to_kill(self, mutant: str, names: Sequence[str]) -> str:
        try:
            self._activate(mutant)
        except Exception:  # noqa: BLE001  # the modules cannot be imported
            return "the import"
        return next((name for name in names if run_scenario(name)), "")

    def check_unit_tests(self, chosen: Iterable[str]) -> list[str]:
        """Run the unit tests of some mutants without a mutant; return defects."""
        found: list[str] = []
        tests: defaultdict[str, set[str]] = defaultdict(set)
        for mutant in chosen:
            if mutant in KILLED_BY_UNIT_TEST:
                control = NO_MUTANT if mutant in self._at_import else ""
                tests[control].add(KILLED_BY_UNIT_TEST[mutant])
        for control, names in tests.items():
            code, failed = self._run_unit_tests(sorted(names), control)
            found += [f"{name} fails without a mutant" for name in failed]
            if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
                found.append(f"the unit tests do not run: pytest's exit code {code}")
        return found

    def _run_unit_tests(self, tests: Sequence[str], mutant: str) -> tuple[int, list[str]]:
        def run() -> tuple[int, list[str]]:
            self._activate(mutant)
            return run_unit_tests(tests)

        return in_fork(run)

    def _activate(self, mutant: str) -> None:
        self._switch.active = mutant
        if mutant in self._at_import or mutant == NO_MUTANT:
            for name in [it for it in sys.modules if it.startswith(RELOADED_MODULES)]:
                del sys.modules[name]
            import_cluster()

    def defect(self, mutant: str) -> str:
        """Return why a mutant survives, or why its row in a table is wrong; empty if neither."""
        names = self.scenarios_of(mutant)
        test = KILLED_BY_UNIT_TEST.get(mutant)
        listed = test is not None or mutant in UNREACHABLE
        if listed and mutant in self._at_import:  # scenarios without its code do not show it
            names = [name for name in names if code_of(mutant) in self._codes[name]]
        try:
            scenario = self.killed_by(mutant, names)
            if scenario:
                return f"{scenario} kills it: remove its row" if listed else ""
            if test is not None:
                code, _ = self._run_unit_tests([test], mutant)
                killed = code == pytest.ExitCode.TESTS_FAILED
                return "" if killed else f"{test} does not kill it"
        except NoResultError as error:
            return f"no result: {error}"
        return "" if listed else f"{len(names)} scenarios reach it"


def code_of(mutant: str) -> int:
    """Return the error code that a mutant replaces."""
    from kafka_async import errors
    from kafka_async.embedded.error_codes import ErrorCode

    what = mutant.rpartition("::")[2].partition(" #")[0]
    if what.startswith("raise "):
        return getattr(errors, what.removeprefix("raise ")).code
    return ErrorCode[what.removeprefix("ErrorCode.")]


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Mutants of the embedded cluster's error codes.")
    parser.add_argument("--only", default="", help="mutants whose name contains this")
    arguments = parser.parse_args()
    begun = time.monotonic()
    lines = mutants()
    unknown = sorted({*KILLED_BY_UNIT_TEST, *UNREACHABLE} - lines.keys())
    chosen = [name for name in lines if arguments.only in name]
    runner = Runner()
    defects = [f"{name}: no such mutant" for name in unknown]
    defects += runner.check_scenarios()
    defects += runner.check_unit_tests(chosen)
    for text in defects:
        print(text)
    survivors = 0
    for mutant in chosen:
        if text := runner.defect(mutant):
            survivors += 1
            print(f"survives: {mutant} (line {lines[mutant]}): {text}", flush=True)
    by_unit_test = sum(it in KILLED_BY_UNIT_TEST for it in chosen)
    unreachable = sum(it in UNREACHABLE for it in chosen)
    print(
        f"{len(chosen)} mutants of {len(lines)}: {survivors} survive, "
        f"{len(chosen) - survivors - by_unit_test - unreachable} killed by the record, "
        f"{by_unit_test} by unit tests, {unreachable} unreachable; "
        f"{time.monotonic() - begun:.0f} seconds"
    )
    return 1 if survivors or defects else 0


if __name__ == "__main__":
    sys.exit(main())
