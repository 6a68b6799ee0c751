"""The [spark] section of the configuration."""

from __future__ import annotations

import re
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from psql_streamer.options import HandlerOptions, PartOptions

OnError: TypeAlias = Literal["stop", "dead-letter"]
"""What becomes of a row that a rule cannot take: it stops the pipeline, or is put aside."""


def _spark_setting(value: object) -> object:
    """TOML has numbers and booleans; Spark's settings are strings."""
    return str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, int | float) else value


def _spark_key(key: str) -> str:
    if not key.startswith("spark."):
        raise ValueError("is not a Spark setting: their names begin with spark.")
    return key


def _coordinates(package: str) -> str:
    if not re.fullmatch(r"[^:,\s]+:[^:,\s]+:[^:,\s]+", package):
        raise ValueError("is not group:artifact:version, as Maven has it")
    return package


class TableRule(PartOptions):
    """What becomes of a table's changes. An empty rule sends them through Spark as they are.

    coerce: column -> Spark type, applied before `sql` and `function`.
    sql: a query over the view `changes`.
    function: "module:function" that takes and gives a DataFrame.
    on_error: what becomes of a row that the rule cannot take; None: what [spark] says.
    optional: the rule may fit no table yet.
    """

    coerce: dict[str, str] = Field(default_factory=dict)
    sql: str | None = Field(default=None, min_length=1)
    function: str | None = Field(default=None, pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")
    on_error: OnError | None = None
    optional: bool = False

    @model_validator(mode="after")
    def _one_of_both(self) -> TableRule:
        if self.sql is not None and self.function is not None:
            raise ValueError("holds both sql and function: keep one, a function can call df.sparkSession.sql")
        return self


class SparkOptions(HandlerOptions):
    """Which Spark, and what it does per table.

    master: where Spark runs. remote: a Spark Connect server ("sc://host:15002"), which is used instead.
    py_files: .py, .zip and folders with modules that functions of rules import, on executors too.
    jars: Java archives for the driver and for executors. packages: the same by their coordinates in Maven.
    conf: any spark.* setting; it wins over what the handler sets itself.
    on_error: of every rule that does not say so itself.
    tables: "schema.table", "table" or a glob -> rule; an exact name wins over a glob, then the first that matches.
    """

    master: str = Field(default="local[*]", min_length=1)
    remote: str | None = Field(default=None, pattern=r"^sc://.+", repr=False)
    app_name: str = Field(default="psql-streamer", min_length=1)
    py_files: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    jars: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    packages: tuple[Annotated[str, AfterValidator(_coordinates)], ...] = ()
    conf: dict[Annotated[str, AfterValidator(_spark_key)], Annotated[str, BeforeValidator(_spark_setting)]] = Field(
        default_factory=dict
    )
    on_error: OnError = "stop"
    tables: dict[str, TableRule] = Field(default_factory=dict)

    @property
    def function_modules(self) -> tuple[str, ...]:
        """The modules of the functions that rules name."""
        functions = (rule.function for rule in self.tables.values() if rule.function is not None)
        return tuple(dict.fromkeys(function.partition(":")[0] for function in functions))

    @property
    def puts_rows_aside(self) -> bool:
        """See HandlerOptions.puts_rows_aside."""
        return any((rule.on_error or self.on_error) == "dead-letter" for rule in self.tables.values())
