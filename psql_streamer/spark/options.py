"""The [spark] section of the configuration."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from psql_streamer.options import HandlerOptions, PartOptions, require_form
from psql_streamer.spark.lookups.options import LookupOptions

_VIEW_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CHANGES = "changes"

_FUNCTION = require_form(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", "no function: write module:function")
_REMOTE = require_form(r"(?s)sc://.+", "no Spark Connect server: write sc://host:port")

OnError: TypeAlias = Literal["stop", "dead-letter", "null"]
"""What becomes of a row that a rule cannot take: it stops the pipeline, is put aside, or goes out without what could
not be computed."""

OnLeave: TypeAlias = Literal["delete", "keep"]
"""What becomes of a row that an update takes out of a rule's filter: it is deleted, or consumers keep it as it was."""

MaskMethod: TypeAlias = Literal["hash", "partial", "null", "constant", "tokenise"]

NEED_SECRET: frozenset[MaskMethod] = frozenset({"hash", "tokenise"})


def _refuse_repeated_sinks(sinks: tuple[str, ...]) -> tuple[str, ...]:
    twice = [sink for sink, times in Counter(sinks).items() if times > 1]
    if twice:
        raise ValueError(f'names "{twice[0]}" twice')
    return sinks


Sinks: TypeAlias = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], AfterValidator(_refuse_repeated_sinks)]
"""Names of sinks."""


def _convert_setting(value: object) -> object:
    """TOML has numbers and booleans; Spark's settings are strings."""
    return str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, int | float) else value


def _require_spark_key(key: str) -> str:
    if not key.startswith("spark."):
        raise ValueError("is not a Spark setting: their names begin with spark.")
    return key


def _require_coordinates(package: str) -> str:
    if not re.fullmatch(r"[^:,\s]+:[^:,\s]+:[^:,\s]+", package):
        raise ValueError("is not group:artifact:version, as Maven has it")
    return package


def _lookup_name(name: str) -> str:
    if not _VIEW_NAME.fullmatch(name):
        raise ValueError("is not the name of a view: letters, digits and _, of which the first is no digit")
    if name.lower() == _CHANGES:
        raise ValueError("is the view of a table's changes: give the lookup another name")
    return name


class Mask(PartOptions):
    """How a column is masked; in TOML a method alone, or a table.

    keep_first, keep_last: characters that `partial` leaves. value: what `constant` puts in the place of every value.
    """

    method: MaskMethod
    keep_first: int = Field(default=0, ge=0)
    keep_last: int = Field(default=4, ge=0)
    value: str | int | float | bool = "***"


def _mask(value: Any) -> Any:
    return {"method": value} if isinstance(value, str) else value


_SHORTEST_SECRET = 16


def _require_long_secret(secret: str) -> str:
    """Who has masked values tries short secrets in no time."""
    if len(secret) < _SHORTEST_SECRET:
        raise ValueError(f"is shorter than {_SHORTEST_SECRET} characters")
    return secret


Secret: TypeAlias = Annotated[str, AfterValidator(_require_long_secret)]


class TableRule(PartOptions):
    """What becomes of a table's changes: its steps, in this order. An empty rule sends them through Spark as they are.

    coerce: column -> Spark type. mask: column -> how. drop: columns. rename: column -> its new name.
    where: a condition in SQL that rows must meet. sql: a query over the view `changes`.
    function: "module:function" that takes and gives a DataFrame.
    mask_secret: goes into what `hash` and `tokenise` give; None: what [spark] says.
    on_error: what becomes of a row that the rule cannot take; None: what [spark] says.
    on_leave: what becomes of a row whose update does not pass the rule any more, where the old row did.
    sinks: those that it is for; none: all.
    optional: the rule may fit no table yet, and some of its tables may lack columns that a step names.
    """

    coerce: dict[str, str] = Field(default_factory=dict)
    mask: dict[str, Annotated[Mask, BeforeValidator(_mask)]] = Field(default_factory=dict)
    drop: tuple[str, ...] = ()
    rename: dict[str, Annotated[str, Field(min_length=1)]] = Field(default_factory=dict)
    where: str | None = Field(default=None, min_length=1)
    sql: str | None = Field(default=None, min_length=1)
    function: Annotated[str, _FUNCTION] | None = None
    mask_secret: Secret | None = Field(default=None, repr=False)
    on_error: OnError | None = None
    on_leave: OnLeave = "delete"
    sinks: Sinks = ()
    optional: bool = False

    @model_validator(mode="after")
    def _dropped_and_more(self) -> TableRule:
        for step in ("mask", "rename"):
            for name in getattr(self, step):
                if name in self.drop:
                    raise ValueError(f"has column {name} both in {step} and in drop: keep one")
        return self


