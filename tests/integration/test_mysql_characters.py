"""Every code that a column of a character set can hold comes as the server shows it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from psql_streamer.binlog.charsets import BY_COLLATION, CharacterSet
from tests.mariadb import Schema
from tests.mysql_source import read_all, seen, streaming

_SERVER_HAS_NONE = {
    "cp1256": "ٹڈکڑںھہے",
    "greek": "€₯ͺ",
    "big5": "╴￣ˍ／＼十卅",
    "ujis": "?",  # for 8EA0, which one of the servers shows as two
}
"""Characters that codes have by their standard. The server has none for them, and shows a question mark."""


def codes_of(one: CharacterSet) -> Iterator[bytes]:
    yield from (bytes([code]) for code in range(256))
    if one.most >= 2:
        yield from (bytes([lead, trail]) for lead in range(0x80, 0x100) for trail in range(0x30, 0x100))
    if one.most == 3:
        yield from (bytes([0x8F, lead, trail]) for lead in range(0xA0, 0x100) for trail in range(0xA0, 0x100))


def legacy_sets(schema: Schema) -> list[CharacterSet]:
    there = {str(name) for (name,) in schema.query("SELECT character_set_name FROM information_schema.character_sets")}
    return [
        one for one in dict.fromkeys(BY_COLLATION.values()) if one.name in there and not one.codec.startswith("utf")
    ]


def store_codes(schema: Schema, one: CharacterSet) -> None:
    """Each in a row of its own; those that the server refuses are left out."""
    schema.execute(f"CREATE TABLE {one.name} (code VARBINARY(4), text VARCHAR(4) CHARACTER SET {one.name})")
    with schema.session() as cursor:
        cursor.execute("SET sql_mode = ''")
        codes = list(codes_of(one))
        for part in (codes[at : at + 4000] for at in range(0, len(codes), 4000)):
            rows = ", ".join(f"(x'{code.hex()}', CONVERT(_binary x'{code.hex()}' USING {one.name}))" for code in part)
            cursor.execute(f"INSERT IGNORE INTO {one.name} VALUES {rows}")
        cursor.execute(f"DELETE FROM {one.name} WHERE text IS NULL OR code != CAST(text AS BINARY)")


@pytest.mark.soak
def test_every_code_of_a_character_set_comes_as_the_server_shows_it(every_schema: Schema) -> None:
    for one in legacy_sets(every_schema):
        store_codes(every_schema, one)
        shown = {
            f"\\x{str(code).lower()}": bytes.fromhex(text).decode()
            for code, text in every_schema.query(f"SELECT HEX(code), HEX(CONVERT(text USING utf8mb4)) FROM {one.name}")
        }
        assert shown
        with streaming(every_schema, tables=[f"{every_schema.name}.again"]) as source:
            every_schema.execute(f"CREATE TABLE again LIKE {one.name}", f"INSERT INTO again SELECT * FROM {one.name}")
            rows = [change.after for change in seen(read_all(source, every_schema)) if change.after is not None]
            every_schema.execute("DROP TABLE again")
        read = {str(row["code"]): str(row["text"]) for row in rows}
        assert read.keys() == shown.keys()
        others = {code: (shown[code], text) for code, text in read.items() if text != shown[code]}
        assert all(set(theirs) <= set("?\ufffd") for theirs, _ in others.values()), (one.name, others)
        assert {ours for _, ours in others.values()} <= set(_SERVER_HAS_NONE.get(one.name, "")), (one.name, others)
