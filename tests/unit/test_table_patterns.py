"""Which entry of a section a table has."""

from __future__ import annotations

import pytest

from psql_streamer.events.key_columns import KeyColumns
from psql_streamer.model import Relation, ReplicaIdentity
from psql_streamer.table_patterns import TablePatterns, group_names
from tests.columns import postgres_table


def entries(*names: str) -> TablePatterns[str]:
    return TablePatterns({name: name for name in names})


def found(patterns: TablePatterns[str], schema: str, table: str) -> list[str]:
    return [fit.entry for fit in patterns.list_fitting(schema, table)]


def test_exact_names_go_before_patterns_and_patterns_keep_the_order_of_the_file() -> None:
    patterns = entries("o*", "/orders/", "*.orders", "orders", "public.orders")
    assert found(patterns, "public", "orders") == ["public.orders", "orders", "o*", "/orders/", "*.orders"]
    assert found(patterns, "shop", "orders") == ["orders", "o*", "/orders/", "*.orders"]
    assert found(patterns, "shop", "users") == []
    fit = patterns.find("shop", "orders")
    assert fit is not None
    assert fit.entry == "orders"
    assert patterns.find("shop", "users") is None


def test_a_regular_expression_gives_its_groups_by_number_and_name() -> None:
    entry = r"/^(?P<tenant>\w+)\.sales_(\d+)?/"
    fit = entries(entry).find("acme", "sales_")
    assert fit is not None
    assert fit.groups == {"0": "acme.sales_", "1": "acme", "2": "", "tenant": "acme"}
    assert set(group_names(entry)) == set(fit.groups)
    assert group_names("sales_*") == ()


def test_a_name_that_is_a_glob_too_fits_its_table_once() -> None:
    patterns = TablePatterns({"a*": "", "*": ""}, globs="as a whole")
    assert found(patterns, "public", "a*") == ["a*", "*"]


def test_a_table_whose_name_is_a_glob_fits_that_name() -> None:
    patterns = entries("c[1]", "public.d[2]")
    assert found(patterns, "public", "c[1]") == found(patterns, "shop", "c1") == ["c[1]"]
    assert found(patterns, "public", "d[2]") == found(patterns, "public", "d2") == ["public.d[2]"]
    assert found(patterns, "shop", "d[2]") == []


def test_what_is_no_regular_expression_is_named() -> None:
    with pytest.raises(ValueError, match=r"^/\(/ is not a regular expression"):
        entries("/(/")


def table(name: str) -> Relation:
    return postgres_table(1, "public", name, ReplicaIdentity.DEFAULT, ())


def test_key_columns_are_found_by_pattern_and_any_table_is_the_last_resort() -> None:
    keys = KeyColumns({"*": ("id",), "sales_*": ("region",), "sales_eu": ("country",)})
    assert [keys.find(table(name)) for name in ("sales_eu", "sales_us", "orders")] == [
        ("country",),
        ("region",),
        ("id",),
    ]
    assert KeyColumns({"sales_*": ("region",)}).find(table("orders")) is None
