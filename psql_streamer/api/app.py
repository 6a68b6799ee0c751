"""The HTTP API: health, status, statistics, metrics, snapshots and the debug switch.

/health answers on the event loop and needs nothing else. The others run in a thread each, so that not even a
Service that hangs keeps /health from answering.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Mapping
from typing import Annotated, Any

import uvicorn
from fastapi import FastAPI, Path, Request, Response
from fastapi.responses import HTMLResponse, PlainTextResponse
from pydantic import BaseModel

from psql_streamer import __version__
from psql_streamer.api.answers import (
    HTML,
    JSON,
    TEXT,
    Problem,
    answer,
    answer_everything,
    answer_problem,
    choose_media_type,
    describe_response,
    is_head,
    read_path,
)
from psql_streamer.api.connections import MOST_CONNECTIONS, BoundedConnection, UnacceptedConnections
from psql_streamer.api.listening import listen, show_address
from psql_streamer.api.permission import Permission
from psql_streamer.api.snapshots import add_snapshots
from psql_streamer.errors import StreamerError
from psql_streamer.interfaces import Service, Status
from psql_streamer.metrics.metrics import CONTENT_TYPE, Metrics
from psql_streamer.model import Stats
from psql_streamer.redaction import redact
from psql_streamer.snapshot_figures import show_briefly

log = logging.getLogger(__name__)

ENDPOINTS = {
    "/health": "whether the process runs",
    "/status": "the state of every part, with the reason; 500 if one has a problem",
    "/stats": "counters of every part",
    "/metrics": "metrics for Prometheus",
    "/snapshots": "snapshots of the sources; POST asks for one",
    "/debug/on": "switch debug messages on",
    "/debug/off": "switch debug messages off",
    "/openapi.json": "this API, described",
}


class Health(BaseModel):
    """The process lives."""

    status: str = "alive"


class PartStatus(BaseModel):
    """How one part is doing; the reason is a sentence for the operator."""

    ok: bool
    reason: str


class StatusReport(BaseModel):
    """How everything is doing. ok: all parts are."""

    ok: bool
    parts: dict[str, PartStatus]


class DebugState(BaseModel):
    """What the debug switch is at now."""

    debug: bool


class Index(BaseModel):
    """Where everything is."""

    service: str = "psql-streamer"
    version: str = __version__
    endpoints: dict[str, str] = ENDPOINTS


_ERROR = {
    "description": "An error",
    "content": {JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}, TEXT: {"schema": {"type": "string"}}},
}


def create_app(service: Service, metrics: Metrics, token: str | None = None) -> FastAPI:
    """The API of a running pipeline. From now on the metrics show what `service` says of its parts.

    token: what requests that change something must know; None where anybody may ask.
    """
    metrics.watch(service)
    app = FastAPI(
        title="psql-streamer",
        version=__version__,
        summary="Change data capture from PostgreSQL, MySQL, SQL and Kafka to Kafka",
        description="HEAD gives what GET gives, without the body, and switches nothing. Text is in lines.",
        responses={"default": _ERROR},
        # A redirection has no body, so `curl` shows nothing, and a probe that follows none takes it for success.
        redirect_slashes=False,
        # Their pages load scripts from a CDN.
        docs_url=None,
        redoc_url=None,
    )
    answer_everything(app)
    add_snapshots(app, service.snapshots, Permission(token))

    @app.get(
        "/", summary="Where everything is; a status page for browsers", responses=describe_response(Index, HTML, TEXT)
    )
    def index(request: Request) -> Response:
        if choose_media_type(request, JSON, TEXT, HTML) == HTML:
            from psql_streamer.api.page import render_status_page  # with jinja2, which few services ever need

            return HTMLResponse(render_status_page(service.status(), service.stats(), service.snapshots.list_known()))
        return answer(request, Index(), lambda: [f"{path}: {what}" for path, what in ENDPOINTS.items()])

    @app.get("/health", summary=ENDPOINTS["/health"], responses=describe_response(Health, TEXT))
    async def health(request: Request) -> Response:
        return answer(request, Health(), lambda: ["Alive and well"])

    @app.get(
        "/status",
        summary=ENDPOINTS["/status"],
        responses=describe_response(StatusReport, TEXT) | describe_response(StatusReport | Problem, TEXT, code=500),
    )
    def status(request: Request) -> Response:
        parts = service.status()
        report = StatusReport(
            ok=all(part.ok for part in parts.values()),
            parts={name: PartStatus(ok=part.ok, reason=redact(part.reason)) for name, part in parts.items()},
        )
        return answer(request, report, lambda: _describe_status(parts), 200 if report.ok else 500)

    @app.get("/stats", summary=ENDPOINTS["/stats"], responses=describe_response(dict[str, dict[str, Any]], TEXT))
    def stats(request: Request) -> Response:
        parts = service.stats()
        return answer(request, parts, lambda: _describe_stats(parts))

    @app.get("/metrics", summary=ENDPOINTS["/metrics"], response_class=PlainTextResponse)
    def prometheus() -> Response:
        return Response(metrics.render(), media_type=CONTENT_TYPE)

    @app.get(
        "/debug/{switch:path}",
        summary="Switch debug messages of all parts on or off",
        responses=describe_response(DebugState, TEXT) | describe_response(Problem, TEXT, code=400),
    )
    def debug(request: Request, switch: Annotated[str, Path(json_schema_extra={"enum": ["on", "off"]})]) -> Response:
        if switch not in ("on", "off"):
            return answer_problem(request, 400, f"there is no {read_path(request)}: use /debug/on or /debug/off")
        if not is_head(request):
            service.set_debug(switch == "on")
        return answer(request, DebugState(debug=switch == "on"), lambda: [f"Debug is {switch}"])

    return app


class ApiServer:
    """Serves an app in a thread of its own. An empty host is every interface; port 0 takes a free one.

    address: where, as `127.0.0.1:8080` or `[::1]:8080`; after `start` with the port that was taken.
    Signals stay with the process that owns the main thread.
    """

    def __init__(self, app: FastAPI, host: str, port: int) -> None:
        self.address = show_address(host, port)
        self._host = host
        self._port = port
        debug = log.isEnabledFor(logging.DEBUG)
        self._server = _Server(
            uvicorn.Config(
                app,
                loop="asyncio",
                http=BoundedConnection,
                backlog=MOST_CONNECTIONS,
                lifespan="off",
                log_config=None,
                log_level="debug" if debug else "warning",
                access_log=debug,
                server_header=False,
                timeout_graceful_shutdown=1,
            )
        )
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Return when requests are answered. Raises StreamerError when the address cannot be had."""
        listener = listen(self._host, self._port)
        self.address = show_address(*listener.getsockname()[:2])
        self._thread = threading.Thread(target=self._server.run_on, args=(listener,), name="http-api", daemon=True)
        self._thread.start()
        self._server.settled.wait()
        if not self._server.started:
            raise StreamerError(f"http {self.address}: the server did not start", "see the log before this message")
        log.info("HTTP API on http://%s", self.address)

    def stop(self) -> None:
        """Answer what was asked, for a second at most, and leave. May be called twice, and before start."""
        self._server.should_exit = True
        if self._thread:
            self._thread.join(timeout=5)
            self._thread = None


class _Server(uvicorn.Server):
    """Uvicorn on a socket that is bound already, saying when it is up or has failed."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.settled = threading.Event()

    def run_on(self, listener: socket.socket) -> None:
        try:
            self.run(sockets=[listener])
        finally:
            listener.close()
            self.settled.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(UnacceptedConnections().tell)
        await super().startup(sockets)
        self.settled.set()


def _describe_status(parts: Mapping[str, Status]) -> list[str]:
    return [f"{name}: {'ok' if part.ok else 'problem'}: {redact(part.reason)}" for name, part in parts.items()]


def _describe_stats(parts: Mapping[str, Stats]) -> list[str]:
    return [
        f"{name}: {' '.join(f'{key}={_show_stat(key, value)}' for key, value in part.items())}"
        for name, part in parts.items()
    ]


def _show_stat(key: str, value: Any) -> str:
    if key == "snapshots":
        return show_briefly(value)
    return str(value)
