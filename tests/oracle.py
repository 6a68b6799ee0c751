"""What PostgreSQL itself says that its values are: JSON, made by SELECT."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from psql_streamer.pgtype import PgType
from tests.database import Database
from tests.type_values import oracle_of

ORACLE_SETTINGS = {
    "timezone": "UTC",
    "datestyle": "ISO",
    "intervalstyle": "iso_8601",
    "bytea_output": "hex",
    "extra_float_digits": "1",
}

_ARRAY = """CASE WHEN {0} IS NOT NULL THEN (
    SELECT coalesce(json_agg(e.j ORDER BY u.n), '[]')
    FROM unnest({0}) WITH ORDINALITY AS u(x, n), LATERAL (SELECT {1} AS j) e
) END"""


def oracle(database: Database, query: str) -> list[Any]:
    """The one JSON column of a query, numbers exact."""
    return [json.loads(text, parse_float=Decimal) for text in oracle_texts(database, query)]


def oracle_texts(database: Database, query: str) -> list[str]:
    """The one JSON column of a query, in a session with the settings that the stream has."""
    with database.session() as session, session.cursor() as cursor:
        for name, value in ORACLE_SETTINGS.items():
            cursor.execute(f"SET {name} = '{value}'")
        cursor.execute(query)
        return [text for (text,) in cursor.fetchall()]


def object_of(expressions: Sequence[tuple[str, str]]) -> str:
    """SQL of a JSON object's text; members one by one, for json_build_object takes 50 pairs at most."""
    members = " || ',' || ".join(f"""'"{name}":' || coalesce(({sql})::text, 'null')""" for name, sql in expressions)
    return f"'{{' || {members} || '}}'"


def array_oracle_of(element: PgType, expression: str) -> str:
    """SQL of the JSON of an expression that is an array of one dimension, or empty."""
    return _ARRAY.format(expression, oracle_of(element, "u.x"))
