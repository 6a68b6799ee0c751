"""Snapshots over HTTP: asked for, shown, paused, resumed, cancelled; by whom, and what is refused."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from psql_streamer.api.app import ApiServer, create_app
from psql_streamer.api.snapshot_models import SnapshotWanted
from psql_streamer.checkpoint.store import Store
from psql_streamer.errors import SourceUnavailable
from psql_streamer.interfaces import Source, Status
from psql_streamer.metrics.metrics import Metrics
from psql_streamer.model import Stats
from psql_streamer.pipeline.snapshot_requests import SnapshotRequests
from psql_streamer.pipeline.snapshots import SnapshotsOfSources
from psql_streamer.snapshots import (
    KeyForm,
    PostedKeys,
    SnapshotState,
    TableProgress,
    TableRequest,
    TableState,
    Wanted,
    describe_listing,
)
from tests.snapshot_source import MadeUpOptions, MadeUpSource

TEXT = {"Accept": "text/plain"}
TOKEN = "correct-horse-battery-staple"
KNOWN = {"Authorization": f"Bearer {TOKEN}"}


class Running:
    """A service with one source, whose snapshots go on when it is read. A new one for every `begin`."""

    part: MadeUpSource
    store: Store
    requests: SnapshotRequests

    def __init__(self) -> None:
        self._by_source: dict[str, SnapshotRequests] = {}
        self.snapshots = SnapshotsOfSources(self._by_source, [])

    def begin(self, folder: Path) -> None:
        self.store = Store(folder / "positions.lmdb")
        self.store.open()
        self.part = MadeUpSource("db1", MadeUpOptions.model_validate({"type": "made up"}))
        self.requests = SnapshotRequests(self.part, self.store, lambda: True, threading.Event())
        self._by_source["db1"] = self.requests
        self.requests.load()
        self.requests.pass_on()
        self.part.start(None)

    def status(self) -> dict[str, Status]:
        return {"source.db1": self.part.status()}

    def stats(self) -> dict[str, Stats]:
        return {"source.db1": {"snapshots": [{"id": "x"}]}}

    def set_debug(self, on: bool) -> None:
        raise AssertionError(f"debug was switched to {on}")

    def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(100):
            if condition():
                return
            self.part.read(0.0)
        raise AssertionError("nothing comes of it")


@contextmanager
def serving(service: Running, token: str | None) -> Iterator[httpx.Client]:
    server = ApiServer(create_app(service, Metrics(), token), "127.0.0.1", 0)
    server.start()
    with httpx.Client(base_url=f"http://{server.address}", timeout=10) as client:
        yield client
    server.stop()


@pytest.fixture(scope="module")
def running() -> Running:
    return Running()


@pytest.fixture
def service(running: Running, tmp_path: Path) -> Iterator[Running]:
    running.begin(tmp_path)
    yield running
    running.store.close()


@pytest.fixture(scope="module")
def open_to_all(running: Running) -> Iterator[httpx.Client]:
    with serving(running, None) as client:
        yield client


@pytest.fixture(scope="module")
def with_token(running: Running) -> Iterator[httpx.Client]:
    with serving(running, TOKEN) as client:
        yield client


@pytest.fixture
def client(open_to_all: httpx.Client, service: Running) -> httpx.Client:
    return open_to_all


@pytest.fixture
def guarded(with_token: httpx.Client, service: Running) -> httpx.Client:
    return with_token


def ask(client: httpx.Client, *tables: Any, **more: Any) -> httpx.Response:
    return client.post("/snapshots", json={"tables": list(tables), **more})


def refused(answer: httpx.Response) -> tuple[int, str]:
    assert answer.json().keys() == {"error"}
    return answer.status_code, answer.json()["error"]


@pytest.mark.behaviour("N18")
def test_a_request_is_answered_with_an_id_and_the_place_where_it_is_shown(
    client: httpx.Client, service: Running
) -> None:
    answer = ask(client, "public.a", {"table": "public.b", "where": "id > 5"})
    assert answer.status_code == 202
    shown = answer.json()
    assert shown["requested"] == [{"table": "public.a", "where": ""}, {"table": "public.b", "where": "id > 5"}]
    assert (shown["source"], shown["state"], shown["wanted"], shown["on_demand"]) == ("db1", "waiting", "run", True)
    assert [stored.request.id for stored in service.store.read_snapshots("db1")] == [shown["id"]]
    assert answer.headers["location"] == f"/snapshots/{shown['id']}?source=db1"
    assert client.get(answer.headers["location"]).json() == shown
    assert client.get(f"/snapshots/{shown['id']}").json() == shown
    assert client.get("/snapshots").json() == {"snapshots": [shown]}


def test_conditions_may_stand_apart_from_the_tables(client: httpx.Client, service: Running) -> None:
    assert ask(client, "public.a", "public.b", where={"public.b": "id > 5"}).status_code == 202
    [stored] = service.store.read_snapshots("db1")
    assert stored.request.tables == (TableRequest("public.a"), TableRequest("public.b", "id > 5"))


def test_without_tables_all_are_asked_for(client: httpx.Client, service: Running) -> None:
    assert client.post("/snapshots", json={"source": "db1"}).status_code == 202
    [stored] = service.store.read_snapshots("db1")
    assert stored.request.tables == ()


def test_every_table_is_shown_with_what_was_read_of_it(client: httpx.Client, service: Running) -> None:
    name = ask(client, "public.b", "public.a").json()["id"]
    service.until(lambda: service.requests.find(name).progress.rows == 500)
    shown = client.get(f"/snapshots/{name}").json()
    assert shown["tables"] == [
        {"table": "public.b", "state": "done", "rows": 300, "estimated_rows": 300, "chunks": 3,
         "last_key": ["300"], "reason": ""},
        {"table": "public.a", "state": "reading", "rows": 200, "estimated_rows": 1000, "chunks": 2,
         "last_key": ["200"], "reason": ""},
    ]  # fmt: skip
    figures = {key: shown[key] for key in ("state", "rows", "chunks", "stale", "read_again", "seconds_left")}
    assert figures == {
        "state": "running", "rows": 500, "chunks": 5, "stale": 1, "read_again": 2, "seconds_left": 1.0
    }  # fmt: skip
    assert client.get(f"/snapshots/{name}", headers=TEXT).text.splitlines() == [
        f"{name} source.db1 running 2 tables 500 rows, 1000 rows/s, 1 s left",
        "public.b done 300 of about 300 rows",
        "public.a reading 200 of about 1000 rows",
    ]
    assert client.get("/snapshots", headers=TEXT).text.count("\n") == 1


@pytest.mark.behaviour("N20")
def test_a_snapshot_is_paused_resumed_and_cancelled(client: httpx.Client, service: Running) -> None:
    name = ask(client, "public.a").json()["id"]
    for method, path, wanted, state in (
        ("POST", f"/snapshots/{name}/pause", "pause", SnapshotState.PAUSED),
        ("POST", f"/snapshots/{name}/resume", "run", SnapshotState.RUNNING),
        ("DELETE", f"/snapshots/{name}", "cancel", SnapshotState.CANCELLED),
    ):
        answer = client.request(method, path)
        assert (answer.status_code, answer.json()["wanted"]) == (202, wanted)
        assert [stored.request.wanted for stored in service.store.read_snapshots("db1")] == [Wanted(wanted)]
        service.until(lambda state=state: service.requests.find(name).progress.state is state)
    code, error = refused(client.post(f"/snapshots/{name}/pause"))
    assert (code, error) == (409, f"snapshot {name} has ended: it is cancelled: ask for a new one")


def test_get_and_head_change_nothing(client: httpx.Client, service: Running) -> None:
    name = ask(client, "public.a").json()["id"]
    before = service.store.read_snapshots("db1")
    for path in ("/snapshots", f"/snapshots/{name}"):
        assert client.get(path).status_code == 200
        assert client.head(path).status_code == 200
    for path in (f"/snapshots/{name}/pause", f"/snapshots/{name}/resume"):
        for method in ("GET", "HEAD"):
            answer = client.request(method, path)
            assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert service.store.read_snapshots("db1") == before


@pytest.mark.parametrize(
    ("path", "methods"),
    [("/snapshots", "GET, HEAD, POST"), ("/snapshots/x", "GET, HEAD, DELETE"), ("/snapshots/x/pause", "POST")],
)
def test_other_methods_are_told_what_is_served(client: httpx.Client, path: str, methods: str) -> None:
    answer = client.put(path)
    assert (answer.status_code, answer.headers["allow"]) == (405, methods)
    assert answer.json()["error"] == f"PUT is not served: use {' or '.join(methods.rsplit(', ', 1))}"


@pytest.mark.behaviour("N19")
@pytest.mark.parametrize(
    ("body", "code", "error"),
    [
        ("{", 400, "the body is not JSON: send an object such as"),
        (b"\xff", 400, "the body is not JSON"),
        ("[" * 100_000, 400, "the body is not JSON"),
        ("1" * 5000, 400, "the body is not JSON: send an object such as"),
        ("[]", 400, "the body: input should be an object: send"),
        ('{"where": []}', 400, "where: input should be an object: send"),
        ('{"table": ["public.a"]}', 400, "table: extra inputs are not permitted"),
        ('{"tables": []}', 400, "tables: list should have at least 1 item"),
        ('{"tables": "public.a"}', 400, "tables: input should be a valid list"),
        ('{"tables": [""]}', 400, "tables.0"),
        ('{"tables": ["a\\u0000b"]}', 400, "tables.0"),
        ('{"tables": [7]}', 400, "tables.0: input should be a valid string: send"),
        ('{"tables": ["/(/"]}', 400, "/(/ is not a regular expression: missing )"),
        ('{"tables": [{"table": "public.a", "filter": "x"}]}', 400, "tables.0"),
        ('{"tables": ["public.a", "public.a"]}', 400, 'tables: "public.a" is named twice'),
        ('{"tables": ["public.a"], "where": {"public.b": "id = 1"}}', 400, 'where: "public.b" is not among tables'),
        ('{"where": {"public.b": "id = 1"}}', 400, 'where: "public.b" is not among tables'),
        (
            '{"tables": [{"table": "public.a", "where": "x"}], "where": {"public.a": "y"}}',
            400,
            'where: "public.a" has a condition among tables already',
        ),
        ('{"source": "db2"}', 404, 'there is no source "db2"; did you mean db1?: /status lists them'),
        ('{"tables": ["public.c"]}', 422, "table public.c is not published: add it to the publication"),
        ('{"tables": ["%s"]}' % ("x" * (1 << 20)), 413, "the body is longer than 1048576 bytes"),
    ],
)  # fmt: skip
def test_what_is_malformed_or_impossible_is_refused_with_the_reason(
    client: httpx.Client, service: Running, body: str | bytes, code: int, error: str
) -> None:
    answer = client.post("/snapshots", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == code
    assert answer.json()["error"].startswith(error)
    assert service.store.read_snapshots("db1") == []


def test_a_request_may_name_as_many_tables_as_its_body_holds() -> None:
    names = [f"public.t{number}" for number in range(40_000)]
    began = time.thread_time()
    requests = SnapshotWanted(tables=list(names), where=dict.fromkeys(names, "id = 1")).make_requests()
    assert time.thread_time() - began < 2
    assert [request.table for request in requests] == names


def test_a_refusal_never_quotes_a_condition(client: httpx.Client) -> None:
    answer = ask(client, {"table": "public.a", "where": ["card = 4711"]})
    assert answer.status_code == 400
    assert "4711" not in answer.text


def test_a_table_that_is_being_read_a_stranger_and_a_server_that_is_away(
    client: httpx.Client, service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = ask(client, "public.a").json()["id"]
    conflict = f"table public.a is in snapshot {name}, which has not ended: wait for it, or cancel it"
    assert refused(ask(client, "public.a")) == (409, conflict)
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/pause"), ("POST", "/resume")):
        unknown = refused(client.request(method, f"/snapshots/stranger{path}"))
        assert unknown == (404, f"there is no snapshot stranger: {describe_listing()}")

    def review(request: object) -> None:
        raise SourceUnavailable("the server with password=hunter2 is away", "start it")

    monkeypatch.setattr(service.part, "review_snapshot", review)
    assert refused(ask(client, "public.b")) == (503, "the server with password=*** is away: start it")
    assert ask(client, "public.b").headers["cache-control"] == "no-store"


def test_a_request_that_cannot_be_stored_is_an_error(client: httpx.Client, service: Running) -> None:
    service.store.close()
    code, error = refused(ask(client, "public.a"))
    assert code == 500
    assert "is not open" in error


CHANGES = [("POST", ""), ("DELETE", "/x"), ("POST", "/x/pause"), ("POST", "/x/resume")]


@pytest.mark.behaviour("N23")
@pytest.mark.parametrize(("method", "path"), CHANGES)
@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer \xe4"],
)
def test_with_a_token_nobody_changes_anything_without_it(
    guarded: httpx.Client, service: Running, method: str, path: str, authorization: str | None
) -> None:
    headers = {} if authorization is None else {"Authorization": authorization.encode("latin-1")}
    answer = guarded.request(method, f"/snapshots{path}", json={}, headers=headers)  # type: ignore[arg-type]
    code, error = refused(answer)
    assert (code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert "httpToken" in error
    assert TOKEN not in answer.text
    assert service.store.read_snapshots("db1") == []


def test_with_the_token_all_is_as_without_one_and_reading_needs_none(guarded: httpx.Client, service: Running) -> None:
    answer = guarded.post("/snapshots", json={"tables": ["public.a"]}, headers=KNOWN)
    assert answer.status_code == 202
    name = answer.json()["id"]
    assert guarded.get(f"/snapshots/{name}").status_code == 200
    assert guarded.post(f"/snapshots/{name}/pause", headers={"Authorization": f"bearer  {TOKEN}"}).status_code == 202
    assert guarded.delete(f"/snapshots/{name}", headers=KNOWN | {"Origin": "https://desk.example"}).status_code == 202


@pytest.mark.behaviour("N24")
@pytest.mark.parametrize(("method", "path"), CHANGES)
@pytest.mark.parametrize("origin", ["https://elsewhere.example", "null", "itself"])
def test_a_web_page_changes_nothing_where_there_is_no_token(
    client: httpx.Client, service: Running, method: str, path: str, origin: str
) -> None:
    """Its own address is no better: a page of a name that leads here has it as well."""
    headers = {"Origin": str(client.base_url).rstrip("/") if origin == "itself" else origin}
    code, error = refused(client.request(method, f"/snapshots{path}", json={}, headers=headers))
    assert (code, "web pages" in error) == (403, True)
    assert service.store.read_snapshots("db1") == []


@pytest.mark.parametrize("media", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", None])
def test_what_a_form_can_send_starts_nothing(client: httpx.Client, service: Running, media: str | None) -> None:
    headers = {} if media is None else {"Content-Type": media}
    code, error = refused(client.post("/snapshots", content=b'{"tables": ["public.a"]}', headers=headers))
    assert (code, error) == (415, "the body must be JSON: send it with the header Content-Type: application/json")
    if media is not None:
        assert client.post("/snapshots/x/pause", content=b"a=b", headers=headers).status_code == 415
    assert service.store.read_snapshots("db1") == []


def test_the_token_is_in_no_log(guarded: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "psql_streamer")
    guarded.post("/snapshots", json={"tables": ["public.a"]}, headers=KNOWN)
    guarded.post("/snapshots", json={"tables": ["public.a"]}, headers={"Authorization": f"Basic {TOKEN}"})
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]
    assert any("was asked for: public.a" in line for line in ours)
    assert not any(TOKEN in line for line in ours)


def ask_for_keys(client: httpx.Client, form: str = "json") -> str:
    answer = ask(client, "public.b", keys=form)
    assert answer.status_code == 202
    assert answer.json()["keys"] == {"checked": 0, "gone": 0, "superseded": 0, "next": 0, "complete": False}
    return str(answer.json()["id"])


@pytest.mark.behaviour("N41")
def test_keys_are_posted_as_they_are_and_the_answer_says_which_is_next(client: httpx.Client, service: Running) -> None:
    name = ask_for_keys(client, "debezium")
    assert [stored.request.keys for stored in service.store.read_snapshots("db1")] == [KeyForm.DEBEZIUM]
    body = b'{"from":0,"keys":[ {"id":12345678901234567890.50}, {"id":"a"} ]}'
    answer = client.post(f"/snapshots/{name}/keys", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["keys"]["next"]) == (202, 2)
    assert service.part.posted == [PostedKeys(0, (b'{"id":12345678901234567890.50}', b'{"id":"a"}'), complete=False)]
    answer = client.post(f"/snapshots/{name}/keys", json={"from": 2, "keys": [], "complete": True})
    assert answer.json()["keys"] == {"checked": 2, "gone": 1, "superseded": 0, "next": 2, "complete": True}
    assert client.get(f"/snapshots/{name}", headers=TEXT).text.splitlines()[0] == (
        f"{name} source.db1 done 1 table 2 keys looked up, 1 gone, 0 superseded"
    )
    assert (
        "2 keys looked up, 1 gone, 0 superseded by the stream" in client.get("/", headers={"Accept": "text/html"}).text
    )
    assert scraped(client)["keys_checked_total"] == 2
    assert scraped(client)["keys_gone_total"] == 1


@pytest.mark.parametrize(
    ("body", "code", "reason"),
    [
        (b'{"keys":[]}', 400, "object missing required field `from`"),
        (b'{"from":-1,"keys":[]}', 400, "expected `int` >= 0"),
        (b'{"from":0,"keys":["secret"]}', 400, "keys: key 1 is no JSON object"),
        (b'{"from":4,"keys":[{"id":1},17]}', 400, "keys: key 6 is no JSON object"),
        (b'{"from":0,"keys":[],"secret":1}', 400, "object contains unknown field"),
        (b'{"from":0,"keys":[{"id":secret}]}', 400, "the body is not JSON"),
        (b"[" * 5000, 400, ""),
        (b'{"from":0,"keys":[' + b'{"id":1},' * 130_000 + b"{}]}", 413, "post fewer keys at once"),
    ],
)
def test_keys_that_cannot_be_are_refused_without_what_was_sent(
    client: httpx.Client, service: Running, body: bytes, code: int, reason: str
) -> None:
    name = ask_for_keys(client)
    answer = client.post(f"/snapshots/{name}/keys", content=body, headers={"Content-Type": "application/json"})
    assert refused(answer)[0] == code
    assert reason in refused(answer)[1]
    assert service.part.posted == []


def test_keys_are_for_one_table_that_is_named(client: httpx.Client, service: Running) -> None:
    for tables in (["public.a", "public.b"], ["public.*"], [{"table": "public.a", "where": "id > 1"}]):
        assert refused(ask(client, *tables, keys="json"))[1].startswith("keys: name one table, by its name and without")
    assert refused(client.post("/snapshots", json={"keys": "json"}))[0] == 400
    assert refused(ask(client, "public.a", keys="csv"))[0] == 400


def test_snapshots_of_rows_and_of_keys_may_be_of_one_table(client: httpx.Client, service: Running) -> None:
    of_rows, of_keys = ask(client, "public.b").json()["id"], ask_for_keys(client)
    assert refused(ask(client, "public.b", keys="json")) == (
        409, f"table public.b is in snapshot {of_keys}, which has not ended: wait for it, or cancel it"
    )  # fmt: skip
    assert refused(ask(client, "public.b"))[0] == 409
    answer = client.post(f"/snapshots/{of_rows}/keys", json={"from": 0, "keys": []})
    assert refused(answer) == (409, f"snapshot {of_rows} reads rows, and takes no keys: ask for one of keys")
    assert refused(client.post("/snapshots/none/keys", json={"from": 0, "keys": []}))[0] == 404


def test_keys_need_the_token(guarded: httpx.Client, service: Running) -> None:
    answer = guarded.post("/snapshots", json={"tables": ["public.b"], "keys": "json"}, headers=KNOWN)
    path = f"/snapshots/{answer.json()['id']}/keys"
    assert guarded.post(path, json={"from": 0, "keys": []}).status_code == 401
    assert service.part.posted == []
    assert guarded.post(path, json={"from": 0, "keys": []}, headers=KNOWN).status_code == 202


def test_a_source_that_looks_up_no_keys_says_why(
    client: httpx.Client, service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MadeUpSource, "take_keys", Source.take_keys)
    monkeypatch.setattr(MadeUpSource, "no_keys", "post them elsewhere")
    assert refused(ask(client, "public.b", keys="json")) == (422, "source db1 looks up no keys: post them elsewhere")
    assert service.store.read_snapshots("db1") == []


def test_openapi_describes_what_is_sent_every_answer_and_the_token(client: httpx.Client) -> None:
    api = client.get("/openapi.json").json()
    change = {"202", "400", "401", "403", "404", "409", "415", "500", "503", "default"}
    expected = {
        ("/snapshots", "get"): {"200", "default"},
        ("/snapshots", "post"): change | {"413", "422"},
        ("/snapshots/{id}", "get"): {"200", "400", "404", "503", "default"},
        ("/snapshots/{id}", "delete"): change,
        ("/snapshots/{id}/keys", "post"): (change | {"413"}) - {"500"},
        ("/snapshots/{id}/pause", "post"): change,
        ("/snapshots/{id}/resume", "post"): change,
    }
    found = {
        (path, method): operation
        for path, operations in api["paths"].items()
        for method, operation in operations.items()
        if path.startswith("/snapshots")
    }
    assert {key: set(operation["responses"]) for key, operation in found.items()} == expected
    for (_, method), operation in found.items():
        assert ("security" in operation) is (method != "get")
        for answer in operation["responses"].values():
            assert answer["content"].keys() == {"application/json", "text/plain"}
            assert answer["description"]
    assert api["components"]["securitySchemes"]["httpToken"]["scheme"] == "bearer"
    schema = found["/snapshots", "post"]["requestBody"]["content"]["application/json"]["schema"]
    assert schema["properties"].keys() == {"source", "tables", "where", "keys"}
    posted = found["/snapshots/{id}/keys", "post"]["requestBody"]["content"]["application/json"]["schema"]
    assert posted["properties"].keys() == {"from", "keys", "complete"}
    assert "$ref" not in json.dumps(schema)
    assert "where" in json.dumps(schema["properties"]["tables"])


def test_a_client_that_hangs_up_in_its_body_leaves_no_error_in_the_log(
    client: httpx.Client, service: Running, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_connection((client.base_url.host, client.base_url.port or 0), timeout=10) as connection:
        head = "POST /snapshots HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n"
        connection.sendall(f"{head}{{}}".encode())
    assert ask(client, "public.a").status_code == 202
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert len(service.store.read_snapshots("db1")) == 1


class Bars(HTMLParser):
    """Values of a page's progress bars, by the row's first cell, and the texts of its rows."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.bars: dict[str, str | None] = {}
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append([])
        if tag == "progress":
            self.bars[self.rows[-1][0]] = dict(attrs).get("value")

    def handle_data(self, data: str) -> None:
        if self.rows and data.strip():
            self.rows[-1].append(data.strip())


