"""An encoder writes a column by what is known of its type now, also where an equal column was of another type before:
OIDs of types that are not built in are of one database."""

from __future__ import annotations

import json
from typing import Any

import pytest

from psql_streamer.events.routing import Router
from psql_streamer.pgtype import JsonForm, Logical, PgType
from psql_streamer.pgtypes.descriptions import list_descriptions
from tests.columns import postgres_column
from tests.encoding import encoder_of
from tests.spark_changes import INSERT, batch, changes, column

MOOD = PgType("mood", 16400, 0, JsonForm.TEXT, labels=("ok", "7"))
FEELING = PgType("mood", 16400, 0, JsonForm.TEXT, labels=("fine", "7"))
DOMAIN = PgType("positive", 16400, 0, JsonForm.INTEGER, logical=Logical.INT4, base_oid=23)


def write(encoder: Any, known: PgType | None) -> list[bytes]:
    columns = (column("id", 23, key=True), postgres_column("a", 16400, known=known))
    written: list[bytes] = encoder.encode(
        batch(changes([INSERT], {0: [b"1", b"7"]}, {}, columns=columns))
    ).values.to_pylist()
    return written


def test_a_domain_is_a_number_where_its_oid_was_an_enum_before() -> None:
    encoder = encoder_of("event", Router({}, "t", ""), {})
    told = [json.loads(write(encoder, known)[0])["Columns"]["a"] for known in (MOOD, DOMAIN, None, MOOD, DOMAIN)]
    assert told == ["7", 7, "7", "7", 7]


@pytest.mark.parametrize("form", ["event", "debezium"])
def test_what_was_known_of_a_type_before_changes_nothing(form: str) -> None:
    long = encoder_of(form, Router({}, "t", ""), {}, schemas=form == "debezium")
    for known in (MOOD, DOMAIN, FEELING, None, MOOD):
        fresh = encoder_of(form, Router({}, "t", ""), {}, schemas=form == "debezium")
        assert write(long, known) == write(fresh, known)


def test_a_schema_says_what_is_known_of_a_type_now() -> None:
    encoder = encoder_of("debezium", Router({}, "t", ""), {}, schemas=True)
    kinds = []
    for known in (MOOD, DOMAIN, FEELING):
        (envelope,) = write(encoder, known)
        images = next(one for one in json.loads(envelope)["schema"]["fields"] if one["field"] == "after")
        kinds.append(next(one for one in images["fields"] if one["field"] == "a"))
    assert [kind["type"] for kind in kinds] == ["string", "int32", "string"]
    assert kinds[0] != kinds[2]


def test_types_that_are_built_in_need_no_description() -> None:
    assert list_descriptions((column("id", 23), postgres_column("a", 16400, known=MOOD))) == ((1, MOOD),)
    assert list_descriptions((column("id", 23), postgres_column("a", 16400))) == ()
