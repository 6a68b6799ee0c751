"""Shapes of a session: each row is decoded by the one that its table had, however often that changes."""

from __future__ import annotations

import pytest

from psql_streamer.pgoutput import block as blocks
from tests import pgoutput_wire as wire
from tests.decoding import block, decoder

ALTERS = 40


@pytest.fixture(autouse=True)
def little_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_FEW_RELATIONS", 1)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_table_that_is_altered_again_and_again_keeps_its_rows_apart(size: int) -> None:
    frames = [wire.copy_data(wire.xlog_data(message, 8, 16)) for message in messages()]
    reader, found = decoder(), []
    for start in range(0, len(frames), size):
        piece = block(frames[start : start + size])
        batch = reader.decode(piece.data, piece.offsets)
        found += [
            (part.columns[-1].name, part.after.columns[-1].to_pylist(), part.relation.table) for part in batch.changes
        ]
    told = sorted((name, value, table) for name, values, table in found for value in values)
    wanted = [(f"c{alter}", b"%d" % alter, "altered") for alter in range(ALTERS)]
    assert told == sorted([*wanted, *(("id", b"1", "quiet") for _ in range(ALTERS))])


def test_shapes_that_no_longer_hold_are_forgotten() -> None:
    reader = decoder()
    for message in messages():
        piece = block([wire.copy_data(wire.xlog_data(message, 8, 16))])
        reader.decode(piece.data, piece.offsets)
    assert len(reader._shapes.shapes) < ALTERS // 2


def messages() -> list[bytes]:
    """One transaction: a row of a quiet table, then of one that has another column each time."""
    quiet = wire.WireRelation(16400, "public", "quiet", (wire.WireColumn("id", 20, key=True),))
    rows: list[bytes] = [wire.relation(quiet)]
    for alter in range(ALTERS):
        columns = (wire.WireColumn("id", 20, key=True), wire.WireColumn(f"c{alter}"))
        altered = wire.WireRelation(16401, "public", "altered", columns)
        rows += [wire.insert(16400, [b"1"]), wire.relation(altered), wire.insert(16401, [b"1", b"%d" % alter])]
    return [wire.begin(8, 0, 7), *rows, wire.commit(8, 16, 0)]
