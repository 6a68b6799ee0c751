"""`load`: from a file, or from the environment alone, to a Config."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any, TypeAlias

from psql_streamer import plugins
from psql_streamer.config import environment, reading
from psql_streamer.config.document import Document, show_path
from psql_streamer.config.model import AnyPart, Config, Options, Part, ServiceOptions
from psql_streamer.config.problems import Problems
from psql_streamer.config.sections import Section, validate
from psql_streamer.errors import ConfigError
from psql_streamer.interfaces import Handler, Source
from psql_streamer.nearest import suggest_nearest
from psql_streamer.options import SinkOptions, SourceOptions
from psql_streamer.plugins import PASSTHROUGH, Kind

_Parts: TypeAlias = Mapping[Kind, Mapping[str, tuple[Any, Section[Any]]]]
"""The classes and sections of all parts, by their names."""

_MOST_BYTES_OF_NAME = 200
"""Of a source and of a sink, in bytes. LMDB takes keys of 511, of which a topic's name may have 249."""


def load(path: Path | None, environ: Mapping[str, str]) -> Config:
    """The configuration in the file, with what the environment overrides; without a file, in the environment alone.

    ConfigError holds everything that is wrong with it, and variables that were ignored, which may be why.
    """
    tables = ["log", Kind.SOURCE, Kind.SINK, *plugins.list_names(Kind.HANDLER)]
    ignored = environment.find_ignored(environ, ServiceOptions.model_fields.keys() - {"log"}, tables)
    try:
        config = _load(path, environ)
    except ConfigError as error:
        raise ConfigError([*error.problems, *ignored]) from None
    return replace(config, warnings=(*ignored, *config.warnings))


def _load(path: Path | None, environ: Mapping[str, str]) -> Config:
    document = environment.build_document(environ) if path is None else reading.read(path)
    problems = Problems(document)
    environment.override(document, environ, problems)
    reading.require_shallow(document)
    if path is not None:
        reading.expand(document, environ, problems)
    reading.refuse_nul(document, problems)
    config = _Loader(document, problems).build_config()
    if config is None or problems.lines:
        raise ConfigError(problems.lines)
    return config


