"""Clients of the HTTP API cannot take what sources and sinks need, nor keep others from being answered."""

from __future__ import annotations

import logging
import os
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from psql_streamer.api.app import ApiServer
from psql_streamer.api.connections import MOST_CONNECTIONS


@pytest.fixture
def server() -> Iterator[ApiServer]:
    """One that knows a single path."""
    app = FastAPI()
    app.get("/health")(answer_nothing)
    server = ApiServer(app, "127.0.0.1", 0)
    server.start()
    yield server
    server.stop()


@pytest.mark.parametrize("sent", [b"", b"GET /hea"])
def test_a_client_is_answered_beside_more_that_never_end_what_they_ask(server: ApiServer, sent: bytes) -> None:
    with ExitStack() as stack:
        open_before = count_descriptors()
        clients = [stack.enter_context(connect(server)) for _ in range(3 * MOST_CONNECTIONS)]
        for client in clients:
            send(client, sent)
        assert httpx.get(f"http://{server.address}/health").status_code == 200
        wait_until_open(open_before + len(clients) + MOST_CONNECTIONS)


def test_a_client_that_goes_on_asking_keeps_its_connection(server: ApiServer) -> None:
    with ExitStack() as stack, httpx.Client(base_url=f"http://{server.address}") as asking:
        asking.get("/health")
        [ours] = connections_of(asking)
        for _ in range(3):
            for _ in range(MOST_CONNECTIONS - 10):
                stack.enter_context(connect(server))
            # Accepted behind all of these, so that what is asked next is heard later than they are.
            assert httpx.get(f"http://{server.address}/health").status_code == 200
            assert asking.get("/health").status_code == 200
        assert connections_of(asking) == [ours]


_HEAD = b"POST /health HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("answered_first", [False, True])
def test_a_body_that_is_not_http_is_refused_in_one_line_of_the_log(
    server: ApiServer, caplog: pytest.LogCaptureFixture, answered_first: bool
) -> None:
    with connect(server) as client:
        client.sendall(_HEAD if answered_first else _HEAD + b"ZZ\r\n")
        said = client.recv(1000)
        if answered_first:
            client.sendall(b"ZZ\r\n")
        while more := client.recv(1000):
            said += more
    assert said.count(b"HTTP/1.1 ") == 1
    assert httpx.get(f"http://{server.address}/health").status_code == 200
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "Invalid HTTP request received."
    ]


def test_a_client_that_asks_for_a_websocket_is_answered_without_a_word(
    server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    headers = {"Connection": "Upgrade", "Upgrade": "websocket"}
    assert httpx.get(f"http://{server.address}/health", headers=headers).status_code == 200
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_that_descriptors_have_run_out_is_told_once(server: ApiServer, caplog: pytest.LogCaptureFixture) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    clients = [socket.socket() for _ in range(5)]
    with ExitStack() as stack, caplog.at_level(logging.WARNING):
        for client in clients:
            stack.enter_context(client)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1000), hard))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        take_all_descriptors(stack)
        for client in clients:
            client.connect(address_of(server))
        wait_for_a_word(caplog)
    told = [record.getMessage() for record in caplog.records]
    remedy = "look at what has so many files open, or raise the limit (ulimit -n, LimitNOFILE)"
    assert told == [f"http: clients cannot be answered: Too many open files: {remedy}"]


async def answer_nothing() -> None:
    """With `null`."""


def count_descriptors() -> int:
    """Of the process: of server and clients."""
    return len(list(Path("/proc/self/fd").iterdir()))


def connect(server: ApiServer) -> socket.socket:
    return socket.create_connection(address_of(server), timeout=10)


def address_of(server: ApiServer) -> tuple[str, int]:
    host, port = server.address.rsplit(":", 1)
    return host, int(port)


def send(client: socket.socket, sent: bytes) -> None:
    """To a server that may have ended the connection."""
    try:
        client.sendall(sent)
    except OSError:
        assert sent


def connections_of(client: httpx.Client) -> list[object]:
    pool = client._transport._pool  # type: ignore[attr-defined]
    return list(pool.connections)


def take_all_descriptors(stack: ExitStack) -> None:
    """Until the stack ends."""
    try:
        while True:
            stack.callback(os.close, os.dup(0))
    except OSError:
        return


def wait_until_open(most: int) -> None:
    """Until the process has no more descriptors open."""
    deadline = time.monotonic() + 10
    while (found := count_descriptors()) > most:
        assert time.monotonic() < deadline, found
        time.sleep(0.01)


def wait_for_a_word(caplog: pytest.LogCaptureFixture) -> None:
    """And for the server's next attempt, a second later, which says nothing."""
    deadline = time.monotonic() + 10
    while not caplog.records:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(1.2)