def _check_rules(rules: tuple[TableRule, ...]) -> tuple[TableRule, ...]:
    """A sink has one of the rules of a table at most."""
    if not rules:
        raise ValueError("is empty: write a rule, or leave the table out")
    if len(rules) > 1 and not all(rule.sinks for rule in rules):
        raise ValueError("has several rules, and one of them is for all sinks: say in each which sinks it is for")
    twice = [sink for sink, times in Counter(sink for rule in rules for sink in rule.sinks).items() if times > 1]
    if twice:
        raise ValueError(f'has two rules for the sink "{twice[0]}": leave it out of one of them')
    return rules


Rules: TypeAlias = Annotated[
    tuple[TableRule, ...],
    BeforeValidator(lambda value: value if isinstance(value, list | tuple) else (value,)),
    AfterValidator(_check_rules),
]
"""The rules of a table: one, or several for different sinks."""


class SparkOptions(HandlerOptions):
    """Which Spark, and what it does per table.

    master: where Spark runs. remote: a Spark Connect server ("sc://host:15002"), which is used instead.
    py_files: .py, .zip and folders with modules that functions of rules import, on executors too.
    jars: Java archives for the driver and for executors. packages: the same by their coordinates in Maven.
    conf: any spark.* setting; it wins over what the handler sets itself.
    on_error, mask_secret: of every rule that does not say so itself.
    tables: "schema.table", "table" or a glob -> a rule, or several for different sinks; an exact name wins over a glob,
        then the first that matches.
    lookups: views of these names in every rule.
    """

    master: str = Field(default="local[*]", min_length=1)
    remote: Annotated[str, _REMOTE] | None = Field(default=None, repr=False)
    app_name: str = Field(default="psql-streamer", min_length=1)
    py_files: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    jars: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    packages: tuple[Annotated[str, AfterValidator(_require_coordinates)], ...] = ()
    conf: dict[
        Annotated[str, AfterValidator(_require_spark_key)], Annotated[str, BeforeValidator(_convert_setting)]
    ] = Field(default_factory=dict)
    on_error: OnError = "stop"
    mask_secret: Secret | None = Field(default=None, repr=False)
    tables: dict[str, Rules] = Field(default_factory=dict)
    lookups: dict[Annotated[str, AfterValidator(_lookup_name)], LookupOptions] = Field(default_factory=dict)

    def select_rules(self, sink: str | None) -> dict[str, TableRule]:
        """The rules that a sink has, by entry. None: those for all sinks, and the first of several."""
        found: dict[str, TableRule] = {}
        for entry, rules in self.tables.items():
            for rule in rules:
                if not rule.sinks or sink is None or sink in rule.sinks:
                    found.setdefault(entry, rule)
        return found

    @property
    def same_for_all_sinks(self) -> bool:
        """Whether no rule is for some sinks alone."""
        return not any(rule.sinks for rules in self.tables.values() for rule in rules)

    @property
    def function_modules(self) -> tuple[str, ...]:
        """The modules of the functions that rules name."""
        rules = (rule for rules in self.tables.values() for rule in rules)
        functions = (rule.function for rule in rules if rule.function is not None)
        return tuple(dict.fromkeys(function.partition(":")[0] for function in functions))

    @property
    def puts_rows_aside(self) -> bool:
        """See HandlerOptions.puts_rows_aside."""
        return any(self._puts_aside(rule) for rules in self.tables.values() for rule in rules)

    def puts_rows_aside_of(self, sink: str) -> bool:
        """See HandlerOptions.puts_rows_aside_of."""
        return any(map(self._puts_aside, self.select_rules(sink).values()))

    def list_followed_tables(self) -> Iterator[tuple[str, str]]:
        """See HandlerOptions.list_followed_tables: the lookups that the stream keeps current."""
        for name, lookup in self.lookups.items():
            if lookup.kind == "changelog":
                yield name, str(lookup.table)

    def list_named_sinks(self) -> Iterable[tuple[tuple[str | int, ...], str]]:
        """See HandlerOptions.list_named_sinks."""
        for entry, rules in self.tables.items():
            for at, rule in enumerate(rules):
                number: tuple[int, ...] = (at,) if len(rules) > 1 else ()
                where: tuple[str | int, ...] = ("tables", entry, *number, "sinks")
                yield from ((where, sink) for sink in rule.sinks)

    def list_named_sources(self) -> Iterable[tuple[tuple[str | int, ...], str]]:
        """See HandlerOptions.list_named_sources."""
        named = ((name, lookup.source) for name, lookup in self.lookups.items())
        return [(("lookups", name, "source"), source) for name, source in named if source is not None]

    def _puts_aside(self, rule: TableRule) -> bool:
        return (rule.on_error or self.on_error) == "dead-letter"

    @model_validator(mode="after")
    def _secret_for_masks(self) -> SparkOptions:
        for name, rules in self.tables.items():
            for rule in rules:
                for column, mask in rule.mask.items():
                    if mask.method in NEED_SECRET and (rule.mask_secret or self.mask_secret) is None:
                        raise ValueError(
                            f"masks column {column} of tables {name!r} with {mask.method}, which needs maskSecret in "
                            "[spark] or in the rule, as ${NAME} or ${file:PATH}"
                        )
        return self
