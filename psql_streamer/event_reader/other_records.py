"""Records that are written beside changes, often into topics that a pattern matches as well: what they are called."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Raw

from psql_streamer.event_reader.documents import BrokenJsonError
from psql_streamer.event_reader.forms import NOT_OF_THE_FORMAT, decode_members

_SHAPE = "it tells of a change of a table and not of its rows: leave its topic out"


def name_other_record(value: bytes) -> str:
    """What a record is that is no change, for an error; empty: it is not known."""
    try:
        members = decode_members(value)
        if members.keys() == {"schema", "payload"}:
            if bytes(members["payload"]) == b"null":
                return "it has no value in its schema, and says nothing of a row"
            members = decode_members(bytes(members["payload"]))
    except (RecursionError, BrokenJsonError, *NOT_OF_THE_FORMAT):
        return ""
    return _name(members)


def _name(members: Mapping[str, Raw]) -> str:
    names = members.keys()
    if names == {"ts_ms"}:
        return "it is a heartbeat of Debezium: leave its topic out"
    if names >= {"status", "id", "event_count"} and "source" not in names:
        return "it is the begin or the end of a transaction and no change: leave its topic out"
    if names >= {"source", "databaseName", "ddl"}:
        return _SHAPE
    if names >= {"op", "source"} and bytes(members["op"]) in _SHAPE_OPS:
        return _SHAPE
    return ""


_SHAPE_OPS = (b'"SCHEMA"', b'"DDL"')
"""What the schema topic of a sink has."""
