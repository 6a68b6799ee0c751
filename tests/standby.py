"""A standby of a server, which can be promoted."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager

from psycopg2.extensions import make_dsn

from psql_streamer.embedded.ports import LOOPBACK
from psql_streamer.embedded.postgres import EmbeddedPostgres
from tests.database import Database
from tests.source_at_work import wait_for

_PHYSICAL_SLOT = "standby"
_SYNCS_SLOTS = {"sync_replication_slots": "on", "hot_standby_feedback": "on", "wal_receiver_status_interval": "1s"}


def database_of(server: EmbeddedPostgres) -> Database:
    """The database `postgres` of a server."""
    return Database("postgres", server.build_dsn(), server.version)


@contextmanager
def standby_of(
    primary: EmbeddedPostgres, settings: Mapping[str, str] | None = None, slot: str = _PHYSICAL_SLOT
) -> Iterator[EmbeddedPostgres]:
    """A server that follows the primary through a physical slot, with settings of its own."""
    database_of(primary).query("SELECT pg_create_physical_replication_slot(%s, true)", slot)
    with closing(EmbeddedPostgres(primary.bin_dir, settings=settings)) as server:
        backup = [primary.bin_dir / "pg_basebackup", "-R", "-c", "fast", "--no-sync", "-S", slot]
        subprocess.run(
            [*backup, "-D", server.data_dir, "-d", primary.build_dsn()], check=True, **server._make_popen_options()
        )
        server.start()
        yield server


@contextmanager
def copy_of(server: EmbeddedPostgres) -> Iterator[EmbeddedPostgres]:
    """A server that was started from a copy of the files of another, and goes on in its timeline."""
    with closing(EmbeddedPostgres(server.bin_dir)) as copy:
        backup = [server.bin_dir / "pg_basebackup", "-c", "fast", "--no-sync", "-D", copy.data_dir]
        subprocess.run([*backup, "-d", server.build_dsn()], check=True, **copy._make_popen_options())
        copy.start()
        yield copy


@contextmanager
def synchronized(primary: EmbeddedPostgres) -> Iterator[EmbeddedPostgres]:
    """A standby that keeps the slots of its primary, and that no slot gets ahead of."""
    with standby_of(primary, _SYNCS_SLOTS) as standby:
        primary.settings["synchronized_standby_slots"] = _PHYSICAL_SLOT
        primary.restart()
        yield standby


def wait_until_it_follows(standby: EmbeddedPostgres, primary: EmbeddedPostgres) -> None:
    """Until the standby has replayed what the primary has written now."""
    end = database_of(primary).value("SELECT pg_current_wal_flush_lsn()::text")
    follower = database_of(standby)
    wait_for(lambda: follower.value("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", end), "the standby to follow")


def is_slot_kept(primary: EmbeddedPostgres, standby: EmbeddedPostgres) -> bool:
    """Whether the standby has a slot of the primary, to be read from when it is promoted.

    It does not have it before the slot has got behind the place where the standby began.
    """
    database_of(primary).query("SELECT pg_log_standby_snapshot()")
    kept = "SELECT count(*) FROM pg_replication_slots WHERE synced AND NOT temporary"
    return bool(database_of(standby).value(kept))


def copy_slot(primary: EmbeddedPostgres, standby: EmbeddedPostgres, slot: str) -> None:
    """As Patroni keeps the slots of older servers: their files are copied while the standby is stopped."""
    with database_of(primary).session(autocommit=True) as session, session.cursor() as cursor:
        cursor.execute("CHECKPOINT")  # writes the slot's file
    standby.stop()
    kept = standby.data_dir / "pg_replslot" / slot
    shutil.rmtree(kept, ignore_errors=True)
    # The server writes a slot into state.tmp first, and renames that.
    shutil.copytree(primary.data_dir / "pg_replslot" / slot, kept, ignore=shutil.ignore_patterns("*.tmp"))
    for path in (kept, *kept.iterdir()):
        standby.own(path)
    standby.start()


def stop_following(standby: EmbeddedPostgres) -> None:
    """What the primary writes from now on the standby will never have."""
    follower = database_of(standby)
    with follower.session(autocommit=True) as session, session.cursor() as cursor:
        cursor.execute("ALTER SYSTEM SET primary_conninfo = ''")
        cursor.execute("SELECT pg_reload_conf()")
    wait_for(lambda: not follower.value("SELECT count(*) FROM pg_stat_wal_receiver"), "the standby to follow no more")


def rewind(primary: EmbeddedPostgres, promoted: EmbeddedPostgres) -> None:
    """Make a primary of before the standby of the one that was promoted. What it alone has is gone with that.

    Both need `wal_log_hints` and `full_page_writes`.
    """
    with database_of(promoted).session(autocommit=True) as session, session.cursor() as cursor:
        cursor.execute("SELECT pg_create_physical_replication_slot(%s, true)", (_PHYSICAL_SLOT,))
        cursor.execute("CHECKPOINT")  # before version 16 the timeline is not in its control file without one
    primary.stop()
    command = [primary.bin_dir / "pg_rewind", "-R", "--no-sync", "-D", primary.data_dir]
    subprocess.run([*command, "--source-server", promoted.build_dsn()], check=True, **primary._make_popen_options())
    primary.start()


def promote(standby: EmbeddedPostgres) -> None:
    """Make it a primary."""
    assert database_of(standby).value("SELECT pg_promote(true, 60)")


def end_and_promote(primary: EmbeddedPostgres, standby: EmbeddedPostgres) -> None:
    """The primary crashes."""
    primary.stop("immediate")
    promote(standby)


def dsn_of_both(first: EmbeddedPostgres, second: EmbeddedPostgres) -> str:
    """Of the one that is the primary."""
    return str(
        make_dsn(
            host=f"{LOOPBACK},{LOOPBACK}",
            port=f"{first.port},{second.port}",
            user="postgres",
            dbname="postgres",
            target_session_attrs="primary",
        )
    )