def test_the_status_page_has_a_bar_for_every_snapshot_and_table(client: httpx.Client, service: Running) -> None:
    browser = {"Accept": "text/html"}
    assert "<progress" not in client.get("/", headers=browser).text
    name = ask(client, "public.b", "public.a", "public.broken").json()["id"]
    service.until(lambda: service.requests.find(name).progress.rows == 500)
    html = client.get("/", headers=browser).text
    page = Bars(html)
    assert page.bars["public.a"] == "0.2000"
    assert page.bars["public.b"] == "1.0000"
    assert [f"db1: {name}", "running", "1 of 3 tables, 500 rows, 1,000 rows/s, about 1 s left"] in page.rows
    service.until(lambda: service.requests.find(name).progress.state.ended)
    page = Bars(client.get("/", headers=browser).text)
    assert [f"db1: {name}", "failed", "2 of 3 tables, 1,300 rows", "public.broken was not read"] in page.rows
    assert ["public.broken", "failed", "0 rows", "permission denied: GRANT SELECT ON broken TO streamer"] in page.rows
    assert "http://" not in html
    assert "<script" not in html
    assert "snapshots" not in [text for row in page.rows for text in row], "no counters of it beside the part"


def test_of_many_tables_the_page_shows_those_that_say_most(client: httpx.Client, service: Running) -> None:
    name = client.post("/snapshots", json={}).json()["id"]
    many = [TableProgress(f"s.t{number}", TableState.DONE) for number in range(500)]
    many.append(TableProgress("s.failed", TableState.FAILED, reason="<script>"))
    many.append(TableProgress("s.reading", TableState.READING, rows=7))
    found = service.requests.find(name).progress
    service.part._found[name] = replace(found, tables=many, state=SnapshotState.RUNNING)
    html = client.get("/", headers={"Accept": "text/html"}).text
    page = Bars(html)
    assert [row[0] for row in page.rows if row][-22:-19] == [f"db1: {name}", "s.failed", "s.reading"]
    assert "<script>" not in html
    assert "482 more tables" in [row[0] for row in page.rows if row]
    assert page.bars["s.reading"] is None


