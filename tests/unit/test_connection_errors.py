"""A connection that cannot be made is tried again or stops the service, by its cause and not by words in its names."""

from __future__ import annotations

import psycopg2
import pytest

from psql_streamer.errors import SourceRefused, SourceUnavailable
from sources.postgres.server_errors import from_psycopg2

_TO = 'connection to server at "ssl-db.example.com" (10.0.0.7), port 5432 failed: '

MAY_PASS = [
    'could not translate host name "ssl-db.example.com" to address: Name or service not known',
    'could not translate host name "certificate" to address: Temporary failure in name resolution',
    _TO + "SSL SYSCALL error: EOF detected",
    _TO + "SSL SYSCALL error: Connection reset by peer",
    _TO + "SSL error: unexpected eof while reading",
    _TO + "server closed the connection unexpectedly\n\tThis probably means the server terminated abnormally\n",
    _TO + "Connection refused\n\tIs the server running on that host and accepting TCP/IP connections?",
    _TO + "timeout expired",
    _TO + "FATAL:  the database system is starting up",
    _TO + "FATAL:  sorry, too many clients already",
    _TO + "received invalid response to SSL negotiation: H",
    'connection to server on socket "/run/ssl/.s.PGSQL.5432" failed: No such file or directory',
    "could not look up local user ID 1000: Too many open files",
    _TO + 'could not read root certificate file "/etc/root.crt": Too many open files',
    # The first address refuses, the last one is away.
    _TO + 'FATAL:  password authentication failed for user "a"\n' + _TO + "Connection refused",
]
REFUSED = [
    (_TO + 'FATAL:  password authentication failed for user "ssl"', "check user and password"),
    (_TO + 'FATAL:  no pg_hba.conf entry for host "10.0.0.1", user "a", database "d", no encryption', "pg_hba.conf"),
    (_TO + 'FATAL:  database "certificate" does not exist', "check the database name"),
    (_TO + 'FATAL:  role "timeout expired" does not exist', "check user"),
    (_TO + "FATAL:  must be superuser or replication role to start walsender", "REPLICATION"),
    (_TO + "fe_sendauth: no password supplied", "check user and password"),
    (_TO + "server does not support SSL, but SSL was required", "sslmode"),
    (_TO + "SSL error: certificate verify failed", "sslrootcert"),
    (_TO + 'server certificate for "a" does not match host name "b"', "certificate holds"),
    ('root certificate file "/nowhere/root.crt" does not exist', "sslrootcert"),
    (_TO + "SSL error: tlsv1 alert unknown ca", "sslcert"),
    ('invalid sslmode value: "maybe"', "correct it in the dsn"),
    ('weak sslmode "prefer" may not be used with sslnegotiation=direct (use "require")', "correct it in the dsn"),
    ('invalid port number: "a"', "correct it in the dsn"),
    (_TO + "Connection refused\n" + _TO + 'FATAL:  password authentication failed for user "a"', "user and password"),
]


@pytest.mark.parametrize("text", MAY_PASS)
def test_what_may_pass_is_tried_again(text: str) -> None:
    assert type(from_psycopg2(psycopg2.OperationalError(text), "host=h")) is SourceUnavailable


@pytest.mark.parametrize(("text", "remedy"), REFUSED)
def test_what_somebody_has_to_change_stops_with_what_to_change(text: str, remedy: str) -> None:
    error = from_psycopg2(psycopg2.OperationalError(text), "host=h")
    assert type(error) is SourceRefused
    assert remedy in str(error)


@pytest.mark.parametrize("text", [one for one in MAY_PASS if one.endswith("Too many open files")])
def test_files_that_cannot_be_opened_are_no_matter_of_the_address(text: str) -> None:
    error = from_psycopg2(psycopg2.OperationalError(text), "host=localhost")
    assert error.remedy.startswith("the service itself has too many")
