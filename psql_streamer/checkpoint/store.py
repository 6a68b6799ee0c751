"""The position store: LMDB, on disk before `put` returns. One record a source, the shapes of its tables there, and the
snapshots that were asked of it; and what sinks remember."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

import lmdb

from psql_streamer.checkpoint.store_format import (
    FORMAT,
    UNREADABLE,
    StoredPosition,
    StoredSnapshot,
    decode_position,
    decode_relation,
    decode_snapshot,
    encode_position,
    encode_relation,
    encode_snapshot,
)
from psql_streamer.checkpoint.store_pages import DamagedFile, check_file
from psql_streamer.checkpoint.store_place import make_opening_error, name_owner_file, require_place
from psql_streamer.errors import StoreError, StoreInUse
from psql_streamer.model import Relation
from psql_streamer.shortage import find_limit
from psql_streamer.shown_commands import show_command

log = logging.getLogger("psql_streamer.pipeline")

_POSITIONS, _RELATIONS, _SNAPSHOTS, _META = b"positions", b"relations", b"snapshots", b"meta"
_SINKS = b"sinks"
_FORMAT_KEY = b"format"
_LINEAGE = "lineage:"
_DATABASES = 5
_MODE = 0o600
_FOLDER_MODE = 0o700
_LOCK_BYTES = 8192
"""What LMDB maps of its lock file: a head, and a slot for each of 126 readers (LMDB source, mdb_env_setup_locks)."""

_NO_FILE = (0, 0)
_REPLACED_REMEDY = "put the file back that was there, or look whether this one is newer; then start again"


class Store:
    """One LMDB file. One process at a time holds it; a second one is refused.

    path: the file (its lock lies beside it as `PATH-lock`, and `PATH-owner` names the process).
    """

    def __init__(self, path: Path, map_size: int = 64 << 20) -> None:
        self._path = path
        self._map_size = map_size
        self._environment: Any = None
        self._positions: Any = None
        self._relations: Any = None
        self._meta: Any = None
        self._snapshots: Any = None  # None: a file that is only read has none
        self._sinks: Any = None
        self._owner = -1
        self._file = _NO_FILE
        self._lost: StoreError | None = None
        self._writing = threading.Lock()

    def open(self) -> None:
        """StoreError when the file cannot be used, or another process does."""
        require_place(self._path)
        self._claim()
        try:
            if self._path.exists():
                check_file(self._path, all_pages=True)
            else:
                self._make_file()
            self._environment = self._open(readonly=False)
            written = self._format()
            self._positions = self._environment.open_db(_POSITIONS)
            self._relations = self._environment.open_db(_RELATIONS)
            self._snapshots = self._environment.open_db(_SNAPSHOTS)
            self._meta = self._environment.open_db(_META)
            self._sinks = self._environment.open_db(_SINKS)
            if written < FORMAT:
                self._write_format()
            self._file = _identify(self._path)
        except DamagedFile as damage:
            self.close()
            raise self._make_damaged_error(damage) from None
        except lmdb.Error as error:
            self.close()
            raise self._make_unusable_error(error) from None

    def open_to_read(self) -> int:
        """Open beside a process that may hold the file; that one's PID, 0 for none. StoreError as `open`.

        Nothing can be stored. A file that does not exist is made by nobody: StoreError.
        """
        holder = self._find_holder()
        try:
            self._check_to_read(holder)
            self._environment = self._open(readonly=True)
            self._format()
            self._positions = self._environment.open_db(_POSITIONS, create=False)
            self._relations = self._environment.open_db(_RELATIONS, create=False)
            self._snapshots = self._open_snapshots_to_read()
        except DamagedFile as damage:
            raise self._make_damaged_error(damage) from None
        except lmdb.Error as error:
            self.close()
            raise self._make_unusable_error(error) from None
        return holder

    def get(self, source: str) -> StoredPosition | None:
        """What is remembered of a source; None when nothing is."""
        with self._environment.begin(db=self._positions) as transaction:
            value = transaction.get(source.encode())
        return None if value is None else self._decode(source, value)

    def read_all(self) -> dict[str, StoredPosition]:
        """Every record, by source."""
        with self._environment.begin(db=self._positions) as transaction:
            return {
                bytes(key).decode(): self._decode(bytes(key).decode(), value) for key, value in transaction.cursor()
            }

    def read_relations(self, source: str) -> list[Relation]:
        """The shapes that a source's tables have at its position. StoreError when one cannot be read."""
        return [self._decode_relation(source, value) for value in self._read_values(source, self._relations)]

    def read_snapshots(self, source: str) -> list[StoredSnapshot]:
        """What was asked of a source, in the order in which it was. StoreError when one cannot be read."""
        found = [self._decode_snapshot(source, value) for value in self._read_values(source, self._snapshots)]
        return sorted(found, key=lambda stored: stored.request.asked_at)

    def put_snapshots(self, source: str, stored: Iterable[StoredSnapshot], removed: Iterable[str] = ()) -> None:
        """Remember snapshots; on return they are on disk. removed: ids of others, of which nothing need be known.

        From any thread; StoreError while the file is not open.
        """
        with self._begin_transaction() as transaction:
            self._write_snapshots(transaction, source, stored)
            for snapshot in removed:
                transaction.delete(_make_key(source, snapshot), db=self._snapshots)

    def put(
        self, source: str, record: StoredPosition, relations: Iterable[Relation] = (), dropped: Iterable[Relation] = ()
    ) -> None:
        """Remember; on return it is on disk (LMDB's commit syncs).

        relations: shapes that are new at this position. dropped: tables whose shapes are not needed any more.
        """
        try:
            with self._writing, self._require_in_place().begin(write=True) as transaction:
                place = source.encode()
                written = encode_position(record, transaction.get(place, db=self._positions))
                transaction.put(place, written, db=self._positions)
                for relation in dropped:
                    transaction.delete(_make_key(source, relation.id), db=self._relations)
                for relation in relations:
                    key = _make_key(source, relation.id)
                    written = encode_relation(relation, transaction.get(key, db=self._relations))
                    transaction.put(key, written, db=self._relations)
        except lmdb.Error as error:
            raise self._make_unusable_error(error) from None

    def read_lineage(self, source: str) -> str:
        """Which notes of transactions belong to a source's position: see checkpoint.notes. Empty for none."""
        with self._environment.begin(db=self._meta) as transaction:
            return bytes(transaction.get(_make_lineage_key(source), b"")).decode()

    def put_lineage(self, source: str, lineage: str) -> None:
        """Remember it; on return it is on disk. Empty: no notes belong to the position any more."""
        with self._begin_transaction() as transaction:
            if lineage:
                transaction.put(_make_lineage_key(source), lineage.encode(), db=self._meta)
            else:
                transaction.delete(_make_lineage_key(source), db=self._meta)

    def read_sink(self, sink: str) -> dict[str, str]:
        """What a sink remembers, by name."""
        prefix = _make_key(sink, "")
        with self._environment.begin(db=self._sinks) as transaction, transaction.cursor() as cursor:
            cursor.set_range(prefix)
            of_sink = takewhile(lambda one: bytes(one[0]).startswith(prefix), cursor)
            return {bytes(key)[len(prefix) :].decode(): bytes(value).decode() for key, value in of_sink}

    def put_sink(self, sink: str, texts: Mapping[str, str]) -> None:
        """Remember texts of a sink by name, and forget those that are empty; on return that is on disk.

        From any thread; StoreError while the file is not open.
        """
        with self._begin_transaction() as transaction:
            for name, text in texts.items():
                if text:
                    transaction.put(_make_key(sink, name), text.encode(), db=self._sinks)
                else:
                    transaction.delete(_make_key(sink, name), db=self._sinks)

    def forget(self, source: str) -> bool:
        """Remove a source's record, its tables' shapes and what was asked of it; whether there was anything."""
        with self._begin_transaction() as transaction:
            return self._forget(transaction, source)

    def begin_again(self, source: str, snapshot: StoredSnapshot) -> None:
        """Forget everything of a source, and leave this snapshot for its next start: both or none."""
        with self._begin_transaction() as transaction:
            self._forget(transaction, source)
            self._write_snapshots(transaction, source, [snapshot])

    def close(self) -> None:
        """Give the file back. May be called twice.

        While another thread writes it stays open until the process ends: py-lmdb frees every transaction with it.
        """
        if not self._writing.acquire(blocking=False):
            return
        try:
            self._close()
        finally:
            self._writing.release()

    def _close(self) -> None:
        if self._environment is not None:
            if self._lost is None and self._file != _NO_FILE and _identify(self._path) == _NO_FILE:
                log.warning("lmdb: %s was removed while the service ran: %s", self._path, self._put_back())
            self._environment.close()
            self._environment, self._file, self._lost = None, _NO_FILE, None
        if self._owner >= 0:
            os.close(self._owner)
            self._owner = -1

    def _make_file(self) -> None:
        """Give the name to a file that is whole: one that is empty or short has then been damaged, in any crash."""
        path = self._path.resolve()
        new = path.with_name(path.name + "-new")
        try:
            new.unlink(missing_ok=True)
            lmdb.open(str(new), map_size=self._map_size, subdir=False, mode=_MODE, lock=False).close()
            _sync(new)
            new.rename(path)
            _sync(path.parent)
        except OSError as error:
            raise self._make_unusable_error(lmdb.DiskError(str(error.strerror).lower())) from None

    def _check_to_read(self, holder: int) -> None:
        """DamagedFile as it is. What somebody writes to meanwhile changes under whoever looks at all of its pages."""
        try:
            check_file(self._path, all_pages=not holder)
        except DamagedFile:
            if holder or not self._find_holder():
                raise

    def _open(self, *, readonly: bool) -> Any:
        self._reserve_lock()
        return lmdb.open(
            str(self._path),
            map_size=self._map_size,
            subdir=False,
            max_dbs=_DATABASES,
            mode=_MODE,
            readonly=readonly,
        )

    def _reserve_lock(self) -> None:
        """Have the room for LMDB's lock file on the disk: on a full one LMDB would end the process (SIGBUS)."""
        if not self._path.exists() or not hasattr(os, "posix_fallocate"):
            return
        try:
            lock = os.open(f"{self._path}-lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
        except OSError:  # LMDB says what is wrong, or does without
            return
        try:
            if os.fstat(lock).st_blocks * 512 < _LOCK_BYTES:
                os.posix_fallocate(lock, 0, _LOCK_BYTES)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise self._make_unusable_error(lmdb.DiskError(str(error.strerror).lower())) from None
        finally:
            os.close(lock)

    def _format(self) -> int:
        """The format of the file, 1 where it has none; StoreError for one that is newer than this version."""
        try:
            meta = self._environment.open_db(_META, create=False)
        except lmdb.NotFoundError:
            return 1
        with self._environment.begin(db=meta) as transaction:
            text = bytes(transaction.get(_FORMAT_KEY, b"1"))
        if not text.isdigit():
            self.close()
            raise self._make_unusable_error(lmdb.InvalidError("its format is no number"))
        written = int(text)
        if written > FORMAT:
            self.close()
            raise StoreError(
                f"lmdb: {self._path} was written by a newer version of psql-streamer (format {written}, "
                f"this version reads up to {FORMAT})",
                "start that version, or restore the file from a backup",
            )
        return written

    def _write_format(self) -> None:
        """Shapes of format 1 stay as they are until they are written again: both are read."""
        with self._environment.begin(write=True, db=self._environment.open_db(_META)) as transaction:
            transaction.put(_FORMAT_KEY, b"%d" % FORMAT)

    def _claim(self) -> None:
        """LMDB itself lets several processes write; two of them would move each other's positions."""
        owner = name_owner_file(self._path)
        try:
            self._owner = os.open(owner, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise make_opening_error(self._path, error) from None
        try:
            fcntl.flock(self._owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._owner, 32).decode("ascii", "replace").strip() or "unknown"
            self.close()
            raise StoreInUse(
                f"lmdb: {self._path} is in use by PID {holder}", "stop that process, or set lmdb to another path"
            ) from None
        try:
            os.ftruncate(self._owner, 0)
            os.pwrite(self._owner, str(os.getpid()).encode(), 0)
        except OSError as error:
            self.close()
            raise self._make_unusable_error(lmdb.DiskError(str(error.strerror).lower())) from None

    def _find_holder(self) -> int:
        """The process that has the file open; 0 for none."""
        try:
            owner = os.open(name_owner_file(self._path), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return 0
        try:
            fcntl.flock(owner, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(os.read(owner, 32) or b"1")
        finally:
            os.close(owner)
        return 0

    def _require_in_place(self) -> Any:
        """What is written to. StoreError when the file is not the one of its name any more, of which the next
        start would know nothing; one that was removed is put back first. `_writing` is held.
        """
        found = _identify(self._path)
        if self._lost is None and found == _NO_FILE:
            self._lost = StoreError(f"lmdb: {self._path} was removed while the service runs", self._put_back())
        elif self._lost is None and found != self._file:
            self._lost = StoreError(f"lmdb: {self._path} was replaced while the service runs", _REPLACED_REMEDY)
        if self._lost is not None:
            raise self._lost
        return self._environment

    def _put_back(self) -> str:
        """Write all that the removed file holds to one of its name, on disk; what there is to do then.

        Its folder may be gone, too. It is made anew; one above it may have been a mounted disk, and is not.
        """
        copy = self._path.with_name(self._path.name + "-copy")
        try:
            with suppress(FileExistsError):
                copy.parent.mkdir(mode=_FOLDER_MODE)
                _sync(copy.parent.parent)
            copy.unlink(missing_ok=True)
            self._environment.copy(str(copy))
            copy.chmod(_MODE)
            _sync(copy)
            copy.rename(self._path)
            _sync(self._path.parent)
        except (lmdb.Error, OSError):
            return f"restore it from a backup. {_explain_first_start()}"
        return "it was written anew, with all that it held"

    @contextmanager
    def _begin_transaction(self) -> Iterator[Any]:
        """A transaction that is on disk when it is left; StoreError when the file cannot be written or is not open."""
        try:
            with self._writing:
                if self._environment is None:
                    raise StoreError(f"lmdb: {self._path} is not open", "ask again when the service runs")
                with self._require_in_place().begin(write=True) as transaction:
                    yield transaction
        except lmdb.Error as error:
            raise self._make_unusable_error(error) from None

    def _read_values(self, source: str, database: Any) -> list[bytes]:
        """The values of a source, of a database whose keys are of _key_of; none of a database that is not there."""
        if database is None:
            return []
        prefix, found = _make_key(source, ""), []
        with self._environment.begin(db=database) as transaction, transaction.cursor() as cursor:
            cursor.set_range(prefix)
            for key, value in cursor:
                if not bytes(key).startswith(prefix):
                    break
                found.append(bytes(value))
        return found

    def _write_snapshots(self, transaction: Any, source: str, snapshots: Iterable[StoredSnapshot]) -> None:
        for stored in snapshots:
            key = _make_key(source, stored.request.id)
            written = encode_snapshot(stored, transaction.get(key, db=self._snapshots))
            transaction.put(key, written, db=self._snapshots)

    def _forget(self, transaction: Any, source: str) -> bool:
        found = bool(transaction.delete(source.encode(), db=self._positions))
        transaction.delete(_make_lineage_key(source), db=self._meta)
        prefix = _make_key(source, "")
        for database in (self._relations, self._snapshots):
            with transaction.cursor(database) as cursor:
                while cursor.set_range(prefix) and bytes(cursor.key()).startswith(prefix):
                    cursor.delete()
                    found = True
        return found

    def _open_snapshots_to_read(self) -> Any:
        """None for a file of a version that knew no snapshots."""
        try:
            return self._environment.open_db(_SNAPSHOTS, create=False)
        except lmdb.NotFoundError:
            return None

    def _make_unusable_error(self, error: lmdb.Error) -> StoreError:
        if isinstance(error, lmdb.MapFullError):
            return StoreError(f"lmdb: {self._path} is full", "raise lmdbMapSize")
        if isinstance(error, lmdb.MemoryError):
            return StoreError(
                f"lmdb: {self._path} cannot be mapped: no {self._map_size:,} bytes of address space are given",
                "raise the limit (ulimit -v, LimitAS of systemd), or lower lmdbMapSize",
            )
        if isinstance(error, lmdb.InvalidError | lmdb.VersionMismatchError | lmdb.CorruptedError):
            return StoreError(
                f"lmdb: {self._path} is not an LMDB file of this service",
                "name another path, or move the file away (the Go service's BoltDB file cannot be taken over)",
            )
        return StoreError(
            f"lmdb: {self._path} cannot be used ({error})",
            find_limit(str(error)) or "look at the disk's free space and the file's permissions",
        )

    def _make_damaged_error(self, damage: DamagedFile) -> StoreError:
        return StoreError(
            f"lmdb: {self._path} is damaged ({damage}), and the positions in it are lost",
            f"restore it from a backup, or move it away. {_explain_first_start()}",
        )

    def _decode(self, source: str, value: bytes) -> StoredPosition:
        try:
            return decode_position(value)
        except UNREADABLE:
            raise self._make_unreadable_error(source) from None

    def _decode_relation(self, source: str, value: bytes) -> Relation:
        try:
            return decode_relation(value)
        except UNREADABLE:
            raise self._make_unreadable_error(source) from None

    def _decode_snapshot(self, source: str, value: bytes) -> StoredSnapshot:
        try:
            return decode_snapshot(value)
        except UNREADABLE:
            raise self._make_unreadable_error(source) from None

    def _make_unreadable_error(self, source: str) -> StoreError:
        return StoreError(
            f'lmdb: the record of source "{source}" in {self._path} cannot be read',
            f"forget it ({show_command('position', 'forget', source)}) or restore the file from a backup",
        )


def _explain_first_start() -> str:
    return (
        "Without it every source starts as for the first time, and what was changed meanwhile may be missing: ask the "
        f"running service for all rows then ({show_command('snapshot', 'start')})"
    )


def _identify(path: Path) -> tuple[int, int]:
    """Which file has this name now; _NO_FILE for none."""
    try:
        found = path.stat()
    except OSError:
        return _NO_FILE
    return found.st_dev, found.st_ino


def _sync(path: Path) -> None:
    """Return when a file, or the names in a folder, are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _make_lineage_key(source: str) -> bytes:
    return f"{_LINEAGE}{source}".encode()


def _make_key(source: str, one: str) -> bytes:
    return f"{source}\0{one}".encode()
