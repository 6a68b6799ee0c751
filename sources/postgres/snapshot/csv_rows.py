"""Rows of COPY ... (FORMAT csv) as Arrow's arrays.

PostgreSQL writes NULL as nothing and an empty string as "", and quotes a value that could be taken for something else;
so the values come out as the bytes that the stream has of them. A row costs no Python: libpq's rows go into memory by
one call of C each, and Arrow parses them together.
"""

from __future__ import annotations

import mmap

import pyarrow as pa
import pyarrow.csv

# Arrow skips a byte order mark before the first row, and so one that a value begins with.
_MARK = b"\xef\xbb\xbf"


class RowMemory:
    """Takes rows until they are so many bytes; then `write` raises ValueError, and has not taken what it was given."""

    def __init__(self, most_bytes: int) -> None:
        self._memory = mmap.mmap(-1, len(_MARK) + most_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._memory.write(_MARK)
        self.write = self._memory.write  # psycopg2 asks a file for nothing else

    def __len__(self) -> int:
        """Bytes of the rows."""
        return self._memory.tell() - len(_MARK)

    def parse_rows(self, columns: int) -> tuple[list[pa.Array], int]:
        """The rows, as `binary` arrays in which NULL is null, and how many they are."""
        if not columns:
            return [], self._memory[len(_MARK) : self._memory.tell()].count(b"\n")
        if not len(self):
            return [pa.array([], pa.binary()) for _ in range(columns)], 0
        table = _parse(pa.py_buffer(self._memory).slice(0, self._memory.tell()), columns)
        return [_join_chunks(column) for column in table.columns], table.num_rows


def _parse(rows: pa.Buffer, columns: int) -> pa.Table:
    names = [str(at) for at in range(columns)]
    return pyarrow.csv.read_csv(
        pa.BufferReader(rows),
        # One block, however long its rows are: a row must not be longer than a block.
        pyarrow.csv.ReadOptions(use_threads=False, block_size=rows.size + 1, column_names=names),
        pyarrow.csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        pyarrow.csv.ConvertOptions(
            check_utf8=False,
            column_types=dict.fromkeys(names, pa.binary()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _join_chunks(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
