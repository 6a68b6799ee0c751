"""Columns that no event has."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from psql_streamer.config import load
from psql_streamer.errors import ConfigError, SinkRefused
from psql_streamer.events.encoder import Encoder
from psql_streamer.events.excluded_columns import ExcludedColumns
from psql_streamer.events.records import Records
from psql_streamer.events.routing import Router
from psql_streamer.events.unchanged import Unchanged
from psql_streamer.interfaces import Severity
from psql_streamer.model import ArrowType, Batch, Changes, Image, SchemaChange, TableStatement
from psql_streamer.testing.batches import make_mixed_batch
from sinks.kafka.review import KafkaReview
from tests.config_files import MINIMAL, with_line, written
from tests.encoding import FORMATS, format_of
from tests.golden import batches
from tests.kafka_sinks import options
from tests.spark_changes import batch, shop

ROUTER = Router({}, "t", "", "messages")
CHOICES: list[Callable[[str, int], bool]] = [
    lambda _, at: at % 2 == 1,
    lambda _, at: at > 0,
    lambda table, _: table.endswith("s"),
]


def encode(form: str, given: Batch, excluded: ExcludedColumns | None, unchanged: Unchanged | None = None) -> Records:
    made = format_of(form, form == "debezium", False)
    return Encoder(
        made, ROUTER, {}, headers=True, unchanged=unchanged, schema_topic="schemas", excluded_columns=excluded
    ).encode(given)


def said(records: Records) -> list[tuple[Any, ...]]:
    headers = [dict(zip(records.headers, row, strict=True)) for row in zip(*records.headers.values(), strict=True)]
    topics = map(records.look_up_topic, range(len(records)))
    return list(zip(topics, records.keys.to_pylist(), records.values.to_pylist(), headers, strict=True))


def without(changes: Changes, left_out: Callable[[str], bool]) -> Changes:
    """The same as if the table had never had these columns; its relation stays."""
    stays = [at for at, column in enumerate(changes.columns) if not left_out(column.name)]

    def narrow(image: Image) -> Image:
        absent = {new: image.absent[old] for new, old in enumerate(stays) if old in image.absent}
        return replace(image, columns=tuple(image.columns[at] for at in stays), absent=absent)

    columns = tuple(changes.columns[at] for at in stays)
    return replace(changes, columns=columns, after=narrow(changes.after), before=narrow(changes.before))


@pytest.mark.parametrize("chosen", range(len(CHOICES)))
@pytest.mark.parametrize("form", [form for form in FORMATS if form != "flat"])
@pytest.mark.parametrize("treatment", ["fill", "marker"])
def test_events_are_those_of_a_table_without_the_columns(form: str, chosen: int, treatment: str) -> None:
    unchanged = Unchanged({"*": treatment}) if treatment == "fill" or form != "debezium" else None  # type: ignore[dict-item]
    seen = 0
    for given in [*batches(), make_mixed_batch()]:
        given = replace(given, schema_changes=(), statements=())
        left_out = {
            f"{one.relation}.{column.name}"
            for one in given.changes
            for at, column in enumerate(one.relation.columns)
            if CHOICES[chosen](str(one.relation), at) and not column.key
        }
        names = sorted(name for name in left_out if "." not in name.split(".", 2)[2])
        if not names:
            continue
        excluded = ExcludedColumns(names)
        parts = tuple(without(one, partial(excluded.has, one.relation)) for one in given.changes)
        truncates = tuple(replace(one, relation=excluded.narrow_relation(one.relation)) for one in given.truncates)
        found = said(encode(form, given, excluded, unchanged))
        expected = replace(given, changes=parts, truncates=truncates)
        assert found == said(encode(form, expected, None, unchanged))
        seen += len(found)
    assert seen > 10


def test_an_excluded_column_is_in_no_part_of_an_event() -> None:
    excluded = ExcludedColumns(["customer", "public.orders.met*"])
    for form in FORMATS:
        for key, value in [(key, value) for _, key, value, _ in said(encode(form, batch(shop()), excluded))]:
            text = (key or b"") + (value or b"")
            assert b"customer" not in text
            assert b"ann" not in text
            assert b"meta" not in text
    records = encode("event", batch(shop()), excluded)
    assert json.loads(records.values[0].as_py())["Columns"] == {"id": 1, "amount": 10.00}
    plain = encode("event", batch(shop()), ExcludedColumns(["other"]))
    assert b"customer" in plain.values[0].as_py()


def test_columns_of_arrows_types_stay_with_their_rows() -> None:
    changes = shop()
    numbers = pa.array([1.5, None, 3.5], pa.float64())
    typed = replace(changes.columns[1], type=ArrowType(pa.float64()))
    columns = (changes.columns[0], typed, *changes.columns[2:])
    after = replace(changes.after, columns=(changes.after.columns[0], numbers, *changes.after.columns[2:]))
    before = replace(
        changes.before, columns=(changes.before.columns[0], pa.array([9.5, 8.5]), *changes.before.columns[2:])
    )
    given = batch(replace(changes, columns=columns, after=after, before=before))
    records = encode("event", given, ExcludedColumns(["customer"]))
    found = [json.loads(value.as_py()) for value in records.values]
    assert [one["Columns"]["amount"] for one in found] == [1.5, None, 8.5, 3.5]
    assert found[1]["Before"]["amount"] == 9.5


def test_a_column_of_the_key_is_refused_unless_another_key_is_named() -> None:
    given = batch(shop())
    with pytest.raises(SinkRefused, match=r'leaves out the column "id" of public.orders, which is part of its key'):
        encode("event", given, ExcludedColumns(["id"]))
    other = Encoder(
        format_of("event", False, False), ROUTER, {"*": ("customer",)}, excluded_columns=ExcludedColumns(["id"])
    )
    assert b'"id"' not in other.encode(given).values[0].as_py()
    [finding] = [
        one
        for one in KafkaReview(
            options("k:9092", excludeColumns=["id", "nothing"]), {"db1": [shop().relation]}
        ).collect_findings()
        if one.severity is Severity.ERROR
    ]
    assert 'leaves out the column "id" of public.orders' in finding.problem


def test_an_entry_that_fits_no_column_is_warned_of() -> None:
    found = [
        one.problem
        for one in KafkaReview(
            options("k:9092", excludeColumns=["custmer"]), {"db1": [shop().relation]}
        ).collect_findings()
    ]
    assert any('excludeColumns: "custmer" fits no column of a published table' in text for text in found)


def test_shapes_in_the_schema_topic_lack_the_columns() -> None:
    relation = shop().relation
    shapes, statements = (SchemaChange(relation, relation, 0, 0, 0),), (TableStatement(relation, "ALTER", 0, 0, 0),)
    given = replace(batch(shop()), schema_changes=shapes, statements=statements)
    records = encode("event", given, ExcludedColumns(["customer"]))
    told = [
        json.loads(records.values[at].as_py()) for at in range(len(records)) if records.look_up_topic(at) == "schemas"
    ]
    for document, sides in zip(told, (["before"], ["before", "after"]), strict=True):
        for side in sides:
            assert [column["name"] for column in document[side]["columns"]] == ["id", "amount", "meta"]


@pytest.mark.parametrize("entry", ["*", "public.users.*", "/users/"])
def test_an_entry_that_leaves_no_column_is_refused(tmp_path: Path, entry: str) -> None:
    text = with_line(MINIMAL, "[sink.kafka1]", f'excludeColumns = ["{entry}"]')
    with pytest.raises(ConfigError, match="column"):
        load(written(tmp_path, text), {})
