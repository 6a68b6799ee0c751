"""The formats do not change unnoticed: events of captured streams are those of tests/data/golden."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.connect_schema import misfits
from tests.encoding import JSON_FORMATS
from tests.few import both_ways  # noqa: F401 - a fixture for all tests here
from tests.golden import FORMATS, lines, read


def test_every_format_in_json_has_a_golden_file() -> None:
    assert {form.partition("_")[0] for form in FORMATS} == set(JSON_FORMATS)


@pytest.mark.parametrize("form", FORMATS)
def test_the_events_are_the_golden_ones(form: str) -> None:
    """After a change that is meant: `python -m tests.golden`, and look at what changed."""
    assert lines(FORMATS[form]) == read(form)


@pytest.mark.parametrize("form", FORMATS)
def test_every_line_of_a_golden_file_is_json(form: str) -> None:
    for line in read(form):
        assert json.loads(line).keys() == {"topic", "key", "value", "headers"}


@pytest.mark.behaviour("D6")
def test_d6_unchanged_toast_is_told_apart_from_null_in_every_format() -> None:
    """The first update leaves `big` alone, the second sets it to NULL."""

    def updates(form: str) -> Iterator[Any]:
        for record in map(json.loads, read(form)):
            value = record["value"] or {}
            if record["topic"] == "by_key" and "raw" in json.dumps(record) and record["key"] == {"id": 1}:
                yield value, record["headers"]

    def of(form: str, action: str, *path: str) -> list[Any]:
        found = [(value, headers) for value, headers in updates(form) if _action(value, headers) == action]
        rows = []
        for value, _ in found:
            row = value
            for name in path:
                row = row[name]
            rows.append(row.get("big", "lacks it"))
        return rows

    assert of("event", "update", "Columns") == ["lacks it", None]
    assert of("envelope", "UPDATE", "after") == ["lacks it", None]
    assert of("debezium", "u", "after") == ["__debezium_unavailable_value", None]
    assert of("flat", "update") == ["lacks it", None]
    unchanged = [headers.get("unchanged") for value, headers in updates("flat") if headers["op"] == "update"]
    assert unchanged == ['["big"]', None]


@pytest.mark.parametrize("form", ["debezium_schemas", "debezium_transactions"])
def test_what_debezium_writes_fits_the_schema_that_it_writes(form: str) -> None:
    for record in map(json.loads, read(form)):
        for part in (record["key"], record["value"]):
            if part is not None:
                assert misfits(part["schema"], part["payload"]) == []


def test_with_and_without_schemas_the_payload_is_the_same_but_for_arrays_of_several_dimensions() -> None:
    plain = [json.loads(line) for line in read("debezium")]
    nested = 0
    for record, bare in zip(map(json.loads, read("debezium_schemas")), plain, strict=True):
        after = (bare["value"] or {}).get("after") or {}
        for column, value in after.items():
            if isinstance(value, list) and isinstance(value[0], list):
                after[column] = None  # Connect's arrays have none
                nested += 1
        for part in ("key", "value"):
            assert bare[part] == (record[part] and record[part]["payload"])
    assert nested


def test_debezium_writes_every_column_of_an_old_row() -> None:
    """PostgreSQL sent no more than the key."""
    before = [value["before"] for value in map(_value, read("debezium")) if value and value["op"] == "d"]
    by_key = [row for row in before if row.keys() == {"id", "note", "żółć 🐘"}]
    assert {"id": 1, "note": None, "żółć 🐘": None} in by_key


def test_the_halves_of_a_key_change_name_each_others_key_in_debezium() -> None:
    for form in ("debezium", "debezium_schemas"):
        linked = [record for record in map(json.loads, read(form)) if record["headers"]]
        assert linked
        keys: dict[str, list[Any]] = {"__debezium.newkey": [], "__debezium.oldkey": []}
        others: dict[str, list[Any]] = {"__debezium.newkey": [], "__debezium.oldkey": []}
        for record in linked:
            ((header, other),) = record["headers"].items()
            if record["value"] is not None:
                keys[header].append(json.dumps(record["key"], ensure_ascii=False, separators=(",", ":")))
                others[header].append(other)
        assert keys["__debezium.newkey"] == others["__debezium.oldkey"]
        assert keys["__debezium.oldkey"] == others["__debezium.newkey"]


def test_transaction_metadata_agrees_with_the_events_between_begin_and_end() -> None:
    seen: dict[str, list[tuple[int, str, int]]] = {}
    ended: set[str] = set()
    for record in map(json.loads, read("debezium_transactions")):
        value = record["value"] and record["value"]["payload"]
        if record["topic"] == "transactions":
            transaction = value["id"]
            assert record["key"]["payload"] == {"id": transaction}
            if value["status"] == "BEGIN":
                assert (value["event_count"], value["data_collections"]) == (None, None)
                assert seen.setdefault(transaction, []) == []
            else:
                ended.add(transaction)
                counted = {one["data_collection"]: one["event_count"] for one in value["data_collections"]}
                assert value["event_count"] == sum(counted.values())
                by_table: dict[str, int] = {}
                for _, table, order in sorted(seen[transaction]):
                    assert order - by_table.get(table, 0) in (0, 1)  # 0: the other half of a key change
                    by_table[table] = order
                assert by_table == {table: n for table, n in counted.items() if table in by_table}
        elif value and value["op"] not in ("m", "r"):
            place, source = value["transaction"], value["source"]
            assert place["id"] not in ended
            assert place["id"].startswith(f"{source['txId']}:")
            table = f"{source['schema']}.{source['table']}"
            seen[place["id"]].append((place["total_order"], table, place["data_collection_order"]))
    assert ended == seen.keys() != set()


def _value(line: bytes) -> Any:
    return json.loads(line)["value"]


def _action(value: dict[str, Any], headers: dict[str, str]) -> str | None:
    return value.get("Action") or value.get("op") or headers.get("op")
