"""Second phase: all cells of a block as texts, one type after the other, whatever tables they are of."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from psql_streamer.binlog import characters, documents, numbers, times
from psql_streamer.binlog.cell_bytes import Block, CellBytes, Texts, take_spans
from psql_streamer.binlog.cell_types import CellType, Kind
from psql_streamer.binlog.walk import Cells
from psql_streamer.model import Index

_RENDER: dict[Kind, Callable[[CellBytes], Texts]] = {
    Kind.SIGNED: numbers.decode_signed,
    Kind.UNSIGNED: numbers.decode_unsigned,
    Kind.FLOAT: numbers.decode_floats,
    Kind.DOUBLE: numbers.decode_doubles,
    Kind.DECIMAL: numbers.decode_decimals,
    Kind.BIT: numbers.decode_bits,
    Kind.YEAR: numbers.decode_year,
    Kind.DATE: times.decode_date,
    Kind.DATETIME2: times.decode_datetime2,
    Kind.TIMESTAMP2: times.decode_timestamp2,
    Kind.TIME2: times.decode_time2,
    Kind.DATETIME: times.decode_datetime,
    Kind.TIMESTAMP: times.decode_timestamp,
    Kind.TIME: times.decode_time,
    Kind.CHARACTERS: characters.recode_characters,
    Kind.COMPRESSED_CHARACTERS: characters.uncompress_characters,
    Kind.COMPRESSED_BYTES: characters.uncompress_bytes,
    Kind.BYTES: characters.decode_bytes,
    Kind.PADDED_BYTES: characters.decode_padded_bytes,
    Kind.ENUM: characters.decode_enum_labels,
    Kind.SET: characters.decode_set_labels,
    Kind.JSON: documents.decode_documents,
    Kind.GEOMETRY: documents.decode_geometries,
    Kind.VECTOR: documents.decode_vectors,
}


class CellTexts:
    """The texts of cells: where each lies in one run of bytes."""

    def __init__(self, block: Block, cells: Cells, cell_types: Sequence[CellType]) -> None:
        self._null = cells.null
        self._start, self._end = cells.start, cells.end
        parts, size = [block.u8], len(block.u8)
        for number, chosen in _group_by_kind(cells):
            kind = cell_types[number]
            if kind.kind is Kind.VERBATIM:
                continue
            held = CellBytes(block, kind, cells.start[chosen], cells.end[chosen])
            if kind.kind is Kind.CHARACTERS:
                needed = characters.find_non_ascii(held)
                chosen, held = chosen[needed], CellBytes(block, kind, held.start[needed], held.end[needed])
            made = _RENDER[kind.kind](held)
            self._start[chosen] = made.start + size
            self._end[chosen] = made.end + size
            parts.append(made.data)
            size += len(made.data)
        self._data = np.concatenate(parts)

    def take(self, cells: Index) -> pa.Array:
        """Some of the cells as `binary`."""
        return take_spans(self._data, self._start[cells], self._end[cells], self._null[cells])


def _group_by_kind(cells: Cells) -> list[tuple[int, Index]]:
    """The cells of each type that are not NULL."""
    live = np.flatnonzero(~cells.null)
    kinds = cells.kind[live]
    order = np.argsort(kinds, kind="stable")
    found = np.flatnonzero(np.bincount(kinds))
    bounds = np.append(np.searchsorted(kinds[order], found), len(order)).tolist()
    return [(number, live[order[bounds[place] : bounds[place + 1]]]) for place, number in enumerate(found.tolist())]
