"""Which note of a sink's transactions counts, and when it means nothing any more."""

from __future__ import annotations

import logging

import pytest

from psql_streamer.checkpoint.notes import Note, decode_note, encode_note
from psql_streamer.checkpoint.store import Store
from psql_streamer.checkpoint.store_format import StoredPosition, StoredSnapshot
from psql_streamer.errors import StoreError
from psql_streamer.interfaces import Sink
from psql_streamer.model import Position, Relation, ReplicaIdentity
from psql_streamer.options import SinkOptions
from psql_streamer.pipeline.source_notes import SourceNotes
from psql_streamer.snapshots import SnapshotRequest, Wanted
from sinks.stub import StubDiscardSink
from tests.columns import postgres_column, postgres_table

SHAPE = postgres_table(7, "public", "orders", ReplicaIdentity.FULL, (postgres_column("id", 23, key=True),))


def stored(serial: int) -> StoredPosition:
    return StoredPosition(Position({"n": serial}, f"n={serial}"), {"slot": "shop"}, "elsewhere", serial)


class Noting(StubDiscardSink):
    """A sink whose transactions noted what it is told."""

    def __init__(self, note: bytes | None = None, is_transactional: bool = True) -> None:
        super().__init__("k", SinkOptions.model_validate({"type": "noting", "sources": ["db1"]}))
        self.note = note
        self._is_transactional = is_transactional

    @property
    def is_transactional(self) -> bool:
        return self._is_transactional

    def find_note(self, source: str) -> bytes | None:
        assert source == "db1"
        return self.note


def settled(store: Store, sink: Sink, place_in_transactions: bool = False) -> SourceNotes:
    notes = SourceNotes("db1", store, [sink])
    notes.settle(lambda position, mark: position.data["n"] >= mark.data["n"], place_in_transactions)
    return notes


def test_a_note_is_read_as_it_was_written() -> None:
    note = Note("one", stored(5), [SHAPE])
    assert decode_note(encode_note(note)) == note


@pytest.mark.parametrize(
    ("lineage", "known", "counts"),
    [
        ("one", None, True),  # a crash before the first position was stored
        ("one", 4, True),
        ("one", 5, False),
        ("one", 6, False),  # batches without events move the store alone
        ("other", 4, False),
        ("", None, False),
    ],
)
def test_a_note_counts_if_it_is_of_the_lineage_and_further(lineage: str, known: int | None, counts: bool) -> None:
    assert Note("one", stored(5)).counts_for(lineage, None if known is None else stored(known)) is counts


def test_a_note_that_the_store_has_not_learned_is_taken_over_with_its_shapes(store: Store) -> None:
    first = settled(store, Noting())
    store.put("db1", stored(4))
    settled(store, Noting(first.make(stored(5), [SHAPE])))
    assert store.get("db1") == stored(5)
    assert store.read_relations("db1") == [SHAPE]


def test_a_note_behind_the_store_changes_nothing(store: Store) -> None:
    first = settled(store, Noting())
    store.put("db1", stored(6))
    settled(store, Noting(first.make(stored(5), [SHAPE])))
    assert store.get("db1") == stored(6)
    assert store.read_relations("db1") == []


def forget(store: Store) -> None:
    store.forget("db1")


def begin_again(store: Store) -> None:
    store.begin_again("db1", StoredSnapshot(SnapshotRequest("s1", (), Wanted.RUN, 1.0)))


def write_without_transactions(store: Store) -> None:
    settled(store, Noting(is_transactional=False))


@pytest.mark.parametrize("happening", [forget, begin_again, write_without_transactions])
def test_what_was_noted_before_means_nothing_behind(
    store: Store, happening: object, caplog: pytest.LogCaptureFixture
) -> None:
    note = settled(store, Noting()).make(stored(5), [])
    assert callable(happening)
    happening(store)
    with caplog.at_level(logging.WARNING):
        settled(store, Noting(note))
    assert store.get("db1") is None
    assert "has written its events up to n=5" in caplog.text
    assert "may be repeated" in caplog.text


def test_a_note_of_another_time_is_not_told_of_when_the_store_is_further(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    note = settled(store, Noting()).make(stored(5), [])
    store.put_lineage("db1", "")
    for serial, is_told in ((4, True), (6, False)):
        store.put("db1", stored(serial))
        caplog.clear()
        settled(store, Noting(note))
        assert ("may be repeated" in caplog.text) == is_told


def test_nothing_is_said_to_be_repeated_where_the_place_is_in_the_transactions(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    note = settled(store, Noting()).make(stored(5), [])
    forget(store)
    with caplog.at_level(logging.INFO):
        settled(store, Noting(note), place_in_transactions=True)
    assert store.get("db1") is None
    assert "has written its events up to n=5" in caplog.text
    assert "say where the source goes on" in caplog.text
    assert "may be repeated" not in caplog.text


def test_a_source_that_is_sent_elsewhere_begins_a_lineage(store: Store) -> None:
    notes = settled(store, Noting())
    note = notes.make(stored(5), [])
    notes.begin_lineage()
    store.put("db1", stored(2))
    settled(store, Noting(note))
    assert store.get("db1") == stored(2)


def test_a_note_that_cannot_be_read_is_told(store: Store) -> None:
    with pytest.raises(StoreError, match=r"sink\.k noted of source db1 cannot be read"):
        settled(store, Noting(b'{"lineage": 1}'))


def test_shapes_of_any_kind_are_noted() -> None:
    plain: Relation = SHAPE
    assert decode_note(encode_note(Note("one", stored(1), [plain, plain]))).shapes == [plain, plain]
