"""The rules of [spark.tables]: which one a table has, and what it makes of a DataFrame of changes."""

from __future__ import annotations

import importlib
import inspect
import traceback
from asyncio import CancelledError
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from psql_streamer.errors import HandlerRefused
from psql_streamer.model import Relation
from psql_streamer.spark.failures import describe_pyspark_error, is_of_pyspark
from psql_streamer.spark.masking import make_masking
from psql_streamer.spark.metadata import RECORD_HEADERS
from psql_streamer.spark.options import OnError, OnLeave, TableRule
from psql_streamer.spark.row_by_row import names_a_moment
from psql_streamer.spark.steps import Steps
from psql_streamer.spark.stopped import is_stopped
from psql_streamer.table_patterns import TablePatterns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

VIEW = "changes"
"""The view that a rule's SQL reads."""

_WITHOUT_ENGINE = ("SESSION_OR_CONTEXT_NOT_EXISTS", "NO_ACTIVE_OR_DEFAULT_SESSION")
"""The conditions of what pyspark raises for want of a JVM, or of a session on a Spark Connect server."""

_LIBRARIES = ("/pyspark/", "/py4j/")

_NOT_EXCEPTIONS = (SystemExit, CancelledError, GeneratorExit)
"""What code may raise that Python does not count as an Exception, but for what Ctrl-C raises: a thread ends in silence
with the first of them."""

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule, ready to run: its steps, then its query, then its function.

    name: its key in [spark.tables]. on_error: what becomes of a row that it cannot take. on_leave: and of one that an
    update takes out of it. sinks: those that it is for; none: all.
    """

    name: str
    sql: str | None = None
    function: Callable[[DataFrame], DataFrame] | None = None
    steps: Steps = field(default_factory=Steps)
    on_error: OnError = "stop"
    sinks: tuple[str, ...] = ()
    on_leave: OnLeave = "delete"

    @property
    def shown(self) -> str:
        """What messages call it: an entry of [spark.tables] may have several, for different sinks."""
        if not self.sinks:
            return f"rule {self.name!r}"
        return f"rule {self.name!r} of sink{'s' if len(self.sinks) > 1 else ''} {', '.join(self.sinks)}"

    @property
    def coerce(self) -> Mapping[str, str]:
        """Column -> Spark type."""
        return self.steps.coerce

    @property
    def computes(self) -> bool:
        """Whether there is more of it than steps."""
        return self.sql is not None or self.function is not None

    @property
    def identity(self) -> bool:
        """Whether it changes nothing."""
        return not self.computes and self.steps.identity

    @property
    def names_a_moment(self) -> bool:
        """Whether its texts may have a moment in them, such as 'now', that is another one in every run."""
        return any(names_a_moment(text) for text in (self.sql, self.steps.where) if text is not None)

    def names(self, column: str) -> bool:
        """Whether the rule may use a column by its name: a function may use any but RECORD_HEADERS."""
        for_function = self.function is not None and column != RECORD_HEADERS
        return for_function or self.steps.names(column) or self.query_names(column)

    def query_names(self, column: str) -> bool:
        """Whether the text of its query has the name of a column."""
        return self.sql is not None and column.lower() in self.sql.lower()

    def apply(self, changes: DataFrame) -> DataFrame:
        """The result of its query and its function over what its steps made of the changes."""
        if self.sql is not None:
            changes.createOrReplaceTempView(VIEW)
            changes = changes.sparkSession.sql(self.sql)
        if self.function is not None:
            changes = self._call(self.function, changes)
        return changes

    def _call(self, function: Callable[[DataFrame], DataFrame], changes: DataFrame) -> DataFrame:
        from pyspark.errors import PySparkException

        _refuse_other_parameters(self.name, function)
        try:
            result = function(changes)
        except (Exception, *_NOT_EXCEPTIONS) as error:
            self._refuse_stopped(changes)
            if isinstance(error, PySparkException) and not is_of_pyspark(error):
                raise
            raised = describe_pyspark_error(error) if is_of_pyspark(error) else type(error).__name__
            raise HandlerRefused(
                f"the function of [spark.tables] {self.name!r} raised {raised}{_describe_place(error)}", "correct it"
            ) from None
        self._refuse_stopped(changes)
        if not hasattr(result, "toArrow"):
            raise HandlerRefused(
                f"the function of [spark.tables] {self.name!r} gave a {type(result).__name__}", "return a DataFrame"
            )
        return result

    def _refuse_stopped(self, changes: DataFrame) -> None:
        if is_stopped(changes.sparkSession):
            raise HandlerRefused(
                f"the function of [spark.tables] {self.name!r} stopped Spark", "take the call of stop() out of it"
            )


IDENTITY = Rule("")
"""What a table without a rule has."""


class EngineNeeded(HandlerRefused):
    """The module of a function makes something of Spark when it is imported, and there is no engine."""


class Rules:
    """All rules. Constructing it imports the functions that they name; HandlerRefused when one is not there.

    on_error, mask_secret: of every rule that does not say so itself.
    """

    def __init__(
        self, tables: Mapping[str, TableRule], on_error: OnError = "stop", mask_secret: str | None = None
    ) -> None:
        made = {name: _make_rule(name, options, on_error, mask_secret) for name, options in tables.items()}
        self._rules = make_patterns(made)

    def find(self, relation: Relation) -> Rule:
        """The rule of a table: see table_patterns for which of several it is."""
        fit = self._rules.find(relation.schema, relation.table)
        return IDENTITY if fit is None else fit.value


def make_patterns(entries: Mapping[str, Value]) -> TablePatterns[Value]:
    """What tables have, by the names of [spark.tables] that stand for them."""
    return TablePatterns(entries, globs="as a whole")


def _refuse_other_parameters(rule: str, function: Callable[[DataFrame], DataFrame]) -> None:
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        raise HandlerRefused(
            f"the function of [spark.tables] {rule!r} cannot be called with a DataFrame alone", "give it one parameter"
        ) from None
    except ValueError:  # of some that are compiled nothing is known
        return


def _describe_place(error: BaseException) -> str:
    """Where it was raised. Its message may quote values, so that does not become part of ours."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f" at {error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not any(library in frame.filename for library in _LIBRARIES)]
    at = (own or frames)[-1:]
    return f" at {at[0].filename}:{at[0].lineno}" if at else ""


