"""A batch whose events are made is freed at once: one that waits for the garbage collector costs memory meanwhile."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace

import pytest

from psql_streamer.cells import CellTable
from psql_streamer.events.routing import Router
from psql_streamer.model import Batch
from psql_streamer.testing import make_batch
from psql_streamer.testing.batches import make_mixed_batch, make_snapshot_batch
from psql_streamer.testing.samples import with_everything
from tests.encoding import FORMATS, encoder_of

_MANY = [{"id": number, "note": f"note {number}"} for number in range(1000)]


@pytest.fixture
def _no_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "kind", ["postgresql", *(pytest.param(kind, marks=pytest.mark.soak) for kind in ("other", "mariadb"))]
)
@pytest.mark.usefixtures("_no_garbage_collection")
def test_no_format_keeps_a_batch_that_it_has_encoded(form: str, kind: str) -> None:
    encoder = encoder_of(form, Router({}, "shop", "", "messages"), {}, headers=True)
    before = _batches_in_memory()
    for make in (make_mixed_batch, make_snapshot_batch, lambda: with_everything(make_batch(_MANY, "id"))):
        batch = make()
        messages = () if kind == "mariadb" else batch.messages  # a binary log has none
        records = encoder.encode(replace(batch, source=replace(batch.source, kind=kind), messages=messages))
        assert len(records) > 0
    del batch, records
    assert _batches_in_memory() <= before


def _batches_in_memory() -> int:
    return sum(isinstance(one, Batch | CellTable) for one in gc.get_objects())
