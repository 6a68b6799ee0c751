"""What `Source` promises of what was read and not confirmed, and of a start that goes on."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial
from typing import ClassVar

import pytest

from psql_streamer.errors import SourceUnavailable
from psql_streamer.interfaces import Source
from psql_streamer.model import Batch
from psql_streamer.testing.beside_streams import BesideStreamContract
from psql_streamer.testing.contents import collect_row_contents
from psql_streamer.testing.parts import NO_OUTAGE, require_error, require_findings
from psql_streamer.testing.shapes import check_shapes
from psql_streamer.testing.streams import (
    copy_as_stored,
    list_all_identities,
    list_last_shapes,
    start_source,
)
from psql_streamer.testing.threads import INTERRUPTED_SECONDS, begin, end, end_soon

_OUTAGE_READS = 100
"""Reads until a source has to have seen that what it reads from is away."""


class RestartContract(BesideStreamContract):
    """A part of SourceContract, which says how a source is made, started and read."""

    reads_behind_stored_positions: ClassVar[bool] = False
    goes_on_where_confirmed: ClassVar[bool] = False

    def cause_outage(self) -> AbstractContextManager[None] | None:
        """A time in which a source that has been started loses what it reads from: a read raises SourceUnavailable.
        None where nobody can bring that about.
        """
        return None

    def test_a_start_at_a_position_goes_on_behind_it(self) -> None:
        """With the same changes, and what they say is the same. Their shapes are announced, or were remembered."""
        with self._make_started() as source:
            batches = self._read_changes(source)
            batches += self._read_changes(source)
        everything = list_all_identities(batches)
        for number in range(1, len(batches) + 1):
            before, behind, position = batches[:number], batches[number:], batches[number - 1].position
            had, shapes = len(list_all_identities(before)), list_last_shapes(before)
            with self._make_started(copy_as_stored(position), shapes) as again:
                left = self._read(again, len(everything) - had) if had < len(everything) else []
            assert list_all_identities(left) == everything[had:], f"from {position}"
            assert collect_row_contents(left) == collect_row_contents(behind), f"from {position}"
            check_shapes(left, shapes)

    def test_it_starts_over_where_it_is_told_without_a_stop(self) -> None:
        """As the pipeline does it after a SourceUnavailable, with the same object."""
        with self._make_started() as source:
            position = self._read_changes(source)[-1].position
            behind = list_all_identities(self._read_changes(source))
            start_source(source, copy_as_stored(position))
            assert list_all_identities(self._read(source, len(behind))) == behind, f"from {position}"

    def test_it_starts_over_behind_the_batch_that_was_taken_though_it_had_read_on(self) -> None:
        """What it has read ahead is neither lost nor given in front of what lies before it."""
        with self._make_started() as source:
            made = [self.make_changes(), self.make_changes()]
            taken = self._read_one(source)
            position, shapes = copy_as_stored(taken[-1].position), list_last_shapes(taken)
            start_source(source, position)
            made.append(self.make_changes())
            left = len(list_all_identities(taken))
            counted = [count for count in made if count is not None]
            whole = sum(counted) if len(counted) == len(made) else 0
            found = list_all_identities(self._read(source, max(0, whole - left)))
        if whole:
            assert left + len(found) == whole, f"from {position}: not as many changes as were made"
        else:
            with self._make_started(position, shapes) as again:
                assert list_all_identities(self._read(again, len(found))) == found, f"from {position}"
        everything = list_all_identities(taken) + found
        assert everything == sorted(set(everything)), f"from {position}: in their order, and once"

    def test_what_was_read_and_not_confirmed_comes_again(self) -> None:
        """Where a start without a position goes on: `stop` tells the server the last confirmed position."""
        if self.reads_behind_stored_positions:
            return
        with self._make_started():
            self.make_changes()
        with self._make_started() as source:
            made = self.make_changes()
            found = list_all_identities(self._read(source, 0))
        if made is None or len(found) <= made:
            return  # it begins with what comes from then on
        with self._make_started() as source:
            more = self.make_changes()
            again = list_all_identities(self._read(source, 0 if more is None else len(found) + more))
        assert again[: len(found)] == found, "changes that were read and not confirmed are gone"

    def test_confirming_does_not_wait_and_comes_from_another_thread(self) -> None:
        with self._make_started() as source:
            last = self._read_changes(source)[-1].position
            end_soon(partial(source.confirm, last), "confirm", seconds=1.0)

    def test_confirming_what_lies_behind_changes_nothing_of_what_follows(self) -> None:
        """Positions are confirmed late, when others have been read: those come again behind a restart."""
        with self._make_started() as source:
            first = self._read_changes(source)
            second = self._read_changes(source)
            if not self.reads_behind_stored_positions:  # else all of them are confirmed by now
                end_soon(partial(source.confirm, first[-1].position), "confirm")
            third = self._read_changes(source)
        found = list_all_identities(first + second + third)
        assert found == sorted(set(found))
        due, stored = list_all_identities(second + third), first
        if self.goes_on_where_confirmed:
            stored = second
        elif self.reads_behind_stored_positions:
            due, stored = list_all_identities(third), second
        with self._make_started(copy_as_stored(stored[-1].position), list_last_shapes(stored)) as again:
            assert list_all_identities(self._read(again, len(due))) == due, "what was not confirmed comes again"

    def test_a_check_changes_nothing_of_what_comes(self) -> None:
        with self._make_started() as source:
            first = self._read_changes(source)
            end_soon(partial(source.confirm, first[-1].position), "confirm")
        made = self.make_changes()
        require_findings(self.make_source().check(), "check")
        with self._make_started(copy_as_stored(first[-1].position), list_last_shapes(first)) as again:
            found = list_all_identities(self._read(again, made or 0))
        assert made is None or len(found) == made, "behind a check not as many changes come as were made"

    def test_behind_an_outage_it_goes_on_where_it_is_told(self) -> None:
        outage = self.cause_outage()
        if outage is None:
            pytest.skip(NO_OUTAGE)
        with self._make_started() as source:
            position = self._read_changes(source)[-1].position
            with outage:
                require_error(
                    partial(_read_on, source),
                    SourceUnavailable,
                    "nothing can be read, and read raises no SourceUnavailable",
                )
            start_source(source, copy_as_stored(position))
            made = self.make_changes()
            found = list_all_identities(self._read(source, made or 0))
            assert made is None or len(found) == made, f"from {position}: not as many changes as were made"

    def _read_one(self, source: Source) -> list[Batch]:
        """Batches up to the first that has changes, as the pipeline takes it before others."""
        batches: list[Batch] = []

        def read() -> None:
            while not any(map(len, batches)):
                if (batch := source.read(0.2)) is not None:
                    batches.append(batch)
                    if self.reads_behind_stored_positions:
                        source.confirm(batch.position)

        end(begin(read), INTERRUPTED_SECONDS, "a read of changes that are there")
        return batches


def _read_on(source: Source) -> None:
    for _ in range(_OUTAGE_READS):
        source.read(0.1)
