"""A schema registry that gives each schema an id, and keeps nothing: all that a service asks of one."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from psql_streamer.embedded.ports import LOOPBACK


@contextmanager
def running_registry() -> Iterator[str]:
    """Its URL."""
    ids: dict[str, int] = {}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # connections stay open
        disable_nagle_algorithm = True  # or the body waits until the headers are acknowledged

        def do_GET(self) -> None:
            self._reply(404, {"error_code": 40401, "message": "Subject not found"})

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._reply(200, {"id": ids.setdefault(asked["schema"], len(ids) + 1)})

        def _reply(self, status: int, body: Any) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://{LOOPBACK}:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
