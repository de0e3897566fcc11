"""Writes kafka_async/blocking/clients.py from the public methods of the asyncio clients.

    python tools/generate_blocking.py [--check]

A method of a blocking client has the parameters and the description of the asyncio client's.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Final

from tools import generated_page

Method = Callable[..., Any]

FOLDER: Final = generated_page.ROOT / "kafka_async" / "blocking"
PAGE: Final = "clients.py"
CLIENTS: Final = {
    "Client": ("kafka_async.client.client", "A connection to a cluster"),
    "Producer": ("kafka_async.producer.producer", "Sends records"),
    "Transaction": (
        "kafka_async.producer.transactions.transaction",
        "Writes records and offsets atomically",
    ),
    "Consumer": ("kafka_async.consumer.consumer", "Reads records"),
    "ShareConsumer": (
        "kafka_async.consumer.share.share_consumer",
        "Reads records of a share group",
    ),
    "Admin": ("kafka_async.admin.admin", "Administers a cluster"),
}
"""By class: its module, and what it does."""
GENERIC: Final = {"Producer", "Transaction", "Consumer", "ShareConsumer"}
ITERATION: Final = {
    "Consumer": 'RecordIteration["Record[K, V]"]',
    "ShareConsumer": 'RecordIteration["ShareRecord[K, V]"]',
}
"""Base classes of clients that can be iterated over."""
ASYNCIO_ONLY: Final = {"partition_streams", "process"}
"""Methods without a blocking version: they call the application's `async def` functions."""
OFFSETS: Final = ("HasOffsetSource", "Consumer[Any, Any]")
"""A type of asyncio's clients and the blocking one in its place."""
WORDS: Final = {
    "Await the call at once": None,
    "received. Await": "received. Call",
    "It takes the arguments of `enqueue`": None,
    "In a handler of `process`, or": None,
    "Handlers of `process` and": None,
    "`async with ": "`with ",
    "in another event loop or process": "in another process",
    "an `async for` is in": "an iteration is in",
    "A handle, which can be awaited; errors are raised there": (
        "A handle of the request; its `response` raises errors"
    ),
    "A handle: await it for the `RecordMetadata`. It": "A handle of the record. It",
}
"""Words that only apply to asyncio, and their replacement; None: the paragraph is left out."""

OPENING: Final = '''\
"""The blocking clients.

Made by tools/generate_blocking.py from the asyncio clients; do not edit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Never

from typing_extensions import TypeVar

from kafka_async.blocking.portal import (
    BlockingClient,
    RecordIteration,
    RequestHandle,
    call,
    delaying_forks,
    run,
    start,
    unwrap,
)

if TYPE_CHECKING:
    from typing import Self

{imports}

K = TypeVar("K", default=bytes)
V = TypeVar("V", default=bytes)
'''
CLASS: Final = '''

class {name}({bases}):
    """{purpose} with blocking calls.

    Options, arguments and errors are those of `kafka_async.{name}`.
    """

    _client: Async{parameters}

    @property
    def asynchronous(self) -> Async{parameters}:
        """Asyncio client behind this one; it belongs to the background event loop."""
        return self._client

'''


def make() -> str:
    """Return the module."""
    os.environ["KAFKA_ASYNC_KERNEL"] = "python"  # Its methods have signatures.
    imports: set[str] = set()
    classes: list[str] = []
    for name, (module, purpose) in CLIENTS.items():
        client = getattr(import_module(module), name)
        imports.add(f"from {module} import {name} as Async{name}")
        base = ITERATION.get(name, "BlockingClient")
        generic = f"{name}[K, V]" if name in GENERIC else name
        if name in ITERATION:
            imports |= imports_of(base, module)
        bases = f"{base}, Generic[K, V]" if name in GENERIC else base
        classes.append(CLASS.format(name=name, parameters=generic, bases=bases, purpose=purpose))
        if name != "Transaction":  # a producer makes it
            classes.append(constructor(client, module, imports))
        classes += [method(row, imports) for row in methods(client)]
        classes += [attribute(row, imports) for row in properties(client)]
    text = OPENING.format(imports=textwrap.indent("\n".join(sorted(imports)), " " * 4))
    return generated_page.formatted({PAGE: text + "\n".join(classes)})[PAGE]


def methods(client: type) -> Iterator[Method]:
    """Yield the public methods of a class, inherited ones last."""
    seen = set[str]()
    for base in client.__mro__:
        for name, member in vars(base).items():
            public = not name.startswith("_") and name not in ASYNCIO_ONLY
            if inspect.isfunction(member) and public and name not in seen:
                seen.add(name)
                yield member


def properties(client: type) -> Iterator[Method]:
    """Yield the getters of a class's public properties."""
    for name, member in vars(client).items():
        if isinstance(member, property) and member.fget and not name.startswith("_"):
            yield member.fget


