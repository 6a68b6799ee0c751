"""What becomes of a table while it is read, for which reading it once more does not make up."""

from __future__ import annotations

from psql_streamer.shown_commands import show_command
from sources.postgres.snapshot.partitions import find_fact, has_fact
from sources.postgres.snapshot.tables import SnapshotTable


def describe_alteration(
    source: str, order: str, table: SnapshotTable, *, were_detached: bool, was_written_anew: bool
) -> str:
    """What consumers lack, and what to do; empty for nothing. order: in which rows of it were read before.

    source: its name. were_detached: whether some of its partitions may have been out of it meanwhile. was_written_anew:
    whether it may have been UNLOGGED meanwhile, or got other values by ALTER TABLE.
    """
    if not has_fact(order, "membership"):  # an older version stored none
        return ""
    before = ".".join(find_fact(order, "name"))
    if before != str(table.relation):
        return f"{before} is called {table.relation} now; rows that were sent under the old name stay there"
    if find_fact(order, "membership") != find_fact(table.order, "membership"):
        what = "its publication was altered"
    elif were_detached:
        what = "one of its partitions was detached"
    elif was_written_anew:
        what = "its rows were written anew (SET UNLOGGED, ALTER COLUMN ... TYPE or the like)"
    else:
        what = ""
    if what:
        command = show_command("snapshot", "reconcile", "--source", source, "--table", str(table.relation))
        return (
            f"{what} while it was read, and what was changed in it meanwhile may not be in the stream; to send deletes "
            f"for rows that were deleted then, run: {command}"
        )
    return ""
