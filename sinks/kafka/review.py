"""What of a Kafka sink's section does not fit the tables that its sources publish. Asks no server."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from psql_streamer.errors import SinkRefused
from psql_streamer.events.excluded_columns import KEY_LEFT_OUT_REMEDY, ExcludedColumns, describe_key_left_out
from psql_streamer.events.format import KEYLESS_REMEDY
from psql_streamer.events.formats import format_class
from psql_streamer.events.key_columns import ANY_TABLE, KeyColumns
from psql_streamer.events.options import EventOptions
from psql_streamer.events.routing import Route
from psql_streamer.events.unchanged import ANY_COLUMN, Unchanged
from psql_streamer.interfaces import Finding, Published, Severity
from psql_streamer.model import Relation
from psql_streamer.table_patterns import TablePatterns, is_pattern
from sinks.kafka.findings import Suggestions, limit_findings, show_names
from sinks.kafka.options import KafkaSinkOptions

_NO_HANDLER = "passthrough"


@dataclass(frozen=True, slots=True)
class _Routed:
    """A published table, and where its events go."""

    source: str
    relation: Relation
    routes: Sequence[Route]


class KafkaReview:
    """A section beside the tables of its sources."""

    def __init__(self, options: KafkaSinkOptions, published: Published) -> None:
        self._options = options
        self._relations = [relation for relations in published.values() for relation in relations]
        self._keys = KeyColumns(options.key_columns)
        self._own_topics = options.list_own_topics()
        self._suggest = Suggestions().suggest_nearest
        self._routed, self._refusals = _route(options, published)

    def collect_findings(self) -> Iterator[Finding]:
        """ERROR for what a row would stop the sink with, WARNING for what has no effect or may not be meant."""
        yield from limit_findings(self._find_unused_entries())
        yield from limit_findings(self._find_unused_rules())
        yield from limit_findings(self._refusals)
        yield from limit_findings(self._find_missing_key_columns())
        yield from limit_findings(self._find_left_out_keys())
        yield from self._find_keyless_tables()
        yield from self._find_shared_topics()
        yield from limit_findings(self._find_taken_topics())

    def list_topics(self) -> list[str]:
        """Every topic that a published table goes to."""
        return list(dict.fromkeys(route.topic for routed in self._routed for route in routed.routes))

    def _find_unused_entries(self) -> Iterator[Finding]:
        """Entries that no table has."""
        options = self._options
        keys = [entry for entry in options.key_columns if entry != ANY_TABLE]
        sections = {"tableTopicMapping": list(options.table_topic_mapping), "key": keys}
        for section, entries in sections.items():
            patterns = TablePatterns(dict.fromkeys(entries))
            fits = (patterns.find(relation.schema, relation.table) for relation in self._relations)
            had = {fit.entry for fit in fits if fit is not None}
            yield from (self._make_unused_finding(section, entry) for entry in entries if entry not in had)
        for entry in options.exclude_tables:
            if not self._fits_some_table(entry):
                yield self._make_unused_finding("excludeTables", entry)

    def _make_unused_finding(self, section: str, entry: str) -> Finding:
        where = f'{section}: "{entry}"'
        if self._fits_some_table(entry):
            what = f"{where} has no effect: every published table that it matches uses another entry"
            return Finding(Severity.WARNING, what, "remove it, or move it before the pattern that is used")
        return Finding(Severity.WARNING, f"{where} fits no published table{self._suggest_table(entry)}", _CORRECT)

    def _fits_some_table(self, entry: str) -> bool:
        patterns = TablePatterns({entry: None})
        return any(patterns.find(relation.schema, relation.table) for relation in self._relations)

    def _suggest_table(self, entry: str) -> str:
        if is_pattern(entry):
            return ""
        names = {str(relation) if "." in entry else relation.table for relation in self._relations}
        return self._suggest(entry, names)

    def _find_unused_rules(self) -> Iterator[Finding]:
        """Rules of `unchanged` and `excludeColumns` that fit no column."""
        options = self._options
        rules = [("unchanged", rule) for rule in options.unchanged if rule != ANY_COLUMN]
        rules += [("excludeColumns", rule) for rule in options.exclude_columns]
        if not rules:
            return
        by_column = defaultdict[str, list[Relation]](list)
        for relation in self._relations:
            for column in relation.columns:
                by_column[column.name].append(relation)
        for section, rule in rules:
            if not _fits_some_column(rule, by_column):
                what = f'{section}: "{rule}" fits no column of a published table{self._suggest_rule(rule, by_column)}'
                yield Finding(Severity.WARNING, what, self._correct_column())

    def _suggest_rule(self, rule: str, columns: Mapping[str, Sequence[Relation]]) -> str:
        table, _, column = rule.rpartition(".")
        if is_pattern(table) or is_pattern(column):
            return ""
        if not table:
            return self._suggest(column, columns.keys())
        of_table = [relation for relation in self._relations if table in (str(relation), relation.table)]
        if not of_table:
            return self._suggest_table(table)
        return self._suggest(column, {column.name for relation in of_table for column in relation.columns})

    def _find_missing_key_columns(self) -> Iterator[Finding]:
        """Columns that are to key the records of tables which do not have them."""
        lacking = defaultdict[tuple[str, str], list[Relation]](list)
        for routed in self._routed:
            for route in routed.routes:
                for missing in self._find_lacking_columns(routed.relation, route):
                    lacking[missing].append(routed.relation)
        for (where, column), relations in lacking.items():
            tables = show_names(sorted({str(relation) for relation in relations}))
            known = {column.name for column in relations[0].columns}
            what = f'{where} names the column "{column}", which is not in {tables}{self._suggest(column, known)}'
            yield Finding(self._choose_severity(), what, self._correct_column())

    def _find_lacking_columns(self, relation: Relation, route: Route) -> Iterator[tuple[str, str]]:
        """What names the columns that key a table's records in a topic; and a column that the table lacks."""
        where, names = f'tableTopicMapping: the key for topic "{route.topic}"', route.key
        if names is None and (fit := self._keys.find_entry(relation)) is not None:
            where, names = f'key: "{fit.entry}"', fit.value
        if names:
            known = {column.name for column in relation.columns}
            yield from ((where, name) for name in names if name not in known)

    def _find_left_out_keys(self) -> Iterator[Finding]:
        """Tables of whose key events lack a column."""
        excluded = ExcludedColumns(self._options.exclude_columns)
        for routed in self._routed:
            by_own_key = not self._keys.find(routed.relation) and any(route.key is None for route in routed.routes)
            if by_own_key and (lost := excluded.list_excluded_keys(routed.relation)):
                yield Finding(Severity.ERROR, describe_key_left_out(routed.relation, lost[0]), KEY_LEFT_OUT_REMEDY)

    def _find_keyless_tables(self) -> Iterator[Finding]:
        """Tables that the format cannot take."""
        if not format_class(self._options.format).needs_key:
            return
        keyless = [str(routed.relation) for routed in self._routed if self._has_no_key(routed)]
        if keyless:
            what = f'format "{self._options.format}" cannot take {show_names(keyless)}: the rows have no key'
            yield Finding(Severity.ERROR, what, KEYLESS_REMEDY)

    def _has_no_key(self, routed: _Routed) -> bool:
        if routed.relation.key_columns or self._keys.find(routed.relation):
            return False
        return any(route.key is None for route in routed.routes)

    def _find_shared_topics(self) -> Iterator[Finding]:
        """Topics that tables of several sources go to."""
        sources = defaultdict[str, dict[str, None]](dict)
        for routed in self._routed:
            for route in routed.routes:
                sources[route.topic][routed.source] = None
        shared = [topic for topic, of_topic in sources.items() if len(of_topic) > 1]
        if shared:
            who = " and ".join(dict.fromkeys(source for topic in shared for source in sources[topic]))
            what = f"tables of {who} share topics, in which equal keys may mean different rows: {show_names(shared)}"
            yield Finding(Severity.WARNING, what, _KEEP_APART)

    def _find_taken_topics(self) -> Iterator[Finding]:
        """Tables that go to a topic of the sink's own: a dead letter would come behind newer records of its key."""
        for name, topic in self._own_topics.items():
            for routed in self._routed:
                if any(route.topic == topic for route in routed.routes):
                    what = f'{name} "{topic}" is also the topic of {routed.relation}'
                    yield Finding(Severity.ERROR, what, f"give {name} a topic of its own")

    def _choose_severity(self) -> Severity:
        """How bad it is that a table lacks a column: a handler could make it."""
        return Severity.WARNING if self._name_handlers() else Severity.ERROR

    def _correct_column(self) -> str:
        return (
            f"correct it, unless a rule of {self._name_handlers()} makes the column"
            if self._name_handlers()
            else _CORRECT
        )

    def _name_handlers(self) -> str:
        return " or ".join(name for name in self._options.handlers if name != _NO_HANDLER)


_CORRECT = "correct it, or remove it"
_KEEP_APART = (
    "add {source} to topicPrefix or to the topics of tableTopicMapping, unless the tables are shards of one table with "
    "different keys"
)


def _route(options: EventOptions, published: Published) -> tuple[list[_Routed], list[Finding]]:
    """Where every table goes; and what of that cannot be."""
    router = options.make_router()
    routed: list[_Routed] = []
    refused: list[Finding] = []
    for source, relations in published.items():
        for relation in relations:
            try:
                routed.append(_Routed(source, relation, router.find_routes(source, relation.schema, relation.table)))
            except SinkRefused as error:
                refused.append(Finding(Severity.ERROR, error.what, error.remedy))
    return routed, refused


def _fits_some_column(rule: str, columns: Mapping[str, Sequence[Relation]]) -> bool:
    """columns: name -> the tables that have such a column."""
    policy, wanted = Unchanged({rule: "omit"}), rule.rpartition(".")[2]
    return any(
        policy.find_rule(relation, name) is not None
        for name, relations in columns.items()
        if rule.endswith(name) or fnmatchcase(name, wanted)
        for relation in relations
    )
