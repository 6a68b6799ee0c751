"""What of a stream's batch is of some tables."""

from __future__ import annotations

from collections.abc import Container, Sequence

import numpy as np

from psql_streamer.cells import CellTable, Tabular
from psql_streamer.few_rows import FewRows
from psql_streamer.model import Batch, Changes


def select_changes(batch: Batch, relations: Container[str]) -> Sequence[Changes]:
    """The changes of some relations, without a look at the others."""
    changes = batch.rows
    if isinstance(changes, FewRows) and not any(
        changes.shapes[row.shape].relation.id in relations for row in changes.each
    ):
        return ()
    if not isinstance(changes, Tabular):
        return [one for one in changes if one.relation.id in relations]
    table: CellTable = changes.cells
    wanted = np.array([shape.relation.id in relations for shape in table.shapes], np.bool_)
    return table.select_views(wanted) if wanted.any() else ()
