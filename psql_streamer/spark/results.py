"""The table that comes back from Spark -> Changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from psql_streamer.columns import ChosenCells, Columns
from psql_streamer.errors import HandlerRefused
from psql_streamer.events.addresses import merge_keys
from psql_streamer.events.identity import make_part_uuids
from psql_streamer.events.json.json_text import join
from psql_streamer.events.json.values import choose_render
from psql_streamer.model import NO_UUID, ArrowType, Changes, Image, Index, RowOp, select_row_fields
from psql_streamer.spark.directions import Directed, Direction, find_refused, read_directions
from psql_streamer.spark.exchange import Sent
from psql_streamer.spark.facts import Field
from psql_streamer.spark.failures import RowsRefused
from psql_streamer.spark.kept import Kept, find_unjudged_images
from psql_streamer.spark.metadata import KEY_ONLY, UNCHANGED
from psql_streamer.spark.parts import Elements, number_keys, pair
from psql_streamer.spark.result_columns import Given, Survivor
from psql_streamer.spark.result_fields import Kind, find_computed_key, find_source
from psql_streamer.spark.result_rows import Came, Result, order_rows, refuse_rows
from psql_streamer.spark.row_tracking import Lineage
from psql_streamer.spark.rules import Rule
from psql_streamer.spark.splitting import UNKNOWN, Splitting

LET_PASS = (
    f"let them pass: ... WHERE ... OR {KEY_ONLY} OR size({UNCHANGED}) > 0, with outer joins in place of inner ones"
)
"""What to do about a rule that drops what it cannot judge."""


@dataclass(frozen=True, slots=True)
class Received:
    """changes: None when the rule left nothing. images: which came back or were put back, sorted. unaddressed: rows
    that lack the values of which the rule makes their topic, key or headers.
    """

    changes: Changes | None
    images: Index
    unaddressed: int = 0


def receive(
    sent: Sent,
    lineage: Lineage,
    result: Result,
    rule: Rule,
    where: str,
    splitting: Callable[[], Splitting] = lambda: UNKNOWN,
) -> Received:
    """The changes that a rule's result stands for.

    lineage: of the columns of `result`. splitting: how it comes to several rows for one image; asked for where it
    matters. Raises HandlerRefused when `_row` is missing or null, RowsRefused for rows that cannot be used.
    """
    fields = lineage.fields
    came = order_rows(fields, sent, result, splitting, where)
    back = find_unjudged_images(sent, lineage.facts, came.images)
    images = came.images if not len(back) else np.sort(np.concatenate((came.images, back)))
    layout = lineage.find_layout(sent, where)
    if len(back):
        _refuse_without_key(sent, fields, where)
    put_back = np.isin(images, back) if len(back) else np.zeros(len(images), np.bool_)
    given = Given.from_images(sent, images, put_back, layout)
    survivors, directions = _build_columns(given, lineage, result, came, where)
    said = read_directions(directions, len(images), where)
    if said.addresses is not None:
        refuse_rows(sent, images, find_refused(said.addresses), where)
    kept = _make_kept(given, came, survivors, said, rule, splitting)
    if kept.rows.size == 0:
        return Received(None, images)
    alone = given.find_alone(kept.after[~np.isin(kept.after_rows, kept.before_rows)]) if sent.lacking.absent else None
    if alone is not None:
        survivors, _ = _build_columns(replace(given, alone=alone), lineage, result, came, where)
    addresses = _choose_addresses(given, said, came)
    return Received(
        replace(
            sent.changes,
            columns=layout.share_columns(tuple(survivor.column for survivor in survivors)),
            op=kept.op,
            **_collect_row_fields(sent.changes, kept),
            after=_build_image(given, survivors, addresses, kept.after, kept.after_rows),
            before=_build_image(given, survivors, addresses, kept.before, kept.before_rows),
        ),
        images,
        _count_unaddressed(said, kept),
    )


def _build_columns(
    given: Given, lineage: Lineage, result: Result, came: Came, where: str
) -> tuple[list[Survivor], list[Direction]]:
    """The columns of the new changes, and those that say where events go."""
    layout = given.layout
    survivors: list[Survivor] = []
    directions: list[Direction] = []
    for at, (field, kind) in enumerate(zip(lineage.fields, layout.kinds, strict=True)):
        if kind is Kind.DIRECTION:
            directions.append(
                (field, *given.build_direction(field, came.sort_column(result, at), _find_reads(lineage, at)))
            )
        elif kind is Kind.OURS:
            continue
        elif result.has_stayed(at):
            survivors.append(given.build_stayed_survivor(field, layout.passed.get(at)))
        else:
            survivor = given.build_survivor(
                field, given.complete(field, came.sort_column(result, at)), _find_reads(lineage, at)
            )
            survivors.append(survivor)
            if field.source is None:
                _refuse_broken_texts(given, survivor, where)
                if survivor.column.key:
                    _refuse_lost_keys(given, field, survivor, where)
    return survivors, directions


def _choose_addresses(given: Given, said: Directed, came: Came) -> pa.StructArray | None:
    """Where the rows go: where the rule says, or else where they went. What is several rows now has keys of its own."""
    before = given.select_addresses()
    return said.addresses if before is None else said.replace_in(before, keeps_keys=came.numbers is None)


def _find_reads(lineage: Lineage, at: int) -> frozenset[int]:
    """A `_row` that was added is behind the columns that the facts are of, and is never asked for."""
    return lineage.facts.reads[at] if lineage.facts is not None else frozenset()


def _refuse_without_key(sent: Sent, fields: Sequence[Field], where: str) -> None:
    """A row that the rule dropped can be put back as far as the rule passes its columns on."""
    key = find_computed_key(sent, fields)
    if key is not None:
        raise HandlerRefused(
            f"{where}: the rule drops rows that it cannot judge, because they lack values that it reads. It computes "
            f"the key column {key}, so these rows cannot be put back",
            LET_PASS,
        )


def _refuse_broken_texts(given: Given, survivor: Survivor, where: str) -> None:
    """RowsRefused for the changes for which the rule made text of bytes that are none: they are no JSON either."""
    values = survivor.values
    texts = values.view(pa.string()) if values.type.equals(pa.binary()) else values
    if _is_whole(texts):
        return
    elements = np.array([not _is_whole(texts[at : at + 1]) for at in range(len(texts))], np.bool_)
    raise RowsRefused(
        f"{where}: the column {survivor.column.name} would hold bytes that are not UTF-8",
        'use hex() or base64() for bytes, or put such rows aside: onError = "dead-letter"',
        given.find_rows(elements),
        survivor.column.name,
    )


def _is_whole(texts: pa.Array) -> bool:
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _refuse_lost_keys(given: Given, field: Field, survivor: Survivor, where: str) -> None:
    """RowsRefused for the changes whose key is null because Spark could not hold the value of which it is computed:
    all of them would have the same key."""
    sent, source = given.sent, find_source(given.sent, field)
    if source is None or not survivor.values.null_count:
        return
    images = pa.array(given.images)
    lost = pc.and_(survivor.values.is_null(), sent.typed[source].take(images).is_null())
    elements = pc.and_(lost, sent.seen[source].take(images).is_valid()).to_numpy(zero_copy_only=False)
    if survivor.absent is not None:
        elements &= ~survivor.absent
    if elements.any():
        raise RowsRefused(
            f"{where}: the key column {field.name} would be null, because Spark cannot hold its value (infinity, BC)",
            'pass the key on as it is, or put such rows aside: onError = "dead-letter"',
            given.find_rows(elements),
            field.name,
        )


def _make_kept(
    given: Given,
    came: Came,
    survivors: Sequence[Survivor],
    said: Directed,
    rule: Rule,
    splitting: Callable[[], Splitting],
) -> Kept:
    """Which rows stay, and which parts they are."""
    changes, deletes = given.sent.changes, rule.on_leave == "delete"
    if came.numbers is None:
        return Kept.from_images(changes, given.images, lambda: deletes or splitting().splits)
    numbers = np.zeros(len(given.images), np.int64)
    numbers[~given.put_back] = came.numbers
    keys = number_keys(_compute_part_keys(survivors, said, len(given.images)))
    return pair(changes, Elements(given.images, numbers, keys), came.by_rule or splitting().splits, deletes)


def _compute_part_keys(survivors: Sequence[Survivor], said: Directed, elements: int) -> pa.Array:
    """The key of each element: its own, or the key columns."""
    columns = [survivor for survivor in survivors if survivor.column.key]
    keys = pa.nulls(elements, pa.binary())
    if columns:
        texts = [_render_key_texts(survivor.values) for survivor in columns]
        sizes = [pc.binary_length(text).cast(pa.string()).view(pa.binary()) for text in texts]
        keys = pc.binary_join_element_wise(*chain.from_iterable(zip(sizes, texts, strict=True)), b":")
    return merge_keys(said.addresses, keys)


def _render_key_texts(values: pa.Array) -> pa.Array:
    if not pa.types.is_binary(values.type):
        piece = choose_render(ArrowType(values.type))(values)
        values = join(piece.open, piece.values, piece.close, nulls=None)
    return pc.fill_null(values, b"")


def _compute_uuids(given: NDArray[np.bytes_], part: NDArray[np.void] | None) -> NDArray[np.bytes_]:
    """Of rows whose changes have UUIDs already: parts have some that follow from these."""
    if part is None:
        return given
    at = np.flatnonzero((part["of"] > 0) & (given != NO_UUID))
    found = given.copy()
    if len(at):
        texts = make_part_uuids(pa.array(given[at].tolist(), pa.binary()), part["number"][at])
        found[at] = texts.to_pylist()
    return found


def _count_unaddressed(said: Directed, kept: Kept) -> int:
    """The rows that the sink's options address, because values are missing."""
    if said.unknown is None:
        return 0
    deletes = kept.before[kept.op[kept.before_rows] == RowOp.DELETE]
    return int(np.count_nonzero(said.unknown[kept.after]) + np.count_nonzero(said.unknown[deletes]))