def _lacks_engine(error: BaseException) -> bool:
    """Whether pyspark raised it for want of a JVM or a session. Where it makes a column it asserts that."""
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, AssertionError):
        return bool(frames) and "/pyspark/" in frames[-1].filename
    return any(condition in str(error) for condition in _WITHOUT_ENGINE)


def _make_rule(name: str, options: TableRule, on_error: OnError, mask_secret: str | None) -> Rule:
    function = None if options.function is None else _import_function(name, options.function)
    secret = options.mask_secret or mask_secret
    steps = Steps(
        coerce=options.coerce,
        mask={column: make_masking(how, secret) for column, how in options.mask.items()},
        drop=options.drop,
        rename=options.rename,
        where=options.where,
        lenient=options.optional,
    )
    return Rule(name, options.sql, function, steps, options.on_error or on_error, options.sinks, options.on_leave)


def _import_function(rule: str, path: str) -> Callable[[DataFrame], DataFrame]:
    module, _, attribute = path.partition(":")
    where = f"[spark.tables] {rule!r}: function {path!r}"
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except ImportError as error:
        raise HandlerRefused(
            f"{where} cannot be imported ({error})", "install its package, or put its folder on PYTHONPATH"
        ) from error
    except (Exception, *_NOT_EXCEPTIONS) as error:
        if _lacks_engine(error):
            raise EngineNeeded(f"{where}: importing {module} needs Spark", "start it before") from None
        raise HandlerRefused(
            f"{where}: importing {module} raised {type(error).__name__}{_describe_place(error)}", "correct it"
        ) from error
    if not callable(found):
        raise HandlerRefused(f"{where} does not exist in {module}", "correct the name")
    function: Callable[[DataFrame], DataFrame] = found
    return function
