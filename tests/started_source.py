"""Sources of any type, used as the pipeline uses them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from psql_streamer.interfaces import Source
from psql_streamer.model import Position, Relation

AnySource = TypeVar("AnySource", bound=Source)


@contextmanager
def started(
    source: AnySource, position: Position | None = None, shapes: Iterable[Relation] = ()
) -> Iterator[AnySource]:
    """As the pipeline starts it, stopped at the end.

    position, shapes: as they are stored; the first start goes where the options want it instead.
    """
    if shapes:
        source.remember(shapes)
    try:
        source.read_stream_identity()
        source.start(source.position_override or position)
        yield source
    finally:
        source.stop()
