"""What the stream's changes mean for chunks that are held: keys that changed, shapes, truncates, names."""

from __future__ import annotations

from collections.abc import Sequence

from psql_streamer.model import Batch, Changes, Relation
from psql_streamer.snapshot.changed_keys import collect_changed_keys, find_moved_without_values, list_xids
from psql_streamer.snapshot.held import HeldChunk
from psql_streamer.snapshot.progress import SnapshotRun
from psql_streamer.snapshot.table_runs import TableRun
from sources.snapshot.changes_of import select_changes
from sources.snapshot.runs import Begun, Runs


def note_batch(batch: Batch, runs: Runs, turn: int) -> None:
    """A batch of the stream, before it is given. turn: of what the stream has given, with this batch."""
    begun = runs.group_reading()
    if not begun:
        return
    for changes in select_changes(batch, begun.keys()):
        _note_changes(batch, changes, begun[changes.relation.id], runs, turn)
    for change in batch.schema_changes:
        for held in _list_held_chunks(begun, change.relation, runs):
            held.note_shape(change.relation)
        note_name(change.relation, begun, runs)
    for truncate in batch.truncates:
        for held in _list_held_chunks(begun, truncate.relation, runs):
            held.note_truncate(int(list_xids(batch.transactions)[truncate.tx]))


def note_name(relation: Relation, begun: Begun, runs: Runs) -> None:
    """A table is given under a name: what was read of others that had it then would come among its rows."""
    for tables in begun.values():
        for run, table in tables:
            if table.relation != relation.id:
                for chunk in runs.look_up_work(run, table).chunks:
                    chunk.held.note_name_of_another(relation)


def _note_changes(
    batch: Batch, changes: Changes, of: Sequence[tuple[SnapshotRun, TableRun]], runs: Runs, turn: int
) -> None:
    """of: the snapshots of that table which have been begun: all but one of them are paused, or wait."""
    relation = changes.relation
    held = [chunk.held for run, table in of for chunk in runs.look_up_work(run, table).chunks]
    if not relation.key_columns:  # another shape than what was read
        for one in held:
            one.note_shape(relation)
        return
    keys = collect_changed_keys(changes, batch.transactions) if held else None
    for one in held:
        assert keys is not None  # noqa: S101 - there are chunks
        one.note(keys, relation)
    if moved := find_moved_without_values(changes):
        for run, table in of:
            if run.check is None and table.has_key_of(relation):
                table.again |= dict.fromkeys(moved, turn)
        runs.note_change()


def _list_held_chunks(begun: Begun, relation: Relation, runs: Runs) -> list[HeldChunk]:
    """The chunks of a relation."""
    return [chunk.held for each in begun.get(relation.id, ()) for chunk in runs.look_up_work(*each).chunks]
