"""What `Source` promises."""

from __future__ import annotations

import json
import threading
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import pairwise
from typing import Any

from psql_streamer.errors import SourceError, SourceUnavailable
from psql_streamer.interfaces import Severity, Source, Status
from psql_streamer.model import Batch, Position, Relation
from psql_streamer.testing.checking import check_batch
from psql_streamer.testing.contents import collect_new_rows
from psql_streamer.testing.identities import count_transaction_changes
from psql_streamer.testing.parts import require_findings
from psql_streamer.testing.read_batches import check_read_batch, list_actions
from psql_streamer.testing.restarts import RestartContract
from psql_streamer.testing.shapes import check_shapes
from psql_streamer.testing.stats import check_stats
from psql_streamer.testing.streams import list_all_identities, list_last_shapes, start_source
from psql_streamer.testing.threads import (
    INTERRUPTED_SECONDS,
    PART_ANSWER_SECONDS,
    begin,
    call_in_a_thread,
    end,
    end_soon,
)
from psql_streamer.testing.transaction_marks import check_transactions

_ROUNDS_OF_CHANGES = 2
"""Calls of make_changes whose changes are read together."""

_READ_LATE_SECONDS = 1.0
"""The time that a read may take beyond the one that it is given."""

_PATIENT_SECONDS = 0.02
"""The time that reads take at least which give nothing: one that returns at once has held something back, or keeps a
core busy.
"""


