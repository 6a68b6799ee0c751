"""The [spark] section of the configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from psql_streamer.options import HandlerOptions, PartOptions

OnError: TypeAlias = Literal["stop", "dead-letter"]
"""What becomes of a row that a rule cannot take: it stops the pipeline, or is put aside."""


def _each_once(sinks: tuple[str, ...]) -> tuple[str, ...]:
    twice = [sink for sink, times in Counter(sinks).items() if times > 1]
    if twice:
        raise ValueError(f'names "{twice[0]}" twice')
    return sinks


Sinks: TypeAlias = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], AfterValidator(_each_once)]
"""Names of sinks."""


def _spark_setting(value: object) -> object:
    """TOML has numbers and booleans; Spark's settings are strings."""
    return str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, int | float) else value


def _spark_key(key: str) -> str:
    if not key.startswith("spark."):
        raise ValueError("is not a Spark setting: their names begin with spark.")
    return key


class TableRule(PartOptions):
    """What becomes of a table's changes. An empty rule sends them through Spark as they are.

    coerce: column -> Spark type, applied before `sql` and `function`.
    sql: a query over the view `changes`.
    function: "module:function" that takes and gives a DataFrame.
    on_error: what becomes of a row that the rule cannot take; None: what [spark] says.
    sinks: those that it is for; none: all.
    optional: the rule may fit no table yet.
    """

    coerce: dict[str, str] = Field(default_factory=dict)
    sql: str | None = Field(default=None, min_length=1)
    function: str | None = Field(default=None, pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")
    on_error: OnError | None = None
    sinks: Sinks = ()
    optional: bool = False

    @model_validator(mode="after")
    def _one_of_both(self) -> TableRule:
        if self.sql is not None and self.function is not None:
            raise ValueError("holds both sql and function: keep one, a function can call df.sparkSession.sql")
        return self


def _several(rules: tuple[TableRule, ...]) -> tuple[TableRule, ...]:
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
    AfterValidator(_several),
]
"""The rules of a table: one, or several for different sinks."""


class SparkOptions(HandlerOptions):
    """Which Spark, and what it does per table.

    master: where Spark runs. remote: a Spark Connect server ("sc://host:15002"), which is used instead.
    conf: any spark.* setting; it wins over what the handler sets itself.
    on_error: of every rule that does not say so itself.
    tables: "schema.table", "table" or a glob -> a rule, or several for different sinks; an exact name wins over a glob,
        then the first that matches.
    """

    master: str = Field(default="local[*]", min_length=1)
    remote: str | None = Field(default=None, pattern=r"^sc://.+", repr=False)
    app_name: str = Field(default="psql-streamer", min_length=1)
    conf: dict[Annotated[str, AfterValidator(_spark_key)], Annotated[str, BeforeValidator(_spark_setting)]] = Field(
        default_factory=dict
    )
    on_error: OnError = "stop"
    tables: dict[str, Rules] = Field(default_factory=dict)

    def rules_of(self, sink: str | None) -> dict[str, TableRule]:
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
    def puts_rows_aside(self) -> bool:
        """See HandlerOptions.puts_rows_aside."""
        return any(self._puts_aside(rule) for rules in self.tables.values() for rule in rules)

    def puts_rows_aside_of(self, sink: str) -> bool:
        """See HandlerOptions.puts_rows_aside_of."""
        return any(map(self._puts_aside, self.rules_of(sink).values()))

    def named_sinks(self) -> Iterable[tuple[tuple[str | int, ...], str]]:
        """See HandlerOptions.named_sinks."""
        for entry, rules in self.tables.items():
            for at, rule in enumerate(rules):
                number: tuple[int, ...] = (at,) if len(rules) > 1 else ()
                where: tuple[str | int, ...] = ("tables", entry, *number, "sinks")
                yield from ((where, sink) for sink in rule.sinks)

    def _puts_aside(self, rule: TableRule) -> bool:
        return (rule.on_error or self.on_error) == "dead-letter"
