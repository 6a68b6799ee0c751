"""Keys that no row had when they were looked up, which wait for the stream as a chunk of rows does.

Why this is right
-----------------
The keys were looked up in one snapshot of PostgreSQL's, its fence, and no row had those that are held. A row with such
a key can only come from a transaction that is not visible behind the fence.
- Its change is given before the keys: the key is taken out. The stream has said what became of it.
- Its change is given behind the keys: the DELETE is in its place, before the row.
Changes of visible transactions were given before, because the keys wait until the stream has reached the end of the WAL
as it was after the fence was made: a DELETE comes behind whatever the stream says of the row that is gone.

TRUNCATE makes no row, so it takes nothing out. A row may have a key that is the same value in another text (1.00 for
1.0): if such a one comes, the keys are looked up again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from psql_streamer.snapshot.held import HeldChunk, Piece
from psql_streamer.snapshot.likeness import Likeness, are_exact, liken


class HeldKeys(HeldChunk):
    """One block of keys: from before its fence is made until its last key is given. `rows` has those that are gone.

    likenesses: of the columns of the key, once the keys are there. doubtful: a row came whose key may be one of these
    in another text.
    """

    def __init__(self, turn: int, latest: Any) -> None:
        super().__init__(turn, latest)
        self.likenesses: Sequence[Likeness] = ()
        self.doubtful = False

    def take(self, most_rows: int, most_bytes: int) -> Piece:
        return replace(super().take(most_rows, most_bytes), gone=True)

    def note_truncate(self, xid: int) -> None:
        pass

    def _take_out_newer(self, keys: pa.Array) -> NDArray[np.bool_]:
        taken = super()._take_out_newer(keys)
        if not are_exact(self.likenesses):
            came = {liken(key, self.likenesses) for key in keys.to_pylist()}
            self.doubtful = self.doubtful or any(liken(key, self.likenesses) in came for key in self._list_left_keys())
        return taken

    def _list_left_keys(self) -> list[bytes]:
        left = self._left.copy()
        left[: self._given] = False
        found: list[bytes] = self._keys.filter(pa.array(left)).to_pylist()
        return found
