"""Which entry a table has, in every section: the precedence of docs/configuration.md, defined naively."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TypeAlias

from hypothesis import example, given, settings
from hypothesis import strategies as st

from psql_streamer.events.key_columns import KeyColumns
from psql_streamer.events.routing import Router
from psql_streamer.events.unchanged import Unchanged
from psql_streamer.model import Relation, ReplicaIdentity
from psql_streamer.spark.options import TableRule
from psql_streamer.spark.rules import Rules
from tests.columns import postgres_table

NAMES = ("a", "b", "ab", "a.b", "b.a", "a*", "/a/")
"""Of schemas, tables and columns: PostgreSQL allows every character in a quoted name."""

GLOBS = ("*", "a*", "*b", "?", "[ab]", "a*b", "*.*", "a.*", "*.a", "a*.?b", "*.b.a")
REGULAR_EXPRESSIONS = ("/a/", "/^a$/", r"/^a\.b$/", r"/\.a/", "/b$/", "/a*/")

Fits: TypeAlias = Callable[[str, str, str], bool]

a_name = st.sampled_from(NAMES)
an_entry = st.sampled_from([*NAMES, *(f"{schema}.{table}" for schema in NAMES for table in NAMES), *GLOBS])
entries = st.lists(an_entry | st.sampled_from(REGULAR_EXPRESSIONS), unique=True, max_size=8)


@given(entries, a_name, a_name)
@settings(deadline=None)
@example(["a*", "*", "*.b", "b", "a.b"], "a", "b")
def test_a_topic_is_that_of_the_first_entry(written: list[str], schema: str, table: str) -> None:
    router = Router({entry: f"topic{at}" for at, entry in enumerate(written)}, prefix="", fallback="")
    expected = [f"topic{written.index(entry)}" for entry in in_order(written, schema, table, fits_by_parts)[:1]]
    assert [route.topic for route in router.find_routes("db1", schema, table)] == expected


@given(entries, a_name, a_name)
@settings(deadline=None)
def test_a_table_is_left_out_when_any_entry_fits_it(written: list[str], schema: str, table: str) -> None:
    router = Router({}, prefix="p", fallback="", exclude=written)
    assert router.excludes(schema, table) == bool(in_order(written, schema, table, fits_by_parts))


@given(entries, a_name, a_name)
@settings(deadline=None)
@example(["*", "a*", "a"], "b", "ab")
def test_keys_are_those_of_the_first_entry_and_any_table_is_the_last(
    written: list[str], schema: str, table: str
) -> None:
    keys = KeyColumns({entry: (entry,) for entry in written})
    expected = [(entry,) for entry in in_order(written, schema, table, fits_by_parts, last="*")[:1]]
    assert [keys.find(relation(schema, table))] == (expected or [None])


@given(entries, a_name, a_name)
@settings(deadline=None)
@example(["a*", "a.b"], "a", "b")
@example(["*.b", "a*"], "a", "a*")
def test_the_rule_of_spark_is_the_first_entry_and_its_globs_take_names_as_a_whole(
    written: list[str], schema: str, table: str
) -> None:
    rules = Rules({entry: TableRule(sql="SELECT 1") for entry in written})
    expected = in_order(written, schema, table, fits_as_a_whole, names=written)
    assert rules.find(relation(schema, table)).name == next(iter(expected), "")


@given(
    st.lists(
        st.sampled_from(
            [*NAMES[:6], "*", "a*", "?", *(f"{table}.{column}" for table in (*NAMES, *GLOBS) for column in NAMES[:6])]
            + [f"{table}.{column}" for table in (*NAMES, *REGULAR_EXPRESSIONS) for column in ("*", "a", "?b", "[ab]")]
        ),
        unique=True,
        max_size=8,
    ),
    a_name,
    a_name,
    a_name,
)
@settings(deadline=None)
@example(["*", "a", "a*", "*.a", "b.*", "b.a", "a.b.a"], "a", "b", "a")
@example(["*", "a", "a*", "*.a", "b.*"], "a", "b", "a")
def test_the_treatment_of_a_column_is_that_of_the_first_rule(
    written: list[str], schema: str, table: str, column: str
) -> None:
    assert list(
        dict.fromkeys(Unchanged(dict.fromkeys(written, "omit")).list_fitting_rules(relation(schema, table), column))
    ) == (rules_of_a_column(written, schema, table, column))


# The definition.


def in_order(
    written: Sequence[str],
    schema: str,
    table: str,
    fits: Fits,
    names: Iterable[str] | None = None,
    last: str | None = None,
) -> list[str]:
    """Every entry that fits: the name schema.table, the name table, then patterns as they are written, then `last`."""
    names = [entry for entry in written if not is_pattern(entry)] if names is None else names
    exact = [name for name in (f"{schema}.{table}", table) if name in names]
    patterns = [entry for entry in written if entry not in exact and entry != last and fits(entry, schema, table)]
    return exact + patterns + [entry for entry in written if entry == last]


def rules_of_a_column(written: Sequence[str], schema: str, table: str, column: str) -> list[str]:
    """The whole name; patterns by the table that they name, a column before globs; columns alone likewise; `*`."""
    whole = [name for name in (f"{schema}.{table}.{column}", f"{table}.{column}") if name in written]
    split = [rule.rpartition(".")[::2] for rule in written]
    of_tables = [(of, name) for of, name in split if of and (is_pattern(of) or is_pattern(name))]
    tables = list(dict.fromkeys(of for of, _ in of_tables))
    patterns = [
        f"{of}.{name}"
        for of in in_order(tables, schema, table, fits_by_parts)
        for name in of_columns([name for table_of, name in of_tables if table_of == of], column)
    ]
    alone = of_columns([name for of, name in split if not of and name != "*"], column)
    return list(dict.fromkeys([*whole, *patterns, *alone, *(rule for rule in written if rule == "*")]))


def of_columns(written: Sequence[str], column: str) -> list[str]:
    return sorted((name for name in written if fnmatchcase(column, name) or name == column), key=column.__ne__)


def fits_by_parts(entry: str, schema: str, table: str) -> bool:
    if is_regular_expression(entry):
        return any(re.search(entry[1:-1], name) for name in (f"{schema}.{table}", table))
    if not is_pattern(entry):
        return False
    of_schema, dot, of_table = entry.partition(".")
    return fnmatchcase(schema, of_schema) and fnmatchcase(table, of_table) if dot else fnmatchcase(table, entry)


def fits_as_a_whole(entry: str, schema: str, table: str) -> bool:
    return any(mark in entry for mark in "*?[") and any(
        fnmatchcase(name, entry) for name in (f"{schema}.{table}", table)
    )


def is_pattern(entry: str) -> bool:
    return is_regular_expression(entry) or any(mark in entry for mark in "*?[")


def is_regular_expression(entry: str) -> bool:
    return len(entry) > 2 and entry.startswith("/") and entry.endswith("/")


def relation(schema: str, table: str) -> Relation:
    return postgres_table(1, schema, table, ReplicaIdentity.DEFAULT, ())
