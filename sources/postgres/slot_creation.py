"""Making a replication slot, which waits for every transaction that was open when it began."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import psycopg2

from psql_streamer.bounded import Call
from psql_streamer.errors import SourceError, SourceUnavailable
from sources.postgres.catalog import Catalog, Session, Slot

log = logging.getLogger(__name__)

Made = TypeVar("Made")

_BLOCKER_LOOK_SECONDS = 0.5
"""Between two questions for the transaction that is waited for."""
_CANCEL_SECONDS = 2.0
"""For a server to take a cancel request."""
_UNDO_SECONDS = 8.0
"""For a server that took it to end the command, or to drop the slot: both wait for the disk (fsync of its folder)."""

# 0 stands for a prepared transaction (PostgreSQL documentation, pg_blocking_pids).
_BLOCKERS = """
    SELECT blocker, to_char(a.xact_start AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), a.usename::text, a.state
    FROM unnest(pg_blocking_pids(%s)) blocker LEFT JOIN pg_stat_activity a ON a.pid = blocker
    ORDER BY a.xact_start
"""


def create_slot(catalog: Catalog, name: str, on_wait: Callable[[str], None], *, failover: bool) -> Slot:
    """Make a pgoutput slot. What was written by transactions that are open now comes whole or not at all.

    on_wait: told which transaction is waited for, whenever that is another one. failover: whether standbys keep the
    slot, too. SourceUnavailable with what was waited for when the catalog is interrupted; the slot is then not made.
    """
    database = catalog.database
    with catalog.open_session(answer_timeout=None, outlives_interrupt=True) as maker:
        begins = wait_for_slot(catalog, maker, lambda: maker.create_slot(name, failover=failover), name, on_wait)
    return Slot.make_created(name, database, begins, failover=failover)


def wait_for_slot(
    catalog: Catalog, maker: Session, make: Callable[[], Made], name: str, on_wait: Callable[[str], None]
) -> Made:
    """What `make` gives, which creates a slot in the session `maker`; the rest as create_slot.

    The session is one that Catalog.interrupt leaves alone.
    """

    def make_noticed() -> Made:
        with suppress(psycopg2.Error):  # not on every platform: the server notices when we leave while it waits
            maker.read_rows("SELECT set_config('client_connection_check_interval', '1s', false)")
        return make()

    waits_for = remedy = ""
    making = Call(make_noticed, "create slot")
    while not making.wait(_BLOCKER_LOOK_SECONDS, catalog.interrupted) and not catalog.interrupted.is_set():
        found, to_do = _describe_blocker(catalog, maker, name)
        if found and found != waits_for:
            waits_for, remedy = found, to_do
            on_wait(found)
    if catalog.interrupted.is_set():
        _undo(maker, making, name)
        raise SourceUnavailable(waits_for or f'slot "{name}" was not created in time', remedy)
    return making.require_result()


_END_TRANSACTION = "end that transaction, or start when it has ended"
_LOG_SNAPSHOT = "an idle one does not: run SELECT pg_log_standby_snapshot() there"


def _undo(maker: Session, making: Call[Made], name: str) -> None:
    """Leave no slot: nobody would read it, and it would keep WAL.

    A server looks for a client that is gone once a second, and in a replication command not at all: by then it may have
    made the slot. The command is cancelled, and a slot that is there all the same is dropped. A server that does not
    answer is given up.
    """
    cancelling = Call(maker.cancel_request().send, "cancel slot")
    if not (_has_ended(cancelling, _CANCEL_SECONDS) and _has_ended(making, _UNDO_SECONDS)):
        maker.abort()
        log.warning('slot "%s" may have been created: the server did not answer the cancel request', name)
        return
    if not _has_ended(Call(lambda: _drop_made(maker, making, name), "drop slot"), _UNDO_SECONDS):
        maker.abort()
        log.warning('slot "%s" may have been created: the server did not answer when it was dropped', name)


def _drop_made(maker: Session, making: Call[Made], name: str) -> None:
    """Drop what `making` made. A command that is cancelled behind the slot's last write fails and leaves it."""
    with suppress(psycopg2.Error):
        with suppress(psycopg2.errors.QueryCanceled):
            making.require_result()
        maker.drop_slot(name)


def _has_ended(call: Call[Any], seconds: float) -> bool:
    return call.wait(seconds, threading.Event())


def _describe_blocker(catalog: Catalog, maker: Session, name: str) -> tuple[str, str]:
    """The oldest transaction that the slot waits for, and what to do; empty when there is none, or it cannot be seen.

    On a standby it waits for the primary to log which transactions run, which an idle one does not (PostgreSQL
    documentation, "Logical Decoding on Standby").
    """
    with suppress(SourceError), catalog.open_session() as session:
        for pid, since, user, state in session.read_rows(_BLOCKERS, maker.backend_pid):
            if not pid:
                what = f'slot "{name}" waits for a prepared transaction to end (see pg_prepared_xacts)'
                return what, _END_TRANSACTION
            seen = f", open since {since}, user {user}, {state}" if since else ""
            return f'slot "{name}" waits for the transaction of PID {pid} to end{seen}', _END_TRANSACTION
        if session.is_standby():
            return f'slot "{name}" waits for the primary to log which transactions run ({_LOG_SNAPSHOT})', ""
    return "", ""
