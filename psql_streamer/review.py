"""What of a configuration does not fit the tables that its sources have: asked by `check`, and at the start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from psql_streamer.interfaces import Finding, Handler, Published, Sink


def review(sinks: Sequence[tuple[Sink, Sequence[Handler]]], published: Published) -> Iterator[tuple[str, Finding]]:
    """(part, finding) of every handler and sink whose sources could say what they publish.

    sinks: each with its handlers. The rules of a handler are the same for all sinks that have it, so they must fit
    the tables of all sources of these sinks together.
    """
    for name, (handler, sources) in _index_handlers(sinks).items():
        if sources <= published.keys():
            ours = {source: tables for source, tables in published.items() if source in sources}
            yield from ((f"handler.{name}", finding) for finding in handler.review(ours))
    for sink, _ in sinks:
        if set(sink.options.sources) <= published.keys():
            ours = {source: published[source] for source in sink.options.sources}
            yield from ((f"sink.{sink.name}", finding) for finding in sink.review(ours))


def _index_handlers(sinks: Sequence[tuple[Sink, Sequence[Handler]]]) -> dict[str, tuple[Handler, set[str]]]:
    found: dict[str, tuple[Handler, set[str]]] = {}
    for sink, handlers in sinks:
        for handler in handlers:
            found.setdefault(handler.name, (handler, set()))[1].update(sink.options.sources)
    return found
