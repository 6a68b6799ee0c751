"""What libpq will not take of a connection string is told before it connects."""

from __future__ import annotations

import psycopg2
import pytest
from pydantic import ValidationError

from sources.postgres.options import PostgresOptions

REFUSED = {
    "sslmode=bogus": "sslmode must be one of disable, allow, prefer, require, verify-ca, verify-full",
    "sslmode=''": "sslmode must be one of",
    "sslcertmode=never": "sslcertmode must be one of disable, allow, require",
    "sslnegotiation=maybe": "sslnegotiation must be one of postgres, direct",
    "gssencmode=maybe": "gssencmode must be one of disable, prefer, require",
    "channel_binding=maybe": "channel_binding must be one of disable, prefer, require",
    "target_session_attrs=leader": "target_session_attrs must be one of any, read-write",
    "load_balance_hosts=yes": "load_balance_hosts must be one of disable, random",
    "keepalives=x": "keepalives must be a whole number",
    "keepalives_idle=1s": "keepalives_idle must be a whole number",
    "tcp_user_timeout=''": "tcp_user_timeout must be a whole number",
    "port=abc": "port must be a number from 1 to 65535",
    "port=65536": "port must be a number from 1 to 65535",
    f"port={'9' * 5000}": "port must be a number from 1 to 65535",
    "port=1,2,3": "port must be one for all hosts, or one for each: there are 1 hosts, and 3 ports",
}


def refuse(dsn: str) -> str:
    """What is said of a connection string; empty where nothing is."""
    try:
        PostgresOptions.model_validate({"type": "postgres", "dsn": dsn, "publication": "p", "replicationSlot": "s"})
    except ValidationError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("given", REFUSED)
def test_a_value_that_libpq_refuses_is_refused_without_a_server(given: str) -> None:
    dsn = f"host=127.0.0.1 dbname=x {given if given.startswith('port') else f'port=1 {given}'}"
    with pytest.raises(psycopg2.OperationalError, match=r"invalid|could not match"):
        psycopg2.connect(dsn)
    assert REFUSED[given] in refuse(dsn)


@pytest.mark.parametrize(
    "given",
    [
        "host=a,b port=5432",
        "host=a,b port=5432,",
        "host=a,b hostaddr=1.1.1.1,1.1.1.2 port=1,2",
        "port=1,2",
        "port=''",
        "sslmode=require keepalives=0 tcp_user_timeout=' 5 ' target_session_attrs=read-write",
        "service=shop",
    ],
)
def test_what_libpq_takes_is_taken(given: str) -> None:
    assert refuse(f"dbname=x {given}") == ""


def test_a_password_of_an_uri_that_is_taken_for_a_port_is_not_shown_and_told_how_to_write() -> None:
    said = refuse("postgresql://streamer:se/cret@db/shop")
    assert "write a password's / as %2F" in said
    assert "se" not in said.partition("port must")[2].partition("(")[0]
