"""The steps of a rule before its query and its function: `coerce`, `mask`, `drop`, `rename`, `where`.

They are projections and a filter of the DataFrame, so that the analysed plan says of their columns what it says of a
query's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from psql_streamer.errors import HandlerRefused
from psql_streamer.nearest import suggest_nearest
from psql_streamer.spark.coerced_types import describe_refused_type, make_refusal
from psql_streamer.spark.coercion import render_coercions
from psql_streamer.spark.lacking import KEY_ONLY_BIT
from psql_streamer.spark.masking import Masking
from psql_streamer.spark.metadata import KEY_ONLY, METADATA, ROW
from psql_streamer.spark.quoting import quote_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

_WHAT_STEPS_DO = {"coerce": "to coerce", "mask": "to mask", "drop": "to drop", "rename": "to rename"}


@dataclass(frozen=True, slots=True)
class StepColumn:
    """A column behind the steps. of: the name of the table's column that it is, or stands for. made: a step computes
    it."""

    name: str
    of: str
    made: bool


@dataclass(frozen=True, slots=True)
class Steps:
    """coerce: column -> Spark type. mask: column -> how. drop: columns. rename: column -> new name. where: a condition.

    lenient: tables may lack columns that are named here.
    """

    coerce: Mapping[str, str] = field(default_factory=dict)
    mask: Mapping[str, Masking] = field(default_factory=dict)
    drop: Collection[str] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    where: str | None = None
    lenient: bool = False

    @property
    def identity(self) -> bool:
        """Whether they change nothing."""
        return not (self.coerce or self.mask or self.drop or self.rename or self.where)

    def names(self, column: str) -> bool:
        """Whether a metadata column may be used by its name."""
        return column in self.rename or self.filter_names(column)

    def filter_names(self, column: str) -> bool:
        """Whether the text of `where` has the name of a column."""
        return self.where is not None and column.lower() in self.where.lower()

    def list_columns(self, names: Sequence[str]) -> list[StepColumn]:
        """What there is of a table's columns behind the steps."""
        return [
            StepColumn(self.rename.get(name, name), name, name in self.coerce or name in self.mask)
            for name in names
            if name not in self.drop
        ]

    def find_original(self, name: str) -> str | None:
        """The column that was renamed to this; None when none was."""
        return next((old for old, new in self.rename.items() if new == name), None)

    def list_missing(self, names: Collection[str]) -> Iterator[tuple[str, str]]:
        """Every step and column that it names which a table of these columns lacks."""
        for step in _WHAT_STEPS_DO:
            known = {*names, *METADATA} if step == "rename" else names
            yield from ((step, name) for name in getattr(self, step) if name not in known)

    def list_lost(self, had: Collection[str], has: Collection[str]) -> list[tuple[str, str]]:
        """The steps that are left out since a table lacks their columns, which it had before, and these columns."""
        if not self.lenient:
            return []
        known = set(self.list_missing(had))
        return [one for one in self.list_missing(has) if one not in known]


@dataclass(frozen=True, slots=True)
class StepPlan:
    """The steps for tables of one shape. coerced, projected: SQL of all columns; empty where the step does nothing."""

    coerced: tuple[str, ...] = ()
    projected: tuple[str, ...] = ()
    where: str | None = None

    def coerce(self, changes: DataFrame) -> DataFrame:
        """The first of them."""
        return changes.selectExpr(*self.coerced) if self.coerced else changes

    def follow(self, coerced: DataFrame) -> DataFrame:
        """Those behind it."""
        made = coerced.selectExpr(*self.projected) if self.projected else coerced
        # The alias keeps Spark from looking for names in what the steps before made of the table.
        return made if self.where is None else made.alias("changes").where(self.where)


def describe_step(step: str) -> str:
    """What a step does to a column, as in `to mask`."""
    return _WHAT_STEPS_DO[step]


def describe_missing_column(step: str, name: str, names: Collection[str]) -> str:
    """What to say of a column that a step names and a table lacks."""
    return f"there is no column {name} {describe_step(step)}{suggest_nearest(name, sorted(names))}"


