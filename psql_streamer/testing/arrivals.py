"""What `Sink` promises of what arrives: every piece of a batch, and events as they were made, in their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from psql_streamer.interfaces import Sink, Transaction
from psql_streamer.model import Batch
from psql_streamer.pipeline.coalescing import cut
from psql_streamer.testing.batches import make_batch, make_mixed_batch
from psql_streamer.testing.samples import make_batch_of_several, make_batches_with_rejections, make_history_of_keys
from psql_streamer.testing.sink_writes import WritingContract, write, write_waiting
from psql_streamer.testing.written import WrittenEvent, find_difference, render_expected

_PIECE = 3
"""Rows of a piece of a batch."""

_NOT_SAID = "list_written is not overridden: nobody says what arrived"


class ArrivalContract(WritingContract):
    """A part of SinkContract."""

    def test_every_piece_of_a_batch_is_written(self) -> None:
        """And is durable when its write returns: all of them have the position of the whole."""
        before, batch = self.count_written(), make_batch_of_several()
        pieces, rows = list(cut(batch, _PIECE)), 0
        with self._make_started() as sink:
            if sink.is_transactional:
                sink.write_transaction(Transaction(pieces, {"db1": b"{}"}))
                rows = batch.rows.rows
            for piece in () if sink.is_transactional else pieces:
                sink.write(piece)
                rows += piece.rows.rows
                found = self.count_written()
                if before is not None and found is not None:
                    assert found == before + rows, "a write of a piece (Batch.continues) returns, and it is not there"
        found = self.count_written()
        assert before is None or found == before + rows, "a piece of a batch was not written, or twice"

    def test_events_arrive_as_they_were_made_and_those_of_a_key_in_their_order(self) -> None:
        """Keys, values, topics and headers, of whole batches and of pieces."""
        whole = [
            make_history_of_keys(),
            make_mixed_batch(),
            make_batch_of_several(first=2),
            make_batches_with_rejections()[0],
        ]
        for batches in (whole, [piece for batch in whole for piece in cut(batch, _PIECE)]):
            self._check_arrivals(batches, _write_each)

    def test_events_of_batches_that_are_written_together_arrive_in_the_order_of_the_batches(self) -> None:
        batches = [make_history_of_keys(), make_batch([{"id": 1, "note": "behind it"}], "id", first=2)]

        self._check_arrivals(batches, write_waiting)

    def _check_arrivals(self, batches: Sequence[Batch], write_all: Callable[[Sink, Sequence[Batch]], None]) -> None:
        before = self._list_written()
        with self._make_started() as sink:
            expected = render_expected(sink.options, batches)
            if expected is None:
                pytest.skip("its options are no EventOptions, so that nobody knows what its events should be")
            write_all(sink, batches)
        found = find_difference(before, self._list_written(), expected)
        assert not found, f"what arrives: {found}"

    def _list_written(self) -> Sequence[WrittenEvent]:
        written = self.list_written()
        if written is None:
            pytest.skip(_NOT_SAID)
        return written


def _write_each(sink: Sink, batches: Sequence[Batch]) -> None:
    for batch in batches:
        write(sink, batch)
