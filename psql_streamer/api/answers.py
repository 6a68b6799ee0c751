"""Answers of the HTTP API: as the client prefers them, errors in one shape, and HEAD wherever there is GET."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from psql_streamer.name_counts import escape_unprintable
from psql_streamer.unexpected import log_unexpected

log = logging.getLogger("psql_streamer.api")

JSON, TEXT, HTML = "application/json", "text/plain", "text/html"

_HEAD = "psql_streamer.head"
"""In a request's scope: it was a HEAD."""


class Problem(BaseModel):
    """What went wrong, and what to do about it."""

    error: str


def answer(request: Request, body: Any, lines: Callable[[], list[str]], code: int = 200) -> Response:
    """body: for JSON, a model or what JSON can say. lines: of the text, whatever names of tables hold."""
    headers = {"Cache-Control": "no-store"}
    if choose_media_type(request, JSON, TEXT) == TEXT:
        return PlainTextResponse("".join(f"{escape_unprintable(line)}\n" for line in lines()), code, headers)
    # Counters of a third party's part may hold anything; a stray type must not cost the whole answer.
    return Response(to_json(body, fallback=str, inf_nan_mode="null"), code, headers, JSON)


def answer_problem(request: Request, code: int, error: str, headers: Mapping[str, str] | None = None) -> Response:
    """An error."""
    response = answer(request, Problem(error=error), lambda: [error], code)
    response.headers.update(headers or {})
    return response


def describe_response(model: Any, *others: str, code: int = 200) -> dict[int | str, dict[str, Any]]:
    """What OpenAPI says of an endpoint that gives `model` as JSON, or one of the others."""
    return {code: {"model": model, "content": {other: {"schema": {"type": "string"}} for other in others}}}


def is_head(request: Request) -> bool:
    """Whether only the head of the answer is wanted: nothing is to be changed."""
    return bool(request.scope.get(_HEAD))


def read_path(request: Request) -> str:
    """As it was sent: what is encoded in it stays encoded."""
    return bytes(request.scope["raw_path"]).decode("ascii", "replace")


def choose_media_type(request: Request, *offers: str) -> str:
    """The offer that the Accept header (RFC 9110, 12.5.1) likes best; the first of equals, and when none fits."""
    quality: dict[str, float] = {}
    for element in request.headers.get("accept", offers[0]).lower().split(","):
        media, *parameters = (item.strip() for item in element.split(";"))
        given = next((item[2:] for item in parameters if item.startswith("q=")), "1")
        quality[media] = float(given) if given.replace(".", "", 1).isdecimal() else 0.0

    def liking(offer: str) -> float:
        wildcards = (offer, f"{offer.partition('/')[0]}/*", "*/*")
        return next((quality[media] for media in wildcards if media in quality), 0.0)

    return max(offers, key=liking)


def answer_everything(app: FastAPI) -> None:
    """Let the app answer HEAD, and errors of every kind, as this module says."""
    app.add_exception_handler(HTTPException, _answer_not_served)
    app.add_middleware(_Everything)


async def _answer_not_served(request: Request, error: Exception) -> Response:
    code = error.status_code if isinstance(error, HTTPException) else 500
    if code == 405:
        allowed = ", ".join(_list_methods(request))
        use = f"use {' or '.join(allowed.rsplit(', ', 1))}"
        return answer_problem(request, code, f"{request.method} is not served: {use}", {"Allow": allowed})
    return answer_problem(request, code, f"there is no {read_path(request)}: {_suggest_path(request)}")


def _suggest_path(request: Request) -> str:
    """What to do about one that is unknown."""
    shorter = request.scope["path"].rstrip("/")
    if shorter != request.scope["path"] and _find_routes(request, shorter):
        return "leave out the slash at its end"
    return "/ lists the paths"


def _list_methods(request: Request) -> list[str]:
    """The methods that a path is served with, of all its routes. HEAD is where GET is."""
    routes = _find_routes(request, request.scope["path"])
    found = {method for route in routes for method in getattr(route, "methods", None) or ()}
    return [*(["GET", "HEAD"] if "GET" in found else []), *sorted(found - {"GET", "HEAD"})]


def _find_routes(request: Request, path: str) -> list[BaseRoute]:
    scope = {**request.scope, "path": path}
    return [route for route in request.app.routes if route.matches(scope)[0] is not Match.NONE]


class _Everything:
    """HEAD is GET without the body; what fails unexpectedly is told as a problem, and in the log."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        head = scope.get("method") == "HEAD"
        started = False

        async def pass_on(message: Message) -> None:
            nonlocal started
            started = True
            if head and message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        served = {**scope, "method": "GET", _HEAD: True} if head else scope
        try:
            await self._app(served, receive, pass_on)
        except Exception as error:
            if started:
                raise
            request = Request(served)
            log_unexpected(log, f"{scope['method']} {read_path(request)}", error)
            what = f"unexpected {type(error).__name__}: see the log"
            await answer_problem(request, 500, what)(served, receive, pass_on)
