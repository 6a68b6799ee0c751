"""What a `Sink` promises that writes transactions: all of one or nothing, and what is asked in front of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from functools import partial

from psql_streamer.errors import SinkUnavailable, SourceRefused, SourceUnavailable
from psql_streamer.interfaces import ConsumedOffsets, Sink, Transaction
from psql_streamer.testing.batches import make_batch, make_empty_batch
from psql_streamer.testing.parts import require_error
from psql_streamer.testing.samples import ROWS, make_batch_of_several
from psql_streamer.testing.sink_writes import WritingContract
from psql_streamer.testing.threads import end_soon


class SinkTransactionContract(WritingContract):
    """A part of SinkContract. It is about sinks with `is_transactional`."""

    def test_a_transaction_has_all_its_batches_and_asks_what_was_consumed(self) -> None:
        """In front of what it writes: what the transaction notes is not there yet."""
        before, several, asked = self.count_written(), make_batch_of_several(first=2), threading.Event()
        with self._make_started() as sink:
            if not sink.is_transactional:
                return
            noted = sink.find_note("db1")

            def consumed() -> Sequence[ConsumedOffsets]:
                _check_notes_beside_a_write(sink, noted)
                assert self.count_written() == before, "Transaction.consumed is asked behind the events"
                asked.set()
                return ()

            batches = [make_batch(ROWS, "id"), several, make_empty_batch(5), make_batch(ROWS[:2], "id", first=6)]
            sink.write_transaction(Transaction(batches, {"db1": b'{"n": 1}'}, consumed))
            if before is not None:
                assert self.count_written() == before + sum(batch.rows.rows for batch in batches)
        assert asked.is_set(), "Transaction.consumed was not asked"

    def test_a_transaction_whose_offsets_cannot_be_said_is_not_written(self) -> None:
        """It comes again and is written once, or others have the records by now, and it never is."""
        before, answers = self.count_written(), [SourceUnavailable("the group is being balanced"), None]

        def consumed() -> Sequence[ConsumedOffsets]:
            if (error := answers.pop(0)) is not None:
                raise error
            return ()

        def refuse() -> Sequence[ConsumedOffsets]:
            raise SourceRefused("others have the records")

        with self._make_started() as sink:
            if not sink.is_transactional:
                return
            noted = sink.find_note("db1")
            transaction = Transaction([make_batch(ROWS, "id")], {"db1": b'{"n": 4}'}, consumed)
            require_error(
                partial(sink.write_transaction, transaction),
                (SourceUnavailable, SinkUnavailable),
                "Transaction.consumed raises SourceUnavailable, and write_transaction returns",
            )
            self._require_as_before(sink, before, noted)
            sink.write_transaction(transaction)
            if before is not None:
                assert self.count_written() == before + len(ROWS), "a transaction that comes again is written once"
            before, noted = self.count_written(), sink.find_note("db1")
            refused = Transaction([make_batch(ROWS, "id", first=2)], {"db1": b'{"n": 5}'}, refuse)
            require_error(
                partial(sink.write_transaction, refused),
                SourceRefused,
                "others have the records (Transaction.consumed raises SourceRefused), and they are written",
            )
            self._require_as_before(sink, before, noted)

    def test_the_note_of_a_transaction_is_found_by_the_next_sink(self) -> None:
        with self._make_started() as sink:
            if not sink.is_transactional:
                assert sink.find_note("db1") is None
                return
            sink.write_transaction(Transaction([make_batch(ROWS, "id"), make_empty_batch(2)], {"db1": b'{"n": 1}'}))
            sink.write_transaction(Transaction([make_empty_batch(3)], {"db2": b'{"n": 2}'}))
            sink.write_transaction(Transaction([make_empty_batch(4)], {"db1": b'{"n": 3}'}))
        with self._make_started() as sink:
            assert [json.loads(sink.find_note(source) or b"null") for source in ("db1", "db2")] == [{"n": 3}, {"n": 2}]

    def _require_as_before(self, sink: Sink, before: int | None, noted: bytes | None) -> None:
        assert self.count_written() == before, "a transaction is written all the same, or a part of it"
        assert sink.find_note("db1") == noted, "a note is there without its transaction"


def _check_notes_beside_a_write(sink: Sink, noted: bytes | None) -> None:
    """Another source may start meanwhile."""
    found: list[bytes | None] = []
    end_soon(lambda: found.append(sink.find_note("db1")), "find_note beside a write")
    end_soon(partial(_ask_for_writer, sink), "find_writer beside a write")
    assert found == [noted], "find_note: a note is there before its transaction"


def _ask_for_writer(sink: Sink) -> None:
    sink.find_writer()
