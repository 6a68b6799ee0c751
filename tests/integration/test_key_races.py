"""Keys that are looked up under writers: no DELETE contradicts the stream at its place, and ghosts go from a copy."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from psql_streamer.model import Batch, RowOp
from psql_streamer.snapshots import KeyForm, KeysProgress, PostedKeys, SnapshotRequest, TableRequest
from sources.postgres.source import PostgresSource
from tests.database import Database
from tests.integration.test_snapshot_races import Consumer, Writer
from tests.snapshot_fold import Fold, Key, Row
from tests.source_at_work import source_of, wait_for

_TEXTS = ["o'clock", 'a "b"', "back\\slash", "ż,{}"]

_SCHEMA = """
CREATE TABLE whole (id int PRIMARY KEY, v text);
ALTER TABLE whole REPLICA IDENTITY FULL;
CREATE TABLE keyed (v text, b text COLLATE "C", a int, PRIMARY KEY (a, b));
CREATE TABLE num (k numeric PRIMARY KEY, v text);
INSERT INTO whole SELECT i, 'there' FROM generate_series(1, 200, 2) i;
INSERT INTO num SELECT i, 'there' FROM generate_series(1, 50, 2) i;
CREATE PUBLICATION p FOR TABLE whole, keyed, num;
"""

_CHANGES = [
    "INSERT INTO whole VALUES ({id}, 'came {n}') ON CONFLICT DO NOTHING",
    "DELETE FROM whole WHERE id = {id}",
    "DELETE FROM whole WHERE id BETWEEN {id} AND {id} + 5",
    "UPDATE whole SET id = {other} WHERE id = {id} AND NOT EXISTS (SELECT FROM whole WHERE id = {other})",
    "UPDATE whole SET v = 'changed {n}' WHERE id = {id}",
    "INSERT INTO keyed VALUES ('came {n}', {text}, {small}) ON CONFLICT DO NOTHING",
    "DELETE FROM keyed WHERE a = {small}",
    """UPDATE keyed SET a = {small} + 100 WHERE a = {small} AND b = {text}
        AND NOT EXISTS (SELECT FROM keyed WHERE a = {small} + 100 AND b = {text})""",
    "INSERT INTO num VALUES ({small}{zeros}, 'came {n}') ON CONFLICT DO NOTHING",
    "DELETE FROM num WHERE k = {small}",
]


class KeyWriter(Writer):
    """Deletes, inserts and moves the same few keys again and again."""

    def _statement(self) -> str:
        chance = self._random
        if chance.random() < 0.002:
            return chance.choice(["TRUNCATE keyed", "ALTER TABLE keyed ALTER v TYPE text USING v", "TRUNCATE whole"])
        return chance.choice(_CHANGES).format(
            id=chance.randint(1, 200),
            other=chance.randint(1, 200),
            small=chance.randint(1, 50),
            n=chance.randint(0, 9),
            text="'" + chance.choice(_TEXTS).replace("'", "''") + "'",
            zeros=chance.choice(["", ".0", ".00"]),
        )


@contextmanager
def key_writers(database: Database, seed: int) -> Iterator[None]:
    started = [KeyWriter(database, seed, number) for number in range(3)]
    try:
        yield
    finally:
        for writer in started:
            writer.stop()


class GhostFold(Fold):
    """A copy that has rows which were deleted while nobody looked. `gone`: how many DELETE rows snapshots gave."""

    def __init__(self) -> None:
        super().__init__()
        self.ghosts: dict[str, set[Key]] = {}
        self.gone = 0

    def add_ghost(self, table: str, row: Row, key: Key) -> None:
        self.tables.setdefault(table, {})[key] = row
        self.ghosts.setdefault(table, set()).add(key)

    def add(self, batch: Batch) -> None:
        for changes in batch.changes:
            name = self.name_of(changes.relation)
            for image in (changes.after, changes.before):
                keys = zip(*(image.columns[at].to_pylist() for at in changes.relation.key_columns), strict=True)
                if batch.transactions.snapshots:
                    assert set(changes.op.tolist()) == {RowOp.DELETE}
                    for key in keys:
                        self._check(name, key)
                        self.gone += 1
                else:
                    self.ghosts.get(name, set()).difference_update(keys)
        super().add(batch)

    def _truncate(self, name: str) -> None:
        """As in a compacted topic: nothing goes by it but what the stream has shown."""
        ghosts = {key: row for key, row in self.tables.get(name, {}).items() if key in self.ghosts.get(name, ())}
        super()._truncate(name)
        self.tables[name] = ghosts

    def _check(self, name: str, key: Key) -> None:
        there = self.tables.get(name, {}).keys() - self.ghosts.get(name, set())
        assert key not in there, f"DELETE of {name} {key}, which the stream has"
        if name == "public.num":
            assert float(key[0] or b"") not in {float(one or b"") for (one,) in there}, f"DELETE of {name} {key}"


class Poster:
    """Posts the keys of a table to one snapshot after the other, as the command does."""

    def __init__(self, number: int, table: str, documents: Sequence[bytes]) -> None:
        self.table = table
        self.documents = documents
        self.ended = 0
        self.checked = 0
        self._number = number
        self._source: PostgresSource | None = None

    @property
    def request(self) -> SnapshotRequest:
        name = f"keys-{self._number}-{self.ended}"
        return SnapshotRequest(name, (TableRequest(self.table),), asked_at=self._number, keys=KeyForm.JSON)

    def post(self, source: PostgresSource) -> bool:
        """Whether one has ended with this."""
        shown = next(one for one in source.list_snapshots() if one.id == self.request.id)
        if shown.state.ended:
            assert shown.state == "done", shown.reason
            assert isinstance(shown.keys, KeysProgress)
            assert shown.keys.checked == len(self.documents)
            self.ended += 1
            return True
        assert shown.keys is not None
        first = shown.keys.next
        part = self.documents[first : first + 37]
        complete = first + len(part) == len(self.documents)
        source.take_keys(self.request.id, PostedKeys(first, part, complete))
        return False


def _documents() -> dict[str, list[bytes]]:
    return {
        "public.whole": [json.dumps({"id": number}).encode() for number in range(1, 401)],
        "public.keyed": [json.dumps({"b": text, "a": number}).encode() for number in range(1, 160) for text in _TEXTS],
        "public.num": [b'{"k":%d%s}' % (number, zeros) for number in range(-50, 51) for zeros in (b"", b".0")],
    }


def _add_ghosts(fold: GhostFold) -> None:
    for number in range(201, 401):
        text = str(number).encode()
        fold.add_ghost("public.whole", {"id": text, "v": b"ghost"}, (text,))
    for number in range(101, 160):
        a, b = str(number).encode(), _TEXTS[number % len(_TEXTS)].encode()
        fold.add_ghost("public.keyed", {"v": b"ghost", "b": b, "a": a}, (b, a))
    for number in range(-50, 0):
        text = str(number).encode()
        fold.add_ghost("public.num", {"k": text, "v": b"ghost"}, (text,))


@pytest.mark.behaviour("N40")
@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
def test_no_delete_of_a_gone_key_contradicts_the_stream_whatever_writers_do_and_wherever_the_source_is_killed(
    database: Database, seed: int
) -> None:
    database.execute(_SCHEMA)
    fold = GhostFold()
    consumer = Consumer(_source(database), fold)
    consumer.source.read_stream_identity()
    consumer.source.start(None)
    for table in ("whole", "num"):
        for row in database.query(f"SELECT * FROM {table}"):
            names = ("id", "v") if table == "whole" else ("k", "v")
            texts = [str(value).encode() for value in row]
            fold.tables.setdefault(f"public.{table}", {})[texts[0],] = dict(zip(names, texts, strict=True))
    _add_ghosts(fold)
    moments = random.Random(seed)
    posters = [Poster(number, *one) for number, one in enumerate(_documents().items())]
    consumer.source.set_snapshots([poster.request for poster in posters])
    kills = 0
    try:
        with key_writers(database, seed):
            while kills < 4 or min(poster.ended for poster in posters) < 3:
                consumer.read(0.01)
                _post(consumer, posters)
                if moments.random() < 0.1:
                    consumer.keep()
                if moments.random() < 0.05:
                    time.sleep(0.05)  # the stream is behind what keys are looked up in
                if moments.random() < 0.01 and kills < 6 and consumer._kept[1] is not None:
                    another = _source(database)
                    another.set_snapshots([poster.request for poster in posters])
                    consumer.lose(another)
                    kills += 1
        consumer.until_level(database)
        ended = [poster.ended for poster in posters]
        _post_all(consumer, posters)
        consumer.until_level(database)
    finally:
        consumer.source.stop()
    assert ended != [poster.ended for poster in posters]
    assert isinstance(consumer.fold, GhostFold)
    assert consumer.fold.gone > 500
    for table in ("public.whole", "public.keyed", "public.num"):
        consumer.fold.assert_equals(database, table)


def _post(consumer: Consumer, posters: Sequence[Poster]) -> None:
    ended = [poster.post(consumer.source) for poster in posters]
    if any(ended):
        consumer.source.set_snapshots([poster.request for poster in posters])


def _post_all(consumer: Consumer, posters: Sequence[Poster]) -> None:
    """Once more each, from its beginning to its end."""
    wanted = [poster.ended + 2 for poster in posters]

    def all_ended() -> bool:
        consumer.read()
        if consumer.position is not None:
            consumer.source.confirm(consumer.position)
        _post(consumer, posters)
        return all(poster.ended >= number for poster, number in zip(posters, wanted, strict=True))

    wait_for(all_ended, "the snapshots of keys to end")


def _source(database: Database) -> PostgresSource:
    return source_of(database, snapshot={"mode": "never", "chunkTime": "50ms", "parallel": 2}, batchSize=70)
