"""Old and new parts of changes, paired: whatever they are, a consumer that goes by the key ends with the new ones."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from psql_streamer.events.routing import Router
from psql_streamer.model import ADDRESS, Image, RowOp
from psql_streamer.spark.kept import Kept
from psql_streamer.spark.parts import Elements, count_up, number_keys, order_by_content, pair
from tests.encoding import encoder_of
from tests.spark_changes import DELETE, INSERT, UPDATE, batch, changes, column

COLUMNS = (column("id", 23, key=True), column("item", 25))

Parts = list[tuple[str, int]]
"""Key and value of each part of an image; keys may be there twice."""

_IMAGES = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 2)), max_size=4)
_CHANGES = st.lists(st.tuples(_IMAGES, _IMAGES), min_size=1, max_size=5)


def kept_of(found: list[tuple[Parts, Parts]], splits: bool = True) -> tuple[Kept, Any, list[tuple[str, int]]]:
    """The rows of updates with these old and new parts; the changes, and the parts by element."""
    n = len(found)
    whole: Any = {row: [b"%d" % row, b""] for row in range(n)}
    given_changes = changes([UPDATE] * n, whole, whole, COLUMNS)
    sides = [part for _, new in found for part in new], [part for old, _ in found for part in old]
    images = [row for row, (_, new) in enumerate(found) for _ in new]
    images += [n + row for row, (old, _) in enumerate(found) for _ in old]
    parts = [*sides[0], *sides[1]]
    at = np.array(images, np.int64)
    keys = number_keys(pa.array([key.encode() for key, _ in parts], pa.binary()))
    return pair(given_changes, Elements(at, count_up(at), keys), splits, deletes=False), given_changes, parts


def image(parts: list[tuple[str, int]], elements: Any, rows: Any) -> Image:
    chosen = [parts[at] for at in elements.tolist()]
    return Image(
        (pa.array([b"0"] * len(chosen), pa.binary()), pa.array([b"%d" % value for _, value in chosen], pa.binary())),
        rows,
        {},
        pa.array([{"topic": None, "key": key.encode(), "headers": []} for key, _ in chosen], ADDRESS),
    )


@given(_CHANGES)
def test_the_events_of_an_update_fold_from_the_old_parts_to_the_new_ones(found: list[tuple[Parts, Parts]]) -> None:
    """By key, the last one of several that share it."""
    kept, whole, parts = kept_of(found)
    made = replace(
        whole,
        columns=COLUMNS,
        **{name: getattr(whole, name)[kept.rows] for name in ("batch_order", "seq", "place", "tx", "table_seq")},
        op=kept.op,
        part=kept.part,
        after=image(parts, kept.after, kept.after_rows),
        before=image(parts, kept.before, kept.before_rows),
    )
    records = encoder_of("event", Router({}, "t", ""), {}).encode(batch(made))
    by_change: dict[int, dict[str, str]] = {
        row: {key: str(value) for key, value in old} for row, (old, _) in enumerate(found)
    }
    identities = set()
    for at in range(len(records)):
        event, key = json.loads(records.values[at].as_py()), (records.keys[at].as_py() or b"").decode()
        of = by_change[event["Seq"]]
        if event["Action"] == "delete":
            of.pop(key, None)
        else:
            of[key] = event["Columns"]["item"]
        identities.add(event["UUID"])
    for row, (_, new) in enumerate(found):
        assert by_change[row] == {key: str(value) for key, value in new}
    assert len(identities) == len(records)


@given(_CHANGES)
def test_every_part_of_a_change_has_a_number_of_its_own(found: list[tuple[Parts, Parts]]) -> None:
    kept, _, _ = kept_of(found)
    if kept.part is None:
        assert len(set(kept.rows.tolist())) == len(kept.rows)
        return
    identities = list(zip(kept.rows.tolist(), kept.part["number"].tolist(), strict=True))
    assert identities == sorted(set(identities))
    assert {UPDATE, INSERT, DELETE} >= set(kept.op.tolist())
    for row in set(kept.rows.tolist()):
        mine = kept.rows == row
        of = set(kept.part["of"][mine].tolist())
        assert of == {0 if mine.sum() == 1 and kept.part["number"][mine][0] == 0 else int(mine.sum())}


@given(_CHANGES)
def test_a_part_with_a_key_of_its_own_is_paired_with_the_old_one_of_that_key(found: list[tuple[Parts, Parts]]) -> None:
    kept, _, parts = kept_of(found)
    after, before = (dict(zip(rows.tolist(), elements.tolist(), strict=True)) for rows, elements in _sides(kept))
    for at, row in enumerate(kept.rows.tolist()):
        old, new = found[row]
        keys = [key for key, _ in new], [key for key, _ in old]
        distinct = all(len(set(some)) == len(some) for some in keys)
        if kept.op[at] == RowOp.UPDATE and at in before and distinct and max(map(len, keys)) > 1:
            assert parts[after[at]][0] == parts[before[at]][0]


def _sides(kept: Kept) -> Any:
    return (kept.after_rows, kept.after), (kept.before_rows, kept.before)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["x", "y", None]), st.integers(0, 2)), max_size=12),
    st.randoms(),
)
def test_the_order_by_content_does_not_depend_on_the_order_that_there_was(found: Any, chance: Any) -> None:
    def ordered(rows: Any) -> Any:
        rows = sorted(rows, key=lambda one: one[0])
        columns = [pa.array([one[at] for one in rows], kind) for at, kind in ((1, pa.string()), (2, pa.int32()))]
        nested = pa.array([{"a": one[1]} for one in rows], pa.struct([("a", pa.string())]))
        order = order_by_content([nested, *columns], np.array([one[0] for one in rows], np.int64))
        return [rows[at] for at in order.tolist()]

    shuffled = list(found)
    chance.shuffle(shuffled)
    assert ordered(found) == ordered(shuffled)
