"""The HTTP API answers what the service says: as JSON, as text, as a page, and while the pipeline hangs."""

from __future__ import annotations

import logging
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from psql_streamer import logs
from psql_streamer.api.app import ENDPOINTS, ApiServer, create_app
from psql_streamer.errors import StreamerError
from psql_streamer.interfaces import Status
from psql_streamer.lsn import Lsn
from psql_streamer.metrics.metrics import Metrics
from psql_streamer.model import Stats
from psql_streamer.pipeline.snapshots import SnapshotsOfSources

TEXT = {"Accept": "text/plain"}
BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


class Pipeline:
    """A service whose parts are what a test makes them; `hang` makes it hold every call."""

    def __init__(self) -> None:
        self.parts = {"source.db1": Status(True, "streaming from 0/100"), "sink.kafka1": Status(True, "writing")}
        self.counters: dict[str, Stats] = {
            "source.db1": {"received_lsn": Lsn.parse("16/B374D848"), "reconnects": 2},
            "sink.kafka1": {"events": 1234567, "skipped": {"public.log": 3}},
        }
        self.snapshots = SnapshotsOfSources({}, [])
        self.debug = False
        self.broken: Exception | None = None
        self.running = threading.Event()
        self.running.set()

    def hang(self) -> None:
        self.running.clear()

    def check(self) -> None:
        if self.broken is not None:
            raise self.broken
        self.running.wait()

    def status(self) -> Mapping[str, Status]:
        self.check()
        return self.parts

    def stats(self) -> Mapping[str, Stats]:
        self.check()
        return self.counters

    def set_debug(self, on: bool) -> None:
        self.check()
        self.debug = on


@pytest.fixture
def pipeline() -> Iterator[Pipeline]:
    pipeline = Pipeline()
    yield pipeline
    pipeline.running.set()


