"""Rules are held against the tables that are there before anything streams."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from psql_streamer.errors import HandlerRefused
from psql_streamer.interfaces import Finding, Published, Severity
from psql_streamer.model import Column, Relation, ReplicaIdentity
from psql_streamer.spark.handler import SparkHandler
from psql_streamer.spark.options import SparkOptions
from tests.columns import postgres_table
from tests.spark_changes import INSERT, NUMERIC_12_2, ORDERS, Texts, batch, changes, column, only, shop


def table(name: str, columns: tuple[Column, ...] = ORDERS) -> Relation:
    return postgres_table(1, "public", name, ReplicaIdentity.DEFAULT, columns)


SHOP: Published = {"db1": [table("orders"), table("customers", (column("id", 23, key=True), column("email", 25)))]}


TO_COME = ": correct the name, or set optional = true for a table to come"


def told(findings: Any) -> list[str]:
    return [str(finding) for finding in findings]


def no_rows(df: Any) -> Any:
    """A rule by function that fails when it is called."""
    raise KeyError(df.columns[0])


def asks_a_column(df: Any) -> Any:
    """A function that takes a column for a value."""
    return df.where("true") if df["id"] > 3 else df


def makes_rows(df: Any) -> Any:
    """A function that makes rows which do not fit the type that it names."""
    return df.sparkSession.createDataFrame([("secretvalue",)], "a int")


def adds_a_number(df: Any) -> Any:
    """A function that gives a number for a column."""
    return df.withColumn("a", 5)


@pytest.mark.parametrize("function", [asks_a_column, makes_rows, adds_a_number])
def test_a_function_that_pyspark_cannot_take_is_refused_with_its_line(spark: Any, function: Any) -> None:
    handler = spark(orders={"function": f"{__name__}:{function.__name__}"})
    (found,) = told(handler.review(SHOP))
    assert found.startswith("error: the function of [spark.tables] 'orders' raised ")
    assert f"at {__file__}:{function.__code__.co_firstlineno + 2}: correct it" in found
    assert "secretvalue" not in found
    with pytest.raises(HandlerRefused, match="the function of"):
        handler.handle(batch(shop()))


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("named_struct('a', 1, 'a', 2)", "the column s has a struct with two fields named a"),
        ("map(1, array(named_struct('a', named_struct('b', 1, 'b', 2))))", "has a struct with two fields named b"),
        ("make_interval(1, 2, 3)", "the column s is of type interval, and events have no INTERVAL"),
        ("array(INTERVAL '1' MONTH)", "is of type array<interval month>, and events have no INTERVAL"),
        ("INTERVAL '1-2' YEAR TO MONTH", "is of type interval year to month, and events have no INTERVAL"),
        ("st_geogfromwkb(X'0101000000000000000000F03F0000000000000040')", "and events have no GEOGRAPHY"),
    ],
)
def test_a_column_of_a_type_that_no_event_holds_is_refused(spark: Any, value: str, why: str) -> None:
    handler = spark(orders={"sql": f"SELECT *, {value} AS s FROM changes"})
    (found,) = told(handler.review(SHOP))
    assert found.startswith("error: public.orders, rule 'orders': the column s ")
    assert why in found
    with pytest.raises(HandlerRefused, match="the column s "):
        handler.handle(batch(shop()))


def test_rules_that_fit_are_passed_over_in_silence(spark: Any) -> None:
    rules = {
        "public.orders": {"coerce": {"meta": "struct<a: int>"}, "sql": "SELECT *, meta.a AS a FROM changes"},
        "customers": {"sql": "SELECT id, sha2(email, 256) AS email FROM changes WHERE _op <> 'delete'"},
    }
    assert told(spark(**rules).review(SHOP)) == []


@pytest.mark.parametrize(
    ("rule", "finding"),
    [
        ({"sql": "SELECT nothing FROM changes"}, "error: public.orders, rule 'orders': [UNRESOLVED_COLUMN"),
        ({"sql": "SELEC * FROM changes"}, "error: public.orders, rule 'orders': [PARSE_SYNTAX_ERROR]"),
        ({"sql": "SELECT * FROM lookup"}, "error: public.orders, rule 'orders': [TABLE_OR_VIEW_NOT_FOUND]"),
        ({"sql": "SELECT count(*) AS n FROM changes"}, "does not say which change a row belongs to: add _row"),
        ({"sql": "SELECT id, 1 - _row AS _row FROM changes"}, "the result's column _row is computed"),
        ({"sql": "SELECT *, 1 AS amount FROM changes"}, "gives two columns named amount"),
        ({"coerce": {"amout": "int"}}, "there is no column amout to coerce; did you mean amount?: correct its name"),
        ({"coerce": {"amount": "decimel(12,2)"}}, "[UNSUPPORTED_DATATYPE] Unsupported data type \"DECIMEL(12,2)\""),
        ({"coerce": {"meta": "struct<a int"}}, "[PARSE_SYNTAX_ERROR]"),
        ({"function": f"{__name__}:no_rows"}, "the function of [spark.tables] 'orders' raised KeyError"),
        ({"sql": "SELECT amount FROM changes"}, "the key column id is left out, so the key of events is not complete"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_found_without_a_row(spark: Any, rule: dict[str, Any], finding: str) -> None:
    [found] = told(spark(orders=rule).review(SHOP))
    assert finding in found
    assert found.startswith(("error: public.orders", "error: the function", "warning: "))


TYPED = (
    column("id", 23, key=True),
    column("amount", 1700, NUMERIC_12_2),
    column("meta", 3802),
    column("tags", 1009),
    column("at", 1184),
)


@pytest.mark.parametrize(
    ("name", "kind", "why"),
    [
        ("amount", "decimal(50,2)", 'a decimal of Spark has 38 digits at most: use decimal(38, s), or "string"'),
        ("meta", "struct<a: array<decimal(39,2)>>", "a decimal of Spark has 38 digits at most"),
        ("amount", "decimal(4,9)", "Decimal scale (9) cannot be greater than precision (4): correct the type in"),
        ("amount", "wibble", '[UNSUPPORTED_DATATYPE] Unsupported data type "WIBBLE": correct the type in coerce'),
        ("tags", "array<wibble>", '[UNSUPPORTED_DATATYPE] Unsupported data type "WIBBLE": correct the type in coerce'),
        ("amount", "void", 'cannot cast "DECIMAL(12,2)" to "VOID": correct the type in coerce'),
        ("at", "boolean", 'cannot cast "TIMESTAMP" to "BOOLEAN"'),
        ("amount", "struct<a: int>", "numeric has neither fields nor elements"),
        ("amount", "map<int, string>", "numeric has neither fields nor elements"),
        ("meta", "map<int, string>", "the keys of JSON objects are strings, and those of map<int,string> are not"),
        ("meta", "struct<m: array<map<date, int>>>", "and those of map<date,int> are not"),
        ("meta", "struct<a: int, a: string>", "the struct has two fields named a"),
        ("meta", "array<struct<s: struct<b: int, b: int>>>", "the struct has two fields named b"),
        ("meta", "struct<a: interval>", "no event holds an interval of months and days: use string"),
        ("meta", "struct<a: varchar(3)>", "a text inside of another type has no length: use string"),
        ("tags", "int", 'is array<...>: use such a type, or "string"'),
        ("tags", "struct<a: int>", "is array<...>"),
    ],
)
def test_a_type_that_no_value_of_a_column_can_become_is_told_with_the_column(
    spark: Any, name: str, kind: str, why: str
) -> None:
    (finding,) = told(spark(orders={"coerce": {name: kind}}).review({"db1": [table("orders", TYPED)]}))
    assert finding.startswith(f"error: public.orders, rule 'orders': column {name} cannot be coerced to {kind}: ")
    assert why in finding
    assert not any(ours in finding for ours in ("CAST(NULL", "from_json", "raise_error", "SQLSTATE"))


ALIKE = (column("id", 23, key=True), column("a", 25), column("A", 25), column("v", 25))
OWN_ROW = (column("id", 23, key=True), column("_row", 25), column("v", 25))
_MASKED = {"v": {"method": "constant", "value": "x"}}


@pytest.mark.parametrize(
    ("columns", "named"),
    [(ALIKE, "a"), (OWN_ROW, "_row")],
    ids=["two columns that differ by case", "a column _row"],
)
@pytest.mark.parametrize("step", ["mask", "drop", "rename", "coerce", "where", "sql"])
def test_a_rule_that_cannot_tell_columns_apart_says_which_and_what_to_do(
    spark: Any, columns: tuple[Column, ...], named: str, step: str
) -> None:
    rule: dict[str, Any] = {
        "mask": {"mask": _MASKED},
        "drop": {"drop": ["v"]},
        "rename": {"rename": {"v": "w"}},
        "coerce": {"coerce": {"v": "binary"}},
        "where": {"where": f"{named} > 'b'"},
        "sql": {"sql": f"SELECT id, {named} FROM changes"},
    }[step]
    (finding,) = told(spark(orders=rule).review({"db1": [table("orders", columns)]}))
    assert finding.startswith("error: public.orders, rule 'orders': ")
    if columns is ALIKE:
        assert "Spark takes the columns a and A of the table for one" in finding
        assert '"spark.sql.caseSensitive" = true' in finding
    else:
        assert "column _row" in finding
        assert "rename" in finding


@pytest.mark.parametrize("columns", [ALIKE, OWN_ROW], ids=["two columns that differ by case", "a column _row"])
@pytest.mark.parametrize("rule", [{"sql": "SELECT * EXCEPT (v), upper(v) AS v FROM changes"}, {"where": "v > 'b'"}])
def test_a_rule_that_names_none_of_two_columns_alike_passes_both(
    spark: Any, columns: tuple[Column, ...], rule: dict[str, Any]
) -> None:
    handler = spark(orders=rule)
    published: Published = {"db1": [postgres_table(1, "public", "orders", ReplicaIdentity.FULL, columns)]}
    assert told(handler.review(published)) == []
    texts: Texts = [b"1", *(b"c%d" % at for at in range(1, len(columns)))]
    result = only(handler.handle(batch(changes([INSERT], {0: texts}, {}, columns))))
    assert [one.name for one in result.columns] == [one.name for one in columns]
    assert [one.to_pylist() for one in result.after.columns[:-1]] == [[text] for text in texts[:-1]]


def test_a_rule_that_could_drop_a_delete_which_it_cannot_give_back_is_warned_of(spark: Any) -> None:
    sql = "SELECT sha2(CAST(c.id AS STRING), 256) AS id FROM changes c {} (VALUES ('a')) AS l(x) ON l.x = c.customer {}"
    [found] = told(spark(orders={"sql": sql.format("JOIN", "")}).review(SHOP))
    assert "computes the key column id, and may drop deletes, which hold the key alone" in found
    assert "OR _key_only" in found
    for harmless in (
        sql.format("LEFT JOIN", "WHERE amount > 0"),
        "SELECT *, id + 1 AS next FROM changes WHERE amount > 0",
    ):
        assert told(spark(orders={"sql": harmless}).review(SHOP)) == []


@pytest.mark.parametrize(
    ("sql", "cut"),
    [
        ("SELECT * FROM changes ORDER BY amount LIMIT 1", "LIMIT"),
        ("SELECT * FROM changes OFFSET 1", "OFFSET"),
        ("SELECT * FROM changes WHERE id IN (SELECT id FROM changes LIMIT 5)", "LIMIT"),
        (
            "SELECT c.* FROM (SELECT * FROM changes LIMIT 5) c LEFT JOIN (VALUES ('a')) AS l(x) ON l.x = c.customer",
            "LIMIT",
        ),
    ],
)
def test_a_rule_that_drops_changes_by_how_many_come_together_is_refused(spark: Any, sql: str, cut: str) -> None:
    handler = spark(orders={"sql": sql})
    refusal = f"public.orders, rule 'orders': {cut} counts the changes of a batch, which ends anywhere"
    (found,) = told(handler.review(SHOP))[:1]
    assert found.startswith(f"error: {refusal}")
    with pytest.raises(HandlerRefused, match=re.escape(refusal)):
        handler.handle(batch(shop()))


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("SELECT *, sum(amount) OVER (PARTITION BY customer) AS s FROM changes", "a window function"),
        ("SELECT * FROM changes QUALIFY row_number() OVER (PARTITION BY id ORDER BY _row) = 1", "a window function"),
        ("SELECT * FROM changes WHERE amount > (SELECT avg(amount) FROM changes)", "a subquery over changes"),
        ("SELECT * FROM changes WHERE id NOT IN (SELECT id FROM changes WHERE amount < 0)", "a subquery over changes"),
        ("SELECT a.* FROM changes a JOIN changes b ON a.id = b.id", "a join of changes with changes"),
        (
            "SELECT c.*, o.n FROM changes c LEFT JOIN (SELECT id, count(*) AS n FROM changes GROUP BY id) o USING (id)",
            "a join of changes with changes",
        ),
        ("SELECT * FROM changes TABLESAMPLE (50 PERCENT)", "a sample"),
    ],
)
def test_a_rule_that_makes_something_of_several_changes_is_warned_of(spark: Any, sql: str, what: str) -> None:
    found = [
        one for one in spark(orders={"sql": sql}).review(SHOP) if f"{what} sees the changes of one batch" in str(one)
    ]
    assert [one.severity for one in found] == [Severity.WARNING]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT *, row_number() OVER (PARTITION BY _row ORDER BY id) AS n FROM changes",
        "SELECT id, _row, first(customer) AS customer FROM changes GROUP BY id, _row",
        "SELECT DISTINCT id, customer, _row FROM changes",
        (
            "WITH n AS (SELECT _row, max(amount) AS top FROM changes GROUP BY _row) "
            "SELECT c.*, n.top FROM changes c JOIN n ON n._row = c._row"
        ),
        "SELECT c.*, (SELECT max(x) FROM VALUES (1), (2) AS l(x)) AS top FROM changes c",
        (
            "SELECT c.* FROM changes c LEFT JOIN (SELECT * FROM VALUES ('a'), ('b') AS l(x) ORDER BY x LIMIT 1) l "
            "ON l.x = c.customer"
        ),
    ],
)
def test_what_is_made_of_the_rows_of_one_change_or_of_a_lookup_is_not_warned_of(spark: Any, sql: str) -> None:
    assert [one for one in told(spark(orders={"sql": sql}).review(SHOP)) if "batch" in one] == []


def test_a_renamed_key_is_not_left_out(spark: Any) -> None:
    assert told(spark(orders={"sql": "SELECT id AS order_id FROM changes"}).review(SHOP)) == []


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("public.order", "; did you mean public.orders?"),
        ("custmers", "; did you mean customers?"),
        ("sales.*", "; known: public.customers, public.orders"),
    ],
)
def test_a_rule_that_fits_no_table_is_an_error_unless_the_table_is_to_come(spark: Any, name: str, known: str) -> None:
    rule = {"sql": "SELECT id FROM changes"}
    assert told(spark(**{name: rule}).review(SHOP)) == [
        f"error: [spark.tables] {name!r} fits no table that is published{known}{TO_COME}"
    ]
    assert told(spark(**{name: {**rule, "optional": True}}).review(SHOP)) == []


def test_ten_thousand_tables_with_the_same_columns_are_looked_at_once(spark: Any) -> None:
    handler = spark(**{"public.part_*": {"sql": "SELECT nothing FROM changes"}})
    many = {"db1": [table(f"part_{number}") for number in range(10_000)]}
    began = time.monotonic()
    [found] = told(handler.review(many))
    assert time.monotonic() - began < 5
    assert found.startswith("error: public.part_0, rule 'public.part_*': [UNRESOLVED_COLUMN")
    assert "(and 9999 more tables)" in found


def test_without_rules_a_review_starts_nothing() -> None:
    handler = SparkHandler("spark", SparkOptions(master="nowhere"))
    assert list(handler.review(SHOP)) == []
    handler.stop()


def test_a_review_starts_the_engine_and_the_handler_goes_on_with_it(engine: SparkHandler) -> None:
    rules: Any = {"orders": {"sql": "SELECT id FROM changes"}}
    handler = SparkHandler("spark", SparkOptions(master="local[2]", tables=rules))
    try:
        assert list(handler.review({"db1": [table("orders")]})) == []
        assert len(handler.handle(batch(shop()))) == 4
    finally:
        handler.stop()


def test_a_finding_tells_its_severity(spark: Any) -> None:
    [found] = spark(orders={"sql": "SELECT amount FROM changes"}).review(SHOP)
    assert isinstance(found, Finding)
    assert found.severity is Severity.WARNING
