"""The tables of the security page agree with the code and the tests."""

from __future__ import annotations

import re
import tomllib

from kafka_async import errors
from kafka_async.config.java_security import JKS_TO_PKCS12, PKCS12_TO_PEM, TRUSTSTORE_TO_PEM
from tests.docs.markdown_blocks import PAGES, ROOT
from tests.integration.test_failure_times import CASES
from tests.rows import row
from tools.generated_page import tracked_files

PAGE = (ROOT / "docs" / "security.md").read_text("utf-8")
VERIFICATION = (ROOT / "docs" / "verification.md").read_text("utf-8")
NODE = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
CVE = re.compile(r"CVE-\d{4}-\d{4,}")
KNOWN = [
    "CVE-2016-9840",
    "CVE-2021-3520",
    "CVE-2021-38153",
    "CVE-2022-34917",
    "CVE-2022-37434",
    "CVE-2023-25194",
    "CVE-2023-29471",
    "CVE-2023-34453",
    "CVE-2023-34454",
    "CVE-2023-34455",
    "CVE-2023-43642",
    "CVE-2023-45853",
    "CVE-2024-31141",
    "CVE-2024-36114",
    "CVE-2024-36124",
    "CVE-2024-56128",
    "CVE-2025-12183",
    "CVE-2025-27817",
    "CVE-2025-27818",
    "CVE-2025-27819",
    "CVE-2025-66566",
    "CVE-2026-10142",
    "CVE-2026-10143",
    "CVE-2026-27171",
    "CVE-2026-33557",
    "CVE-2026-33558",
    "CVE-2026-35554",
    "CVE-2026-41727",
]
"""Published vulnerabilities of Kafka, its clients and the libraries in their packages."""


def section(title: str, page: str = PAGE) -> str:
    match = re.search(rf"^##+ {title}\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
    assert match is not None, title
    return match[1]


def rows(title: str, page: str = PAGE) -> list[list[str]]:
    """Return the cells of a section's table, without its head."""
    lines = [line for line in section(title, page).splitlines() if line.startswith("| ")]
    return [line.strip("| ").split(" | ") for line in lines[1:]]


# -- vulnerabilities ------------------------------------------------------------------------------


def test_table_has_every_known_vulnerability_once() -> None:
    listed = CVE.findall(section("Known vulnerabilities"))
    assert sorted(listed) == sorted(set(listed))
    assert sorted(listed) == sorted(KNOWN)


def test_every_named_test_exists() -> None:
    named = NODE.findall(PAGE)
    assert len(named) > 10
    missing = [
        f"{file}::{name}"
        for file, name in named
        if not re.search(rf"^(?:async )?def {name}\(", (ROOT / file).read_text("utf-8"), re.M)
    ]
    assert missing == []


def test_every_rule_names_its_test() -> None:
    for *_, here, tests in rows("Known vulnerabilities"):
        assert here.startswith(("Rule: ", "Cannot occur: ", "Applies to ")), here
        assert here.startswith("Cannot occur: ") or NODE.search(tests), here


def test_package_contains_no_library() -> None:
    suffixes = (".so", ".dll", ".dylib", ".a", ".lib", ".jar", ".whl", ".pyd")
    assert [name for name in tracked_files("kafka_async") if name.endswith(suffixes)] == []
    assert "libraries=" not in (ROOT / "setup.py").read_text("utf-8")


def test_lowest_version_of_lz4_has_the_fix() -> None:
    """Releases of the package lz4 contain liblz4 1.9.4, which has the fix, since 4.0.2."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (lowest,) = [each for each in project["dependencies"] if each.startswith("lz4>=")]
    assert tuple(map(int, lowest.removeprefix("lz4>=").split("."))) >= (4, 1)


def test_times_are_given_for_every_measured_case() -> None:
    listed = [case.lower() for case, *_ in rows("Time until an error", VERIFICATION)]
    assert [re.sub(r" \(.*\)", "", case) for case in listed] == [case.lower() for case in CASES]


# -- errors ---------------------------------------------------------------------------------------


def test_errors_of_the_table_exist() -> None:
    for words, name, *_ in rows("Errors"):
        with row(words):
            assert issubclass(getattr(errors, name.strip("`")), errors.KafkaError)


def test_messages_of_the_table_are_those_of_the_code() -> None:
    joins = re.compile(r'["\']\s+f?["\']|[{}]')  # and the braces of names that are filled in
    code = [
        joins.sub("", (ROOT / name).read_text("utf-8"))
        for name in tracked_files("kafka_async")
        if name.endswith(".py")
    ]
    reasons = re.compile(r" \(.*\)|, or: .*")  # OpenSSL's words, and a second form
    for said, *_ in rows("Errors"):
        text = reasons.sub("", said)
        assert any(text in source for source in code), text


def joined(text: str) -> str:
    """Return a text whose commands are on one line each."""
    return re.sub(r" \\\n\s+", " ", text)


def test_conversion_of_java_stores_is_the_same_in_messages_and_pages() -> None:
    for command in (TRUSTSTORE_TO_PEM, JKS_TO_PKCS12, PKCS12_TO_PEM):
        assert command in joined(PAGE)
    for page in PAGES:
        for line in joined(page.read_text("utf-8")).splitlines():
            commands = (TRUSTSTORE_TO_PEM, JKS_TO_PKCS12)
            assert "keytool" not in line or any(command in line for command in commands), page
