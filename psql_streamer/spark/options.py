"""The [spark] section of the configuration."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from psql_streamer.options import HandlerOptions, PartOptions

OnError: TypeAlias = Literal["stop", "dead-letter", "null"]
"""What becomes of a row that a rule cannot take: it stops the pipeline, is put aside, or goes out without what could
not be computed."""

MaskMethod: TypeAlias = Literal["hash", "partial", "null", "constant", "tokenise"]

NEED_SECRET: frozenset[MaskMethod] = frozenset({"hash", "tokenise"})


def _spark_setting(value: object) -> object:
    """TOML has numbers and booleans; Spark's settings are strings."""
    return str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, int | float) else value


def _spark_key(key: str) -> str:
    if not key.startswith("spark."):
        raise ValueError("is not a Spark setting: their names begin with spark.")
    return key


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


def _long_enough(secret: str) -> str:
    """Who has masked values tries short secrets in no time."""
    if len(secret) < _SHORTEST_SECRET:
        raise ValueError(f"is shorter than {_SHORTEST_SECRET} characters")
    return secret


Secret: TypeAlias = Annotated[str, AfterValidator(_long_enough)]


class TableRule(PartOptions):
    """What becomes of a table's changes: its steps, in this order. An empty rule sends them through Spark as they are.

    coerce: column -> Spark type. mask: column -> how. drop: columns. rename: column -> its new name.
    where: a condition in SQL that rows must meet. sql: a query over the view `changes`.
    function: "module:function" that takes and gives a DataFrame.
    mask_secret: goes into what `hash` and `tokenise` give; None: what [spark] says.
    on_error: what becomes of a row that the rule cannot take; None: what [spark] says.
    optional: the rule may fit no table yet, and some of its tables may lack columns that a step names.
    """

    coerce: dict[str, str] = Field(default_factory=dict)
    mask: dict[str, Annotated[Mask, BeforeValidator(_mask)]] = Field(default_factory=dict)
    drop: tuple[str, ...] = ()
    rename: dict[str, Annotated[str, Field(min_length=1)]] = Field(default_factory=dict)
    where: str | None = Field(default=None, min_length=1)
    sql: str | None = Field(default=None, min_length=1)
    function: str | None = Field(default=None, pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")
    mask_secret: Secret | None = Field(default=None, repr=False)
    on_error: OnError | None = None
    optional: bool = False

    @model_validator(mode="after")
    def _dropped_and_more(self) -> TableRule:
        for step in ("mask", "rename"):
            for name in getattr(self, step):
                if name in self.drop:
                    raise ValueError(f"has column {name} both in {step} and in drop: keep one")
        return self


class SparkOptions(HandlerOptions):
    """Which Spark, and what it does per table.

    master: where Spark runs. remote: a Spark Connect server ("sc://host:15002"), which is used instead.
    conf: any spark.* setting; it wins over what the handler sets itself.
    on_error, mask_secret: of every rule that does not say so itself.
    tables: "schema.table", "table" or a glob -> rule; an exact name wins over a glob, then the first that matches.
    """

    master: str = Field(default="local[*]", min_length=1)
    remote: str | None = Field(default=None, pattern=r"^sc://.+", repr=False)
    app_name: str = Field(default="psql-streamer", min_length=1)
    conf: dict[Annotated[str, AfterValidator(_spark_key)], Annotated[str, BeforeValidator(_spark_setting)]] = Field(
        default_factory=dict
    )
    on_error: OnError = "stop"
    mask_secret: Secret | None = Field(default=None, repr=False)
    tables: dict[str, TableRule] = Field(default_factory=dict)

    @property
    def puts_rows_aside(self) -> bool:
        """See HandlerOptions.puts_rows_aside."""
        return any((rule.on_error or self.on_error) == "dead-letter" for rule in self.tables.values())

    @model_validator(mode="after")
    def _secret_for_masks(self) -> SparkOptions:
        for name, rule in self.tables.items():
            for column, mask in rule.mask.items():
                if mask.method in NEED_SECRET and (rule.mask_secret or self.mask_secret) is None:
                    raise ValueError(
                        f"masks column {column} of tables {name!r} with {mask.method}, which needs maskSecret in "
                        "[spark] or in the rule, as ${NAME} or ${file:PATH}"
                    )
        return self
