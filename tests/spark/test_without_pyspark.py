"""Without pyspark the classes can be imported, and using one says what to install."""

from __future__ import annotations

import subprocess
import sys

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


def test_the_error_says_what_to_install() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert "pip install pyspark pyarrow" in done.stdout


def test_the_module_that_spark_finds_imports_nothing_of_ours() -> None:
    program = (
        "import pyspark_kafka_async, sys; "
        "print([name for name in sys.modules if name.split('.')[0] == 'kafka_async'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    # Without pyspark the module cannot be imported, and there is no Spark to look for it.
    assert done.stdout.strip() == "[]" or "No module named 'pyspark'" in done.stderr
