"""A server that answers as a schema registry does, or as one that is broken: for faults alone."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MISSING = 404, {"error_code": 40403, "message": "Schema not found"}


class RegistryServer:
    """url: where it is. asked: the paths of questions, in their order, with POST in front of those that post. posted:
    what these do. logins: their Authorization. answers: by what is asked: an object, or the status and the body. fault:
    answers all questions, if it is set; may wait for as long as it likes.
    """

    def __init__(self, port: int, scheme: str) -> None:
        self.url = f"{scheme}://127.0.0.1:{port}"
        self.asked: list[str] = []
        self.posted: list[Any] = []
        self.logins: list[str | None] = []
        self.connections = 0
        self.hangs_up = False
        self.answers: dict[str, Any] = {"/schemas/types": ["AVRO", "JSON", "PROTOBUF"]}
        self.fault: Callable[[], tuple[int, Any]] | None = None

    def add(self, schema: int | str, text: Any, **more: Any) -> None:
        """A schema by its id, or by its GUID."""
        kind = "ids" if isinstance(schema, int) else "guids"
        described = {"schema": text if isinstance(text, str) else json.dumps(text)} | more
        self.answers[f"/schemas/{kind}/{schema}"] = described
        self.answers[f"/schemas/{kind}/{schema}?format=serialized"] = described

    def answer(self, asked: str, login: str | None) -> tuple[int, Any]:
        """The status and the body."""
        self.asked.append(asked)
        self.logins.append(login)
        if self.fault is not None:
            return self.fault()
        found = self.answers.get(asked, MISSING)
        return found if isinstance(found, tuple) else (200, found)


@contextmanager
def registry_server(
    answers: Mapping[str, Any] | None = None, tls: ssl.SSLContext | None = None
) -> Iterator[RegistryServer]:
    """One that runs."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # connections stay open
        disable_nagle_algorithm = True  # or the body waits until the headers are acknowledged

        def setup(self) -> None:
            super().setup()
            registry.connections += 1

        def do_GET(self) -> None:
            self.reply(self.path)

        def do_POST(self) -> None:
            registry.posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.reply(f"POST {self.path}")

        def reply(self, asked: str) -> None:
            status, body = registry.answer(asked, self.headers["Authorization"])
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            self.close_connection = registry.hangs_up  # without a word of it in the answer

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients that go away are no error here
    if tls is not None:
        # Threads shake hands, each with its client, when they first read.
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    registry = RegistryServer(server.server_port, "http" if tls is None else "https")
    registry.answers |= answers or {}
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
