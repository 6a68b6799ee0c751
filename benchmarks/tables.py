"""The tables that benchmarks write to, as data. In values `i` is the row's number: 1, 2, 3, ... over all tables."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count, islice


@dataclass(frozen=True)
class Table:
    """columns: as CREATE TABLE takes them, `id` first. values: the SQL of each in row `i`. change: what UPDATE sets.
    then: statements behind CREATE TABLE, a semicolon before each."""

    name: str
    columns: str
    values: str
    change: str = ""
    then: str = ""


ORDERS = Table(
    "orders",
    "id bigint PRIMARY KEY, name text, email text, amount numeric(12, 2), created_at timestamptz, active boolean",
    """i, 'customer ' || i, 'customer' || i || '@example.com', (i % 100000)::numeric / 100,
    timestamptz '2024-01-01 10:00:00+00' + i * interval '1.000001 second', i % 3 = 0""",
    "name = 'renamed ' || i, amount = amount + 1",
)

# An unlogged table is in no publication. EXTERNAL keeps values uncompressed; of bytea a piece can be read alone, of
# text the server reads all that is before it.
FILLER = """CREATE UNLOGGED TABLE filler (body bytea);
ALTER TABLE filler ALTER body SET STORAGE EXTERNAL;
INSERT INTO filler SELECT string_agg(decode(md5(part::text), 'hex'), '') FROM generate_series(1, 34000) part"""
"""544,000 bytes that do not compress: large values are cut from them, because making each anew takes long."""


def one_shape(tables: int) -> tuple[Table, ...]:
    """So many tables like `orders`."""
    return tuple(replace(ORDERS, name=f"orders_{at}") for at in range(tables))


def own_shapes(tables: int) -> tuple[Table, ...]:
    """So many tables of four to eight columns, each with names and types of its own; the same every time."""
    return tuple(table(f"shape_{at}", *_mixed_columns(at)) for at in range(tables))


def table(name: str, *columns: tuple[str, str]) -> Table:
    """(column as CREATE TABLE takes it, its SQL) each, behind an id."""
    definitions, values = zip(*columns, strict=True)
    return Table(name, ", ".join(("id bigint PRIMARY KEY", *definitions)), ", ".join(("i", *values)))


_MIXED = (
    ("int", "i % 100000"),
    ("bigint", "i * 1000000007"),
    ("numeric(12, 2)", "(i % 100000)::numeric / 100"),
    ("text", "'text of row ' || i"),
    ("timestamptz", "timestamptz '2024-01-01 10:00:00+00' + i * interval '1.000001 second'"),
    ("boolean", "i % 3 = 0"),
    ("jsonb", "jsonb_build_object('number', i, 'even', i % 2 = 0)"),
    ("uuid", "md5(i::text)::uuid"),
    ("int[]", "ARRAY[i, i + 1, NULL]"),
)
_WEIGHTS = (4, 4, 3, 5, 3, 2, 1, 1, 1)


def _mixed_columns(at: int) -> Iterator[tuple[str, str]]:
    chance = random.Random(at)
    kinds = chance.choices(_MIXED, _WEIGHTS, k=chance.randint(3, 7))
    for place, (kind, value) in enumerate(kinds):
        yield f"{kind.partition('(')[0].removesuffix('[]')}_{at}_{place} {kind}", value


def _wide(columns: int) -> Table:
    """Integers and texts in turn."""
    pairs = (
        pair
        for at in count(0, 2)
        for pair in ((f"c{at} text", f"'text {at} of ' || i"), (f"c{at + 1} int", f"i + {at + 1}"))
    )
    return table("wide", *islice(pairs, columns))


def _texts(length: int) -> Table:
    """Digits and letters, of which each character is half a byte. In the WAL they are not compressed."""
    piece = f"substr((SELECT body FROM filler), (1 + i * 7919 % {544_000 - length // 2})::int, {length // 2})"
    filled = f"i || encode({piece}, 'hex')"
    external = ";ALTER TABLE texts ALTER document SET STORAGE EXTERNAL"
    return replace(table("texts", ("document text", filled)), then=external)


COLUMNS_200 = _wide(200)
TEXTS_10_KB = _texts(10_240)
TEXTS_1_MB = _texts(1_048_576)

NUMERICS = table(
    "numerics",
    ("n0 numeric(12, 2)", "i::numeric / 100"),
    ("n1 numeric(12, 2)", "-i"),
    ("n2 numeric(38, 10)", "i * 12345678901234567.0000000001"),
    ("n3 numeric(5, 4)", "(i % 10000)::numeric / 10000"),
    ("n4 numeric(18)", "i * 1000000007::numeric"),
    ("n5 numeric", "i / 7.0"),
    ("n6 numeric", "i * 1e20"),
    ("n7 numeric", "i % 10"),
)

TIMES = table(
    "times",
    ("t0 timestamptz", "timestamptz '2024-01-01 10:00:00+00' + i * interval '1.000001 second'"),
    ("t1 timestamptz", "timestamptz '1970-01-01 00:00:00+00' + i * interval '1 minute'"),
    ("t2 timestamptz", "timestamptz '2024-06-01 00:00:00+00' + i * interval '1 millisecond'"),
    ("t3 timestamp", "timestamp '2024-01-01 10:00:00' + i * interval '1.000001 second'"),
    ("t4 timestamp", "timestamp '1970-01-01 00:00:00' + i * interval '1 minute'"),
    ("t5 timestamp(3)", "timestamp '2024-06-01 00:00:00' + i * interval '1 millisecond'"),
    ("t6 date", "date '1970-01-01' + (i % 30000)::int"),
    ("t7 date", "date '2024-01-01' + (i % 366)::int"),
)

_DOCUMENT = """jsonb_build_object(
    'id', i, 'customer', jsonb_build_object('name', 'customer ' || i, 'email', 'customer' || i || '@example.com'),
    'lines', jsonb_build_array(
        jsonb_build_object('sku', md5(i::text), 'amount', i / 100.0, 'tags', jsonb_build_array('new', 'fragile')),
        jsonb_build_object('sku', md5((i + 1)::text), 'amount', i % 100, 'tags', jsonb_build_array())),
    'paid', i % 2 = 0, 'note', null)"""

DOCUMENTS = table("documents", ("document jsonb", _DOCUMENT))

ARRAYS = table(
    "arrays",
    ("a0 int[]", "ARRAY[i, i + 1, i + 2, i + 3, i + 4]"),
    ("a1 int[]", "ARRAY[[i, NULL], [i % 10, 0]]"),
    ("a2 text[]", "ARRAY['one', 'number ' || i, 'a \"quoted\" one']"),
    ("a3 text[]", "ARRAY['tag' || i % 10, 'tag' || i % 7, NULL]"),
)
