"""The table of formats. docs/events.md shows an event of each."""

from __future__ import annotations

from psql_streamer.events.debezium import Debezium, DebeziumWithSchemas
from psql_streamer.events.envelope import Envelope
from psql_streamer.events.event import Event
from psql_streamer.events.flat import Flat
from psql_streamer.events.format import Format

FORMATS: dict[str, type[Format]] = {"event": Event, "envelope": Envelope, "debezium": Debezium, "flat": Flat}
"""Format name -> what encodes a batch in it."""

WITH_SCHEMAS: dict[str, type[Format]] = {"debezium": DebeziumWithSchemas}
"""The formats that can carry their own schema."""
