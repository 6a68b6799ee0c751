"""What goes through Spark: a table of a micro-batch, and its rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from psql_streamer.events.source_fields import choose_fields
from psql_streamer.model import Changes, SourceInfo, Transactions
from psql_streamer.pgtypes.descriptions import HashedColumns, hash_columns
from psql_streamer.spark.alike import Tables
from psql_streamer.spark.rules import Rule

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Job:
    """A table on its way through its rule."""

    spark: SparkSession
    rule: Rule
    changes: Changes
    transactions: Transactions
    source: SourceInfo
    tables: Tables | None = None
    """Which relation each row is of, where these are the changes of several tables."""
    show_lookups: Callable[[SparkSession], None] | None = None
    """Makes the lookups that the rule uses views of its session."""
    check_lookups: Callable[[SparkSession], None] = lambda _: None
    """Called when something else than `show_lookups` may have changed these views."""
    lookup_versions: tuple[int, ...] | None = None
    """Numbers of what these views show; None where a plan over them is of no use for other batches."""

    @cached_property
    def columns(self) -> HashedColumns:
        """Those of the changes, with what is known of their types."""
        return hash_columns(self.changes.columns)

    def show_change(self, row: int) -> str:
        """What messages call a change: `(0/1B13810, 5)`, or `(0/1B13810, 5) of snapshot "ID"`."""
        tx, seq = int(self.changes.tx[row]), self.changes.seq[row]
        commit = choose_fields(self.source).show_commit(int(self.transactions.commit[tx]))
        snapshot = self.transactions.snapshots.get(tx)
        return f"({commit}, {seq})" + ("" if snapshot is None else f' of snapshot "{snapshot.id}"')

    @property
    def where(self) -> str:
        """What messages call it."""
        others = len(self.tables.relations) - 1 if self.tables is not None else 0
        more = f" and {others} more tables" if others else ""
        return f"{self.changes.relation}{more}, {self.rule.shown}"

    def prepare_session(self) -> None:
        """Before the rule is applied."""
        if self.show_lookups is not None:
            self.show_lookups(self.spark)

    def narrow(self, changes: Changes) -> Job:
        """The same with some of the changes."""
        return replace(self, changes=changes)