def scraped(client: httpx.Client) -> dict[str, float]:
    families = text_string_to_metric_families(client.get("/metrics").text)
    return {
        sample.name.removeprefix("psql_streamer_snapshot_"): sample.value
        for family in families
        for sample in family.samples
        if sample.name.startswith("psql_streamer_snapshot_")
    }


@pytest.mark.behaviour("N25")
def test_metrics_have_what_was_given_and_what_is_left(service: Running) -> None:
    with serving(service, None) as client:
        check_metrics(client, service)


def check_metrics(client: httpx.Client, service: Running) -> None:
    assert set(scraped(client).values()) == {0}
    first = ask(client, "public.b").json()["id"]
    service.until(lambda: service.requests.find(first).progress.state.ended)
    second = ask(client, "public.a").json()["id"]
    service.until(lambda: service.requests.find(second).progress.rows == 200)
    assert scraped(client) == {
        "rows_total": 500, "chunks_total": 5, "stale_rows_total": 2, "read_again_total": 4,
        "tables_altered_total": 0, "keys_checked_total": 0, "keys_gone_total": 0, "keys_superseded_total": 0,
        "tables_left": 1, "rows_left": 800, "seconds": pytest.approx(0.2),
    }  # fmt: skip
    del service.part._found[first]
    service.requests._stored = {}
    assert scraped(client)["rows_total"] == 500, "a counter does not go back when a snapshot is forgotten"
    found = service.part._found[second]
    unknown = [TableProgress("public.a", TableState.READING, rows=200)]
    service.part._found[second] = replace(found, tables=unknown)
    assert "rows_left" not in scraped(client), "nobody knows"
