"""What of a configuration does not fit the tables that its sources have: asked by `check`, and at the start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from psql_streamer.interfaces import Finding, Handler, Published, Sink


def review(sinks: Sequence[tuple[Sink, Sequence[Handler]]], published: Published) -> Iterator[tuple[str, Finding]]:
    """(part, finding) of every handler and sink whose sources could say what they publish.

    sinks: each with its handlers. The rules of a handler must fit the tables of all sources of the sinks that have it
    together. What its instances find alike is told once.
    """
    for name, (handlers, sources) in _index_handlers(sinks).items():
        if sources <= published.keys():
            ours = {source: tables for source, tables in published.items() if source in sources}
            asked = handlers[:1] if handlers[0].same_for_all_sinks else handlers
            found = dict.fromkeys(chain.from_iterable(handler.review(ours) for handler in asked))
            yield from ((f"handler.{name}", finding) for finding in found)
    for sink, _ in sinks:
        if set(sink.options.sources) <= published.keys():
            ours = {source: published[source] for source in sink.options.sources}
            yield from ((f"sink.{sink.name}", finding) for finding in sink.review(ours))


def _index_handlers(sinks: Sequence[tuple[Sink, Sequence[Handler]]]) -> dict[str, tuple[list[Handler], set[str]]]:
    """The instances of each handler, and the sources of their sinks."""
    found: dict[str, tuple[list[Handler], set[str]]] = {}
    for sink, handlers in sinks:
        for handler in handlers:
            instances, sources = found.setdefault(handler.name, ([], set()))
            instances.append(handler)
            sources.update(sink.options.sources)
    return found
