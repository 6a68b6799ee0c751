"""What `Format` promises."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from psql_streamer.cells import convert_to_cells
from psql_streamer.errors import SinkRefused
from psql_streamer.events.encoder import Encoder
from psql_streamer.events.format import Format
from psql_streamer.events.records import Records
from psql_streamer.events.routing import Router
from psql_streamer.model import PART, Marker, RowOp
from psql_streamer.pipeline.coalescing import merge
from psql_streamer.testing.batches import make_batch, make_mixed_batch, make_snapshot_batch
from psql_streamer.testing.construction import require_nothing_acquired
from psql_streamer.testing.few_sample import make_few_rows_batch
from psql_streamer.testing.parts import require_error
from psql_streamer.testing.samples import (
    ROWS,
    list_ids_of_history,
    make_batch_of_action,
    make_batch_of_parts,
    make_batch_of_several,
    make_batch_with_metadata,
    make_history_of_keys,
)


class FormatContract(ABC):
    """A subclass says how to make a format."""

    @abstractmethod
    def make_format(self) -> Format:
        """A format with its options."""

    def make_telling_format(self) -> Format | None:
        """One with the arguments by which it says where transactions begin and end (Format.tells_transactions), if it
        needs some for that.
        """
        return None

    def test_making_one_does_no_io(self) -> None:
        require_nothing_acquired(self.make_format)

    def test_every_kind_of_change_is_a_record(self) -> None:
        """An update that changes the key is a delete and an insert."""
        with self._make_encoder() as encoder:
            records = encoder.encode(make_mixed_batch())
        deletes = [op == RowOp.DELETE for op in records.op.tolist()]
        tombstones = sum(deletes) - 2 if self.make_format().tombstones else 0
        counted = Counter(records.op.tolist())
        assert counted[RowOp.INSERT] == counted[RowOp.READ] + 1 == 2
        assert (counted[RowOp.UPDATE], counted[RowOp.DELETE] - tombstones) == (1, 2)
        assert (counted[Marker.TRUNCATE], counted[Marker.MESSAGE]) == (1, 2)

    def test_records_come_in_the_order_of_the_changes(self) -> None:
        with self._make_encoder() as encoder:
            records = encoder.encode(make_mixed_batch())
        inside = [one for one in zip(records.commit.tolist(), records.seq.tolist(), strict=True) if one[1] >= 0]
        assert inside == sorted(inside)

    def test_values_and_keys_are_bytes_and_null_only_where_they_may_be(self) -> None:
        with self._make_encoder() as encoder:
            records = encoder.encode(make_mixed_batch())
        assert len(records.keys) == len(records.values) == len(records)
        for op, key, value in zip(records.op.tolist(), *_list_keys_and_values(records), strict=True):
            assert value is not None or op in (RowOp.DELETE, Marker.TRUNCATE), "a tombstone stands for a delete"
            assert key is not None or op not in list(RowOp), "the table has a key"

    def test_a_delete_has_one_record_without_a_value_where_tombstones_follow(self) -> None:
        """Its own record has one, and the service makes the other (Format.tombstones)."""
        if not self.make_format().tombstones:
            return
        with self._make_encoder() as encoder:
            records = encoder.encode(make_mixed_batch())
        deletes = records.op == RowOp.DELETE
        empty = records.values.is_null().to_numpy(zero_copy_only=False)
        right = 2 * (deletes & empty).sum() == deletes.sum()
        assert right, "tombstones: a delete has a value, and the service puts a tombstone behind it"

    def test_rows_of_one_key_have_one_key_whatever_happened_to_them_and_others_another(self) -> None:
        batch = make_history_of_keys()
        with self._make_encoder() as encoder:
            records = encoder.encode(batch)
        found = defaultdict[int, set[bytes | None]](set)
        for seq, key in zip(records.seq.tolist(), records.keys.to_pylist(), strict=True):
            found[list_ids_of_history()[seq]].add(key)
        assert all(len(keys) == 1 for keys in found.values()), (
            "the events of a row have one key, whatever happened to it"
        )
        assert len(set().union(*found.values())) == len(found), "rows of different keys have one key"

    def test_a_table_without_a_key_has_events_without_one_or_is_refused(self) -> None:
        """As Format.needs_key says it."""
        batch = make_batch(ROWS, "")
        with self._make_encoder() as encoder:
            if self.make_format().needs_key:
                require_error(lambda: encoder.encode(batch), SinkRefused, "needs_key: a table without a key is taken")
            else:
                assert encoder.encode(batch).keys.null_count == len(ROWS), "a table without a key has keys"

    def test_an_event_says_what_happened(self) -> None:
        """In its value or, where formats need them (Format.headers), in its headers."""
        found = []
        with self._make_encoder() as encoder:
            for op in (RowOp.INSERT, RowOp.READ, RowOp.UPDATE, RowOp.DELETE):
                records = encoder.encode(make_batch_of_action(op))
                found.append((records.values[0].as_py(), _list_headers(records)[0]))
        alike = [one for at, one in enumerate(found) if one in found[:at]]
        assert not alike, "events of other actions are the same: say it in the value, or set Format.headers"

    def test_headers_of_the_service_are_the_services(self) -> None:
        """BatchFormat.render_extra_headers gives others."""
        with self._make_encoder(headers=True) as encoder:
            records = encoder.encode(make_mixed_batch())
        for at, (op, seq, said) in enumerate(
            zip(records.op.tolist(), records.seq.tolist(), _list_headers(records), strict=True)
        ):
            if op in list(RowOp):
                schema, table = records.look_up_table(at).split(".")
                known = {"op": RowOp(op).action, "seq": str(seq), "schema": schema, "table": table}
                wrong = [name for name, text in known.items() if said[name] != text.encode()]
                assert not wrong, f"headers: {', '.join(wrong)} is the service's, and the format gives another"

    def test_messages_of_other_prefixes_have_other_values(self) -> None:
        with self._make_encoder() as encoder:
            records = encoder.encode(make_mixed_batch())
        values = [
            value
            for op, value in zip(records.op.tolist(), records.values.to_pylist(), strict=True)
            if op == Marker.MESSAGE
        ]
        assert len(set(values)) == len(values) == 2, "two messages that differ have one value"

    def test_transactions_begin_and_end_once_where_it_has_records_of_them(self) -> None:
        made, batch = self.make_telling_format() or self.make_format(), make_batch_with_metadata()
        encoder = Encoder(made, Router({}, "", "t", ""), {}, transaction_topic="transactions")
        records = encoder.encode(batch)
        encoder.stop()
        found = Counter(op for op in records.op.tolist() if op in (Marker.BEGIN, Marker.COMMIT))
        told = len(batch.transactions)
        if found or self.make_telling_format() or type(made).tells_transactions(made.options):
            assert found == {Marker.BEGIN: told, Marker.COMMIT: told}, (
                "render_boundaries: a record (BEGIN, COMMIT) for each begin and end of a transaction"
            )

    def test_the_same_batch_gives_the_same_bytes(self) -> None:
        with self._make_encoder() as encoder:
            first, again = encoder.encode(make_mixed_batch()), encoder.encode(make_mixed_batch())
        with self._make_encoder() as other:
            fresh = other.encode(make_mixed_batch())
        assert _list_pairs(first) == _list_pairs(again) == _list_pairs(fresh)

    def test_rows_are_encoded_the_same_alone_and_together(self) -> None:
        with self._make_encoder() as encoder:
            together = _list_pairs(encoder.encode(make_batch(ROWS, "id")))
            alone = _list_pairs(encoder.encode(make_batch(ROWS[:1], "id")))
        assert together[0] == alone[0]

    def test_what_stands_before_rows_does_not_change_them(self) -> None:
        """A batch that is read again may be cut otherwise."""
        before, few = merge([make_batch_of_several(), make_batch_of_parts(commit=10)]), make_few_rows_batch()
        several = make_batch_of_several(first=20)
        parts = make_batch_of_parts(commit=30)
        for batch in (several, parts, few):
            with self._make_encoder() as encoder:
                alone = encoder.encode(batch)
                behind = encoder.encode(merge([before, batch]))
            first = len(behind) - len(alone)
            assert _list_pairs(behind)[first:] == _list_pairs(alone), "what stands before rows changes their events"
            assert _list_headers(behind)[first:] == [
                {**dict.fromkeys(behind.headers), **headers} for headers in _list_headers(alone)
            ], "what stands before rows changes their headers"

    def test_rows_that_differ_have_values_that_differ(self) -> None:
        """Also where the key is the same."""
        rows = [*ROWS, {"id": 1, "note": "another note"}]
        with self._make_encoder() as encoder:
            values = encoder.encode(make_batch(rows, "id")).values.to_pylist()
        assert len(set(values)) == len(rows), "two rows that differ have the same value"

    def test_few_rows_are_written_as_they_are_by_columns(self) -> None:
        """What Format.row_by_row promises of BatchFormat.render_row."""
        few = make_few_rows_batch()
        with self._make_encoder() as encoder:
            one_by_one, by_columns = (
                encoder.encode(few),
                encoder.encode(replace(few, changes=convert_to_cells(few.changes))),
            )
        assert _list_pairs(one_by_one) == _list_pairs(by_columns)
        assert _list_headers(one_by_one) == _list_headers(by_columns)

    def test_parts_of_a_change_are_told_apart(self) -> None:
        """In the value or in the headers, where a handler made rows of a change that are the same."""
        batch = make_batch([ROWS[0], ROWS[0]], "id")
        (changes,) = batch.changes
        both = np.zeros(2, np.int64)
        parts = replace(changes, batch_order=both, seq=both, part=np.array([(0, 2), (1, 2)], PART))
        with self._make_encoder() as encoder:
            records = encoder.encode(replace(batch, changes=(parts,)))
        first, second = zip(records.values.to_pylist(), _list_headers(records), strict=True)
        assert first != second, "nothing tells parts of a change apart: see BatchFormat.render_headers_of_parts"

    def test_rows_of_a_snapshot_are_keyed_records_that_say_what_they_are(self) -> None:
        """In the value or, where formats need them, in the headers; and the same whatever stands beside them."""
        with self._make_encoder() as encoder:
            alone = encoder.encode(make_snapshot_batch())
            merged = encoder.encode(
                merge([make_batch(ROWS, "id"), make_snapshot_batch(commit=2), make_snapshot_batch(commit=2)])
            )
        assert alone.op.tolist() == [RowOp.READ] * 2
        assert [alone.find_snapshot(at) for at in range(len(alone))] == ["first"] * 2
        assert None not in alone.keys.to_pylist() + alone.values.to_pylist()
        assert Counter(merged.op.tolist()) == {RowOp.INSERT: len(ROWS), RowOp.READ: 4}
        assert [merged.find_snapshot(at) for at in range(len(merged))] == [None] * len(ROWS) + ["first"] * 4
        if "snapshot" in alone.headers:
            assert alone.headers["snapshot"].to_pylist() == [b"first"] * 2

    def test_a_stop_may_come_twice_and_another_batch_behind_it(self) -> None:
        made = self.make_format()
        encoder = Encoder(made, Router({}, "", "t", "messages"), {})
        encoder.encode(make_batch(ROWS, "id"))
        made.stop()
        made.stop()
        encoder.encode(make_batch(ROWS, "id"))
        made.stop()

    @contextmanager
    def _make_encoder(self, headers: bool = False) -> Iterator[Encoder]:
        encoder = Encoder(self.make_format(), Router({}, "", "t", "messages"), {}, headers)
        try:
            yield encoder
        finally:
            encoder.stop()


def _list_keys_and_values(records: Records) -> tuple[list[bytes | None], list[bytes | None]]:
    return records.keys.to_pylist(), records.values.to_pylist()


def _list_pairs(records: Records) -> list[tuple[bytes | None, bytes | None]]:
    return list(zip(*_list_keys_and_values(records), strict=True))


def _list_headers(records: Records) -> list[dict[str, bytes | None]]:
    """The headers of each record."""
    columns = {name: column.to_pylist() for name, column in records.headers.items()}
    return [{name: column[at] for name, column in columns.items()} for at in range(len(records))]
