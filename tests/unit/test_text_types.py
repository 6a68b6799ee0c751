"""Columns of other sources whose values are in PostgreSQL's text forms: everybody treats them as that type's."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from psql_streamer.checkpoint.store_format import decode_relation, encode_relation
from psql_streamer.events.debezium.types import choose_connect_type
from psql_streamer.events.json.values import render_values
from psql_streamer.events.schema_change import render_schema_change
from psql_streamer.model import Batch, Column, Position, Relation, SchemaChange, SourceInfo, TextType, Transactions
from psql_streamer.pgtype import PostgresType
from psql_streamer.pgtypes import casts
from psql_streamer.pgtypes.builtin import OIDS

CASES = [
    ("tinyint(1)", "bool", -1, [b"t", b"f"], b"true"),
    ("bigint unsigned", "numeric", ((20 << 16) | 0) + 4, [b"18446744073709551615"], b"18446744073709551615"),
    ("datetime(6)", "timestamp", 6, [b"2026-11-22 10:00:00.5", b"0000-00-00 00:00:00"], b'"2026-11-22T10:00:00.5"'),
    ("blob", "bytea", -1, [b"\\xdead"], b'"3q0="'),
    ("json", "json", -1, [b'{"a": 1}'], b'{"a": 1}'),
    ("varchar(9)", "text", -1, [b'say "so"'], rb'"say \"so\""'),
]


@pytest.mark.parametrize(("native", "like", "modifier", "texts", "first"), CASES)
def test_a_value_is_written_and_typed_as_its_postgresql_type(
    native: str, like: str, modifier: int, texts: list[bytes], first: bytes
) -> None:
    form = PostgresType(OIDS[like], modifier)
    kind = TextType(native, form)
    values = pa.array(texts, pa.binary())
    piece = render_values(values, kind)
    assert b"%s%s%s" % (piece.open, piece.values[0].as_py(), piece.close) == first
    assert casts.choose_arrow_type(kind) == casts.choose_arrow_type(form)
    assert casts.cast(values, kind).equals(casts.cast(values, form))
    assert casts.to_text(casts.cast(values, kind), kind).equals(casts.to_text(casts.cast(values, form), form))
    expected = {"type": "int64"} if native == "bigint unsigned" else choose_connect_type(form).schema
    assert choose_connect_type(kind).schema == expected


@pytest.mark.parametrize(
    ("native", "like", "modifier"),
    [
        ("BIGINT UNSIGNED", "numeric", -1),
        ("time", "time", -1),
        ("year", "text", -1),
        ("point", "point", -1),
        ("enum('a')", "int8", -1),
    ],
)
def test_a_type_of_another_database_is_no_type_of_mysqls_because_of_its_name(
    native: str, like: str, modifier: int
) -> None:
    form = PostgresType(OIDS[like], modifier)
    assert choose_connect_type(TextType(native, form)).schema == choose_connect_type(form).schema


def test_the_store_keeps_the_native_name() -> None:
    shape = relation()
    kept = decode_relation(encode_relation(shape, None))
    assert kept == shape
    assert kept.columns[0].type == TextType("bigint unsigned", PostgresType(OIDS["numeric"], 1310724))


def test_a_schema_change_says_the_native_name() -> None:
    transactions = Transactions(np.array([7], np.uint64), np.array([0], np.int64))
    batch = Batch(SourceInfo("mysql", "shop", "localhost", "shop"), Position({}, "7"), transactions)
    written = json.loads(render_schema_change(SchemaChange(relation(), None, 0, 0, 0), batch))
    assert written["after"]["columns"] == [{"name": "id", "type": "bigint unsigned", "key": True}]


def relation() -> Relation:
    kind = TextType("bigint unsigned", PostgresType(OIDS["numeric"], 1310724))
    return Relation("shop.orders", "shop", "orders", (Column("id", kind, key=True),))
