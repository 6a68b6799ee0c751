"""Rows of tables with the same columns are written together: events are the same as beside tables of other columns."""

from __future__ import annotations

from itertools import accumulate

import pytest

from psql_streamer.events.routing import Router
from psql_streamer.model import Batch
from psql_streamer.pgoutput.decoder import Decoder
from tests import pgoutput_wire as wire
from tests.decoding import BEGINNING, SOURCE
from tests.encoding import FORMATS, encoder_of

ROWS = 300
TABLES = 3
_FIRST_OID = 16384
_COLUMNS = (
    wire.WireColumn("id", 20, -1, True),
    wire.WireColumn("name", 25, -1, False),
    wire.WireColumn("amount", 1700, -1, False),
)
_KEYS = {
    "the same key": {},
    "other columns": {"public.t1": ("name",)},
    "more columns": {"public.t1": ("name", "id")},
}


def _decode(other: frozenset[int]) -> Batch:
    """A transaction with rows of all tables in turn. other: the tables of which a column has another name."""
    messages = [wire.begin(8, 0, 7)]
    for table in range(TABLES):
        columns = (*_COLUMNS[:-1], wire.WireColumn("price", 1700, -1, False)) if table in other else _COLUMNS
        messages.append(wire.relation(wire.WireRelation(_FIRST_OID + table, "public", f"t{table}", columns)))
    for row in range(ROWS):
        values = [b"%d" % row, b'a "name" %d' % row if row % 7 else None, b"%d.50" % row if row % 5 else b"NaN"]
        messages.append(wire.insert(_FIRST_OID + row % TABLES, values))
    messages.append(wire.commit(8, 16, 0))
    frames = [wire.copy_data(wire.xlog_data(message, 8, 16)) for message in messages]
    return Decoder(SOURCE, BEGINNING).decode(b"".join(frames), [0, *accumulate(map(len, frames[:-1]))])


@pytest.mark.parametrize("key", _KEYS.values(), ids=_KEYS)
@pytest.mark.parametrize("form", FORMATS)
def test_an_event_does_not_depend_on_the_other_tables_of_its_batch(form: str, key: dict[str, tuple[str, ...]]) -> None:
    alike, *mixed = (
        encoder_of(form, Router({}, "", "t"), key).encode(_decode(other))
        for other in (frozenset[int](), frozenset({1, 2}), frozenset({0, 2}), frozenset({0, 1}))
    )
    assert len(alike.values) == ROWS
    for table, others in enumerate(mixed):
        mine = slice(table, None, TABLES)
        assert alike.keys.to_pylist()[mine] == others.keys.to_pylist()[mine]
        assert alike.values.to_pylist()[mine] == others.values.to_pylist()[mine]
