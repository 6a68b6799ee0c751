"""Lines of changes whose values tell nothing."""

from __future__ import annotations

import base64
from collections.abc import Set as AbstractSet
from typing import Any

import pyarrow as pa

from psql_streamer.model import ArrowType, ColumnType, Relation, text_form
from psql_streamer.pgtype import PgType
from psql_streamer.pgtypes.builtin import BY_OID, OIDS
from psql_streamer.pgtypes.casts import type_of
from psql_streamer.trial.event_lines import Line
from psql_streamer.trial.stand_ins import StandIns


class Scrubber:
    """Puts stand-ins in the place of all values but those of some columns. keep: their names.

    Nulls stay, and so does what is said of transactions. One is for one capture.
    """

    def __init__(self, keep: AbstractSet[str] = frozenset()) -> None:
        self._keep = keep
        self._stand_ins = StandIns()

    def scrub(self, line: Line, relation: Relation) -> Line:
        """The line of a change with other values."""
        kinds = {column.name: column.type for column in relation.columns}
        images: Line = {
            side: {name: self._shown(name, value, kinds[name]) for name, value in line[side].items()}
            for side in ("before", "after")
            if side in line
        }
        # The UUID of a snapshot's row is made of its key.
        uuid = {"uuid": self._stand_ins.uuid(line["uuid"])} if "uuid" in line else {}
        return {**line, **uuid, **images}

    def _shown(self, column: str, value: Any, kind: ColumnType) -> Any:
        return value if column in self._keep else self._other(value, kind)

    def _other(self, value: Any, kind: ColumnType) -> Any:
        if value is None:
            return None
        if isinstance(value, dict):
            return self._other_bytes(value)
        return self._of_arrow(value, kind.arrow) if isinstance(kind, ArrowType) else self._of(value, _known(kind))

    def _of(self, text: str, kind: PgType | None) -> str:
        return self._stand_ins.of(text, kind)

    def _of_arrow(self, text: str, kind: pa.DataType) -> Any:
        if pa.types.is_boolean(kind):
            return "true" if self._of(text[:1], BY_OID[OIDS["bool"]]) == "t" else "false"
        like = type_of(kind)
        if like is None and not pa.types.is_string(kind):
            return None if not pa.types.is_integer(kind) else self._of(text, BY_OID[OIDS["int8"]])
        known = None if like is None else BY_OID.get(like.oid)
        # What Arrow writes of bytes are characters.
        return self._of(text, None if pa.types.is_binary(kind) else known)

    def _other_bytes(self, value: dict[str, str]) -> Any:
        if "base64" not in value:  # a value of a nested type, which has no stand-in
            return None
        return {"base64": base64.b64encode(self._stand_ins.data(len(base64.b64decode(value["base64"])))).decode()}


def _known(kind: ColumnType) -> PgType | None:
    form = text_form(kind)
    return None if form is None else form.known or BY_OID.get(form.oid)
