"""Which topics a table's events go to.

Rules, first match wins: tableTopicMapping (the exact "schema.table", the exact table, then patterns in the
order of the file), topicPrefix, topicFallback. A mapping may name several topics: the events go to each of them, keyed
as it says. Nothing matches: no topic, the event is skipped and counted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate

from psql_streamer.errors import SinkRefused

MAX_TOPIC_LENGTH = 249
"""Kafka's own limit: a topic is a folder, `-partition` is appended (org.apache.kafka.common.internals.Topic)."""

_ILLEGAL = re.compile(r"[^a-zA-Z0-9._-]")
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_GLOB = re.compile(r"[*?\[]")
_TABLE = ("schema", "table")
_REMEDY = "give it a topic of its own under tableTopicMapping"


@dataclass(frozen=True, slots=True)
class Route:
    """A topic of a table. key: names of the columns that key its records there; None: those that key them elsewhere."""

    topic: str
    key: tuple[str, ...] | None = None


class Router:
    """Topics by table, remembered per table.

    mapping: table, "schema.table", a glob of either (`sales_*`, `*.orders`) or a regular expression between
        slashes (`/^sales_(\\d+)$/`, tried on "schema.table" and then on the table alone) -> a topic or routes. In a
        topic `{schema}`, `{table}` and, for a regular expression, `{1}` or `{name}` stand for what they matched.
    prefix: tables with no mapping go to `prefix.schema.table`; "" for no such rule.
    fallback: the topic of all that is left; "" for none.
    messages: the topic of logical messages, in which `{prefix}` stands for the message's prefix; "" for none.

    Raises ValueError, naming the rule, for a rule that cannot work.
    """

    def __init__(
        self, mapping: Mapping[str, str | Sequence[Route]], prefix: str, fallback: str, messages: str = ""
    ) -> None:
        self._exact = {key: _templates(key, target, _TABLE) for key, target in mapping.items() if not _is_pattern(key)}
        self._patterns = [_Pattern(key, target) for key, target in mapping.items() if _is_pattern(key)]
        self._prefix = _Template("topicPrefix", f"{prefix}.{{schema}}.{{table}}", _TABLE) if prefix else None
        self._fallback = _Template("topicFallback", fallback, ()) if fallback else None
        self._messages = _Template("messageTopic", messages, ("prefix",)) if messages else None
        self._tables: dict[tuple[str, str], tuple[Route, ...]] = {}
        self._prefixes: dict[str, str] = {}
        self._claims: dict[str, _Claim] = {}

    def topics(self, schema: str, table: str) -> tuple[Route, ...]:
        """The table's topics, no two of them the same; none when no rule gives it one.

        Characters that Kafka does not allow in a topic become `_`. Raises SinkRefused when two tables, or two routes of
        one, would share a topic by that alone, or when the name is longer than Kafka allows.
        """
        name = (schema, table)
        if name not in self._tables:
            self._tables[name] = self._routes(schema, table)
        return self._tables[name]

    def message_topic(self, prefix: str) -> str | None:
        """The topic of logical messages with this prefix; None when they have none. Raises as `topics` does."""
        if self._messages is None:
            return None
        if prefix not in self._prefixes:
            rendered = self._messages.render({"prefix": prefix})
            self._prefixes[prefix] = self._claim(rendered, f'message prefix "{prefix}"')
        return self._prefixes[prefix]

    def _routes(self, schema: str, table: str) -> tuple[Route, ...]:
        templates, names = self._find(schema, table)
        owner = f'table "{schema}"."{table}"'
        rendered = [template.render(names) for template in templates]
        twice = _repeated([one.topic for one in rendered])
        if twice is not None:
            raise SinkRefused(f'{owner} would go to topic "{twice}" twice', "name each of its topics once")
        return tuple(
            Route(self._claim(one, owner), template.key) for one, template in zip(rendered, templates, strict=True)
        )

    def _find(self, schema: str, table: str) -> tuple[Sequence[_Template], Mapping[str, str]]:
        """What the first rule that matches says, and what its placeholders stand for."""
        names = {"schema": schema, "table": table}
        for key in (f"{schema}.{table}", table):
            if key in self._exact:
                return self._exact[key], names
        for pattern in self._patterns:
            if (groups := pattern.match(schema, table)) is not None:
                return pattern.templates, groups | names
        rest = self._prefix or self._fallback
        return [rest] if rest else [], names

    def _claim(self, rendered: _Rendered, owner: str) -> str:
        topic = rendered.topic
        if len(topic) > MAX_TOPIC_LENGTH or topic in ("", ".", ".."):
            raise SinkRefused(f'{owner} would go to topic "{topic}", which Kafka does not allow', _REMEDY)
        claim = self._claims.setdefault(topic, _Claim(owner, rendered))
        if claim.rendered.collides(rendered):
            raise SinkRefused(f'{owner} and {claim.owner} would both go to topic "{topic}"', _REMEDY)
        return topic


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
            raise ValueError(f'{rule}: "{text}" holds the placeholder {{{unknown[0]}}}; allowed here: {choices}')
        literal = _PLACEHOLDER.sub("", text)
        if not text or _ILLEGAL.search(literal) or len(literal) > MAX_TOPIC_LENGTH:
            raise ValueError(f'{rule}: "{text}" is not a topic: letters, digits, ".", "_", "-", at most 249 of them')

    def render(self, values: Mapping[str, str]) -> _Rendered:
        used = tuple(values[name] for name in self._names)
        return _Rendered(self._text, used, _PLACEHOLDER.sub(lambda found: values[found[1]], self._text))


