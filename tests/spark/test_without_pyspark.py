"""Tests of importing and using the data source without pyspark."""

from __future__ import annotations

from tests.programs import output_of, run_python

PROGRAM = """
import sys
sys.modules["pyspark"] = None
from kafka_async.spark import KafkaDataSource
from kafka_async.errors import IllegalStateError
try:
    KafkaDataSource({})
except IllegalStateError as error:
    print(error)
"""


def test_error_says_what_to_install() -> None:
    assert "the extra spark: pip install '.[spark]' in a checkout" in output_of("-c", PROGRAM)


def test_spark_entry_module_imports_no_client_code() -> None:
    program = (
        "import pyspark_kafka_async, sys; "
        "print([name for name in sys.modules if name.split('.')[0] == 'kafka_async'])"
    )
    done = run_python("-c", program)
    # Without pyspark the module cannot be imported, but then there is no Spark that imports it.
    assert done.stdout.strip() == "[]" or "No module named 'pyspark'" in done.stderr