@pytest.fixture
def server(pipeline: Pipeline) -> Iterator[ApiServer]:
    server = ApiServer(create_app(pipeline, Metrics()), "127.0.0.1", 0)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def client(server: ApiServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{server.address}", timeout=10) as client:
        yield client


def test_health_says_that_the_process_lives(client: httpx.Client) -> None:
    answer = client.get("/health")
    assert (answer.status_code, answer.json()) == (200, {"status": "alive"})


def test_health_as_text_reads_as_the_original_s(client: httpx.Client) -> None:
    assert client.get("/health", headers=TEXT).text == "Alive and well\n"


def test_status_is_200_while_every_part_is_well(client: httpx.Client) -> None:
    answer = client.get("/status")
    assert answer.status_code == 200
    assert answer.json() == {
        "ok": True,
        "parts": {
            "source.db1": {"ok": True, "reason": "streaming from 0/100"},
            "sink.kafka1": {"ok": True, "reason": "writing"},
        },
    }


@pytest.mark.parametrize("failing", ["source.db1", "sink.kafka1"])
def test_status_is_500_with_the_reason_when_a_part_has_a_problem(
    client: httpx.Client, pipeline: Pipeline, failing: str
) -> None:
    pipeline.parts[failing] = Status(False, "nothing moved for 60 s")
    answer = client.get("/status")
    assert answer.status_code == 500
    assert answer.json()["ok"] is False
    assert answer.json()["parts"][failing] == {"ok": False, "reason": "nothing moved for 60 s"}


def test_status_as_text_has_a_line_for_each_part(client: httpx.Client, pipeline: Pipeline) -> None:
    pipeline.parts["sink.kafka1"] = Status(False, "no broker answers")
    answer = client.get("/status", headers=TEXT)
    assert answer.status_code == 500
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.text == "source.db1: ok: streaming from 0/100\nsink.kafka1: problem: no broker answers\n"


def test_what_a_reason_quotes_makes_no_line_of_its_own_and_steers_no_terminal(
    client: httpx.Client, pipeline: Pipeline
) -> None:
    pipeline.parts["sink.kafka1"] = Status(False, "public.a\nsource.x: ok: forged\x1b[2J is locked")
    told = client.get("/status", headers=TEXT).text.splitlines()[1:]
    assert told == ["sink.kafka1: problem: public.a\\nsource.x: ok: forged\\x1b[2J is locked"]


def test_status_is_never_cached(client: httpx.Client) -> None:
    assert client.get("/status").headers["cache-control"] == "no-store"


def test_stats_gives_the_counters_of_every_part(client: httpx.Client) -> None:
    assert client.get("/stats").json() == {
        "source.db1": {"received_lsn": 97500059720, "reconnects": 2},
        "sink.kafka1": {"events": 1234567, "skipped": {"public.log": 3}},
    }


def test_stats_as_text_shows_positions_as_postgresql_does(client: httpx.Client) -> None:
    lines = client.get("/stats", headers=TEXT).text.splitlines()
    assert lines[0] == "source.db1: received_lsn=16/B374D848 reconnects=2"


def test_stats_of_a_type_that_json_lacks_cost_no_answer(client: httpx.Client, pipeline: Pipeline) -> None:
    pipeline.counters["sink.other"] = {"seen": float("nan"), "port": object}
    assert client.get("/stats").json()["sink.other"] == {"seen": None, "port": "<class 'object'>"}


def test_debug_is_switched_on_and_off(client: httpx.Client, pipeline: Pipeline) -> None:
    assert client.get("/debug/on").json() == {"debug": True}
    assert pipeline.debug
    assert client.get("/debug/off", headers=TEXT).text == "Debug is off\n"
    assert not pipeline.debug


@pytest.mark.parametrize("path", ["/debug/", "/debug/maybe", "/debug/on/top", "/debug/ON"])
def test_anything_else_under_debug_is_refused(client: httpx.Client, pipeline: Pipeline, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 400
    assert "/debug/on or /debug/off" in answer.json()["error"]
    assert not pipeline.debug


def test_metrics_are_prometheus_text_with_what_the_service_says(client: httpx.Client, pipeline: Pipeline) -> None:
    pipeline.parts["sink.kafka1"] = Status(False, "no broker answers")
    answer = client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    up = {sample.labels["part"]: sample.value for sample in families["psql_streamer_up"].samples}
    assert up == {"source.db1": 1, "sink.kafka1": 0}


def test_the_index_lists_every_endpoint_and_each_answers(client: httpx.Client) -> None:
    listed = client.get("/").json()["endpoints"]
    assert listed == ENDPOINTS
    assert [client.get(path).status_code for path in listed] == [200] * len(listed)


def test_the_index_as_text_is_a_line_for_each_endpoint(client: httpx.Client) -> None:
    assert client.get("/", headers=TEXT).text.splitlines()[0] == "/health: whether the process runs"


class Page(HTMLParser):
    """The text and the links of a page; fails on an element that is closed in the wrong place."""

    VOID = ("meta", "link")

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [value for name, value in attrs if name in ("href", "src") and value]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append(data.strip())


def test_a_browser_gets_a_page_with_every_part(client: httpx.Client, pipeline: Pipeline) -> None:
    pipeline.parts["sink.kafka1"] = Status(False, "no broker <answers>")
    answer = client.get("/", headers=BROWSER)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    page = Page(answer.text)
    for text in ("source.db1", "16/B374D848", "sink.kafka1", "problem", "no broker <answers>", "1,234,567"):
        assert text in page.texts
    assert "public.log 3" in page.texts


def test_the_page_loads_nothing_from_elsewhere(client: httpx.Client) -> None:
    html = client.get("/", headers=BROWSER).text
    assert all(link.startswith(("/", "data:")) for link in Page(html).links)
    assert "http://" not in html
    assert "https://" not in html


@pytest.mark.parametrize(
    ("accept", "media"),
    [
        ("*/*", "application/json"),
        ("", "application/json"),
        ("application/json", "application/json"),
        ("text/plain", "text/plain"),
        ("text/*", "text/plain"),
        ("TEXT/PLAIN; charset=utf-8", "text/plain"),
        ("text/plain;q=0.5, application/json", "application/json"),
        ("text/plain, application/json;q=0.5", "text/plain"),
        ("application/json;q=0, */*", "text/plain"),
        ("image/png", "application/json"),
        ("text/plain;q=nonsense", "application/json"),
        ("text/plain;q=\u00b2".encode("latin-1"), "application/json"),
        (BROWSER["Accept"], "application/json"),
    ],
)
def test_the_accept_header_decides_between_json_and_text(client: httpx.Client, accept: str | bytes, media: str) -> None:
    assert client.get("/health", headers=[("Accept", accept)]).headers["content-type"].partition(";")[0] == media


def test_a_client_without_an_accept_header_gets_json(server: ApiServer) -> None:
    with socket.create_connection(("127.0.0.1", port_of(server)), timeout=10) as connection:
        connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    assert answer.endswith(b'{"status":"alive"}')


def test_openapi_describes_every_answer(client: httpx.Client) -> None:
    api = client.get("/openapi.json").json()
    below = ("", "/{id}", "/{id}/keys", "/{id}/pause", "/{id}/resume")
    snapshots = {f"/snapshots{path}" for path in below}
    assert set(api["paths"]) - snapshots == {"/", "/health", "/status", "/stats", "/metrics", "/debug/{switch}"}
    assert set(api["paths"]["/status"]["get"]["responses"]) == {"200", "500", "default"}
    assert set(api["paths"]["/debug/{switch}"]["get"]["responses"]) == {"200", "400", "default"}
    assert set(api["paths"]["/health"]["get"]["responses"]["200"]["content"]) == {"application/json", "text/plain"}
    assert api["components"]["schemas"]["StatusReport"]["required"] == ["ok", "parts"]


def test_openapi_names_the_two_values_of_the_debug_switch(client: httpx.Client) -> None:
    operation = client.get("/openapi.json").json()["paths"]["/debug/{switch}"]["get"]
    assert [(one["name"], one["schema"]["enum"]) for one in operation["parameters"]] == [("switch", ["on", "off"])]


def test_openapi_says_for_every_path_what_an_error_looks_like_and_nothing_that_never_comes(
    client: httpx.Client,
) -> None:
    api = client.get("/openapi.json").json()
    others = {path: operations for path, operations in api["paths"].items() if not path.startswith("/snapshots")}
    for path, operations in others.items():
        answers = operations["get"]["responses"]
        error = answers["default"]["content"]
        assert error["application/json"]["schema"]["$ref"].endswith("/Problem"), path
        assert error["text/plain"]["schema"] == {"type": "string"}, path
        assert "422" not in answers, path
        assert "parameters" not in operations["get"] or path == "/debug/{switch}", path
    schemas = api["components"]["schemas"].keys() - {
        "SnapshotList",
        "SnapshotShown",
        "KeysShown",
        "RequestShown",
        "TableShown",
    }
    assert schemas - {"SnapshotState", "TableState", "Wanted"} == {
        "Index",
        "Health",
        "StatusReport",
        "PartStatus",
        "DebugState",
        "Problem",
    }


def test_only_get_and_head_are_served(client: httpx.Client, pipeline: Pipeline) -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"):
        answer = client.request(method, "/debug/on")
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
        assert answer.json() == {"error": f"{method} is not served: use GET or HEAD"}
        assert not pipeline.debug


PATHS = [*ENDPOINTS, "/", "/debug/maybe", "/not/there"]


@pytest.mark.parametrize("accept", ["application/json", "text/plain", BROWSER["Accept"]])
def test_head_answers_as_get_without_a_body_and_switches_nothing(
    client: httpx.Client, pipeline: Pipeline, accept: str
) -> None:
    for path in PATHS:
        assert_head_is_get_without_a_body(client, pipeline, path, accept)


def assert_head_is_get_without_a_body(client: httpx.Client, pipeline: Pipeline, path: str, accept: str) -> None:
    pipeline.parts["sink.kafka1"] = Status(False, "no broker answers")
    pipeline.debug = path == "/debug/off"
    head = client.head(path, headers={"Accept": accept})
    assert pipeline.debug is (path == "/debug/off")
    get = client.get(path, headers={"Accept": accept})
    assert head.status_code == get.status_code
    assert head.content == b""
    if path == "/metrics":  # the process's own CPU time and memory have other digits the next moment
        head.headers["content-length"] = get.headers["content-length"]
    without_date = [{name: value for name, value in one.headers.items() if name != "date"} for one in (head, get)]
    assert without_date[0] == without_date[1]
    assert int(get.headers["content-length"]) == len(get.content) > 0


def test_a_connection_is_good_for_more_after_head(server: ApiServer) -> None:
    with socket.create_connection(("127.0.0.1", port_of(server)), timeout=10) as connection:
        ask = "{} /health HTTP/1.1\r\nHost: x\r\nConnection: {}\r\n\r\n"
        connection.sendall((ask.format("HEAD", "keep-alive") + ask.format("GET", "close")).encode())
        answers = b"".join(iter(lambda: connection.recv(4096), b""))
    assert answers.count(b"HTTP/1.1 200 OK") == 2
    assert answers.count(b'{"status":"alive"}') == 1


@pytest.mark.parametrize(
    ("method", "path", "code", "error"),
    [
        ("GET", "/not/there", 404, "there is no /not/there: / lists the paths"),
        ("GET", "/debug/a%20b", 400, "there is no /debug/a%20b: use /debug/on or /debug/off"),
        ("GET", "/debug/a%0Ab", 404, "there is no /debug/a%0Ab: / lists the paths"),
        ("GET", "/%E2%98%83", 404, "there is no /%E2%98%83: / lists the paths"),
        ("GET", "/health/", 404, "there is no /health/: leave out the slash at its end"),
        ("POST", "/snapshots/", 404, "there is no /snapshots/: leave out the slash at its end"),
        ("GET", "/debug", 404, "there is no /debug: / lists the paths"),
        ("POST", "/not/there", 404, "there is no /not/there: / lists the paths"),
        ("POST", "/status", 405, "POST is not served: use GET or HEAD"),
    ],
)
def test_every_error_has_one_shape_and_follows_accept(
    client: httpx.Client, method: str, path: str, code: int, error: str
) -> None:
    answer = client.request(method, path)
    assert (answer.status_code, answer.json()) == (code, {"error": error})
    assert answer.headers["cache-control"] == "no-store"
    text = client.request(method, path, headers=TEXT)
    assert (text.status_code, text.text) == (code, f"{error}\n")
    assert text.headers["content-type"] == "text/plain; charset=utf-8"


@pytest.mark.parametrize("path", ["/status", "/stats", "/metrics", "/debug/on"])
def test_a_service_that_fails_is_an_error_of_the_same_shape_and_its_words_go_nowhere(
    client: httpx.Client, pipeline: Pipeline, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline.broken = KeyError("hunter2")
    answer = client.get(path)
    assert (answer.status_code, answer.json()) == (500, {"error": "unexpected KeyError: see the log"})
    assert client.get(path, headers=TEXT).text == "unexpected KeyError: see the log\n"
    assert client.head(path).status_code == (200 if path == "/debug/on" else 500)  # HEAD switches nothing
    logged = "\n".join(map(logs.TextFormatter().format, caplog.records))
    assert f"GET {path}: unexpected KeyError" in logged
    assert "in check\n" in logged
    assert "hunter2" not in logged
    assert client.get("/health").status_code == 200


def test_health_answers_while_everything_else_hangs(
    client: httpx.Client, pipeline: Pipeline, server: ApiServer
) -> None:
    pipeline.hang()
    stuck = [threading.Thread(target=httpx.get, args=(f"http://{server.address}/status",)) for _ in range(50)]
    for thread in stuck:
        thread.start()
    assert client.get("/health").status_code == 200
    pipeline.running.set()
    for thread in stuck:
        thread.join()


def port_of(server: ApiServer) -> int:
    return int(server.address.rpartition(":")[2])


def test_an_address_in_use_is_named_with_what_to_do(server: ApiServer, pipeline: Pipeline) -> None:
    second = ApiServer(create_app(pipeline, Metrics()), "127.0.0.1", port_of(server))
    with pytest.raises(StreamerError) as raised:
        second.start()
    assert raised.value.what == f"http {server.address}: address already in use"
    assert "key http" in raised.value.remedy
    second.stop()


@pytest.mark.parametrize(
    ("host", "problem"),
    [
        # RFC 6761 keeps .invalid free of names, RFC 5737 keeps 192.0.2.0/24 free of machines.
        ("no.such.host.invalid", "no such host: set an address of this machine"),
        ("192.0.2.1", "cannot assign requested address: set an address of this machine"),
    ],
)
def test_a_host_that_is_not_this_machine_is_refused(pipeline: Pipeline, host: str, problem: str) -> None:
    with pytest.raises(StreamerError) as raised:
        ApiServer(create_app(pipeline, Metrics()), host, 8080).start()
    assert str(raised.value).startswith(f"http {host}:8080: {problem}")


@pytest.mark.parametrize("host", ["localhost", ""])
def test_a_name_and_no_host_at_all_are_reached_over_ipv4(pipeline: Pipeline, host: str) -> None:
    server = ApiServer(create_app(pipeline, Metrics()), host, 0)
    server.start()
    try:
        assert httpx.get(f"http://127.0.0.1:{port_of(server)}/health").status_code == 200
    finally:
        server.stop()


def test_ipv6_addresses_are_written_in_brackets(pipeline: Pipeline) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    server = ApiServer(create_app(pipeline, Metrics()), "::1", 0)
    server.start()
    try:
        assert server.address.startswith("[::1]:")
        assert httpx.get(f"http://{server.address}/health").status_code == 200
    finally:
        server.stop()


def test_the_port_is_free_again_after_stop(pipeline: Pipeline) -> None:
    first = ApiServer(create_app(pipeline, Metrics()), "127.0.0.1", 0)
    first.start()
    httpx.get(f"http://{first.address}/health")
    first.stop()
    first.stop()
    second = ApiServer(create_app(pipeline, Metrics()), "127.0.0.1", port_of(first))
    second.start()
    second.stop()


def test_signals_stay_with_the_process(server: ApiServer) -> None:
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize(("level", "logged"), [(logging.INFO, False), (logging.DEBUG, True)])
def test_requests_are_logged_only_with_debug(
    pipeline: Pipeline, caplog: pytest.LogCaptureFixture, level: int, logged: bool
) -> None:
    caplog.set_level(level)
    # Other tests of the session may have configured our own logger's level.
    caplog.set_level(level, "psql_streamer")
    server = ApiServer(create_app(pipeline, Metrics()), "127.0.0.1", 0)
    server.start()
    httpx.get(f"http://{server.address}/health")
    server.stop()
    assert any("GET /health" in record.getMessage() for record in caplog.records if record.name != "httpx") is logged
    assert f"HTTP API on http://{server.address}" in caplog.messages
