"""Which topics a table's events go to.

Rules, first match wins: tableTopicMapping (see table_patterns for its entries), topicPrefix, topicFallback. A mapping
may name several topics: the events go to each of them, keyed as it says. Nothing matches: no topic, the event is
skipped and counted. Tables of excludeTables have none either, and that is what was wanted. Logical messages have a rule
of their own, messageTopic; a prefix of which it makes no topic that Kafka allows has none (decision 037).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from psql_streamer.errors import SinkRefused
from psql_streamer.table_patterns import TablePatterns, group_names

MAX_TOPIC_LENGTH = 249
"""Kafka's own limit: a topic is a folder, `-partition` is appended (org.apache.kafka.common.internals.Topic)."""

_RESERVED = {"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"}
"""Topics that brokers keep for themselves and let no client write to (the same class)."""

_ILLEGAL = re.compile(r"[^a-zA-Z0-9._-]")
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_SHOWN = 80
_SOURCE = ("source",)
_TABLE = (*_SOURCE, "schema", "table")
_REMEDY = "give it a topic of its own under tableTopicMapping, or leave it out with excludeTables"


@dataclass(frozen=True, slots=True)
class Route:
    """A topic of a table. key: names of the columns that key its records there; None: those that key them elsewhere."""

    topic: str
    key: tuple[str, ...] | None = None


class Router:
    """Topics by table, remembered per table.

    mapping: table or pattern -> a topic or routes. In a topic `{source}`, `{schema}`, `{table}` and, for a regular
        expression, `{1}` or `{name}` stand for what they matched.
    prefix: tables with no mapping go to `prefix.schema.table`; "" for no such rule.
    fallback: the topic of all that is left; "" for none.
    messages: the topic of logical messages, in which `{prefix}` stands for the message's prefix; "" for none.
    exclude: tables and patterns of tables that have no topic, whatever the other rules say.

    `{source}` stands for the source's name in all of them but exclude. Raises ValueError, naming the rule, for a rule
    that cannot work.
    """

    def __init__(
        self,
        mapping: Mapping[str, str | Sequence[Route]],
        prefix: str,
        fallback: str,
        messages: str = "",
        exclude: Iterable[str] = (),
    ) -> None:
        self._mapping = TablePatterns({entry: _make_templates(entry, target) for entry, target in mapping.items()})
        self._prefix = _Template("topicPrefix", f"{prefix}.{{schema}}.{{table}}", _TABLE) if prefix else None
        self._fallback = _Template("topicFallback", fallback, _SOURCE) if fallback else None
        self._messages = _Template("messageTopic", messages, (*_SOURCE, "prefix")) if messages else None
        self._exclude = TablePatterns(dict.fromkeys(exclude))
        self._excluded: dict[tuple[str, str], bool] = {}
        self._tables: dict[tuple[str, str, str], tuple[Route, ...]] = {}
        self._claims: dict[str, _Claim] = {}

    def find_routes(self, source: str, schema: str, table: str) -> tuple[Route, ...]:
        """The table's topics, no two of them the same; none when no rule gives it one, or when it is excluded.

        Characters that Kafka does not allow in a topic become `_`. Raises SinkRefused when two tables, or two routes of
        one, would share a topic by that alone, or when the name is longer than Kafka allows.
        """
        name = (source, schema, table)
        if name not in self._tables:
            self._tables[name] = () if self.excludes(schema, table) else self._make_routes(source, schema, table)
        return self._tables[name]

    def excludes(self, schema: str, table: str) -> bool:
        """Whether the table is one of those that are left out."""
        name = (schema, table)
        if name not in self._excluded:
            self._excluded[name] = self._exclude.find(schema, table) is not None
        return self._excluded[name]

    def find_message_topic(self, source: str, prefix: str) -> str | None:
        """The topic of logical messages with this prefix; None for none, and for one that Kafka does not allow.

        Prefixes that differ in illegal characters alone share a topic: each record says its prefix. Nothing is
        remembered, because any user of the database can write any number of prefixes.
        """
        if self._messages is None:
            return None
        topic = self._messages.render({"source": source, "prefix": prefix}).topic
        return topic if _is_allowed(topic) else None

    def _make_routes(self, source: str, schema: str, table: str) -> tuple[Route, ...]:
        templates, names = self._find(source, schema, table)
        owner = f'table "{schema}"."{table}"'
        rendered = [template.render(names) for template in templates]
        twice = _find_repeated([one.topic for one in rendered])
        if twice is not None:
            raise SinkRefused(f'{owner} would go to topic "{twice}" twice', "name each of its topics once")
        return tuple(
            Route(self._claim(one, owner), template.key) for one, template in zip(rendered, templates, strict=True)
        )

    def _find(self, source: str, schema: str, table: str) -> tuple[Sequence[_Template], Mapping[str, str]]:
        """What the first rule that matches says, and what its placeholders stand for."""
        own = {"schema": schema, "table": table}
        if (fit := self._mapping.find(schema, table)) is not None:
            # A group may be called "source", which no rule of a file written for one source can mean otherwise.
            return fit.value, {"source": source} | dict(fit.groups) | own
        rest = self._prefix or self._fallback
        return [rest] if rest else [], {"source": source} | own

    def _claim(self, rendered: _Rendered, owner: str) -> str:
        topic = rendered.topic
        if not _is_allowed(topic):
            raise SinkRefused(f'{owner} would go to topic "{topic}", which Kafka does not allow', _REMEDY)
        claim = self._claims.setdefault(topic, _Claim(owner, rendered))
        if claim.rendered.collides(rendered):
            raise SinkRefused(f'{owner} and {claim.owner} would both go to topic "{topic}"', _REMEDY)
        return topic


