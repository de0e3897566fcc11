"""Error codes of errors."""

from __future__ import annotations

import pytest

from kafka_async.embedded.codes import Code, code_of
from kafka_async.errors import IllegalStateError, KafkaError, NotCoordinatorError


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotCoordinatorError("moved"), Code.NOT_COORDINATOR),
        (IllegalStateError("no code on the wire"), Code.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_error_without_a_code_is_an_unknown_server_error(error: KafkaError, code: Code) -> None:
    assert code_of(error) == code
