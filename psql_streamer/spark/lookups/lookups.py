"""The lookups of a handler: [spark.lookups]."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from psql_streamer.errors import HandlerError
from psql_streamer.interfaces import Finding, Published, Source
from psql_streamer.model import Batch, Changes, Index, Position, Stats
from psql_streamer.nearest import suggest_nearest
from psql_streamer.pgtypes.descriptions import HashedColumns, hash_columns
from psql_streamer.spark.connect import is_of_a_server
from psql_streamer.spark.lookups.changelog import Changelog
from psql_streamer.spark.lookups.joins import find_uses
from psql_streamer.spark.lookups.lookup import Lookup
from psql_streamer.spark.lookups.options import LookupOptions
from psql_streamer.spark.lookups.pieces import Moving, Piece, Use, select_rows, split
from psql_streamer.spark.lookups.refreshing import Refresher
from psql_streamer.spark.lookups.reviewing import review_changelogs, review_lookups
from psql_streamer.spark.lookups.table_state import TableState
from psql_streamer.spark.lookups.version import Version
from psql_streamer.spark.lookups.views import Views
from psql_streamer.spark.options import TableRule
from psql_streamer.spark.plan_tree import Node
from psql_streamer.spark.rules import Rule

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_UNKNOWN_VIEW = re.compile(r"\[TABLE_OR_VIEW_NOT_FOUND\][^`]*`([^`]+)`")

_QUIET_BATCHES = 2
"""A table that has not changed for so many batches is given to Spark as a whole, once; else a batch gets the rows that
it needs."""

_FIRST_READINGS_SECONDS = 30.0
"""For so long a start waits for lookups; what is not read by then, rules wait for."""

Show: TypeAlias = Callable[["SparkSession"], None]
"""Makes lookups views of a session."""

Planned: TypeAlias = tuple[Node, Sequence[str]]
"""A rule's analysed plan, and the names of the columns of the table that was sent."""


@dataclass(frozen=True, slots=True)
class Shown:
    """Some changes, and what makes the lookups that they see views. rows: of the changes; None for all.

    versions: numbers of the versions that these views are; None where they are of these changes alone, or not to be
    broadcast: a plan over them is of no use for others.
    """

    rows: Index | None
    show: Show | None
    versions: tuple[int, ...] | None = None


