"""Accounts of MariaDB that use its plug-in ed25519: with PyNaCl they connect, without it they are refused in words."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from psql_streamer.errors import SourceRefused
from tests.mariadb import Schema
from tests.mysql_source import read_all, seen, source_of, streaming
from tests.sql_sources import notes, sql_source
from tests.started_source import started

PASSWORD = "secret-of-ed"


@pytest.fixture
def ed(schema: Schema) -> Iterator[str]:
    """The name of an account that logs in with ed25519."""
    name = f"ed_{schema.name[-8:]}"
    schema.execute(
        "INSTALL PLUGIN IF NOT EXISTS ed25519 SONAME 'auth_ed25519'",
        f"CREATE USER {name}@'%' IDENTIFIED VIA ed25519 USING PASSWORD('{PASSWORD}')",
        f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {name}@'%'",
        f"GRANT SELECT ON `{schema.name}`.* TO {name}@'%'",
        "CREATE TABLE t (id INT PRIMARY KEY, note TEXT)",
    )
    yield name
    schema.execute(f"DROP USER {name}@'%'")


@pytest.fixture
def _no_pynacl(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where PyNaCl is not installed."""
    monkeypatch.setitem(sys.modules, "nacl", None)
    monkeypatch.setattr("pymysql._auth._nacl_bindings", None)


def dsn_of(schema: Schema, user: str, password: str = PASSWORD) -> str:
    return f"mysql://{user}:{password}@{schema.host}:{schema.port}/"


def url_of(schema: Schema, user: str) -> str:
    return f"mysql+pymysql://{user}:{PASSWORD}@{schema.host}:{schema.port}/{schema.name}"


def test_an_account_with_ed25519_streams_and_polls(schema: Schema, ed: str) -> None:
    with streaming(schema, dsn=dsn_of(schema, ed)) as source:
        schema.execute("INSERT INTO t VALUES (1, 'a')")
        assert [change.after for change in seen(read_all(source, schema))] == [{"id": "1", "note": "a"}]
    with started(sql_source(url_of(schema, ed), "t", settle="0s")) as polling:
        assert notes(polling, 1) == ["a"]


def test_a_wrong_password_is_refused(schema: Schema, ed: str) -> None:
    with pytest.raises(SourceRefused, match="check user and password in the dsn"):
        source_of(schema, dsn=dsn_of(schema, ed, "wrong-one")).start(None)


@pytest.mark.behaviour("B6")
@pytest.mark.usefixtures("_no_pynacl")
def test_without_pynacl_it_says_what_to_install_and_what_to_use_in_its_place(schema: Schema, ed: str) -> None:
    source = source_of(schema, dsn=dsn_of(schema, ed))
    told = r"'pynacl' package is required.*pip install pynacl beside psql-streamer, or .*mysql_native_password"
    with pytest.raises(SourceRefused, match=told) as failure:
        source.start(None)
    found = "\n".join(map(str, source.check()))
    assert "error: " in found
    assert "pip install pynacl" in found
    assert PASSWORD not in f"{failure.value}{found}"


@pytest.mark.usefixtures("_no_pynacl")
def test_a_source_that_polls_says_so_too(schema: Schema, ed: str) -> None:
    source = sql_source(url_of(schema, ed), "t")
    with pytest.raises(SourceRefused, match=r"'pynacl' package is required.*pip install pynacl beside psql-streamer"):
        source.start(None)
    assert "pip install pynacl" in "\n".join(map(str, source.check()))
