"""What libpq says of a connection that is not made, without a word of the password."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import psycopg2
import pytest

from psql_streamer.errors import SourceError
from sources.postgres.server_errors import from_psycopg2

PASSWORDS = ("zqx", "x", "port", "shop", "connection", "refused", "password", "127", "hunter2-is-secret")
"""Among them words of libpq's messages, and the user's own name."""


@pytest.fixture
def closed_port() -> Iterator[int]:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def told(dsn: str) -> tuple[str, str]:
    """The class of our error and its text."""
    with pytest.raises(psycopg2.OperationalError) as raised:
        psycopg2.connect(dsn)
    error: SourceError = from_psycopg2(raised.value, dsn)
    return type(error).__name__, str(error)


@pytest.mark.parametrize(
    "dsn",
    [
        "host=127.0.0.1 port={port} user=shop dbname=shop password={password}",
        "postgres://shop:{password}@127.0.0.1:{port}/shop",
        "postgres://127.0.0.1:{port}/shop?user=shop&password={password}",
        "postgres://shop:{password}@127.0.0.1:{port}/shop?application_name=me@here",
        "host=no.such.host.invalid dbname=shop password={password}",
        "host=127.0.0.1 port=port dbname=shop password={password}",
        "host=127.0.0.1 port={port} sslmode=port dbname=shop password={password}",
    ],
)
def test_what_is_said_is_the_same_whatever_the_password_is(dsn: str, closed_port: int) -> None:
    said = {password: told(dsn.format(port=closed_port, password=password)) for password in PASSWORDS}
    assert set(said.values()) == {said["zqx"]}
    assert "***" not in said["zqx"][1]
    assert any(word in said["zqx"][1] for word in ("refused", "translate host name", "port", "sslmode"))


@pytest.mark.parametrize("password", ["zqx/y", "y/zqx", "zqx@y", "y@zqx", "zqx@y/z", "y/z@zqx", "/zqx"])
def test_a_password_that_splits_an_uri_is_told_by_how_to_write_it(password: str) -> None:
    """libpq takes what stands behind the slash for the database, and what stands before it for host and port."""
    _, text = told(f"postgres://shop:{password}@db/shop")
    assert "zqx" not in text
    assert text.endswith("and write in a password / as %2F, @ as %40")
