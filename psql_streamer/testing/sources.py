"""What `Source` promises."""

from __future__ import annotations

import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from typing import ClassVar

from psql_streamer.errors import Outcome, SourceError, SourceUnavailable, outcome
from psql_streamer.interfaces import Finding, Severity, Source, Status
from psql_streamer.model import Batch, Position
from psql_streamer.testing.batches import Identity, check_batch, identities
from psql_streamer.testing.threads import call_in_a_thread

_ANSWER_SECONDS = 30.0
"""The time that a source may take for whatever it is asked."""


class SourceContract(ABC):
    """A subclass says how to make a source, and how to make changes where it reads.

    reads_behind_stored_positions: whether `read` waits now and then until what it gave is stored. Positions are then
    confirmed as soon as they are read.
    """

    reads_behind_stored_positions: ClassVar[bool] = False

    @abstractmethod
    def make_source(self) -> Source:
        """A source that has not been started; several of the same stream may be made one after the other."""

    @abstractmethod
    def make_changes(self) -> None:
        """At least three transactions with rows, of which one has several. Called several times."""

    def test_a_check_finds_nothing_where_start_works(self) -> None:
        source = self.make_source()
        findings = list(source.check())
        assert all(isinstance(finding, Finding) for finding in findings), "check gives a Finding for each problem"
        errors = [finding for finding in findings if finding.severity is Severity.ERROR]
        assert errors == [], [str(finding) for finding in errors]

    def test_a_stream_has_an_identity_that_stays(self) -> None:
        source = self.make_source()
        identity = dict(source.stream_identity())
        assert all(isinstance(text, str) for pair in identity.items() for text in pair)
        assert dict(source.stream_identity()) == identity
        assert dict(self.make_source().stream_identity()) == identity

    def test_batches_are_what_the_model_says(self) -> None:
        with self._started() as source:
            self.make_changes()
            batches = self._read(source)
        for batch in batches:
            check_batch(batch)
            assert batch.source.name == source.name

    def test_changes_come_in_the_order_of_their_commits_and_once(self) -> None:
        with self._started() as source:
            self.make_changes()
            first = self._read(source)
            self.make_changes()
            found = _all(first + self._read(source))
        assert len(found) >= 8
        assert found == sorted(set(found))

    def test_a_shape_is_announced_before_it_is_used(self) -> None:
        with self._started() as source:
            self.make_changes()
            announced = set()
            for batch in self._read(source):
                announced |= {change.relation for change in batch.schema_changes}
                assert {changes.relation for changes in batch.changes} <= announced

    def test_a_position_is_json_and_its_source_compares_it(self) -> None:
        with self._started() as source:
            self.make_changes()
            positions = [batch.position for batch in self._read(source)]
            self.make_changes()
            positions += [batch.position for batch in self._read(source)]
            for position in positions:
                assert json.loads(json.dumps(dict(position.data))) == dict(position.data)
                assert str(position)
                assert source.has_reached(position, position)
            assert all(source.has_reached(last, first) for first, last in pairwise(positions))
            assert not source.has_reached(positions[0], positions[-1])

    def test_a_start_at_a_position_goes_on_behind_it(self) -> None:
        with self._started() as source:
            self.make_changes()
            batches = self._read(source)
            self.make_changes()
            batches += self._read(source)
        everything = _all(batches)
        had = 0
        for batch in batches:
            had += len(identities(batch))
            with self._started(_stored(batch.position)) as again:
                left = _all(self._read(again, len(everything) - had)) if had < len(everything) else []
                assert left == everything[had:], f"from {batch.position}"

    def test_it_starts_over_where_it_is_told_without_a_stop(self) -> None:
        """As the pipeline does it after a SourceUnavailable, with the same object."""
        with self._started() as source:
            self.make_changes()
            position = self._read(source)[-1].position
            self.make_changes()
            behind = _all(self._read(source))
            _start(source, _stored(position))
            assert _all(self._read(source, len(behind))) == behind, f"from {position}"

    def test_reading_ends_when_there_is_nothing(self) -> None:
        with self._started() as source:
            began = time.monotonic()
            while source.read(0.1) is not None:
                assert time.monotonic() - began < _ANSWER_SECONDS, "something comes without end"
            began = time.monotonic()
            source.read(0.2)
            assert time.monotonic() - began < 5.0

    def test_confirming_does_not_wait_and_comes_from_another_thread(self) -> None:
        with self._started() as source:
            self.make_changes()
            last = self._read(source)[-1].position
            confirming = threading.Thread(target=source.confirm, args=(last,))
            confirming.start()
            confirming.join(1.0)
            assert not confirming.is_alive()

    def test_it_says_at_any_time_how_it_is(self) -> None:
        source = self.make_source()
        _check_status(source)
        with self._started() as started:
            _check_status(started)
            assert started.status().ok
            json.dumps(dict(started.stats()), default=str)
        _check_status(started)

    def test_an_interrupt_ends_what_waits(self) -> None:
        with self._started() as source:
            ended = threading.Event()

            def read_on() -> None:
                try:
                    while not ended.wait(0.0):
                        source.read(1.0)
                except SourceUnavailable:
                    ended.set()

            reading = threading.Thread(target=read_on, daemon=True)
            reading.start()
            time.sleep(0.2)
            source.interrupt()
            ended.set()
            reading.join(10.0)
            assert not reading.is_alive(), "a read waits on behind an interrupt"

    def test_a_stop_may_come_twice_and_before_a_start(self) -> None:
        source = self.make_source()
        source.stop()
        with self._started() as started:
            started.stop()
            started.stop()

    @contextmanager
    def _started(self, position: Position | None = None) -> Iterator[Source]:
        """As the pipeline starts it."""
        source = self.make_source()
        try:
            _start(source, position)
            yield source
        finally:
            call_in_a_thread(source.stop)

    def _read(self, source: Source, awaited: int = 0) -> list[Batch]:
        """Every batch until nothing more has come for a while; at least one with changes.

        awaited: how many changes there are, where it is known; with these it is a short while.
        """
        batches: list[Batch] = []
        deadline, quiet = time.monotonic() + _ANSWER_SECONDS, 0
        while (found := sum(map(len, batches))) == 0 or quiet < (1 if found == awaited else 5):
            assert time.monotonic() < deadline, "no changes came"
            batch = source.read(0.2)
            quiet = 0 if batch is not None and len(batch) else quiet + 1
            if batch is not None:
                batches.append(batch)
                if self.reads_behind_stored_positions:
                    source.confirm(batch.position)
        return batches


def _start(source: Source, position: Position | None) -> None:
    """The server may need a moment to see that the source before has left."""
    deadline = time.monotonic() + _ANSWER_SECONDS
    while True:
        try:
            source.stream_identity()
            call_in_a_thread(partial(source.start, position))
        except SourceError as error:
            if outcome(error) is not Outcome.RETRY or time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


def _all(batches: list[Batch]) -> list[Identity]:
    return [identity for batch in batches for identity in identities(batch)]


def _stored(position: Position) -> Position:
    """The position as the store gives it back."""
    return Position(json.loads(json.dumps(dict(position.data))), position.shown)


def _check_status(source: Source) -> None:
    status = source.status()
    assert isinstance(status, Status)
    assert status.reason, "a status says why"
    names = [snapshot.id for snapshot in source.snapshots()]
    assert len(set(names)) == len(names), "every snapshot has an id of its own"
