"""Which timestamps records get: of their writing, of the commit, or of the record that a row was read from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from psql_streamer.cells import CellTable
from psql_streamer.events.encoder import Encoder
from psql_streamer.events.records import Records
from psql_streamer.events.routing import Router
from psql_streamer.events.timestamps import Timestamps
from psql_streamer.model import OUTSIDE, Batch, Changes, LogicalMessage, Transactions, Truncate
from tests.encoding import FORMATS, format_of
from tests.spark_changes import batch, shop

ROUTER = Router({}, "t", "", "messages")
COMMITTED = 1_700_000_000_123_456
GIVEN = np.array([1_600_000_000_000, -1, 1_600_000_000_002, 1_600_000_000_003])


def encode(form: str, given: Batch, timestamps: Timestamps) -> Records:
    return Encoder(format_of(form, False, False), ROUTER, {}, timestamps=timestamps).encode(given)


def committed(changes: Changes, **more: Any) -> Batch:
    """A batch of one transaction."""
    made = batch(changes)
    given = Transactions(made.transactions.commit[:1], np.array([COMMITTED]), None)
    return replace(made, transactions=given, changes=(replace(changes, tx=np.zeros(len(changes), np.int32)),), **more)


@pytest.mark.parametrize("form", FORMATS)
def test_without_an_option_records_have_the_time_of_their_writing(form: str) -> None:
    assert encode(form, committed(replace(shop(), record_time=GIVEN)), "write").timestamps is None


@pytest.mark.parametrize("form", FORMATS)
def test_records_of_rows_truncates_and_messages_have_the_time_of_their_commit(form: str) -> None:
    truncate = Truncate(shop().relation, 1000, 1000, 5, 0, cascade=False, restart_identity=False)
    inside = LogicalMessage("audit", b"in the transaction", 1001, 1001, 6, 0)
    outside = LogicalMessage("audit", b"on its own", 1002, OUTSIDE, 7, -1, moment=COMMITTED + 5_000_000)
    given = committed(shop(), truncates=(truncate,), messages=(inside, outside))
    found = encode(form, given, "commit")
    assert found.timestamps is not None
    late = [bool(at) for at in found.commit == 7]
    expected = [COMMITTED // 1000 + 5000 if is_late else COMMITTED // 1000 for is_late in late]
    assert found.timestamps.tolist() == expected
    assert sum(late) == 1


def test_records_have_the_timestamps_of_those_that_their_rows_were_read_from() -> None:
    truncate = Truncate(shop().relation, 1000, 1000, 5, 0, cascade=False, restart_identity=False)
    found = encode("event", committed(replace(shop(), record_time=GIVEN), truncates=(truncate,)), "record")
    assert found.timestamps is not None
    assert found.timestamps.tolist() == [*GIVEN.tolist(), -1]
    assert encode("event", committed(shop()), "record").timestamps is None


def test_both_halves_of_a_changed_key_and_a_tombstone_have_the_timestamp_of_the_change() -> None:
    changes = shop()
    moved = (pa.array([b"9", b"3"], pa.binary()), *changes.before.columns[1:])
    keyed = replace(changes, before=replace(changes.before, columns=moved))
    found = encode("debezium", committed(replace(keyed, record_time=GIVEN)), "record")
    assert found.timestamps is not None
    numbered = dict(zip(range(4), GIVEN.tolist(), strict=True))
    assert found.timestamps.tolist() == [numbered[seq] for seq in found.seq.tolist()]
    assert len(found) == 7  # an insert, delete + tombstone + insert, delete + tombstone, an insert


def test_tables_put_together_keep_what_each_knows() -> None:
    timed, plain = CellTable.from_changes([replace(shop(), record_time=GIVEN)]), CellTable.from_changes([shop()])
    joined = CellTable.concat([timed, replace(plain, batch_order=plain.batch_order + 1000)])
    assert joined.record_time is not None
    assert joined.record_time.tolist() == [*GIVEN.tolist(), -1, -1, -1, -1]
    assert joined.take(np.array([0, 2])).record_time.tolist() == GIVEN[[0, 2]].tolist()  # type: ignore[union-attr]
    (view,) = joined.select_between(1000, 2000)
    assert view.record_time is None


def test_what_is_left_without_a_topic_keeps_its_timestamps() -> None:
    message = LogicalMessage("audit", b"", 1001, 1001, 6, 0)
    found = encode("event", committed(replace(shop(), record_time=GIVEN), messages=(message,)), "record")
    left = found.drop_topic("messages")
    assert left.timestamps is not None
    assert left.timestamps.tolist() == GIVEN.tolist()
