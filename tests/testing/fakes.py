"""Fake servers: a broker that serves Metadata requests, and a Docker engine."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from kafka_async.protocol.header import decode_request, encode_response
from kafka_async.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
)
from tests import request_checks


@contextmanager
def server(respond: Callable[[bytes], bytes], port: int = 0) -> Generator[str]:
    """Serve one request per connection, and yield the address."""
    with socket.create_server(("127.0.0.1", port)) as listener:
        host, bound = listener.getsockname()

        def serve() -> None:
            while True:
                connection, _ = listener.accept()
                with connection:
                    request = connection.recv(65536)
                    if request == b"end":
                        return
                    connection.sendall(respond(request))

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"{host}:{bound}"
        finally:
            with socket.create_connection((host, bound)) as last:
                last.sendall(b"end")
            thread.join()


def metadata_of(*ids: int) -> Callable[[bytes], bytes]:
    """Return a function that responds to Metadata requests with the brokers of these ids."""

    def respond(frame: bytes) -> bytes:
        header, request = decode_request(frame[4:])
        assert isinstance(request, MetadataRequest)
        request_checks.receive(request, header.api_version)
        brokers = [MetadataResponseBroker(node_id=one, host="h", port=1) for one in ids]
        response = MetadataResponse(brokers=brokers)
        return b"".join(encode_response(response, header.api_version, header.correlation_id))

    return respond


class DockerEngine:
    """Serves the part of Docker's HTTP API that one container needs, on 127.0.0.1.

    The file `responses` has rows of method, path (a pattern), status and body. A started container
    is a fake broker at the port that it was created with, until it is removed.
    """

    def __init__(self, responses: Path) -> None:
        self.rows: list[dict[str, Any]] = json.loads(responses.read_text())
        self.requests: list[str] = []
        self.created: dict[str, Any] = {}
        self.container = ExitStack()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def address(self) -> str:
        return f"tcp://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> DockerEngine:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.container.close()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def respond(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        self.requests.append(f"{method} {path}")
        match (method, path.rpartition("/")[2].partition("?")[0]):
            case ("POST", "create") if "/containers/" in path:
                self.created = json.loads(body)
            case ("POST", "start"):
                bound = self.created["HostConfig"]["PortBindings"]
                (port,) = {row["HostPort"] for rows in bound.values() for row in rows}
                self.container.enter_context(server(metadata_of(1), int(port)))
            case ("DELETE", _):
                self.container.close()
            case _:
                pass
        for row in self.rows:
            if row["method"] == method and re.fullmatch(row["path"], path):
                return row["status"], json.dumps(row["body"]).encode() if row["body"] else b""
        return 501, b'{"message": "the fake engine has no response to this request"}'

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        engine = self

        class Handler(BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, response = engine.respond(self.command, self.path, body)
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(response)))
                self.send_header("Connection", "close")
                self.end_headers()
                self.wfile.write(response)

            do_GET = do_POST = do_DELETE = handle_any

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing."""

        return Handler