class SourceContract(RestartContract):
    """A subclass says how to make a source, and how to make changes where it reads.

    reads_behind_stored_positions: whether `read` waits now and then until what it gave is stored. Positions are then
    confirmed as soon as they are read.

    goes_on_where_confirmed: whether a start repeats what lies between the position that was confirmed last and the one
    that was stored: its server keeps the former, for others that read in turns with it.
    """

    _start_error = SourceError

    @abstractmethod
    def make_source(self) -> Source:
        """A source that has not been started; several of the same stream may be made one after the other."""

    @abstractmethod
    def make_changes(self) -> int | None:
        """At least three transactions with rows, of which one has several. Called several times.

        How many changes it makes, truncates and messages of transactions included; None where nobody counts them.
        """

    def list_expected(self) -> Sequence[Mapping[str, Any]] | None:
        """The new rows of one call of make_changes in their order, by column; columns that nobody knows beforehand may
        be left out. Values are Arrow's, or the text forms as text. None where nobody can say.
        """
        return None

    def list_expected_actions(self) -> Sequence[str] | None:
        """What one call of make_changes does, in its order: `insert`, `update`, `delete`, `truncate` or `message` for
        each change. None where nobody can say.
        """
        return None

    def make_unreachable_source(self) -> Source | None:
        """One whose start fails: the server is not there. None where there is no such source."""
        return None

    def test_a_check_finds_nothing_where_start_works(self) -> None:
        source = self.make_source()
        findings = require_findings(source.check(), "check")
        errors = [finding for finding in findings if finding.severity is Severity.ERROR]
        assert errors == [], [str(finding) for finding in errors]

    def test_a_stream_has_an_identity_that_stays(self) -> None:
        source = self.make_source()
        identity = dict(source.read_stream_identity())
        assert all(isinstance(text, str) for pair in identity.items() for text in pair)
        assert dict(source.read_stream_identity()) == identity
        assert dict(self.make_source().read_stream_identity()) == identity
        with self._make_started() as started:
            assert dict(started.read_stream_identity()) == identity, "it changes with the start"

    def test_batches_are_what_the_model_says(self) -> None:
        with self._make_started() as source:
            batches = self._read_changes(source)
        for batch in batches:
            check_read_batch(batch)
            assert batch.source.name == source.name

    def test_changes_come_in_the_order_of_their_commits_and_once(self) -> None:
        with self._make_started() as source:
            made = [self.make_changes()]
            first = self._read(source, made[0] or 0)
            made.append(self.make_changes())
            found = list_all_identities(first + self._read(source, made[1] or 0))
        assert len(found) >= 8
        assert found == sorted(set(found))
        counted = [count for count in made if count is not None]
        assert len(counted) < len(made) or len(found) == sum(counted), "not as many changes as were made"

    def test_rows_have_their_values(self) -> None:
        with self._make_started() as source:
            batches = self._read_changes(source)
        found = collect_new_rows(batches)
        given = [value for row in found for value in row.values() if value is not None]
        assert given, "no new row has a value"
        if (expected := self.list_expected()) is not None:
            known = [{name: row.get(name) for name in wanted} for row, wanted in zip(found, expected, strict=False)]
            assert known == [dict(row) for row in expected]
            assert len(found) == len(expected), "not as many new rows as were made"
        if (actions := self.list_expected_actions()) is not None:
            assert list_actions(batches) == list(actions), "not what was done"

    def test_a_shape_is_announced_before_it_is_used(self) -> None:
        """With the one that the table had before, and they are counted."""
        with self._make_started() as source:
            check_shapes(self._read_changes(source) + self._read_changes(source))

    def test_a_position_is_json_and_its_source_compares_it(self) -> None:
        with self._make_started() as source:
            positions = [batch.position for batch in self._read_changes(source)]
            for _ in range(_ROUNDS_OF_CHANGES):
                self.make_changes()
            positions += [batch.position for batch in self._read_changes(source)]
            for position in positions:
                assert json.loads(json.dumps(dict(position.data))) == dict(position.data)
                assert str(position)
                assert source.has_reached(position, position)
            assert all(source.has_reached(last, first) for first, last in pairwise(positions))
            assert not source.has_reached(positions[0], positions[-1])
            later = {str(one): one for one in positions}  # what only says more of the same place is no later one
            for first, last in pairwise(later.values()):
                assert not source.has_reached(first, last), f"{first} lies before {last}"

    def test_reading_ends_when_there_is_nothing(self) -> None:
        with self._make_started() as source:
            began = time.monotonic()
            while source.read(0.1) is not None:
                assert time.monotonic() - began < PART_ANSWER_SECONDS, "something comes without end"
            waited = [_measure_seconds(partial(source.read, 0.1)) for _ in range(2)]
            assert min(waited) < 0.1 + _READ_LATE_SECONDS, "read: None when there was nothing for `timeout` seconds"
            assert min(waited) >= _PATIENT_SECONDS, "read: None at once, and not behind the timeout"

    def test_tables_that_exist_are_not_said_to_be_dropped(self) -> None:
        """Where a source can say which are: the position up to which that holds lies behind all that was read."""
        with self._make_started() as source:
            batches = self._read_changes(source)
            found = source.find_dropped(list_last_shapes(batches))
            if found is not None:
                position, dropped = found
                assert list(dropped) == [], "find_dropped: tables whose rows were just read"
                assert source.has_reached(position, batches[-1].position)

    def test_what_is_said_of_transactions_is_what_was_read(self) -> None:
        """Where a source says something of them when it is asked to."""
        source = self.make_source()
        source.provide_transaction_metadata()
        try:
            start_source(source, None)
            batches = self._read_changes(source)
        finally:
            call_in_a_thread(source.stop)
        changes = Counter(commit for commit, _ in list_all_identities(batches))
        for batch in batches:
            check_batch(batch)
        check_transactions(batches, source.gives_transaction_metadata)
        for batch in batches:
            told = count_transaction_changes(batch)
            assert told == {commit: changes[commit] for commit in told}, "TransactionCounts: as many as were read"

    def test_it_says_at_any_time_how_it_is(self) -> None:
        source = self.make_source()
        _check_status(source)
        check_stats("source", source.stats())
        with self._make_started() as started:
            _check_status(started)
            assert started.status().ok
            json.dumps(dict(started.stats()), default=str)
            check_stats("source", started.stats())
        _check_status(started)

    def test_an_interrupt_ends_what_waits(self) -> None:
        with self._make_started() as source:
            ended, under_way = threading.Event(), threading.Event()

            def read_on() -> None:
                with suppress(SourceUnavailable):
                    while not ended.is_set():
                        under_way.set()
                        source.read(1.0)

            reading = begin(read_on)
            under_way.wait(PART_ANSWER_SECONDS)
            time.sleep(0.2)  # by now it waits
            end_soon(source.interrupt, "interrupt")
            ended.set()
            end(reading, INTERRUPTED_SECONDS, "a read that was interrupted")

    def _make(self) -> Source:
        return self.make_source()

    def _make_unreachable(self) -> Source | None:
        return self.make_unreachable_source()

    def _start_once(self, part: Source) -> None:
        part.read_stream_identity()
        call_in_a_thread(partial(part.start, None))

    @contextmanager
    def _make_started(self, position: Position | None = None, shapes: Iterable[Relation] = ()) -> Iterator[Source]:
        """As the pipeline starts it. shapes: those that tables had at the position."""
        source = self.make_source()
        try:
            if position is not None:
                source.remember(shapes)
            start_source(source, position)
            yield source
        finally:
            call_in_a_thread(source.stop)

    def _start_when_free(self, source: Source) -> None:
        start_source(source, None)

    def _read_changes(self, source: Source) -> list[Batch]:
        """Make changes, and read them."""
        return self._read(source, self.make_changes() or 0)

    def _read(self, source: Source, awaited: int = 0) -> list[Batch]:
        """Every batch until nothing more has come for a while; at least one with changes.

        awaited: how many changes there are, where it is known; with these it is a short while.
        """
        batches: list[Batch] = []
        deadline, quiet = time.monotonic() + PART_ANSWER_SECONDS, 0
        while (found := sum(map(len, batches))) == 0 or quiet < (1 if found == awaited else 5):
            assert time.monotonic() < deadline, "no changes came"
            batch = source.read(0.2)
            quiet = 0 if batch is not None and len(batch) else quiet + 1
            if batch is not None:
                batches.append(batch)
                if self.reads_behind_stored_positions:
                    source.confirm(batch.position)
        return batches


def _measure_seconds(call: Callable[[], object]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


def _check_status(source: Source) -> None:
    status = source.status()
    assert isinstance(status, Status)
    assert status.reason, "a status says why"
    names = [snapshot.id for snapshot in source.list_snapshots()]
    assert len(set(names)) == len(names), "every snapshot has an id of its own"
