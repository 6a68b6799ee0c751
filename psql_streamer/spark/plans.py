"""Plans of Spark that are there already, and run again and again over other rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class Plan(Protocol):
    """A plan that can be run. From several threads.

    text: the physical plan, as Spark shows it.
    """

    text: str

    def run(self, table: pa.Table) -> pa.Table:
        """What the plan makes of these rows; columns go by their order. Raises what Spark raises."""
        ...


class Inlet(Protocol):
    """frame: a DataFrame of the rows with which a plan is run."""

    @property
    def frame(self) -> DataFrame: ...

    def plan(self, result: DataFrame) -> Plan | None:
        """The plan of a result that is made of `frame`; None for one that cannot be run in this way."""
        ...


class Inlets(Protocol):
    """A way in which plans are run on one engine."""

    def make(self, spark: SparkSession, schema: StructType, arrow: pa.Schema) -> Inlet:
        """An inlet for rows of this schema. arrow: the same as Arrow's."""
        ...

    def cancel(self) -> None:
        """Plans that run fail, but for those of jobs, which are the application's."""
        ...
