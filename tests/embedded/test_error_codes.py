"""Error codes of errors."""

from __future__ import annotations

import pytest

from kafka_async.embedded.error_codes import ErrorCode, error_code_of
from kafka_async.errors import IllegalStateError, KafkaError, NotCoordinatorError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotCoordinatorError("moved"), ErrorCode.NOT_COORDINATOR),
        (IllegalStateError("no code on the wire"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_error_without_code_is_unknown_server_error(error: KafkaError, code: ErrorCode) -> None:
    assert error_code_of(error) == code
