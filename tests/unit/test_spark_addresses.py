"""Where a Spark master or a Spark Connect server listens, and whether somebody does."""

from __future__ import annotations

import socket

import pytest

from psql_streamer.embedded.ports import free_ports
from psql_streamer.spark.addresses import Line, parse_addresses, show_addresses


@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("spark://a:7078,b", [("a", 7078), ("b", 7077)]),
        ("sc://h:15003/;token=secret;use_ssl=true", [("h", 15003)]),
        ("sc://[::1]", [("::1", 15002)]),
        ("yarn", []),
        ("k8s://https://h:6443", []),
        ("local[*]", []),
    ],
)
def test_addresses_are_those_of_the_url_without_its_parameters(url: str, addresses: list[tuple[str, int]]) -> None:
    assert parse_addresses(url) == addresses
    assert "secret" not in show_addresses(addresses)


def test_a_line_ends_with_the_process_at_its_other_end_and_is_made_anew_with_the_next() -> None:
    [away] = free_ports(1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        line = Line([("127.0.0.1", away), address])
        assert line.holds()
        accepted = server.accept()[0]
        accepted.sendall(b"what a server says first")
        assert line.holds()
        assert line.broken == 0
        accepted.close()
    assert not line.holds()
    assert line.broken == 1
    with socket.create_server(address):
        assert line.holds()
    line.close()
