"""Columns may be equal while their types are others: OIDs of types that are not built in are of one database, and such
a type may be changed. What is kept of a table over batches is of the types that its columns have."""

from __future__ import annotations

from typing import Any

import pytest

from psql_streamer.events.routing import Router
from psql_streamer.model import Batch, Column
from psql_streamer.pgtype import Attribute, JsonForm, Logical, PgType
from psql_streamer.pgtypes.builtin import BY_OID
from tests.columns import postgres_column
from tests.encoding import encoder_of
from tests.spark_changes import INSERT, batch, changes, column

OID = 16400
TEXT, INT4 = BY_OID[25], BY_OID[23]
ADDRESS = PgType("address", OID, 0, JsonForm.OBJECT, attributes=(Attribute("street", TEXT), Attribute("no", TEXT)))
RENAMED = PgType("address", OID, 0, JsonForm.OBJECT, attributes=(Attribute("street", TEXT), Attribute("number", TEXT)))
MOOD = PgType("mood", OID, 0, JsonForm.TEXT, labels=("ok", "ko"))
DOMAIN = PgType("positive", OID, 0, JsonForm.INTEGER, logical=Logical.INT4, base_oid=23)
ARRAY = PgType("_mood", OID, 0, JsonForm.ARRAY, element=MOOD)

SEEN: list[tuple[PgType | None, bytes]] = [
    (None, b"(x,1)"),
    (ADDRESS, b"(x,1)"),
    (RENAMED, b"(x,2)"),
    (DOMAIN, b"5"),
    (ADDRESS, b"(y,3)"),
    (MOOD, b"ok"),
    (ARRAY, b"{ok,NULL}"),
    (DOMAIN, b"6"),
    (None, b"6"),
]
"""What is known of the type in turn, and a value of it."""

RULES: dict[str, Any] = {
    "all": {"sql": "SELECT * FROM changes"},
    "filter": {"sql": "SELECT * FROM changes WHERE id > 0"},
    "some": {"sql": "SELECT a AS b, id FROM changes"},
    "computed": {"sql": "SELECT *, concat(a, '!') AS more FROM changes"},
    "steps": {"rename": {"a": "b"}},
    "function": {"function": "tests.integration.test_spark_described_types:passed_on"},
}


ALWAYS = (("all", "event"), ("function", "event"), ("computed", "debezium"))
"""Those that run with the others: each way of a rule, and each form of an event."""


def passed_on(frame: Any) -> Any:
    return frame


def columns(known: PgType | None) -> tuple[Column, ...]:
    return column("id", 23, key=True), postgres_column("a", OID, known=known)


def one(known: PgType | None, value: bytes) -> Batch:
    return batch(changes([INSERT], {0: [b"1", value]}, {}, columns=columns(known)))


def encoder(form: str) -> Any:
    return encoder_of(form, Router({}, "t", ""), {}, schemas=form == "debezium")


@pytest.mark.parametrize(
    ("rule", "form"),
    [
        pytest.param(rule, form, id=f"{name}-{form}", marks=[] if (name, form) in ALWAYS else [pytest.mark.soak])
        for name, rule in RULES.items()
        for form in ("event", "debezium")
    ],
)
def test_rows_of_another_type_with_the_same_oid_come_out_as_if_they_were_the_first(
    spark: Any, rule: Any, form: str
) -> None:
    handler, long = spark({}, **{"*": rule}), encoder(form)
    for known, value in SEEN:
        found = long.encode(handler.handle(one(known, value)))
        alone = encoder(form).encode(spark({}, **{"*": rule}).handle(one(known, value)))
        assert found.values.to_pylist() == alone.values.to_pylist()


def test_a_domain_over_integers_is_a_number_for_a_rule_that_saw_another_type_before(spark: Any) -> None:
    handler = spark({}, **{"*": {"sql": "SELECT id, a + 1 AS more FROM changes"}})
    handler.handle(one(MOOD, b"7"))
    (made,) = handler.handle(one(DOMAIN, b"5")).changes
    assert made.columns[1].type.oid == INT4.oid
    assert made.after.columns[1].to_pylist() == [b"6"]