def is_topic(name: str) -> bool:
    """Whether Kafka allows a topic of this name, and clients to write to it."""
    return not _ILLEGAL.search(name) and _is_allowed(name)


def _shorten(text: str) -> str:
    """As a message may show what somebody wrote."""
    return text if len(text) <= MAX_TOPIC_LENGTH else f"{text[:_SHOWN]}... ({len(text):,} characters)"


def _is_allowed(topic: str) -> bool:
    """Whether a client may write to a topic of this name, whose characters are legal."""
    return 0 < len(topic) <= MAX_TOPIC_LENGTH and topic not in (".", "..") and topic not in _RESERVED


@dataclass(frozen=True, slots=True)
class _Rendered:
    """A topic before illegal characters are replaced, and what went into it."""

    template: str
    values: tuple[str, ...]
    text: str

    @property
    def topic(self) -> str:
        return _ILLEGAL.sub("_", self.text)

    def collides(self, other: _Rendered) -> bool:
        """Whether one topic for both is an accident: of the replacing, or of names that hold a dot.

        Two tables that a rule sends to one topic on purpose have the same text from the same values.
        """
        return self.text != other.text or (self.template == other.template and self.values != other.values)


@dataclass(frozen=True, slots=True)
class _Claim:
    owner: str
    rendered: _Rendered


class _Template:
    """A topic with placeholders. rule: for messages, where it stands. key: of its route."""

    def __init__(self, rule: str, text: str, allowed: tuple[str, ...], key: tuple[str, ...] | None = None) -> None:
        self.key = key
        self._text = text
        self._names = tuple(_PLACEHOLDER.findall(text))
        unknown = [name for name in self._names if name not in allowed]
        if unknown:
            choices = ", ".join(f"{{{name}}}" for name in allowed) or "none"
            raise ValueError(
                f'{rule}: "{_shorten(text)}" holds the placeholder {{{_shorten(unknown[0])}}}; allowed here: {choices}'
            )
        literal = _PLACEHOLDER.sub("", text)
        if _ILLEGAL.search(literal) or len(literal) > MAX_TOPIC_LENGTH or not (self._names or _is_allowed(text)):
            raise ValueError(
                f'{rule}: "{_shorten(text)}" is not a topic: letters, digits, ".", "_", "-", at most 249 of them'
            )

    def render(self, values: Mapping[str, str]) -> _Rendered:
        used = tuple(values[name] for name in self._names)
        return _Rendered(self._text, used, _PLACEHOLDER.sub(lambda found: values[found[1]], self._text))


class SourceTopic:
    """A topic whose only placeholder is `{source}`. rule: for messages, where it stands.

    ValueError, naming the rule, for one that Kafka does not allow.
    """

    def __init__(self, rule: str, text: str) -> None:
        self._rule = rule
        self._template = _Template(rule, text, _SOURCE)

    def render(self, source: str) -> str:
        """The topic of a source. SinkRefused when it is longer than Kafka allows."""
        topic = self._template.render({"source": source}).topic
        if len(topic) > MAX_TOPIC_LENGTH:
            raise SinkRefused(f'{self._rule} of source "{source}" would be "{topic}", which is too long', "shorten it")
        return topic


def check_topic(rule: str, topic: str) -> None:
    """ValueError, naming the rule, for a topic that Kafka does not allow, or that holds a placeholder."""
    _Template(rule, topic, ())


def _make_templates(entry: str, target: str | Sequence[Route]) -> Sequence[_Template]:
    routes = [Route(target)] if isinstance(target, str) else target
    twice = _find_repeated([route.topic for route in routes])
    if twice is not None:
        raise ValueError(f'{entry}: the topic "{twice}" is named twice')
    allowed = (*_TABLE, *group_names(entry))
    return [_Template(entry, route.topic, allowed, route.key) for route in routes]


def _find_repeated(topics: Sequence[str]) -> str | None:
    """The first topic that is there twice."""
    return next((topic for at, topic in enumerate(topics) if topic in topics[:at]), None)
