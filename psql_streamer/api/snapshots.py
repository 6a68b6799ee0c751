"""The HTTP API's snapshots: ask for one, see how they are, pause, resume, cancel."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from fastapi import Depends, FastAPI, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.security import HTTPBearer
from pydantic import ValidationError
from starlette.requests import ClientDisconnect

from psql_streamer.api.answers import JSON, TEXT, Problem, answer, answer_problem, describe_response
from psql_streamer.api.permission import Permission
from psql_streamer.api.snapshot_models import (
    KEYS_SCHEMA,
    KeysPosted,
    SnapshotList,
    SnapshotShown,
    SnapshotWanted,
    describe_snapshot,
    describe_snapshot_with_tables,
)
from psql_streamer.errors import (
    NoSuchSnapshot,
    SnapshotConflict,
    SnapshotError,
    SnapshotUnclear,
    SourceError,
    SourceUnavailable,
    StoreError,
    StreamerError,
)
from psql_streamer.interfaces import KnownSnapshot, Snapshots
from psql_streamer.redaction import redact
from psql_streamer.snapshots import TableRequest, Wanted

_MOST_REQUEST_BYTES = 1 << 20
"""The longest body that is read."""

_CODES: dict[type[StreamerError], int] = {
    NoSuchSnapshot: 404,
    SnapshotUnclear: 400,
    SnapshotConflict: 409,
    SnapshotError: 422,
    SourceUnavailable: 503,
    SourceError: 422,
    StoreError: 500,
}
"""The code of an error is that of its nearest class."""

_MEANINGS = {
    400: "what was sent is malformed, or does not say which source or snapshot is meant",
    401: "httpToken is set, and the request does not have it",
    403: "a web page asks, and httpToken is not set",
    404: "there is no such snapshot or source",
    409: "it has ended, or an unfinished snapshot has the table, or it takes no keys",
    413: "the body is too long",
    415: "the body is not application/json",
    422: "the source cannot take this snapshot; the error says why, and what to do",
    500: "the request could not be stored",
    503: "the source is not started, or its server is away: ask again",
}

_KINDS_OF_TABLES = ("constrained-str", "TableWanted")
"""As pydantic names the two ways to write a table, in the place of an error."""

_decode_keys = msgspec.json.Decoder(KeysPosted).decode

_WITH_TOKEN = [
    Depends(HTTPBearer(scheme_name="httpToken", description="wanted if the key httpToken is set", auto_error=False))
]
"""For the description alone: Permission looks at the token."""

_Id = Annotated[str, Path(alias="id", description="the snapshot's id")]
_Source = Annotated[str | None, Query(description="the source's name, if several have a snapshot of this id")]


def add_snapshots(app: FastAPI, snapshots: Snapshots, permission: Permission) -> None:
    """Let the app serve /snapshots and what is below it. What changes something needs permission."""

    @app.get("/snapshots", summary="The snapshots of all sources", responses=describe_response(SnapshotList, TEXT))
    def list_snapshots(request: Request) -> Response:
        shown = [
            SnapshotShown.from_known(known) for of_source in snapshots.list_known().values() for known in of_source
        ]
        return answer(
            request,
            SnapshotList(snapshots=shown),
            lambda: [describe_snapshot(one) for one in shown] or ["no snapshots"],
        )

    @app.post(
        "/snapshots",
        summary="Ask for a snapshot",
        status_code=202,
        responses=_describe(400, 401, 403, 404, 409, 413, 415, 422, 500, 503),
        dependencies=_WITH_TOKEN,
        openapi_extra={"requestBody": {"required": True, "content": {JSON: {"schema": _build_body_schema()}}}},
    )
    async def ask(request: Request) -> Response:
        if (refused := permission.refuse(request) or _refuse_type(request)) is not None:
            return refused
        body = await _read_body(request)
        if body is None:
            return answer_problem(
                request, 413, f"the body is longer than {_MOST_REQUEST_BYTES} bytes: use patterns of tables"
            )
        try:
            # On the event loop, many tables would have /health wait.
            wanted, tables = await run_in_threadpool(_parse_wanted, body)
        except ValueError as error:
            return answer_problem(request, 400, _describe_body_error(error))
        return await _answer_in_thread(request, lambda: snapshots.ask(wanted.source, tables, wanted.keys))

    @app.get(
        "/snapshots/{id}",
        summary="How a snapshot is doing",
        responses=describe_response(SnapshotShown, TEXT) | _describe_errors(400, 404, 503),
    )
    def show(request: Request, name: _Id, source: _Source = None) -> Response:
        return _answer_snapshot(request, lambda: snapshots.find(source, name), 200)

    _add_keys(app, snapshots, permission)

    def add_change(wanted: Wanted, method: str, path: str, summary: str) -> None:
        async def change(request: Request, name: _Id, source: _Source = None) -> Response:
            refused = permission.refuse(request) or _refuse_type(request, empty=True)
            return refused or await _answer_in_thread(request, lambda: snapshots.want(source, name, wanted))

        app.add_api_route(
            path,
            change,
            methods=[method],
            name=wanted.value,
            summary=summary,
            status_code=202,
            responses=_describe(400, 401, 403, 404, 409, 415, 500, 503),
            dependencies=_WITH_TOKEN,
        )

    add_change(Wanted.CANCEL, "DELETE", "/snapshots/{id}", "Cancel a snapshot; what was sent of it stays")
    add_change(Wanted.PAUSE, "POST", "/snapshots/{id}/pause", "Pause a snapshot")
    add_change(Wanted.RUN, "POST", "/snapshots/{id}/resume", "Let a paused snapshot go on")


def _add_keys(app: FastAPI, snapshots: Snapshots, permission: Permission) -> None:
    @app.post(
        "/snapshots/{id}/keys",
        summary="Post keys to a snapshot that looks them up; `next` says how many were taken",
        status_code=202,
        responses=_describe(400, 401, 403, 404, 409, 413, 415, 503),
        dependencies=_WITH_TOKEN,
        openapi_extra={"requestBody": {"required": True, "content": {JSON: {"schema": KEYS_SCHEMA}}}},
    )
    async def post_keys(request: Request, name: _Id, source: _Source = None) -> Response:
        if (refused := permission.refuse(request) or _refuse_type(request)) is not None:
            return refused
        body = await _read_body(request)
        if body is None:
            return answer_problem(
                request, 413, f"the body is longer than {_MOST_REQUEST_BYTES} bytes: post fewer keys at once"
            )
        try:
            posted = _decode_keys(body).posted()
        except (msgspec.ValidationError, UnicodeDecodeError, msgspec.DecodeError, RecursionError, ValueError) as error:
            return answer_problem(request, 400, _describe_keys_error(error))
        return await _answer_in_thread(request, lambda: snapshots.post_keys(source, name, posted))


async def _answer_in_thread(request: Request, ask: Callable[[], KnownSnapshot]) -> Response:
    """In a thread of its own: the source may ask its server, and the store writes."""
    return await run_in_threadpool(_answer_snapshot, request, ask, 202)


def _answer_snapshot(request: Request, ask: Callable[[], KnownSnapshot], code: int) -> Response:
    try:
        shown = SnapshotShown.from_known(ask())
    except (SnapshotError, SourceError, StoreError) as error:
        status = next(_CODES[kind] for kind in type(error).__mro__ if kind in _CODES)
        return answer_problem(request, status, redact(str(error)))
    response = answer(request, shown, lambda: describe_snapshot_with_tables(shown), code)
    if code == 202:
        response.headers["Location"] = f"/snapshots/{quote(shown.id)}?source={quote(shown.source)}"
    return response


def _refuse_type(request: Request, *, empty: bool = False) -> Response | None:
    """A form of a web page can send anything but JSON without the browser asking first (Fetch, "CORS-safelisted").

    empty: no body is expected, and so no type either.
    """
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given == JSON or (empty and not given):
        return None
    return answer_problem(request, 415, f"the body must be JSON: send it with the header Content-Type: {JSON}")


async def _read_body(request: Request) -> bytes | None:
    """None when it is too long. Nothing when the client hangs up in it: a part of a body may say something else."""
    body = b""
    try:
        async for piece in request.stream():
            body += piece
            if len(body) > _MOST_REQUEST_BYTES:
                return None
    except ClientDisconnect:
        return b""
    return body


class _NotJsonError(ValueError):
    """A body is no JSON, or none that Python reads: it nests too deeply, or has a number of too many digits."""


def _parse_wanted(body: bytes) -> tuple[SnapshotWanted, list[TableRequest]]:
    wanted = SnapshotWanted.model_validate(_load(body))
    return wanted, wanted.make_requests()


def _load(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise _NotJsonError from None


def _describe_body_error(error: ValueError) -> str:
    """What is wrong with a body, without what was sent: a condition may hold a value."""
    example = 'send an object such as {"tables": ["public.orders"]}'
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"] if part not in _KINDS_OF_TABLES)
        what = "Input should be an object" if first["type"] in ("model_type", "dict_type") else first["msg"]
        return f"{place or 'the body'}: {what[:1].lower()}{what[1:]}: {example}"
    return f"the body is not JSON: {example}" if isinstance(error, _NotJsonError) else str(error)


def _describe_keys_error(error: Exception) -> str:
    """The same of a body with keys. What msgspec says of its shape names types and places, and no value."""
    example = 'send an object such as {"from": 0, "keys": [{"id": 1}], "complete": true}'
    if isinstance(error, msgspec.ValidationError):
        return f"{str(error)[:1].lower()}{str(error)[1:]}: {example}"
    if isinstance(error, msgspec.DecodeError | UnicodeDecodeError | RecursionError):
        return f"the body is not JSON: {example}"
    return f"{error}: {example}"


def _build_body_schema() -> dict[str, Any]:
    """Of SnapshotWanted, with the definitions where they are used: OpenAPI looks for them in another place."""
    schema = SnapshotWanted.model_json_schema(ref_template="{model}")
    definitions = schema.pop("$defs", {})

    def inline(node: Any) -> Any:
        if isinstance(node, dict):
            node = definitions[node["$ref"]] if "$ref" in node else node
            return {key: inline(value) for key, value in node.items()}
        return [inline(value) for value in node] if isinstance(node, list) else node

    inlined: dict[str, Any] = inline(schema)
    return inlined


def _describe(*errors: int) -> dict[int | str, dict[str, Any]]:
    return describe_response(SnapshotShown, TEXT, code=202) | _describe_errors(*errors)


def _describe_errors(*codes: int) -> dict[int | str, dict[str, Any]]:
    return {
        code: describe_response(Problem, TEXT, code=code)[code] | {"description": _MEANINGS[code]} for code in codes
    }
