"""A type is one row: whoever makes something of types knows every kind of values that a row may have."""

from __future__ import annotations

import pyarrow as pa
import pytest

from psql_streamer.events.debezium import types as connect
from psql_streamer.events.json.values import render_values
from psql_streamer.pgtype import Logical, PgType, PostgresType
from psql_streamer.pgtypes import casts
from psql_streamer.pgtypes.builtin import ARRAYS, BUILT_IN, EXTENSIONS
from psql_streamer.pgtypes.catalog import TypeCatalog, TypeRow
from psql_streamer.pgtypes.names import name_type
from tests.type_values import EDGES

TEXT_IN_ARROW = {
    *(Logical.BIT, Logical.HSTORE, Logical.INT2VECTOR, Logical.INTERVAL, Logical.JSON, Logical.LTREE, Logical.MONEY),
    *(Logical.OIDVECTOR, Logical.POINT, Logical.TEXT, Logical.TIME, Logical.TIMETZ, Logical.TSVECTOR, Logical.UUID),
    *(Logical.VARBIT, Logical.XML, Logical.OTHER),
}
STRINGS_IN_CONNECT = {Logical.TEXT, Logical.XID, Logical.OTHER}


def test_every_kind_of_values_is_some_types_and_everybody_has_an_answer() -> None:
    assert {row.logical for row in BUILT_IN} | set(EXTENSIONS.values()) == set(Logical)
    assert casts.FORMS.keys() | {Logical.NUMERIC} | TEXT_IN_ARROW == set(Logical)
    assert connect.BY_LOGICAL.keys() | connect.BY_MODIFIER.keys() | STRINGS_IN_CONNECT == set(Logical)
    assert not connect.BY_LOGICAL.keys() & connect.BY_MODIFIER.keys()


@pytest.mark.parametrize("row", [*BUILT_IN, *ARRAYS], ids=lambda row: row.name)
def test_a_row_goes_through_whatever_is_made_of_types(row: PgType) -> None:
    kind = PostgresType(row.oid)
    values = pa.array([None], pa.binary())
    assert row.name.removesuffix("[]") in EDGES, "PostgreSQL is asked for values of each type"
    assert casts.cast(values, kind).type == casts.choose_arrow_type(kind)
    assert casts.to_text(casts.cast(values, kind), kind).to_pylist() == [None]
    assert render_values(values, kind).values.null_count == 1
    assert connect.choose_connect_type(kind).render(values).values.null_count == 1
    assert name_type(kind)


@pytest.mark.parametrize("name", EXTENSIONS)
def test_a_type_of_an_extension_is_known_by_its_name(name: str) -> None:
    catalog = TypeCatalog()
    catalog.add([TypeRow(90_001, name, "b", 90_002, 0, ",", 0, -1)])
    known = catalog.resolve(90_001)
    assert known is not None
    assert known.logical is EXTENSIONS[name]
    assert render_values(pa.array([b"a"]), PostgresType(90_001, known=known)).values.to_pylist() == [b"a"]