class Lookups:
    """Reads them, keeps them, and makes them views of the sessions in which rules run.

    `attach` comes first, then `begin` with each engine. `prepare` comes before the rules of a batch, `keep` behind it.
    """

    def __init__(self, options: Mapping[str, LookupOptions]) -> None:
        self._options = options
        self._read = {name: Lookup(name, one) for name, one in options.items() if one.kind != "changelog"}
        self._kept = {name: Changelog(name, one) for name, one in options.items() if one.kind == "changelog"}
        self._sources: Mapping[str, Source] = {}
        self._refreshers = [Refresher(lookup, {}) for lookup in self._read.values()]
        self._views: Views | None = None
        self._moving: dict[str, Moving] = {}
        self._quiet: dict[str, int] = dict.fromkeys(self._kept, 0)
        self._wholes: dict[str, tuple[TableState, Version]] = {}
        self._lock = threading.Lock()
        self._uses: dict[tuple[str, HashedColumns], Mapping[str, Use | None]] = {}

    def attach(self, sources: Mapping[str, Source], folder: Path | None) -> None:
        """See Handler.attach."""
        self._sources = sources
        self._refreshers = [Refresher(lookup, sources) for lookup in self._read.values()]
        for changelog in self._kept.values():
            changelog.attach(sources, folder)

    def note_rules(self, rules: Mapping[str, TableRule]) -> None:
        """Which columns rules may use: no version takes the place of another that has lost one of them."""
        for name, lookup in self._read.items():
            lookup.find_user = partial(_find_user, rules, name)
            lookup.users = frozenset(key for key, rule in rules.items() if _may_use(rule, name))

    def begin_stream(self, source: str, position: Position | None) -> None:
        """See Handler.begin_stream."""
        for changelog in self._kept.values():
            changelog.begin_stream(source, position)

    def note_durable(self, source: str, position: Position) -> None:
        """See Handler.note_durable."""
        for changelog in self._kept.values():
            changelog.note_durable(source, position)

    def begin(self, spark: SparkSession) -> None:
        """Another engine. What cannot be read is told by `status`, and tried again."""
        if not self._options:
            return
        self._views = Views(spark)
        for lookup in self._read.values():
            lookup.forget()
        wait_until = time.monotonic() + _FIRST_READINGS_SECONDS
        for refresher in self._refreshers:
            refresher.begin(spark if is_of_a_server(spark) else spark.newSession())
        for refresher in self._refreshers:
            refresher.wait(max(0.0, wait_until - time.monotonic()))

    def leave(self) -> None:
        """The engine is gone."""
        self._views = None
        for refresher in self._refreshers:
            refresher.pause()

    def stop(self) -> None:
        """Read nothing more, and give files back."""
        self.leave()
        for refresher in self._refreshers:
            refresher.end()
        for changelog in self._kept.values():
            changelog.close()

    def advance(self) -> bool:
        """Between two batches: versions that were read meanwhile become the current ones; whether there are any."""
        moved = sum(lookup.advance() for lookup in self._read.values()) > 0
        if sum(lookup.let_go_if_lost() for lookup in self._read.values()):
            for refresher in self._refreshers:
                refresher.hurry()
        return moved

    def prepare(self, batch: Batch) -> bool:
        """Before the rules of a batch; whether lookups may have other columns than before.

        HandlerUnavailable while a table of the stream cannot be read.
        """
        moved = self.advance()
        for name, changelog in self._kept.items():
            self._moving[name], other_columns = changelog.take(batch)
            self._quiet[name] = 0 if self._moving[name].changes else self._quiet[name] + 1
            moved = moved or other_columns
        if moved:
            self._uses.clear()
        return moved

    def go_back(self) -> bool:
        """The batch fails: put versions with which its rules have not run before back; whether there are any."""
        gone_back = [lookup for lookup in self._read.values() if lookup.go_back()]
        self._uses.clear()
        return bool(gone_back)

    def go_on(self) -> None:
        """It fails with the versions before as well."""
        for lookup in self._read.values():
            lookup.go_on()
        self._uses.clear()

    def refuse(self, error: HandlerError) -> None:
        """With the versions before it did not fail."""
        for lookup in self._read.values():
            lookup.refuse(error)

    def keep(self) -> None:
        """The batch has gone through."""
        for lookup in self._read.values():
            lookup.prove()
        for changelog in self._kept.values():
            changelog.keep()

    def list_usable(self, rule: Rule) -> tuple[str, ...]:
        """The lookups that a rule may use."""
        return tuple(name for name in self._options if rule.names(name))

    def has_all_of(self, rule: Rule) -> bool:
        """Whether the columns of the lookups that a rule may use are known."""
        return all(
            self._read[name].current is not None if name in self._read else self._kept[name].columns is not None
            for name in self.list_usable(rule)
        )

    def check_views(self, spark: SparkSession) -> None:
        """See Views.check."""
        if self._views is not None:
            self._views.check(spark)

    def make_shower(self, rule: Rule) -> Show | None:
        """For an analysis of a rule: tables of the stream are without rows. None where it uses no lookup.

        HandlerUnavailable while a lookup is not there, and see Lookup.require.
        """
        versions, kept = self._require_versions(rule), self._list_kept(rule)
        return partial(self._show_empty, versions, kept) if versions or kept else None

    def split_changes(self, rule: Rule, changes: Changes, plan: Callable[[], Planned | None]) -> list[Shown]:
        """The changes in pieces that see the same, each with what makes the rule's lookups views for it.

        plan: of the rule over these changes; None where it is not to be had.
        """
        versions, kept = self._require_versions(rule), self._list_kept(rule)
        if not kept:
            return [Shown(None, partial(self._show, versions) if versions else None, _list_version_numbers(versions))]
        uses = self._look_up_uses(rule, changes, kept, plan)
        wholes = {
            name: version for name, use in uses.items() if (version := self._find_whole_version(name, use)) is not None
        }
        versions |= wholes
        if wholes.keys() == uses.keys():
            return [Shown(None, partial(self._show, versions), _list_version_numbers(versions))]
        parts = {name: use for name, use in uses.items() if name not in wholes}
        shown = []
        for piece in split(changes, {name: self._moving[name] for name in parts}, parts):
            some = changes if piece.rows is None else changes.take(piece.rows)
            shown.append(Shown(piece.rows, partial(self._show_piece, versions, parts, some, piece)))
        return shown

    def review(self, published: Published, spark: SparkSession) -> Iterator[Finding]:
        """What of [spark.lookups] cannot work, or does not now."""
        yield from review_lookups(self._options, self._read, self._sources, spark)
        yield from review_changelogs(self._kept, published)

    def describe_unknown_view(self, problem: str) -> str:
        """What to say of a view that Spark's analysis does not know; empty where no lookup has a name like it."""
        unknown = _UNKNOWN_VIEW.search(problem)
        return suggest_nearest(unknown[1], sorted(self._options)) if unknown else ""

    @property
    def well(self) -> bool:
        """Whether all of them can be used."""
        return all(lookup.well for lookup in self._list_all())

    def describe(self) -> str:
        """All of them, for /status; empty where there are none."""
        return "; ".join(lookup.describe() for lookup in self._list_all())

    def stats(self) -> Mapping[str, Stats]:
        """By lookup: see Lookup.stats."""
        return {lookup.name: lookup.stats() for lookup in self._list_all()}

    def _list_all(self) -> list[Lookup | Changelog]:
        return [*self._read.values(), *self._kept.values()]

    def _require_versions(self, rule: Rule) -> dict[str, Version]:
        return {name: self._read[name].require(rule.name) for name in self.list_usable(rule) if name in self._read}

    def _list_kept(self, rule: Rule) -> list[str]:
        return [name for name in self.list_usable(rule) if name in self._kept]

    def _look_up_uses(
        self, rule: Rule, changes: Changes, kept: Sequence[str], plan: Callable[[], Planned | None]
    ) -> Mapping[str, Use | None]:
        key = (rule.name, hash_columns(changes.columns))
        if key not in self._uses:
            found = plan()
            unknown: Mapping[str, Use | None] = dict.fromkeys(kept)
            columns = {name: self._moving[name].state.columns for name in kept}
            self._uses[key] = unknown if found is None else find_uses(*found, changes.columns, columns)
        return self._uses[key]

    # Views.

    def _show(self, versions: Mapping[str, Version], spark: SparkSession) -> None:
        if self._views is not None:
            for name, version in versions.items():
                self._views.show(spark, name, version)

    def _show_empty(self, versions: Mapping[str, Version], kept: Sequence[str], spark: SparkSession) -> None:
        self._show(versions, spark)
        for name in kept:
            if self._views is not None:
                self._views.show_rows(spark, name, *self._kept[name].make_table(None))

    def _show_piece(
        self,
        versions: Mapping[str, Version],
        uses: Mapping[str, Use | None],
        changes: Changes,
        piece: Piece,
        spark: SparkSession,
    ) -> None:
        self._show(versions, spark)
        for name, use in uses.items():
            if self._views is not None:
                rows = select_rows(name, self._moving[name], use, changes, piece)
                self._views.show_rows(spark, name, *self._kept[name].make_table(rows))

    def _find_whole_version(self, name: str, use: Use | None) -> Version | None:
        """All rows of a table that has not changed for a while; the same object as long as it does not change."""
        moving = self._moving[name]
        if moving.changes or (use is not None and self._quiet[name] < _QUIET_BATCHES):
            return None
        with self._lock:
            held, version = self._wholes.get(name, (None, None))
            if version is None or held is not moving.state:
                version = self._kept[name].make_version(moving.state)
                self._wholes[name] = (moving.state, version)
            return version


def _find_user(rules: Mapping[str, TableRule], lookup: str, column: str) -> str | None:
    """The first rule whose text has the names of a lookup and of a column of it. What functions use is seen when they
    run.
    """
    for name, rule in rules.items():
        text = _join_texts(rule)
        if lookup.lower() in text and column.lower() in text:
            return name
    return None


def _may_use(rule: TableRule, lookup: str) -> bool:
    return rule.function is not None or lookup.lower() in _join_texts(rule)


def _join_texts(rule: TableRule) -> str:
    return f"{rule.sql or ''} {rule.where or ''}".lower()


def _list_version_numbers(versions: Mapping[str, Version]) -> tuple[int, ...] | None:
    if any(version.table is None for version in versions.values()):
        return None
    return tuple(version.number for version in versions.values())
