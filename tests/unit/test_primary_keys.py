"""Under REPLICA IDENTITY FULL events are keyed by the primary key that the source knows of."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import pytest

from psql_streamer.events.routing import Router
from psql_streamer.model import Relation, ReplicaIdentity
from psql_streamer.pgoutput.decoder import Decoder
from psql_streamer.pgoutput.full_identity import Asked, CatalogKey, apply_primary_key
from psql_streamer.pgtypes.builtin import BY_OID
from tests.columns import postgres_column, postgres_table
from tests.decoding import BEGINNING, SOURCE, block, keyed_by
from tests.encoding import encoder_of
from tests.few import both_ways  # noqa: F401 - a fixture for all tests here
from tests.pgoutput_wire import (
    WireColumn,
    WireRelation,
    begin,
    commit,
    copy_data,
    delete,
    insert,
    relation,
    update,
    xlog_data,
)

FULL = WireRelation(
    16400,
    "public",
    "t",
    (WireColumn("a", 23, key=True), WireColumn("b", 25, key=True), WireColumn("c", 25, key=True)),
    "f",
)


def keys(primary_key: Collection[str], *changes: bytes) -> list[Any]:
    """(op, key) of the events of one transaction."""
    machine = Decoder(SOURCE, BEGINNING, BY_OID.get, keyed_by(*primary_key))
    messages = [begin(100, 0, 7), relation(FULL), *changes, commit(100, 120, 0)]
    piece = block([copy_data(xlog_data(message, 50)) for message in messages])
    records = encoder_of("event", Router({}, "t", ""), {}).encode(machine.decode(piece.data, piece.offsets))
    return [
        (chr(op), None if key is None else json.loads(key))
        for op, key in zip(records.op.tolist(), records.keys.to_pylist(), strict=True)
    ]


@pytest.mark.behaviour("D3")
def test_d3_events_of_a_table_with_identity_full_are_keyed_by_its_primary_key() -> None:
    new, newer = (b"1", b"x", b"y"), (b"1", b"x", b"z")
    changes = insert(FULL.oid, new), update(FULL.oid, newer, new, "O"), delete(FULL.oid, newer, "O")
    assert keys(("b", "a"), *changes) == [(op, {"a": 1, "b": "x"}) for op in "IUD"]


@pytest.mark.behaviour("D4")
def test_d4_an_update_of_the_primary_key_under_full_deletes_the_old_key() -> None:
    change = update(FULL.oid, (b"2", b"x", b"y"), (b"1", b"x", b"y"), "O")
    assert keys(("a",), change) == [("D", {"a": 1}), ("I", {"a": 2})]


@pytest.mark.behaviour("D5")
@pytest.mark.parametrize("primary_key", [(), ("a", "not published")])
def test_d5_without_a_primary_key_in_the_stream_the_key_is_null(primary_key: Collection[str]) -> None:
    assert keys(primary_key, insert(FULL.oid, (b"1", None, None))) == [("I", None)]


@pytest.mark.behaviour("S2")
def test_s2_another_primary_key_is_another_version_of_the_relation() -> None:
    given: list[tuple[str, ...]] = [("a",), ("a",), ("b",), ()]

    def ask_keys(asked: Sequence[Asked]) -> Sequence[CatalogKey]:
        assert [one.xid for one in asked] == [7] * 4, "asked once for the block, for each Relation message"
        return [CatalogKey(names) for names in given]

    machine = Decoder(SOURCE, BEGINNING, BY_OID.get, ask_keys)
    row = insert(FULL.oid, (b"1", b"x", b"y"))
    messages = [begin(100, 0, 7), *(relation(FULL), row) * 4, commit(100, 120, 0)]
    piece = block([copy_data(xlog_data(message, 50)) for message in messages])
    shapes = [changes.relation for changes in machine.decode(piece.data, piece.offsets).changes]
    assert [(shape.version, shape.key_columns) for shape in shapes] == [(1, (0,)), (2, (1,)), (3, ())]


_SEEN = postgres_table(1, "public", "t", ReplicaIdentity.FULL, tuple(postgres_column(name, 23) for name in "abc"))


def _known(*names: str) -> Relation:
    """The table as it was seen before, with this primary key."""
    columns = tuple(postgres_column(name, 23, key=name in names) for name in "abc")
    return replace(_SEEN, columns=columns)


@pytest.mark.parametrize(
    ("catalog", "before", "seen_in_session", "key", "certain"),
    [
        (CatalogKey(("a",)), None, False, (0,), True),
        (CatalogKey(("a",)), _known("a"), False, (0,), True),
        (CatalogKey(("b",)), _known("a"), True, (1,), True),
        # Made by the row's own transaction, by a savepoint of it, or by another one, before the row or behind it. A
        # session that describes the table again speaks for before.
        (CatalogKey(("b",), may_be_newer=True), _known("a"), True, (1,), False),
        (CatalogKey(("b",), may_be_newer=True), _known("a"), False, (0,), False),
        (CatalogKey(("a",), may_be_newer=True), _known("a"), False, (0,), True),
        (CatalogKey(("b",), may_be_newer=True), _known(), True, (1,), False),
        (CatalogKey(("b",), may_be_newer=True), _known(), False, (), False),
        (CatalogKey(("b",), may_be_newer=True), None, False, (1,), False),
        # It was dropped, and nobody knows when.
        (CatalogKey(()), _known("a"), False, (0,), False),
        (CatalogKey(()), _known("a"), True, (), False),
        (CatalogKey(()), _known(), False, (), True),
        # The whole table is gone.
        (CatalogKey(None), _known("a", "b"), True, (0, 1), False),
        (CatalogKey(None), _known(), True, (), True),
        (CatalogKey(None), None, False, (), False),
        # A column of the key has another name by now, or is not published.
        (CatalogKey(("renamed",)), _known("a"), False, (0,), False),
        (CatalogKey(("renamed",)), _known(), False, (), True),
        (CatalogKey(("renamed",)), None, False, (), False),
    ],
)
def test_a_catalog_that_may_be_ahead_of_the_row_is_believed_as_far_as_it_can_know(
    catalog: CatalogKey, before: Relation | None, seen_in_session: bool, key: tuple[int, ...], certain: bool
) -> None:
    found, is_certain = apply_primary_key(_SEEN, catalog, before, seen_in_session)
    assert (found.key_columns, is_certain) == (key, certain)