class _Loader:
    def __init__(self, document: Document, problems: Problems) -> None:
        self._document = document
        self._problems = problems
        self._warnings: list[str] = []
        self._sections = dict(document.tree)

    def build_config(self) -> Config | None:
        """The Config; None when there are problems."""
        source_tables = self._take_tables(Kind.SOURCE)
        sink_tables = self._take_tables(Kind.SINK)
        handler_tables = self._take_handler_tables(sink_tables)
        service = self._validate_service()
        sources = self._load_parts(Kind.SOURCE, source_tables, plugins.load_source_class)
        sinks = self._load_parts(Kind.SINK, sink_tables, plugins.load_sink_class)
        for name, (_, sink) in sinks.items():
            self._check_sources(name, sink.list_strings("sources"), source_tables)
            self._check_handlers(name, sink)
        used_handlers = dict.fromkeys(name for _, sink in sinks.values() for name in sink.list_strings("handlers"))
        used_handlers.pop(PASSTHROUGH, None)
        handlers = self._load_handlers(used_handlers, handler_tables)
        parts: _Parts = {
            Kind.SOURCE: sources,
            Kind.SINK: sinks,
            Kind.HANDLER: handlers,
        }
        self._check_resources(parts)
        self._check_shared(parts)
        self._check_circles(sources, sinks)
        self._check_exactly_once(sinks)
        self._check_transaction_metadata(sources, sinks)
        self._check_named_sinks({name: sink for name, (_, sink) in sinks.items()}, handlers)
        self._check_named_sources(source_tables, handlers)
        self._check_dead_letters({name: sink for name, (_, sink) in sinks.items()}, handlers)
        if service is None or self._problems.lines:
            return None
        self._warn_of_unused(sources, sinks, [name for name in handler_tables if name not in used_handlers])
        return Config(
            name=self._document.name,
            http=service.http,
            http_token=service.http_token,
            ticker_interval=service.ticker_interval,
            lmdb=Path(service.lmdb),
            lmdb_map_size=service.lmdb_map_size,
            metric_tables=service.metric_tables,
            drain_timeout=service.drain_timeout,
            start_timeout=service.start_timeout,
            log=service.log,
            sources=_make_parts(sources),
            handlers=_make_parts(handlers),
            sinks=_make_parts(sinks),
            warnings=tuple(self._warnings),
            allows_circles=self._is_of_go_service,
        )

    def _take_tables(self, kind: Kind) -> dict[str, dict[str, Any]]:
        """The sections of one kind by name; there must be one at least."""
        tables = self._sections.pop(kind, {})
        if not isinstance(tables, dict):
            self._problems.add((kind.value,), f"must be sections: [{kind}.NAME]")
            return {}
        if not tables:
            self._problems.add((), f"there is no {kind}: add a section [{kind}.NAME]")
        for name, table in tables.items():
            if not 0 < len(name.encode()) <= _MOST_BYTES_OF_NAME:
                shown = f"{name[:20]}..." if name else ""
                self._problems.add((kind.value,), f'"{shown}" is no name of a {kind}: 1 to {_MOST_BYTES_OF_NAME} bytes')
            if not isinstance(table, dict):
                self._problems.add((kind.value, name), f"must be a section: [{show_path((kind.value, name))}]")
        return {name: table for name, table in tables.items() if isinstance(table, dict)}

    def _take_handler_tables(self, sink_tables: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        """The sections at the top that are named like a handler."""
        asked_for = {
            name
            for table in sink_tables.values()
            if isinstance(table.get("handlers"), list)
            for name in table["handlers"]
            if isinstance(name, str)
        }
        known = (set(plugins.list_names(Kind.HANDLER)) | {name for name in asked_for if ":" in name}) - {PASSTHROUGH}
        return {name: self._sections.pop(name) for name in sorted(known & self._sections.keys())}

    def _validate_service(self) -> ServiceOptions | None:
        if "boltdb" in self._sections:
            self._take_boltdb(self._sections.pop("boltdb"))
        also_known = ["boltdb", Kind.SOURCE, Kind.SINK, *plugins.list_names(Kind.HANDLER)]
        also_known.remove(PASSTHROUGH)
        return validate(self._document, self._problems, ServiceOptions, (), self._sections, also_known).options

    @property
    def _is_of_go_service(self) -> bool:
        """Whether the file is one of the Go service: it has no other name for where positions are."""
        return "boltdb" in self._document.tree

    def _take_boltdb(self, value: Any) -> None:
        if "lmdb" not in self._sections:
            self._sections["lmdb"] = value
        elif ("lmdb",) not in self._document.variables:
            self._problems.add(("boltdb",), "boltdb is another name of lmdb: give one of the two")

    def _load_parts(
        self, kind: Kind, tables: Mapping[str, dict[str, Any]], load_class: Callable[[str], type[AnyPart]]
    ) -> dict[str, tuple[type[AnyPart], Section[Any]]]:
        """The classes and the options of the sections whose class is known."""
        parts: dict[str, tuple[type[AnyPart], Section[Any]]] = {}
        for name, table in tables.items():
            path: tuple[str, ...] = (kind.value, name)
            type_name = table.get("type")
            if not isinstance(type_name, str):
                what = "is required" if type_name is None else "must be a string"
                unquoted = [key for key, inner in table.items() if isinstance(inner, dict) and "type" in inner]
                hint = f'; a name with dots stands in quotes: [{kind}."{name}.{unquoted[0]}"]' if unquoted else ""
                if variable := self._document.variables.get(path):
                    others = [other for other in tables if (kind.value, other) not in self._document.variables]
                    hint = f"; environment variable {variable} makes this section{suggest_nearest(name, others)}"
                self._problems.add((*path, "type"), f"{what}: one of {', '.join(plugins.list_names(kind))}{hint}")
                continue
            try:
                cls = load_class(type_name)
            except ConfigError as error:
                self._problems.add_all((*path, "type"), error.problems)
                continue
            parts[name] = (cls, self._validate_section(cls.Options, path, table))
        return parts

    def _load_handlers(
        self, used: Iterable[str], tables: Mapping[str, Any]
    ) -> dict[str, tuple[type[Handler], Section[Any]]]:
        """The handlers that a sink asks for. A section that none asks for is validated all the same."""
        handlers: dict[str, tuple[type[Handler], Section[Any]]] = {}
        for name in dict.fromkeys([*used, *tables]):
            try:
                cls = plugins.load_handler_class(name)
            except ConfigError as error:
                if name in tables:
                    self._problems.add_all((name,), error.problems)
                continue
            table = tables.get(name, {})
            if not isinstance(table, dict):
                self._problems.add((name,), f"must be a section: [{show_path((name,))}]")
                continue
            section = self._validate_section(cls.Options, (name,), table)
            if name in used:
                handlers[name] = (cls, section)
        return handlers

    def _validate_section(
        self, options: type[Options], path: tuple[str, ...], table: Mapping[str, Any]
    ) -> Section[Options]:
        meant = options.of_go_service if self._is_of_go_service else {}
        section = validate(self._document, self._problems, options.choose_options(table), path, table, meant=meant)
        if section.options is not None:
            self._warnings += [f"{self._document.name_place(path)}: {text}" for text in section.options.list_warnings()]
        return section

    def _check_sources(self, sink: str, named: tuple[str, ...], sources: Mapping[str, Any]) -> None:
        path = (Kind.SINK.value, sink, "sources")
        for name in _find_repeated(named):
            self._problems.add(path, f'"{name}" is named twice')
        for name in dict.fromkeys(named):
            if name not in sources and sources:
                self._problems.add(path, f'there is no source "{name}"{suggest_nearest(name, sources)}')

    def _check_dead_letters(
        self, sinks: Mapping[str, Section[Any]], handlers: Mapping[str, tuple[type[Handler], Section[Any]]]
    ) -> None:
        """Rows that a handler puts aside need a sink that takes them, and a place."""
        for name, sink in sinks.items():
            for handler in dict.fromkeys(sink.list_strings("handlers")) if sink.options is not None else ():
                options = handlers[handler][1].options if handler in handlers else None
                if sink.options is None or options is None or not options.puts_rows_aside_of(name):
                    continue
                if not sink.options.takes_rejected_rows:
                    what = f'a rule of [{handler}] has onError = "dead-letter", and sinks of this type lose such rows'
                    remedy = 'write onError = "stop" or "null" there, or give the rule another sink'
                    self._problems.add((Kind.SINK.value, name, "handlers"), f"{what}: {remedy}")
                elif (key := sink.options.key_of_rejected_rows) is not None:
                    what = f'is required, because a rule of [{handler}] has onError = "dead-letter"'
                    self._problems.add((Kind.SINK.value, name, key), what)

    def _check_named_sinks(
        self, sinks: Mapping[str, Section[Any]], handlers: Mapping[str, tuple[type[Handler], Section[Any]]]
    ) -> None:
        """Sinks that a handler's options name have the handler."""
        for handler, (_, section) in handlers.items():
            for path, name in () if section.options is None else section.options.list_named_sinks():
                if name not in sinks:
                    self._problems.add((handler, *path), f'there is no sink "{name}"{suggest_nearest(name, sinks)}')
                elif handler not in sinks[name].list_strings("handlers"):
                    what = f'sink "{name}" does not have "{handler}" among its handlers'
                    self._problems.add((handler, *path), f"{what}: add it there, or leave the sink out here")

    def _check_named_sources(
        self, sources: Mapping[str, Any], handlers: Mapping[str, tuple[type[Handler], Section[Any]]]
    ) -> None:
        for handler, (_, section) in handlers.items():
            for path, name in () if section.options is None else section.options.list_named_sources():
                if name not in sources:
                    self._problems.add((handler, *path), f'there is no source "{name}"{suggest_nearest(name, sources)}')

    def _check_handlers(self, sink: str, section: Section[Any]) -> None:
        path = (Kind.SINK.value, sink, "handlers")
        named = section.list_strings("handlers")
        if section.options is not None:  # else it may have said so itself
            if "handlers" in section.data and not named:
                self._problems.add(path, f'is empty: ["{PASSTHROUGH}"] leaves events as they are')
            for name in _find_repeated(named):
                self._problems.add(path, f'"{name}" is named twice')
        for name in dict.fromkeys(named):
            if name != PASSTHROUGH:
                try:
                    plugins.load_handler_class(name)
                except ConfigError as error:
                    self._problems.add_all(path, error.problems)

    def _check_resources(self, parts: _Parts) -> None:
        """What one part must have for itself is not another one's."""
        first: dict[str, str] = {}
        for kind, of_kind in parts.items():
            for name, (_, section) in of_kind.items():
                path = _make_path(kind, name)
                for resource in () if section.options is None else section.options.list_resources():
                    if first.setdefault(resource, show_path(path)) != show_path(path):
                        self._problems.add(path, f"{resource} is already used by {first[resource]}: give each its own")

    def _check_shared(self, parts: _Parts) -> None:
        """What one part must have for itself is not in part another one's."""
        for kind, of_kind in parts.items():
            known = [(name, section.options) for name, (_, section) in of_kind.items() if section.options is not None]
            for (first, one), (name, other) in combinations(known, 2):
                if what := one.find_shared(other):
                    beside = show_path(_make_path(kind, first))
                    self._problems.add(_make_path(kind, name), f"{what} is already used by {beside}: give each its own")

    def _check_exactly_once(self, sinks: Mapping[str, tuple[Any, Section[SinkOptions]]]) -> None:
        """A source goes on where the transactions of its sink have brought it, so it has no other sink."""
        for name, (_, sink) in sinks.items():
            if sink.options is None or not sink.options.is_exactly_once:
                continue
            for other, (_, section) in sinks.items():
                for source in sorted(set(sink.list_strings("sources")) & set(section.list_strings("sources"))):
                    if other != name:
                        beside = show_path((Kind.SINK.value, other))
                        what = f'has exactlyOnce, but its source "{source}" has another sink, {beside}'
                        self._problems.add((Kind.SINK.value, name), f"{what}: give that one a source of its own")

    def _check_transaction_metadata(
        self,
        sources: Mapping[str, tuple[type[Source], Section[SourceOptions]]],
        sinks: Mapping[str, tuple[Any, Section[SinkOptions]]],
    ) -> None:
        """A sink that tells of transactions has sources that know them."""
        for name, (_, sink) in sinks.items():
            if sink.options is None or not sink.options.wants_transaction_metadata:
                continue
            for source in dict.fromkeys(sink.list_strings("sources")):
                if source in sources and not sources[source][0].gives_transaction_metadata:
                    wish = sink.options.wish_for_transaction_metadata
                    said = f" ({wish})" if wish else ""
                    what = f'tells of transactions{said}, and its source "{source}" knows nothing of them'
                    self._problems.add((Kind.SINK.value, name), f"{what}: leave that out, or give it another sink")

    def _check_circles(
        self,
        sources: Mapping[str, tuple[Any, Section[SourceOptions]]],
        sinks: Mapping[str, tuple[Any, Section[SinkOptions]]],
    ) -> None:
        """A sink does not write what its source reads. The Go service lets it, and its own example does: a file of that
        service gets a warning.
        """
        for name, (_, sink) in sinks.items():
            for source in sink.list_strings("sources") if sink.options is not None else ():
                of_source = sources[source][1].options if source in sources else None
                for place in () if of_source is None else of_source.list_reads():
                    if sink.options is not None and sink.options.may_write(place):
                        circle = f"may write to {place}, which source.{source} reads: its events would never end"
                        advice = f"{circle}; give the topics other names"
                        if self._is_of_go_service:
                            self._warnings.append(f"{self._document.name_place((Kind.SINK.value, name))}: {advice}")
                        else:
                            self._problems.add((Kind.SINK.value, name), advice)

    def _warn_of_unused(
        self, sources: Iterable[str], sinks: Mapping[str, tuple[Any, Section[Any]]], unused_handlers: Iterable[str]
    ) -> None:
        taken = {name for _, sink in sinks.values() for name in sink.list_strings("sources")}
        for name in sources:
            if name not in taken:
                where = self._document.name_place((Kind.SOURCE.value, name))
                self._warnings.append(f"{where}: no sink takes from this source")
        for name in unused_handlers:
            where = self._document.name_place((name,))
            self._warnings.append(f"{where}: has no effect: no sink has it among its handlers")


def _make_path(kind: Kind, name: str) -> tuple[str, ...]:
    """Where the section of a part is."""
    return (name,) if kind is Kind.HANDLER else (kind.value, name)


def _make_parts(sections: Mapping[str, tuple[type[AnyPart], Section[Any]]]) -> dict[str, Part[AnyPart, Any]]:
    return {
        name: Part(name, cls, section.options)
        for name, (cls, section) in sections.items()
        if section.options is not None
    }


def _find_repeated(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]
