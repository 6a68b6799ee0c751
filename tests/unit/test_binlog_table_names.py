"""Tables that statements write in another way than row events."""

from __future__ import annotations

from struct import pack

import pytest

from psql_streamer.binlog.events import read_query
from psql_streamer.binlog.statements import read_statement
from psql_streamer.binlog.table_names import TableNames

CATALOG = b"\6\3std"
FLAGS, MODE, INCREMENT = b"\0" + bytes(4), b"\1" + bytes(8), b"\3" + bytes(4)


def spell(names: TableNames, text: str) -> list[str]:
    return [".".join(table) for table in names.spell_statement(read_statement(text.encode(), "Shop")).tables]


def test_names_are_compared_in_lower_case_where_the_server_does_so() -> None:
    names = TableNames(True, [("shop", "orders")])
    names.note("Shop", "Kept")
    assert spell(names, "RENAME TABLE ORDERS TO `New ÉTÉ`, kept TO b.ΣΑΣ") == [
        *("shop.orders", "shop.new été"),
        *("Shop.Kept", "b.σασ"),
    ]
    assert names.spell_statement(read_statement(b"DROP DATABASE Shop", "")).schema == "shop"
    assert spell(TableNames(False, [("shop", "orders")]), "TRUNCATE ORDERS") == ["Shop.ORDERS"]


def query(statement: bytes, settings: bytes) -> bytes:
    return pack("<I4xB2xH", 7, 4, len(settings)) + settings + b"shop\0" + statement


@pytest.mark.parametrize(
    ("settings", "statement", "text"),
    [
        (FLAGS + MODE + CATALOG + INCREMENT + b"\4\x08\0", "é".encode("latin-1"), "é"),
        (FLAGS + CATALOG + b"\4\x1c\0", "表".encode("gbk"), "表"),
        (b"\4\x2d\0\x08\0", "é".encode(), "é"),
        (b"\4\x3f\0", "é".encode(), "é"),
        (FLAGS + b"\x80\4\x08\0", "é".encode(), "é"),
        (b"\4", "é".encode(), "é"),
    ],
    ids=["latin1", "gbk", "utf8mb4", "binary", "unknown", "cut"],
)
def test_a_statement_is_in_the_character_set_of_its_client(settings: bytes, statement: bytes, text: str) -> None:
    assert read_query(query(b"TRUNCATE " + statement, settings)).statement.decode() == f"TRUNCATE {text}"