class _Pattern:
    """A glob or a regular expression over table names, with the topics it leads to."""

    def __init__(self, key: str, target: str | Sequence[Route]) -> None:
        self._schema: re.Pattern[str] | None = None
        if _is_regex(key):
            try:
                self._regex = re.compile(key[1:-1])
            except re.error as error:
                raise ValueError(f"{key} is not a regular expression: {error}") from None
        else:
            schema, dot, table = key.partition(".")
            self._schema = re.compile(translate(schema if dot else "*"))
            self._regex = re.compile(translate(table if dot else key))
        groups = (*map(str, range(self._regex.groups + 1)), *self._regex.groupindex)
        self.templates = _templates(key, target, (*_TABLE, *groups) if _is_regex(key) else _TABLE)

    def match(self, schema: str, table: str) -> dict[str, str] | None:
        """What the groups matched, by number and name; None for no match."""
        if self._schema is not None:
            return {} if self._schema.match(schema) and self._regex.match(table) else None
        found = self._regex.search(f"{schema}.{table}") or self._regex.search(table)
        if found is None:
            return None
        numbered = {str(i): found[i] or "" for i in range(self._regex.groups + 1)}
        return numbered | {name: text or "" for name, text in found.groupdict().items()}


def check_topic(rule: str, topic: str) -> None:
    """ValueError, naming the rule, for a topic that Kafka does not allow, or that holds a placeholder."""
    _Template(rule, topic, ())


def _templates(rule: str, target: str | Sequence[Route], allowed: tuple[str, ...]) -> Sequence[_Template]:
    routes = [Route(target)] if isinstance(target, str) else target
    twice = _repeated([route.topic for route in routes])
    if twice is not None:
        raise ValueError(f'{rule}: the topic "{twice}" is named twice')
    return [_Template(rule, route.topic, allowed, route.key) for route in routes]


def _repeated(topics: Sequence[str]) -> str | None:
    """The first topic that is there twice."""
    return next((topic for at, topic in enumerate(topics) if topic in topics[:at]), None)


def _is_regex(key: str) -> bool:
    return len(key) > 2 and key.startswith("/") and key.endswith("/")


def _is_pattern(key: str) -> bool:
    return _is_regex(key) or _GLOB.search(key) is not None
