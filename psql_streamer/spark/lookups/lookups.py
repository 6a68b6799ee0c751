"""The lookups of a handler: [spark.lookups]."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from psql_streamer.interfaces import Finding, Source
from psql_streamer.model import Stats
from psql_streamer.nearest import nearest
from psql_streamer.spark.lookups.lookup import Lookup
from psql_streamer.spark.lookups.options import LookupOptions
from psql_streamer.spark.lookups.refreshing import Refresher
from psql_streamer.spark.lookups.reviewing import review_lookups
from psql_streamer.spark.lookups.version import Version
from psql_streamer.spark.lookups.views import Views
from psql_streamer.spark.rules import Rule

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_UNKNOWN_VIEW = re.compile(r"\[TABLE_OR_VIEW_NOT_FOUND\][^`]*`([^`]+)`")


class Lookups:
    """Reads them, keeps them, and makes them views of the sessions in which rules run.

    `attach` comes first, then `begin` with each engine; `prepare` before the rules of a batch.
    """

    def __init__(self, options: Mapping[str, LookupOptions]) -> None:
        self._options = options
        self._read = {name: Lookup(name, one) for name, one in options.items()}
        self._sources: Mapping[str, Source] = {}
        self._folder: Path | None = None
        self._refresher = Refresher(list(self._read.values()), {})
        self._views: Views | None = None

    def attach(self, sources: Mapping[str, Source], folder: Path | None) -> None:
        """See Handler.attach."""
        self._sources = sources
        self._folder = folder
        self._refresher = Refresher(list(self._read.values()), sources)

    def begin(self, spark: SparkSession) -> None:
        """Another engine. What cannot be read is told by `status`, and tried again."""
        if not self._options:
            return
        self._views = Views(spark)
        for lookup in self._read.values():
            lookup.forget()
        self._refresher.begin(spark.newSession() if hasattr(spark, "_jsparkSession") else spark)

    def leave(self) -> None:
        """The engine is gone."""
        self._views = None
        self._refresher.pause()

    def stop(self) -> None:
        """Read nothing more."""
        self.leave()
        self._refresher.end()

    def named_by(self, rule: Rule) -> tuple[str, ...]:
        """The lookups that a rule may use."""
        return tuple(name for name in self._options if rule.names(name))

    def _show(self, versions: Mapping[str, Version], spark: SparkSession) -> None:
        if self._views is not None:
            for name, version in versions.items():
                self._views.show(spark, name, version)

    def advance(self) -> bool:
        """Between two batches: versions that were read meanwhile become the current ones; whether there are any."""
        return sum(lookup.advance() for lookup in self._read.values()) > 0

    def has_all_of(self, rule: Rule) -> bool:
        """Whether the lookups that a rule may use are there."""
        return all(self._read[name].current is not None for name in self.named_by(rule))

    def shower(self, rule: Rule) -> Callable[[SparkSession], None] | None:
        """What makes the lookups of a rule views of a session; None where it uses none.

        HandlerUnavailable while one is not there, and see Lookup.require.
        """
        versions = {name: self._read[name].require() for name in self.named_by(rule)}
        return partial(self._show, versions) if versions else None

    def review(self, spark: SparkSession) -> Iterator[Finding]:
        """What of [spark.lookups] cannot work, or does not now."""
        yield from review_lookups(self._options, self._read, self._sources, spark)

    def nearest_to(self, problem: str) -> str:
        """What to say of a view that Spark's analysis does not know; empty where no lookup has a name like it."""
        unknown = _UNKNOWN_VIEW.search(problem)
        return nearest(unknown[1], sorted(self._options)) if unknown else ""

    @property
    def well(self) -> bool:
        """Whether all of them can be used."""
        return all(lookup.well for lookup in self._read.values())

    def describe(self) -> str:
        """All of them, for /status; empty where there are none."""
        return "; ".join(lookup.describe() for lookup in self._read.values())

    def stats(self) -> Mapping[str, Stats]:
        """By lookup: see Lookup.stats."""
        return {name: lookup.stats() for name, lookup in self._read.items()}
