"""Lines of changes whose values tell nothing."""

from __future__ import annotations

import base64
from collections.abc import Set as AbstractSet
from typing import Any

import pyarrow as pa

from psql_streamer.model import ArrowType, ColumnType, Relation, find_text_form
from psql_streamer.pgtype import PgType
from psql_streamer.pgtypes.builtin import BY_OID, OIDS
from psql_streamer.pgtypes.casts import find_postgres_type
from psql_streamer.trial.event_lines import Line
from psql_streamer.trial.stand_ins import StandIns


class Scrubber:
    """Puts stand-ins in the place of all values but those of some columns. keep: their names.

    Nulls stay, and so does what is said of transactions. One is for one capture.
    """

    def __init__(self, keep: AbstractSet[str] = frozenset()) -> None:
        self._keep = keep
        self._unseen = set(keep)
        self._stand_ins = StandIns()

    def scrub(self, line: Line, relation: Relation) -> Line:
        """The line of a change with other values."""
        kinds = {column.name: column.type for column in relation.columns}
        self._unseen -= kinds.keys()
        images: Line = {
            side: {name: self._scrub_value(name, value, kinds[name]) for name, value in line[side].items()}
            for side in ("before", "after")
            if side in line
        }
        # The UUID of a snapshot's row is made of its key.
        uuid = {"uuid": self._stand_ins.replace_uuid(line["uuid"])} if "uuid" in line else {}
        return {**line, **uuid, **images}

    def list_unseen(self) -> list[str]:
        """The names to keep that no table has had so far: one may be misspelt, and its column was scrubbed."""
        return sorted(self._unseen)

    def _scrub_value(self, column: str, value: Any, kind: ColumnType) -> Any:
        return value if column in self._keep else self._replace_value(value, kind)

    def _replace_value(self, value: Any, kind: ColumnType) -> Any:
        if value is None:
            return None
        if isinstance(value, dict):
            return self._replace_bytes(value)
        return (
            self._replace_arrow_text(value, kind.arrow)
            if isinstance(kind, ArrowType)
            else self._replace_text(value, _look_up_type(kind))
        )

    def _replace_text(self, text: str, kind: PgType | None) -> str:
        return self._stand_ins.replace_text(text, kind)

    def _replace_arrow_text(self, text: str, kind: pa.DataType) -> Any:
        if pa.types.is_boolean(kind):
            return "true" if self._replace_text(text[:1], BY_OID[OIDS["bool"]]) == "t" else "false"
        like = find_postgres_type(kind)
        if like is None and not pa.types.is_string(kind):
            return None if not pa.types.is_integer(kind) else self._replace_text(text, BY_OID[OIDS["int8"]])
        known = None if like is None else BY_OID.get(like.oid)
        # What Arrow writes of bytes are characters.
        return self._replace_text(text, None if pa.types.is_binary(kind) else known)

    def _replace_bytes(self, value: dict[str, str]) -> Any:
        if "base64" not in value:  # a value of a nested type, which has no stand-in
            return None
        return {"base64": base64.b64encode(self._stand_ins.make_bytes(len(base64.b64decode(value["base64"])))).decode()}


def _look_up_type(kind: ColumnType) -> PgType | None:
    form = find_text_form(kind)
    return None if form is None else form.known or BY_OID.get(form.oid)
