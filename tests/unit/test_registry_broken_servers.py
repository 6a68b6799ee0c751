"""Servers and proxies in front of a schema registry that answer as they should not, and interrupts meanwhile."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest
from pydantic import ValidationError

from psql_streamer.registry import connection as module
from psql_streamer.registry.client import RegistryClient
from psql_streamer.registry.errors import RegistryUnavailable
from psql_streamer.registry.options import RegistryOptions
from tests.unit.test_registry_connection import client, nobody_accepts

Answer = Callable[[socket.socket, str], None]


@contextmanager
def answering(answer: Answer, host: str = "127.0.0.1") -> Iterator[tuple[int, list[str]]]:
    """The port of a server that answers each question by its path, and the paths."""
    asked: list[str] = []
    threads: list[threading.Thread] = []
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listening, ExitStack() as accepted:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    sock = accepted.enter_context(listening.accept()[0])
                    threads.append(threading.Thread(target=serve, args=(sock,)))
                    threads[-1].start()

        def serve(sock: socket.socket) -> None:
            with suppress(OSError), sock:
                while question := sock.recv(1 << 16):
                    asked.append(question.split(b" ")[1].decode())
                    answer(sock, asked[-1])

        threads.append(threading.Thread(target=accept))
        threads[0].start()
        try:
            yield listening.getsockname()[1], asked
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join(30)


def send(sock: socket.socket, path: str, status: str = "200 OK") -> None:
    body = b'{"schema": "%s"}' % path.encode()
    sock.sendall(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)


def ask_for_each(asking: RegistryClient, until: Callable[[], bool] = lambda: True) -> list[Any]:
    found = []
    for path in ("/schemas/ids/1", "/schemas/ids/2", "/schemas/ids/3"):
        found.append(asking.get(path)["schema"])
        deadline = time.monotonic() + 30
        while not until():
            assert time.monotonic() < deadline
            time.sleep(0.001)
    return found


EACH = ["/schemas/ids/1", "/schemas/ids/2", "/schemas/ids/3"]


@pytest.mark.parametrize("more", ["200 OK", "408 Request Timeout"])
def test_what_comes_behind_an_answer_is_not_taken_for_that_of_the_next_question(more: str) -> None:
    """A server that closes an idle connection may say so with the status 408."""
    came = threading.Event()

    def answer_twice(sock: socket.socket, path: str) -> None:
        came.clear()
        send(sock, path)
        send_rest.wait(30)
        send_rest.clear()
        send(sock, f"again {path}", more)
        came.set()

    send_rest = threading.Event()

    def has_come() -> bool:
        send_rest.set()
        return came.wait(30)

    with answering(answer_twice) as (port, asked):
        asking = client(f"http://127.0.0.1:{port}")
        assert ask_for_each(asking, has_come) == asked == EACH
        asking.interrupt()


def test_interim_answers_are_not_taken_for_the_answer() -> None:
    def answer_after_hints(sock: socket.socket, path: str) -> None:
        sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </s>\r\n\r\n")
        send(sock, path)

    with answering(answer_after_hints) as (port, asked):
        asking = client(f"http://127.0.0.1:{port}")
        assert ask_for_each(asking) == asked == EACH
        asking.interrupt()


@pytest.mark.parametrize(
    ("begin", "byte"),
    [
        (b"HTTP/1.1 200 OK\r\nX-Long: ", b"x"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Long: ", b"x"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", b" "),
    ],
    ids=["headers", "interim answers", "trailers", "body"],
)
def test_an_answer_that_comes_by_the_byte_ends_with_the_timeout(begin: bytes, byte: bytes) -> None:
    def drip(sock: socket.socket, _: str) -> None:
        sock.sendall(begin)
        while True:
            sock.sendall(byte)
            time.sleep(0.02)

    with answering(drip) as (port, _):
        began = time.monotonic()
        with pytest.raises(RegistryUnavailable, match="no answer in time"):
            client(f"http://127.0.0.1:{port}", timeout="300ms").get("/schemas/ids/1")
        assert time.monotonic() - began < 5


def interrupt_while(asking: RegistryClient, is_asked: Callable[[], bool]) -> float:
    """How long it takes until the question has ended."""

    def ask() -> None:
        with pytest.raises(RegistryUnavailable, match="not asked any more"):
            asking.get("/schemas/ids/1")

    thread = threading.Thread(target=ask)
    thread.start()
    while not is_asked():
        time.sleep(0.001)
    began = time.monotonic()
    asking.interrupt()
    thread.join(60)
    return time.monotonic() - began


def test_an_interrupt_ends_the_wait_for_the_rest_of_the_last_answer_of_a_connection() -> None:
    sent = threading.Event()

    def answer_half(sock: socket.socket, _: str) -> None:
        sock.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 40\r\n\r\n{")
        sent.set()

    with answering(answer_half) as (port, _):
        asking = client(f"http://127.0.0.1:{port}")
        assert interrupt_while(asking, lambda: sent.is_set() and not time.sleep(0.1)) < 5


def test_an_interrupt_ends_the_wait_for_all_addresses_of_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    with nobody_accepts() as one, nobody_accepts() as other:
        looked_up = threading.Event()

        def look_up(*_: object, **__: object) -> list[Any]:
            looked_up.set()
            return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port)) for port in (one, other)]

        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        assert interrupt_while(client("http://registry"), looked_up.is_set) < 5


def test_an_interrupt_before_the_socket_connects_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its moment is that behind the look-up of the name."""
    with nobody_accepts() as port:
        asking = client("http://registry")

        def look_up(*_: object, **__: object) -> list[Any]:
            asking.interrupt()
            return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", port))]

        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        began = time.monotonic()
        with pytest.raises(RegistryUnavailable, match="not asked any more"):
            asking.get("/schemas/ids/1")
        assert time.monotonic() - began < 5


def test_an_ipv6_address_without_a_port_has_that_of_the_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(send, "::1") as (port, asked):
        monkeypatch.setattr(module._Connection, "default_port", port)
        asking = client("http://[::1]")
        assert asking.get("/schemas/ids/1") == {"schema": "/schemas/ids/1"}
        assert asked == ["/schemas/ids/1"]
        asking.interrupt()


def test_a_token_that_cannot_be_sent_is_refused_with_the_configuration() -> None:
    with pytest.raises(ValidationError, match="token") as refused:
        RegistryOptions.model_validate({"url": "http://h:1", "token": "t€"})
    assert "characters that cannot be sent" in str(refused.value)
    assert "t€" not in str(refused.value)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"", "it closed the connection before it answered"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "its answer is no HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n{", "its answer ends too early"),
        (b"HTTP/1.1 308 P\r\nContent-Length: 0\r\n\r\n", "it answers with the status 308, which leads to another URL"),
    ],
)
def test_the_message_says_what_the_server_does(answer: bytes, words: str) -> None:
    def close(sock: socket.socket, _: str) -> None:
        sock.sendall(answer)
        sock.shutdown(socket.SHUT_RDWR)

    with answering(close) as (port, _), pytest.raises(RegistryUnavailable, match=words):
        client(f"http://127.0.0.1:{port}").get("/schemas/ids/1")
