"""READ rows of snapshots through the Spark handler on a real local Spark, beside changes of transactions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid5

import numpy as np
import pytest

from psql_streamer.cells import convert_to_cells
from psql_streamer.errors import HandlerError
from psql_streamer.events.routing import Router
from psql_streamer.model import NO_PLACE, Batch, ReplicaIdentity, RowOp
from psql_streamer.pipeline.coalescing import merge
from psql_streamer.spark.putting_aside import list_identities
from psql_streamer.testing import check_batch
from tests.encoding import encoder_of
from tests.snapshots import INITIAL, MOMENT, NOTES, ON_DEMAND, ROWS, chunk, gone
from tests.spark_changes import names, only, values

COMMIT = 28_267_135
OTHERS = replace(NOTES, id="16777", table="others")


def merged() -> Batch:
    """Rows of two snapshots of one table, and of a second table between them."""
    batches = [chunk(number=1), chunk(relation=OTHERS, number=2), chunk(snapshot=ON_DEMAND, number=3)]
    return merge(batches)


def test_rules_see_rows_of_snapshots_and_leave_their_identity(spark: Any) -> None:
    rule = {
        "sql": "SELECT *, _op AS how, _xid AS xid, _commit_lsn AS lsn, _seq + 0 AS place FROM changes WHERE id <> 2"
    }
    given = merged()
    result = spark(notes=rule).handle(given)
    check_batch(result)
    (notes,) = (one for one in result.changes if one.relation.table == "notes")
    assert names(notes)[-4:] == ["how", "xid", "lsn", "place"]
    assert values(notes, "how") == [b"read"] * 4
    assert values(notes, "xid") == [None] * 4
    assert values(notes, "lsn") == [b"%d" % COMMIT] * 4
    assert values(notes, "place") == [b"0", b"2"] * 2
    expected = {one.relation.table: one.uuid for one in given.changes}["notes"]
    assert notes.uuid is not None
    assert expected is not None
    assert notes.uuid.tolist() == expected[[0, 2, 3, 5]].tolist()
    assert set(notes.op.tolist()) == {RowOp.READ}
    assert [result.transactions.snapshots[tx] for tx in notes.tx.tolist()] == [INITIAL] * 2 + [ON_DEMAND] * 2
    assert result.transactions.commit_ts.tolist() == [MOMENT] * 3


def test_rows_of_snapshots_of_tables_that_a_rule_sees_as_one_keep_their_identity(spark: Any) -> None:
    given = merged()
    result = spark(**{"*": {"sql": "SELECT * FROM changes"}}).handle(given)
    encoder = encoder_of("event", Router({}, "", "t"), {})
    assert encoder.encode(result).values.equals(encoder.encode(given).values)


def test_rows_of_a_snapshot_that_a_rule_cannot_take_are_put_aside_as_what_they_are(spark: Any) -> None:
    rule = {"coerce": {"note": "int"}, "on_error": "dead-letter"}
    given = merge([chunk([(b"1", b"7", None), (b"2", b"none", None)], ON_DEMAND), chunk(relation=OTHERS, number=2)])
    result = spark(notes=rule).handle(given)
    (rejection,) = result.rejections
    alone = replace(result, changes=(rejection.changes,), rejections=())
    (value,) = encoder_of("event", Router({}, "", "t"), {}).encode(alone).values.to_pylist()
    uuid = convert_to_cells(given.changes).uuid
    assert uuid is not None
    assert b'"UUID":"%s"' % uuid[1] in value
    assert '"Snapshot":"żółć-2","OnDemand":true'.encode() in value


def test_a_row_of_a_snapshot_that_stops_a_rule_is_called_by_its_snapshot(spark: Any) -> None:
    handler = spark(notes={"coerce": {"note": "int"}})
    with pytest.raises(HandlerError, match=r'in change \(0/1AF527F, 0\) of snapshot "initial" cannot be coerced'):
        handler.handle(chunk(ROWS))


def test_rows_of_chunks_at_one_lsn_are_told_apart() -> None:
    one = only(merge([chunk(number=1), chunk(number=2)]))
    transactions = merge([chunk(number=1), chunk(number=2)]).transactions
    assert len(set(list_identities(one, transactions))) == len(one) == 2 * len(ROWS)
    assert np.unique(transactions.commit).tolist() == [COMMIT]
    assert one.place is None or (one.place == NO_PLACE).all()


def test_parts_of_rows_of_a_snapshot_have_uuids_that_follow_from_the_rows(spark: Any) -> None:
    rule = {"sql": "SELECT *, 'b' AS half FROM changes UNION ALL SELECT *, 'a' AS half FROM changes WHERE id <> 2"}
    given = merged()
    result = spark(notes=rule).handle(given)
    check_batch(result)
    notes, before = (next(one for one in some.changes if one.relation.table == "notes") for some in (result, given))
    assert before.uuid is not None
    assert notes.uuid is not None
    assert notes.part is not None
    of_row = dict(zip(before.batch_order.tolist(), before.uuid.tolist(), strict=True))
    rows = zip(notes.batch_order.tolist(), notes.part.tolist(), notes.uuid.tolist(), strict=True)
    for order, (number, of), uuid in rows:
        whole = of_row[order]
        assert uuid == (str(uuid5(UUID(whole.decode()), str(number))).encode() if of else whole)
    assert set(notes.part["of"].tolist()) == {0, 2}


def test_rules_see_gone_keys_as_deletes_that_have_the_key_alone(spark: Any) -> None:
    """Whatever the replica identity is: a condition on what they lack keeps none of them back."""
    rule = {"where": "note = 'wanted'", "sql": "SELECT id, upper(note) AS note, _op AS how FROM changes"}
    for of_table in (ReplicaIdentity.DEFAULT, ReplicaIdentity.FULL):
        given = gone([(b"1",), (b"2",)], relation=replace(NOTES, replica_identity=of_table))
        result = spark(notes=rule).handle(given)
        check_batch(result)
        (changes,) = result.changes
        assert set(changes.op.tolist()) == {RowOp.DELETE}
        assert changes.before.columns[0].to_pylist() == [b"1", b"2"] or changes.before.columns[0].to_pylist() == [1, 2]
        assert result.transactions.snapshots == {0: ON_DEMAND}
        (before,) = given.changes
        assert changes.uuid is not None
        assert before.uuid is not None
        assert changes.uuid.tolist() == before.uuid.tolist()
        values = encoder_of("event", Router({}, "", "t"), {}).encode(result).values.to_pylist()
        assert all(b'"Action":"delete"' in value and b'"Snapshot"' in value for value in values)
