"""The connection to a schema registry, from one question to the next and while nobody answers."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from psql_streamer.registry import connection as module
from psql_streamer.registry.client import RegistryClient
from psql_streamer.registry.errors import RegistryUnavailable
from psql_streamer.registry.options import RegistryOptions
from tests.registry_server import RegistryServer, registry_server


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server({"/schemas/ids/1": {"schema": '"long"'}, "POST /subjects/s": {"id": 1}}) as running:
        yield running


def client(*urls: str, timeout: str = "30s") -> RegistryClient:
    return RegistryClient(RegistryOptions.model_validate({"url": urls, "timeout": timeout}))


def test_questions_that_follow_each_other_go_over_one_connection(server: RegistryServer) -> None:
    asking = client(server.url)
    for _ in range(3):
        asking.get("/schemas/ids/1")
        asking.post("/subjects/s", {"schema": '"long"'})
    assert (len(server.asked), server.connections) == (6, 1)


def test_a_question_behind_an_error_goes_over_the_same_connection(server: RegistryServer) -> None:
    server.answers["/schemas/ids/2"] = 503, {"message": "busy"}
    asking = client(server.url)
    with pytest.raises(RegistryUnavailable, match="status 503"):
        asking.get("/schemas/ids/2")
    assert asking.get("/schemas/ids/1") == {"schema": '"long"'}
    assert server.connections == 1


@pytest.mark.parametrize("ask", [lambda one: one.get("/schemas/ids/1"), lambda one: one.post("/subjects/s", {})])
def test_a_connection_that_the_server_closed_meanwhile_is_opened_again(
    server: RegistryServer, ask: Callable[[RegistryClient], object]
) -> None:
    server.hangs_up = True
    asking = client(server.url)
    assert ask(asking) == ask(asking) == ask(asking)
    assert (len(server.asked), server.connections) == (3, 3)


def test_a_server_that_closes_a_new_connection_is_not_asked_again(server: RegistryServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        accepted = []

        def hang_up() -> None:
            while True:
                found, _ = listening.accept()
                with found:
                    if not found.recv(1 << 16):
                        return
                    accepted.append(found)

        thread = threading.Thread(target=hang_up)
        thread.start()
        asking = client(f"http://127.0.0.1:{listening.getsockname()[1]}", server.url)
        assert asking.get("/schemas/ids/1") == {"schema": '"long"'}
        with socket.create_connection(listening.getsockname()) as last:
            last.shutdown(socket.SHUT_WR)
            thread.join(30)
    assert len(accepted) == 1


def test_a_connection_that_was_idle_for_long_is_not_used_again(
    server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = client(server.url)
    asking.get("/schemas/ids/1")
    monkeypatch.setattr(module, "_IDLE_SECONDS", -1.0)
    asking.get("/schemas/ids/1")
    assert server.connections == 2


def test_each_server_has_a_connection_of_its_own(server: RegistryServer) -> None:
    with registry_server({"/schemas/ids/2": {"schema": '"int"'}}) as other:
        asking = client(server.url, other.url)
        assert asking.get("/schemas/ids/1") == {"schema": '"long"'}
        assert asking.get("/schemas/ids/2") == {"schema": '"int"'}
        assert asking.get("/schemas/ids/1") == {"schema": '"long"'}
        assert (server.asked.count("/schemas/ids/2"), other.asked) == (1, ["/schemas/ids/2"])


@contextmanager
def nobody_accepts() -> Iterator[int]:
    """The port of a server whose queue of connections is full: another one is neither accepted nor refused."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        yield listening.getsockname()[1]


@contextmanager
def nobody_shakes_hands() -> Iterator[int]:
    """The port of a server that accepts connections, and then is silent."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@pytest.mark.parametrize(("silent", "scheme"), [(nobody_accepts, "http"), (nobody_shakes_hands, "https")])
def test_an_interrupt_ends_the_wait_for_a_server_that_is_away(
    silent: Callable[[], contextmanager[int]], scheme: str
) -> None:
    with silent() as port:  # type: ignore[attr-defined]
        asking, errors = client(f"{scheme}://127.0.0.1:{port}"), []

        def ask() -> None:
            with pytest.raises(RegistryUnavailable) as found:
                asking.get("/schemas/ids/1")
            errors.append(str(found.value))

        thread = threading.Thread(target=ask)
        thread.start()
        time.sleep(0.2)  # the question may be on its way or not: an interrupt ends both
        began = time.monotonic()
        asking.interrupt()
        thread.join(30)
        assert time.monotonic() - began < 5
    assert "not asked any more" in errors[0]


def test_a_host_with_several_addresses_is_tried_at_each(
    server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = int(server.url.rpartition(":")[2])
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nobody listens
        found = [
            (socket.AF_INET, socket.SOCK_STREAM, 0, "", closed.getsockname()),
            (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port)),
        ]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        assert client(server.url).get("/schemas/ids/1") == {"schema": '"long"'}


def test_tls_is_spoken_where_the_url_says_so() -> None:
    """Without certificates in common there is no answer, and the reason is TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with registry_server(tls=context) as running, pytest.raises(RegistryUnavailable, match="TLS: "):
        client(running.url).get("/schemas/ids/1")
