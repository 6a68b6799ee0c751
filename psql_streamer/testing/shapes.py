"""What `SchemaChange` and `Relation.version` say of shapes, as a check of what was read."""

from __future__ import annotations

from collections.abc import Iterable

from psql_streamer.model import Batch, Relation, SchemaChange


def check_shapes(batches: Iterable[Batch], remembered: Iterable[Relation] = ()) -> None:
    """AssertionError when a shape is used that was neither announced nor remembered, or when it is not said rightly
    what a table was like before. remembered: the shapes at the position where the batches begin. One of these may be
    announced again.
    """
    last = {relation.id: relation for relation in remembered}
    shown = set(last.values())
    for batch in batches:
        for change in sorted(batch.schema_changes, key=lambda one: one.batch_order):
            _check_order(change, last.get(change.relation.id))
            _check_place(change, batch)
            last[change.relation.id] = change.relation
            shown.add(change.relation)
        used = {changes.relation for changes in batch.changes}
        assert used <= shown, "a shape is neither announced nor remembered"
        for truncate in batch.truncates:
            of = truncate.relation
            assert of in shown or of.id not in last, f"the truncate of {of} is of a shape that was not announced"


def _check_order(change: SchemaChange, last: Relation | None) -> None:
    """last: the table's shape so far; None where nobody here knows it."""
    if last is None or change.relation == last:
        return
    assert change.before == last, f"SchemaChange.before: the shape that {change.relation} had until now"
    assert change.relation.version == last.version + 1, (
        f"Relation.version: the shapes of {change.relation} are counted, and behind {last.version} comes "
        f"{change.relation.version}"
    )


def _check_place(change: SchemaChange, batch: Batch) -> None:
    """The change that follows may be in the next batch."""
    firsts = [
        (int(changes.batch_order[0]), int(changes.tx[0]))
        for changes in batch.changes
        if changes.relation == change.relation
    ]
    for batch_order, tx in firsts:
        assert change.batch_order <= batch_order, f"{change.relation}: SchemaChange stands before the first row"
        assert change.tx <= tx, f"{change.relation}: SchemaChange.tx is the transaction of the change that follows"
