"""The values of every column type are what the server's own SELECT shows, in PostgreSQL's text forms."""

from __future__ import annotations

import json
from functools import lru_cache
from ipaddress import ip_address
from uuid import UUID

import numpy as np
import pytest

from psql_streamer.model import Changes, TextType
from tests.binlog_files import FOLDER, decode, read_events
from tests.binlog_types import COLUMNS, MARIADB, MYSQL, Typed

CASES = [
    pytest.param(flavor, column, id=f"{flavor}-{column.name}")
    for flavor in (MARIADB, MYSQL)
    for column in COLUMNS
    if column.only in ("", flavor)
]

EQUAL = {
    "text": lambda found, shown: found == shown,
    "float4": lambda found, shown: np.float32(found) == np.float32(shown),
    "float8": lambda found, shown: float(found) == float(shown),
    "json": lambda found, shown: json.loads(found) == json.loads(shown),
    "uuid": lambda found, shown: found == f"\\x{UUID(shown).hex}",
    "inet": lambda found, shown: found == f"\\x{ip_address(shown).packed.hex()}",
}


@lru_cache(maxsize=2)
def changes_of_types(flavor: str) -> Changes:
    (piece,) = decode(read_events(f"{flavor}_types"), flavor)
    (changes,) = piece.changes
    return changes


@lru_cache(maxsize=2)
def shown_by(flavor: str) -> dict[str, list[str | None]]:
    return json.loads((FOLDER / f"{flavor}_types.json").read_text())  # type: ignore[no-any-return]


@pytest.mark.parametrize(("flavor", "column"), CASES)
def test_a_value_is_what_the_server_shows(flavor: str, column: Typed) -> None:
    changes, shown = changes_of_types(flavor), shown_by(flavor)[column.name]
    place = [one.name for one in changes.columns].index(column.name)
    found = [None if value is None else value.decode() for value in changes.after.columns[place].to_pylist()]
    assert [value is None for value in found] == [value is None for value in shown]
    assert all(EQUAL[column.compare](*values) for values in zip(found, shown, strict=True) if values[0] is not None), (
        list(zip(found, shown, strict=True))
    )


NATIVE = {
    "t8u": "bigint unsigned",
    "n65": "decimal(65,30)",
    "n18": "decimal(18,9) unsigned",
    "bit12": "bit(12)",
    "dt6": "datetime(6)",
    "ts0": "timestamp",
    "c10": "char(10)",
    "cl": "char(200)",
    "utf16": "varchar(40)",
    "vb": "varbinary(300)",
    "bi": "binary(4)",
    "mt": "mediumtext",
    "en": "enum('red','grün','it''s')",
    "se": "set('a','b','c','d')",
    "pt": "point",
    "t1": "tinyint",
    "b1": "tinyint",
    "hidden": "int",
    "made": "int",
}


@pytest.mark.parametrize("flavor", [MARIADB, MYSQL])
def test_columns_have_the_names_of_their_types(flavor: str) -> None:
    columns = {column.name: column for column in changes_of_types(flavor).columns}
    types = {name: columns[name].type for name in NATIVE}
    assert {name: kind.native for name, kind in types.items() if isinstance(kind, TextType)} == NATIVE
    assert [column.name for column in columns.values() if column.key] == ["id"]


@pytest.mark.parametrize("flavor", [MARIADB, MYSQL])
def test_invisible_and_generated_columns_are_there(flavor: str) -> None:
    changes = changes_of_types(flavor)
    assert [column.to_pylist() for column in changes.after.columns[-2:]] == [[b"5"] * 3, [b"2", b"4", b"6"]]