def plan_steps(
    steps: Steps, changes: DataFrame, own: Sequence[str], read: Collection[str], where: str, admitting: bool
) -> StepPlan:
    """The steps over a table; Spark analyses it, no job runs.

    own: the table's own columns. read: those that have the type already that they are coerced to. where: table and
    rule. admitting: the filter lets old images pass that hold the key alone; else the plan is rebuilt for that.
    HandlerRefused when a column is not there, twice there, or not of a type that its mask takes.
    """
    for step, name in () if steps.lenient else steps.list_missing(own):
        raise HandlerRefused(f"{where}: {describe_missing_column(step, name, own)}", "correct its name")
    _refuse_clashes(steps, own, where)
    condition = steps.where
    if condition is not None and admitting and not steps.filter_names(KEY_ONLY):
        condition = f"({condition}) OR ({quote_name(ROW)} & {KEY_ONLY_BIT}) <> 0"
    names = changes.columns
    coerced = render_coercions(names, steps.coerce, read) if not steps.coerce.keys().isdisjoint(own) else []
    typed = _coerce_or_refuse(steps, changes, coerced, where) if coerced else changes
    if not (steps.mask or steps.drop or steps.rename):
        return StepPlan(tuple(coerced), (), condition)
    projected = _render_projection(steps, typed, own, where)
    return StepPlan(tuple(coerced), tuple(projected), condition)


def _coerce_or_refuse(steps: Steps, changes: DataFrame, coerced: Sequence[str], where: str) -> DataFrame:
    """The columns coerced. HandlerRefused with the column that Spark casts to no such type."""
    from pyspark.errors import AnalysisException

    try:
        return changes.selectExpr(*coerced)
    except AnalysisException:
        for name, one in zip(changes.columns, coerced, strict=True):
            if name in steps.coerce:
                _coerce_alone(changes, name, one, steps.coerce[name], where)
        raise


def _coerce_alone(changes: DataFrame, name: str, coerced: str, kind: str, where: str) -> None:
    from pyspark.errors import AnalysisException

    try:
        changes.selectExpr(coerced)
    except AnalysisException as error:
        if error.getCondition() == "AMBIGUOUS_REFERENCE":  # says what to do of columns that differ by case
            raise
        raise make_refusal(name, kind, describe_refused_type(error), where) from None


def _render_projection(steps: Steps, typed: DataFrame, own: Sequence[str], where: str) -> Iterator[str]:
    kinds = {field.name: field.dataType for field in typed.schema.fields} if steps.mask else {}
    for column in steps.list_columns(own):
        value = quote_name(column.of)
        if column.of in steps.mask:
            mask, kind = steps.mask[column.of], kinds[column.of]
            _refuse_mask(mask, kind, typed, f"{where}: column {column.of}")
            value = mask.render_expression(column.of, kind)
        yield value if value == quote_name(column.name) else f"{value} AS {quote_name(column.name)}"
    for name in typed.columns[len(own) :]:
        new = steps.rename.get(name)
        yield quote_name(name) if new is None else f"{quote_name(name)} AS {quote_name(new)}"


def _refuse_mask(mask: Masking, kind: DataType, typed: DataFrame, where: str) -> None:
    refusal = mask.describe_refusal(kind)
    if refusal is not None:
        raise HandlerRefused(f"{where} cannot be masked: {refusal}")
    fits = mask.render_constant_check(kind)
    if fits is not None and not typed.sparkSession.sql(f"SELECT {fits}").collect()[0][0]:
        raise HandlerRefused(f"{where} cannot be masked: the constant is no {kind.simpleString()}", "correct its value")


def _refuse_clashes(steps: Steps, own: Sequence[str], where: str) -> None:
    names = Counter(column.name for column in steps.list_columns(own))
    names.update(new for old, new in steps.rename.items() if old in METADATA and old not in own)
    twice = next((name for name, times in names.items() if times > 1), None)
    if twice is not None:
        raise HandlerRefused(
            f"{where}: behind its steps the table has two columns named {twice}", "rename to another name, or drop one"
        )
    named = steps.coerce or steps.mask or steps.drop or steps.rename
    if named and (clash := next((name for name in own if name.lower() == ROW), None)) is not None:
        raise HandlerRefused(
            f"{where}: the table's column {clash} has the name of a column that the handler adds, and these steps name "
            "all columns",
            "rename the column, or use a query that does not name it",
        )
    ours = next((new for new in steps.rename.values() if new == ROW or new in METADATA), None)
    if ours is not None:
        raise HandlerRefused(f"{where}: {ours} is the name of a column that the handler adds", "rename to another name")
