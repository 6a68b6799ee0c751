"""Types that are made in a database, from the catalog's rows to the JSON of their values (T7, T8, S3)."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from psql_streamer.events.json.values import render_values
from psql_streamer.pgoutput.decoder import Decoder
from psql_streamer.pgtype import JsonForm, PgType, PostgresType
from psql_streamer.pgtypes import casts
from psql_streamer.pgtypes.catalog import TypeCatalog, TypeRow
from tests.decoding import BEGINNING, SOURCE, block
from tests.pgoutput_wire import WireColumn, WireRelation, begin, commit, copy_data, insert, relation, xlog_data

INT4, TEXT, NUMERIC, BOX, INT4_ARRAY = 23, 25, 1700, 603, 1007
NUMERIC_12_2 = ((12 << 16) | 2) + 4


def enum(oid: int, array_oid: int = 0) -> TypeRow:
    return TypeRow(oid, f"enum_{oid}", "e", array_oid, 0, ",", 0, -1)


def domain(oid: int, base_oid: int, base_typmod: int = -1, array_oid: int = 0, delimiter: str = ",") -> TypeRow:
    return TypeRow(oid, f"domain_{oid}", "d", array_oid, 0, delimiter, base_oid, base_typmod)


def array(oid: int, element_oid: int) -> TypeRow:
    return TypeRow(oid, f"_{oid}", "b", 0, element_oid, ",", 0, -1)


def composite(oid: int, *attributes: tuple[str, int]) -> TypeRow:
    fields = tuple((name, type_oid, -1) for name, type_oid in attributes)
    return TypeRow(oid, f"composite_{oid}", "c", 0, 0, ",", 0, -1, fields)


def base(oid: int, kind: str = "b") -> TypeRow:
    return TypeRow(oid, f"base_{oid}", kind, 0, 0, ",", 0, -1)


def read(catalog: TypeCatalog, oid: int, *texts: str | None) -> list[Any]:
    """What a consumer reads of values of a type."""
    values = pa.array([None if text is None else text.encode() for text in texts], pa.binary())
    piece = render_values(values, PostgresType(oid, known=catalog.resolve(oid)))
    return [
        None if value is None else json.loads(piece.open + value + piece.close) for value in piece.values.to_pylist()
    ]


def test_an_enum_a_range_and_an_extensions_type_are_text() -> None:
    catalog = TypeCatalog([enum(90001), base(90002, "r"), base(90003, "m"), base(90004)])
    for oid, text in ((90001, "so so"), (90002, "[a,b)"), (90003, "{[1,2)}"), (90004, '"a"=>"1"')):
        assert read(catalog, oid, text, None) == [text, None]


@pytest.mark.behaviour("S3")
def test_a_domain_is_what_its_base_type_is_also_over_other_domains() -> None:
    catalog = TypeCatalog([domain(90001, INT4), domain(90002, 90001), domain(90003, INT4_ARRAY), domain(90004, 3802)])
    assert read(catalog, 90001, "5") == [5]
    assert read(catalog, 90002, "-5") == [-5]
    assert read(catalog, 90003, "{1,NULL}") == [[1, None]]
    assert read(catalog, 90004, '{"a": null}') == [{"a": None}]


def test_a_domain_over_a_numeric_with_precision_is_a_decimal_for_spark() -> None:
    catalog = TypeCatalog([domain(90001, NUMERIC, NUMERIC_12_2), domain(90002, 90001), domain(90003, TEXT)])
    for oid, kind in ((90001, pa.decimal128(12, 2)), (90002, pa.decimal128(12, 2)), (90003, pa.string())):
        assert casts.choose_arrow_type(PostgresType(oid, known=catalog.resolve(oid))) == kind


def test_a_composite_is_an_object_of_its_attributes_with_nested_ones_and_nulls() -> None:
    catalog = TypeCatalog(
        [
            composite(90001, ("street", TEXT), ("number", INT4), ('na"me', 90002), ("tags", 1009), ("flag", 16)),
            composite(90002, ("a", TEXT), ("b", 90003)),
            enum(90003),
        ]
    )
    full = r'("High ""St"" \\1, (x)",12,"(""a """"q"""" \\\\"",ok)","{x,NULL,""y,z""}",t)'
    assert read(catalog, 90001, full, "(,,,,)", None, '("",,"(,)",{},f)') == [
        {
            "street": 'High "St" \\1, (x)',
            "number": 12,
            'na"me': {"a": 'a "q" \\', "b": "ok"},
            "tags": ["x", None, "y,z"],
            "flag": True,
        },
        {"street": None, "number": None, 'na"me': None, "tags": None, "flag": None},
        None,
        {"street": "", "number": None, 'na"me': {"a": None, "b": None}, "tags": [], "flag": False},
    ]


def test_an_array_of_any_type_is_an_array_of_what_its_elements_are() -> None:
    catalog = TypeCatalog(
        [
            array(90001, 90002),
            composite(90002, ("id", INT4), ("at", 1184)),
            array(90003, 90004),
            enum(90004),
            array(90005, 90006),
            domain(90006, BOX, delimiter=";"),
            array(90007, 90008),
            domain(90008, INT4_ARRAY),
        ]
    )
    assert read(catalog, 90001, '{"(1,\\"2024-01-01 00:00:00+00\\")",NULL,"(2,)"}') == [
        [{"id": 1, "at": "2024-01-01T00:00:00Z"}, None, {"id": 2, "at": None}]
    ]
    assert read(catalog, 90003, '{ok,"so so",NULL}', "{}") == [["ok", "so so", None], []]
    assert read(catalog, 90005, "{(1,1),(0,0);(2,2),(0,0)}") == [["(1,1),(0,0)", "(2,2),(0,0)"]]
    assert read(catalog, 90007, '{"{1,2}","{}"}') == [[[1, 2], []]]


def test_a_composite_without_attributes_is_an_empty_object() -> None:
    assert read(TypeCatalog([composite(90001)]), 90001, "()", None) == [{}, None]


@pytest.mark.parametrize("text", ["(1)", "(1,2,3)", "(x,2)", "1,2", "(1,2", '(1,"2)', ""])
def test_a_value_of_another_shape_than_its_type_has_now_goes_out_as_text(text: str) -> None:
    catalog = TypeCatalog([composite(90001, ("a", INT4), ("b", TEXT)), array(90002, 90001)])
    assert read(catalog, 90001, text, "(1,2)") == [text, {"a": 1, "b": "2"}]
    assert read(catalog, 90002, "not an array") == ["not an array"]


@pytest.mark.behaviour("T8")
def test_a_type_that_nobody_knows_is_text_and_so_is_a_part_that_nobody_knows() -> None:
    catalog = TypeCatalog([composite(90001, ("a", 99999), ("b", INT4))])
    assert catalog.resolve(99999) is None
    assert catalog.find_missing(90001) == {99999}
    assert read(catalog, 99999, "x") == ["x"]
    assert read(catalog, 90001, "(x,1)") == [{"a": "x", "b": 1}]


@pytest.mark.behaviour("S3")
def test_the_first_description_of_a_type_stays() -> None:
    catalog = TypeCatalog([composite(90001, ("a", INT4))])
    catalog.add([composite(90001, ("renamed", INT4)), enum(90002)])
    assert read(catalog, 90001, "(1)") == [{"a": 1}]
    assert catalog.find_missing(90002) == set()


def test_what_is_missing_is_everything_that_a_type_is_made_of() -> None:
    catalog = TypeCatalog([composite(90001, ("a", 90002), ("b", INT4)), array(90002, 90003)])
    assert catalog.find_missing(90001) == {90003}
    assert catalog.find_missing(90009) == {90009}
    assert catalog.find_missing(INT4) == set()


def test_built_in_types_need_no_catalog() -> None:
    kind = TypeCatalog().resolve(INT4_ARRAY)
    assert kind is not None
    assert kind.form is JsonForm.ARRAY
    assert read(TypeCatalog(), INT4_ARRAY, "[0:1][2:3]={{1,2},{3,4}}") == [[[1, 2], [3, 4]]]


def test_the_decoder_asks_for_the_types_of_a_new_shape_only() -> None:
    asked: list[int] = []
    catalog = TypeCatalog([enum(90001)])

    def resolve(oid: int) -> PgType | None:
        asked.append(oid)
        return catalog.resolve(oid)

    machine = Decoder(SOURCE, BEGINNING, resolve)
    shape = WireRelation(16400, "public", "t", (WireColumn("id", INT4, key=True), WireColumn("mood", 90001)))
    first = [begin(100, 0, 7), relation(shape), insert(shape.oid, (b"1", b"ok"))]
    second = [relation(shape), insert(shape.oid, (b"2", b"ko")), commit(100, 120, 0)]
    for messages in (first, second):
        piece = block([copy_data(xlog_data(message, 50)) for message in messages])
        (changes,) = machine.decode(piece.data, piece.offsets).changes
        kinds = [column.type for column in changes.columns]
        assert [kind.known.name for kind in kinds] == ["int4", "enum_90001"]
    assert asked == [INT4, 90001]