def attribute(getter: Method, imports: set[str]) -> str:
    """Return a property with the value of the asyncio client's."""
    body = f"return self._client.{getter.__name__}"
    return definition(getter, imports, body, decorator="@property\n")


def constructor(client: type, module: str, imports: set[str]) -> str:
    """Return `__init__` of a blocking client."""
    name = client.__name__
    made: Any = client
    return definition(
        made.__init__,
        imports,
        "with delaying_forks():\n"
        f"    from {module} import {name} as Async{name}\n"
        "    from kafka_async.config import hide_secrets\n\n"
        "servers, options = hide_secrets(servers), hide_secrets(options)\n"
        f"super().__init__(Async{name}({arguments(made.__init__)}))",
    )


def method(member: Method, imports: set[str]) -> str:
    """Return a method that waits for the asyncio client's."""
    result = str(inspect.signature(member).return_annotation)
    waits = inspect.iscoroutinefunction(member) or result.startswith("Awaitable[")
    function = "start" if member.__name__ == "start" else "run" if waits else "call"
    given = ", ".join(filter(None, [f"self._client.{member.__name__}", arguments(member)]))
    value = f"{function}({given})"
    wrapped = re.match(r"(Transaction|RequestHandle)\[", result)
    if wrapped:
        value = f"{wrapped[1]}({value})"
    body = value if result == "None" else f"return {value}"
    for row in inspect.signature(member).parameters.values():
        if re.search(r"\bSecret\b", str(row.annotation)):
            body = f'{row.name} = hide_secret("{row.name}", {row.name})\n{body}'
    if "hide_secret" in body:
        body = f"from kafka_async.config import hide_secret\n\n{body}"
    return definition(member, imports, body)


def definition(member: Method, imports: set[str], body: str, *, decorator: str = "") -> str:
    """Return the source of a method with the parameters and the description of another."""
    signature = inspect.signature(member)
    for row in signature.parameters.values():
        if row.annotation is not row.empty:
            imports |= imports_of(row.annotation, member.__module__)
    imports |= imports_of(signature.return_annotation, member.__module__)
    # Annotations are strings, which the text of a signature quotes.
    text = re.sub(r"(: |-> )([\"'])(.*?)\2", r"\1\3", str(signature))
    text = re.sub(r"-> Awaitable\[(.*)\]$", r"-> \1", text).replace(*OFFSETS)
    doc = "" if member.__name__ == "__init__" else description(member)
    text = (
        f"{decorator}def {member.__name__}{text}:\n"
        + textwrap.indent(f'"""{doc}"""\n' * bool(doc) + body, " " * 4)
        + "\n"
    )
    return textwrap.indent(text, " " * 4)


def imports_of(annotation: str, module: str) -> set[str]:
    """Return the imports that an annotation of a module needs."""
    annotation = re.sub(r"'[^']*'", "", annotation.replace(*OFFSETS))
    known = {*CLIENTS, *vars(builtins), "RecordIteration", "RequestHandle", "K", "V"}
    known |= {"Any", "Never", "Self", "Awaitable"}
    imports: set[str] = set()
    for name in set(re.findall(r"[A-Za-z_][\w.]*", annotation)) - known:
        package, dot, _ = name.partition(".")
        source = "" if dot else f"from {origin(name, module)} "
        imports.add(f"{source}import {package}")
    return imports


def origin(name: str, module: str) -> str:
    """Return the module from which a module imports a name, or the module that defines it."""
    for node in ast.walk(ast.parse(inspect.getsource(import_module(module)))):
        if isinstance(node, ast.ImportFrom) and name in {row.name for row in node.names}:
            module = node.module or ""
    return re.sub(r"^(kafka_async\.kernel)\..*", r"\1", module)


def arguments(member: Method) -> str:
    """Return the arguments that pass the parameters of a method on."""
    passed: list[str] = []
    for row in list(inspect.signature(member).parameters.values())[1:]:
        stars = {row.VAR_POSITIONAL: "*", row.VAR_KEYWORD: "**"}.get(row.kind, "")
        value = (
            f"unwrap({row.name})"
            if re.search(r"\bClient\b|HasOffsetSource", str(row.annotation))
            else row.name
        )
        passed.append(f"{row.name}={value}" if row.kind is row.KEYWORD_ONLY else stars + value)
    return ", ".join(passed)


def description(member: Method) -> str:
    """Return the docstring of a method for callers without an event loop."""
    doc = inspect.getdoc(member) or ""
    for words, replacement in WORDS.items():
        if replacement is None:
            doc = re.sub(rf"^{re.escape(words)}.*?\n\n", "", doc, flags=re.MULTILINE | re.DOTALL)
        else:
            doc = doc.replace(words, replacement)
    return doc + "\n" * ("\n" in doc)


if __name__ == "__main__":
    sys.exit(generated_page.main(PAGE, make, folder=FOLDER))
