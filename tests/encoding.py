"""Encoders of the formats that ship, by name."""

from __future__ import annotations

from collections.abc import Mapping

from psql_streamer.entry_points import Kind, list_names
from psql_streamer.events.debezium.format import Debezium
from psql_streamer.events.encoder import Encoder
from psql_streamer.events.format import Format, FormatOptions
from psql_streamer.events.formats import format_class
from psql_streamer.events.routing import Router
from psql_streamer.events.unchanged import Unchanged
from tests.avro_format import AvroWithoutRegistry

FORMATS = list_names(Kind.FORMAT)
JSON_FORMATS = tuple(form for form in FORMATS if form != "debezium-avro")


def encoder_of(
    form: str,
    router: Router,
    key: Mapping[str, tuple[str, ...]],
    headers: bool = False,
    schemas: bool = False,
    unchanged: Unchanged | None = None,
    transaction_topic: str = "",
    schema_topic: str = "",
) -> Encoder:
    """schemas: of `debezium`. With a transaction_topic, the format says where transactions begin and end, if it can."""
    made = format_of(form, schemas, transactions=bool(transaction_topic))
    return Encoder(made, router, key, headers, unchanged, transaction_topic, schema_topic)


def format_of(form: str, schemas: bool, transactions: bool) -> Format:
    """A format that ships."""
    if form == "debezium":
        return Debezium(FormatOptions(), schemas, transactions)
    if form == "debezium-avro":
        return AvroWithoutRegistry(transactions)
    return format_class(form)(FormatOptions())