def _build_image(
    given: Given, survivors: list[Survivor], addresses: pa.StructArray | None, elements: Index, rows: Index
) -> Image:
    """elements: of the result, all of new images or all of old ones."""
    changes = given.sent.changes
    images = given.images[elements]
    is_old = bool(len(images)) and int(images[0]) >= len(changes.after)
    places = images - len(changes.after) if is_old else images
    held: list[pa.Array | ChosenCells] = []
    firsts, chosen, none = None, places, None  # the columns of an image share them
    for survivor in survivors:
        if survivor.held is None:
            held.append(_select_elements(survivor.values, elements))
            continue
        values, of, behind = survivor.held[is_old]
        if of is not firsts:
            firsts, chosen = of, of[places]
        if not len(chosen):
            none = none or ChosenCells(values, chosen, 0)  # columns without elements are alike
        held.append(none or ChosenCells(values, chosen, behind))
    absent = {
        at: survivor.absent[elements]
        for at, survivor in enumerate(survivors)
        if survivor.absent is not None and survivor.absent[elements].any()
    }
    directed = None if addresses is None or not len(elements) else _select_elements(addresses, elements)
    return Image(Columns(held), rows, absent, directed)


def _select_elements(values: pa.Array, elements: Index) -> pa.Array:
    """A slice where they are neighbours, which they mostly are."""
    if len(elements) == 0:
        return values[:0]
    first, last = int(elements[0]), int(elements[-1])
    if last - first + 1 == len(elements) and not np.any(elements[1:] <= elements[:-1]):
        return values[first : last + 1]
    return values.take(pa.array(elements))


def _collect_row_fields(changes: Changes, kept: Kept) -> dict[str, Any]:
    """What is said of each row that was kept, but for its op."""
    chosen = select_row_fields(changes, kept.rows)
    if "uuid" in chosen:
        chosen["uuid"] = _compute_uuids(chosen["uuid"], kept.part)
    return {"part": kept.part, **chosen}
