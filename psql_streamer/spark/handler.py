"""The Spark handler: every table of a micro-batch goes to Spark typed, through its rule, and comes back in order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, cast

import pyarrow as pa

from psql_streamer.errors import HandlerError, HandlerRefused, HandlerUnavailable
from psql_streamer.interfaces import Finding, Handler, Severity
from psql_streamer.model import Batch, Changes, Lsn, Transactions
from psql_streamer.options import PartOptions
from psql_streamer.spark.coercion import coerced, uncoercible
from psql_streamer.spark.failures import failure
from psql_streamer.spark.images import ROW, Sent, image_identity, receive, send
from psql_streamer.spark.lineage import fields_of, schema_of, with_row
from psql_streamer.spark.options import SparkOptions
from psql_streamer.spark.rules import Rule, Rules
from psql_streamer.spark.session import Session, java_problem
from psql_streamer.spark.side_by_side import SideBySide
from psql_streamer.spark.warm_up import warm_up

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


class SparkHandler(Handler):
    """Types every column, applies the rules of [spark.tables], and gives the changes back in commit order."""

    Options: ClassVar[type[PartOptions]] = SparkOptions
    # A Spark job costs some 40 ms before the first row.
    batches_at_once: ClassVar[int] = 4

    def __init__(self, name: str, options: PartOptions) -> None:
        super().__init__(name, options)
        self._options = cast(SparkOptions, options)
        self._session = Session(self._options)
        self._tables: SideBySide | None = None
        self._rules = Rules({})
        self._schemas: dict[pa.Schema, StructType] = {}

    def check(self) -> Iterable[Finding]:
        """Java, and the functions that the rules name. Starts no JVM."""
        problem = None if self._options.remote else java_problem()
        if problem is not None:
            yield Finding(Severity.ERROR, *problem)
        for name, rule in self._options.tables.items():
            try:
                Rules({name: rule})
            except HandlerRefused as error:
                yield Finding(Severity.ERROR, error.what, error.remedy)

    def start(self) -> None:
        """Start the JVM (some seconds), or connect; again after HandlerUnavailable."""
        self._rules = Rules(self._options.tables)
        self._leave()
        spark = self._session.start()
        warm_up(spark)
        self._tables = SideBySide(spark, most=1) if self._options.remote else SideBySide(spark)

    def handle(self, batch: Batch) -> Batch:
        """Every table of the batch through Spark."""

        def transform(spark: SparkSession, changes: Changes) -> Changes | None:
            return self._transform(spark, changes, batch.transactions)

        try:
            done = self._running().each(transform, [changes for changes in batch.changes if len(changes)])
        except HandlerUnavailable:
            if not self._session.alive:
                self._leave()
            raise
        return replace(batch, changes=tuple(changes for changes in done if changes is not None))

    def stop(self) -> None:
        """Let the session go; the last handler to stop ends the JVM."""
        self._leave()
        self._session.stop()

    def _leave(self) -> None:
        tables, self._tables = self._tables, None
        if tables is not None:
            tables.close()

    def _transform(self, spark: SparkSession, changes: Changes, transactions: Transactions) -> Changes | None:
        rule = self._rules.of(changes.relation)
        where = f"{changes.relation}, rule {rule.name!r}" if rule.name else f"{changes.relation}"
        sent = send(changes, transactions, rule.names)
        try:
            return self._run(spark, sent, rule, where)
        except Exception as error:
            # Not `from error`: Spark's messages quote values, and a traceback would show them.
            raise self._failure(error, sent, transactions, where) from None

    def _run(self, spark: SparkSession, sent: Sent, rule: Rule, where: str) -> Changes | None:
        frame = spark.createDataFrame(sent.table, self._schema(sent))
        if rule.coerce:
            frame = coerced(frame, rule.coerce, where)
        result = with_row(rule.apply(frame))
        if result is None:
            raise HandlerRefused(
                f"{where}: the result does not say which change a row belongs to",
                f"add {ROW} to its select list; a result of aggregates has no changes to belong to",
            )
        return receive(sent, fields_of(result), result.toArrow(), where)

    def _running(self) -> SideBySide:
        if self._tables is None:
            self.start()
        return cast(SideBySide, self._tables)

    def _schema(self, sent: Sent) -> StructType:
        """One schema object per shape of a table, so that Spark meets its generated code again."""
        shape = sent.table.schema
        if shape not in self._schemas:
            self._schemas[shape] = schema_of(shape)
        return self._schemas[shape]

    def _failure(self, error: Exception, sent: Sent, transactions: Transactions, where: str) -> HandlerError:
        found = uncoercible(error)
        if found is not None:
            column, image = found
            commit_lsn, seq = image_identity(sent, transactions, image)
            return HandlerRefused(
                f"{where}: the value of column {sent.changes.columns[column].name} in change "
                f"({Lsn(commit_lsn)}, {seq}) cannot be coerced",
                "choose a type that holds every value, or convert it in the rule's sql",
            )
        return failure(error, where, self._session.alive)
