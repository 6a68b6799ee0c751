"""[spark.lookups] against what is there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from psql_streamer.errors import HandlerRefused
from psql_streamer.interfaces import Finding, Published, Severity, Source
from psql_streamer.named_files import say_absent
from psql_streamer.nearest import suggest_nearest
from psql_streamer.spark.lookups.changelog import Changelog
from psql_streamer.spark.lookups.lookup import Lookup
from psql_streamer.spark.lookups.options import LookupOptions
from psql_streamer.spark.lookups.reader_options import KNOWN
from psql_streamer.spark.lookups.reading import find_local_path, make_table_reader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check_lookups(options: Mapping[str, LookupOptions], master: str | None) -> Iterator[Finding]:
    """What can be said without Spark. master: None with a Spark Connect server."""
    for name, one in options.items():
        path = find_local_path(one.path) if one.path is not None and (master or "").startswith("local") else None
        if path is not None and (absent := say_absent(path, "file or folder ")):
            yield Finding(Severity.ERROR, f"lookup {name}: {absent}", "correct its path")
        known = KNOWN.get(one.kind, {})
        for option in one.options:
            if known and option.lower() not in known:
                what = f"lookup {name}: Spark's reader of {one.kind} has no option {option}"
                yield Finding(
                    Severity.WARNING, f"{what}{suggest_nearest(option, sorted(known.values()))}", "correct its name"
                )


def review_lookups(
    options: Mapping[str, LookupOptions],
    lookups: Mapping[str, Lookup],
    sources: Mapping[str, Source],
    spark: SparkSession,
) -> Iterator[Finding]:
    """What cannot work is an error; what cannot be read now is a warning: it is tried again."""
    for name, one in options.items():
        if spark.catalog.tableExists(name) and not _is_ours(spark, name):
            problem = f"lookup {name} has the name of a table in Spark's catalog, which rules could not read any more"
            yield Finding(Severity.ERROR, problem, "give the lookup another name")
        if one.source is not None and one.source not in sources:
            problem = f"lookup {name}: there is no source {one.source}{suggest_nearest(one.source, sorted(sources))}"
            yield Finding(Severity.ERROR, problem, "name a source that a sink with this handler takes from")
        elif one.kind == "postgres":
            try:
                make_table_reader(one, sources)
            except HandlerRefused as error:
                yield Finding(Severity.ERROR, f"lookup {name}: {error.what}", error.remedy)
        lookup = lookups.get(name)
        if lookup is not None and lookup.problem:
            remedy = "rules that use it are not looked at, and their batches wait until it can be read"
            yield Finding(Severity.WARNING, f"lookup {name} cannot be read: {lookup.problem}", remedy)


def _is_ours(spark: SparkSession, name: str) -> bool:
    """Whether a table of this name is a view of this session, as lookups are."""
    found = spark.catalog.getTable(name)
    return found.isTemporary


def review_changelogs(changelogs: Mapping[str, Changelog], published: Published) -> Iterator[Finding]:
    """Tables that are not in their stream, or have no key; the others are told what they look like."""
    for name, changelog in changelogs.items():
        if (tables := published.get(str(changelog.options.source))) is None:
            continue
        wanted = f"{changelog.schema}.{changelog.table}"
        found = next((table for table in tables if str(table) == wanted), None)
        if found is None:
            meant = suggest_nearest(wanted, sorted(map(str, tables)))
            problem = f"lookup {name}: source {changelog.options.source} does not publish {wanted}{meant}"
            yield Finding(Severity.ERROR, problem, "correct its table, or add it to the publication")
        elif not found.key_columns:
            problem = f"lookup {name}: {wanted} has no key, so nobody can tell which of its rows a change is of"
            yield Finding(Severity.ERROR, problem, "give it a primary key, or REPLICA IDENTITY USING INDEX")
        else:
            changelog.note_published(found)
