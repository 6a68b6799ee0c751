"""Whether a source is asked for its next batch while the sinks are at work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from psql_streamer.batching import WORK_AHEAD_BYTES
from psql_streamer.model import NO_TRANSACTIONS, Batch, SnapshotRows
from psql_streamer.pipeline.reading_ahead import ReadingAhead
from psql_streamer.testing.batches import make_batch


def _make(size: int, *, snapshot: bool = False) -> Batch:
    batch = make_batch([{"id": 1}], "id")
    snapshots = {0: SnapshotRows("one", on_demand=False)} if snapshot else {}
    return replace(batch, nbytes=batch.overhead + size, transactions=replace(batch.transactions, snapshots=snapshots))


SMALL, LARGE = _make(100), _make(WORK_AHEAD_BYTES)
ROWS, FEW_ROWS = _make(WORK_AHEAD_BYTES, snapshot=True), _make(100, snapshot=True)
POSITION = replace(SMALL, changes=(), transactions=NO_TRANSACTIONS, nbytes=100)


@pytest.mark.parametrize(
    ("given", "ahead", "ahead_with_handlers"),
    [
        pytest.param([], False, False, id="nothing yet"),
        pytest.param([SMALL], False, False, id="a slow stream"),
        pytest.param([LARGE], True, True, id="a fast stream"),
        pytest.param([LARGE, SMALL], False, False, id="a stream that becomes slow"),
        pytest.param([LARGE, POSITION], True, True, id="a position behind a fast stream"),
        pytest.param([ROWS, SMALL], True, True, id="rows of a snapshot come behind those of a slow stream"),
        pytest.param([ROWS, SMALL, SMALL], False, False, id="no row of a snapshot was there in its turn"),
        pytest.param([SMALL, ROWS], False, True, id="a slow stream comes behind rows of a snapshot"),
        pytest.param([LARGE, ROWS], True, True, id="a fast stream comes behind rows of a snapshot"),
        pytest.param([SMALL, ROWS, ROWS], True, True, id="a stream that had nothing in its turn"),
        pytest.param([SMALL, ROWS, POSITION, ROWS], True, True, id="a stream that had a position in its turn"),
        pytest.param([ROWS, FEW_ROWS], False, False, id="the last rows of a snapshot alone"),
    ],
)
def test_the_next_batch_is_read_ahead_behind(given: list[Batch], ahead: bool, ahead_with_handlers: bool) -> None:
    reading = ReadingAhead()
    for batch in given:
        reading.note(batch, 0.0)
    assert (reading.is_on_for(handles=False), reading.is_on_for(handles=True)) == (ahead, ahead_with_handlers)


@pytest.mark.parametrize(
    ("given", "ahead"),
    [
        pytest.param([SMALL], 1, id="a slow stream"),
        pytest.param([SMALL, POSITION], 1, id="a position"),
        pytest.param([SMALL, ROWS], 0, id="rows of a snapshot"),
        pytest.param([ROWS, SMALL], 0, id="a slow stream in turn with a snapshot"),
        pytest.param([ROWS, SMALL, SMALL], 1, id="a stream whose snapshot is over"),
    ],
)
def test_a_sink_that_is_faster_than_the_pace_of_the_source_may_have_a_batch_behind(
    given: list[Batch], ahead: int
) -> None:
    reading = ReadingAhead()
    for batch in given:
        reading.note(batch, now=1.0)
    assert reading.count_ahead(0.003) == 0, "nobody knows yet how fast it is"
    reading.note_taken(1.002)
    assert (reading.count_ahead(0.003), reading.count_ahead(0.001)) == (ahead, 0)
