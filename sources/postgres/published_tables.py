"""The tables of publications, as the catalog has them now: what a stream's Relation messages would say."""

from __future__ import annotations

from collections.abc import Sequence

from psql_streamer.model import Relation
from sources.postgres.catalog import Session
from sources.postgres.snapshot.tables import Resolve, list_snapshot_tables


def list_published_tables(session: Session, publications: Sequence[str], resolve: Resolve) -> list[Relation]:
    """The tables, by schema and name. resolve: what a type's OID stands for.

    A partitioned table stands for itself or by its partitions, as publish_via_partition_root has it.
    """
    return [table.relation for table in list_snapshot_tables(session, publications, resolve, filters=False)]
