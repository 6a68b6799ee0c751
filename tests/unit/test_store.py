"""The position store, on a real LMDB file."""

from __future__ import annotations

import base64
import errno
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import lmdb
import pyarrow as pa
import pytest

from psql_streamer.checkpoint.store import Store
from psql_streamer.checkpoint.store_format import StoredPosition, StoredSnapshot
from psql_streamer.checkpoint.store_pages import DamagedFile, check_file
from psql_streamer.cli import main
from psql_streamer.config import load
from psql_streamer.errors import StoreError
from psql_streamer.lsn import Lsn
from psql_streamer.model import ArrowType, Column, Position, ReplicaIdentity
from psql_streamer.pgoutput.wal_position import WalPosition
from psql_streamer.preflight import check
from psql_streamer.snapshots import SnapshotRequest, SnapshotState, TableRequest, Wanted
from tests.columns import postgres_column, postgres_table

DATA = Path(__file__).parents[1] / "data" / "stores"
RECORD = StoredPosition(
    WalPosition(Lsn(0x16_B374_D848), Lsn(0x16_B374_E000), 41).position,
    {"slot": "s1", "timeline": "1"},
    sinks=("kafka1", "kafka2"),
)


CONFIG = """
http = "127.0.0.1:0"
lmdb = "{lmdb}"
[source.db1]
type = "postgres"
dsn = "host=127.0.0.1 port=1 dbname=shop"
publication = "shop"
replicationSlot = "shop"
[sink.nothing]
type = "stub_discard"
sources = ["db1"]
"""


def test_a_position_is_there_after_the_file_was_closed_and_opened_again(tmp_path: Path) -> None:
    store = Store(tmp_path / "positions.lmdb")
    store.open()
    assert store.get("db1") is None
    store.put("db1", RECORD)
    store.close()
    store.open()
    assert store.get("db1") == RECORD
    assert store.read_all() == {"db1": RECORD}
    store.close()


def test_what_a_sink_remembers_is_its_own_and_is_there_after_the_file_was_opened_again(tmp_path: Path) -> None:
    store = Store(tmp_path / "positions.lmdb")
    store.open()
    assert store.read_sink("kafka1") == {}
    store.put_sink("kafka1", {"": "cluster", "orders": "1", "gone": "2"})
    store.put_sink("kafka", {"orders": "3"})
    store.put_sink("kafka1", {"orders": "4", "gone": "", "never": ""})
    store.close()
    with pytest.raises(StoreError, match="is not open"):
        store.put_sink("kafka1", {"orders": "5"})
    store.open()
    assert store.read_sink("kafka1") == {"": "cluster", "orders": "4"}
    assert store.read_sink("kafka") == {"orders": "3"}
    store.close()


@pytest.mark.behaviour("R3")
def test_a_position_survives_a_process_that_is_killed_right_after_it_was_stored(tmp_path: Path) -> None:
    path = tmp_path / "positions.lmdb"
    script = f"""
import os, pathlib, signal
from psql_streamer.model import Position
from psql_streamer.checkpoint.store import Store
from psql_streamer.checkpoint.store_format import StoredPosition, StoredSnapshot
store = Store(pathlib.Path({str(path)!r}))
store.open()
store.put("db1", StoredPosition(Position({{"id": 7}}, "id=7"), {{}}))
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    store = Store(path)
    store.open()
    assert store.get("db1") == StoredPosition(Position({"id": 7}, "id=7"), {})
    store.close()


def test_a_file_that_is_removed_while_it_is_in_use_is_told_of_and_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "positions.lmdb"
    store = Store(path)
    store.open()
    store.put("db1", RECORD)
    store.put_lineage("db1", "abc")
    path.unlink()
    with pytest.raises(StoreError, match="was removed while the service runs: it was written anew"):
        store.put("db1", replace(RECORD, override="0/1"))
    with pytest.raises(StoreError, match="was removed"):  # what is there now is not what this one has open
        store.put_lineage("db1", "def")
    store.close()
    store.open()
    assert (store.get("db1"), store.read_lineage("db1")) == (RECORD, "abc")
    assert path.stat().st_mode & 0o777 == 0o600
    assert {file.name for file in tmp_path.iterdir()} == {f"positions.lmdb{end}" for end in ("", "-lock", "-owner")}
    path.unlink()
    with pytest.raises(StoreError, match="was removed"):
        store.put_lineage("db1", "def")
    store.close()


def test_a_file_that_was_removed_since_it_was_written_to_last_is_written_anew_when_it_is_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "positions.lmdb"
    store = Store(path)
    store.open()
    store.put("db1", RECORD)
    path.unlink()
    store.close()
    assert "was removed while the service ran: it was written anew" in caplog.text
    store.open()
    assert store.get("db1") == RECORD
    store.close()


def test_a_file_that_is_replaced_while_it_is_in_use_is_told_of_and_left_alone(tmp_path: Path) -> None:
    path, other = tmp_path / "positions.lmdb", tmp_path / "other.lmdb"
    other.write_bytes(b"somebody else's")
    store = Store(path)
    store.open()
    other.rename(path)
    with pytest.raises(StoreError, match="was replaced while the service runs"):
        store.put("db1", RECORD)
    store.close()
    assert path.read_bytes() == b"somebody else's"


def test_a_file_whose_folder_is_removed_while_it_is_in_use_is_written_anew_with_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    store = Store(folder / "positions.lmdb")
    store.open()
    store.put("db1", RECORD)
    shutil.rmtree(folder)
    with pytest.raises(StoreError, match="was removed while the service runs: it was written anew"):
        store.put("db1", replace(RECORD, override="0/1"))
    store.close()
    store.open()
    assert store.get("db1") == RECORD
    assert folder.stat().st_mode & 0o777 == 0o700
    store.close()


def test_a_device_is_not_taken_for_a_damaged_file() -> None:
    with pytest.raises(StoreError, match="/dev/null is a device, a pipe or a socket: name a file"):
        Store(Path("/dev/null")).open()


def test_a_file_that_cannot_be_written_anew_is_told_of_with_what_it_costs(tmp_path: Path) -> None:
    folder = tmp_path / "above" / "folder"
    folder.mkdir(parents=True)
    store = Store(folder / "positions.lmdb")
    store.open()
    shutil.rmtree(folder.parent)
    with pytest.raises(StoreError, match=r"was removed while the service runs: restore it .* may be missing"):
        store.put("db1", RECORD)
    store.close()


def test_forgetting_removes_one_source_and_says_whether_it_was_there(tmp_path: Path) -> None:
    store = Store(tmp_path / "positions.lmdb")
    store.open()
    store.put("db1", RECORD)
    assert store.forget("db1")
    assert not store.forget("db1")
    assert store.get("db1") is None
    store.close()


def test_a_second_process_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "positions.lmdb"
    script = f"""
import pathlib, sys
from psql_streamer.pgtypes.builtin import BY_OID
from psql_streamer.checkpoint.store import Store
store = Store(pathlib.Path({str(path)!r}))
store.open()
print("open", flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(StoreError, match=f"in use by PID {holder.pid}: stop that process, or set lmdb"):
            Store(path).open()
        holder.communicate()
    after = Store(path)
    after.open()
    after.close()


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"nowhere/positions.lmdb cannot be opened .*: make sure that the folder"):
        Store(tmp_path / "nowhere" / "positions.lmdb").open()


@pytest.fixture
def unseen(tmp_path: Path) -> dict[str, Path]:
    """Paths at which nobody can see whether there is a file."""
    (tmp_path / "file").touch()
    (tmp_path / "circle").symlink_to("circle")
    return {
        "too long": tmp_path / ("x" * 300),
        "too long for the files beside it": tmp_path / ("x" * 252),
        "below a file": tmp_path / "file" / "positions",
        "a link to itself": tmp_path / "circle",
        "below a link to itself": tmp_path / "circle" / "positions",
    }


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ("too long", r"cannot be opened \(file name too long\): name a shorter path$"),
        ("too long for the files beside it", r"cannot be opened \(file name too long\): name a shorter path$"),
        (
            "below a file",
            r"cannot be opened \(not a directory\): name a file in a folder: a part of this path is a file$",
        ),
        ("a link to itself", r"cannot be opened \(too many levels .*\): name another path: the symbolic links"),
        ("below a link to itself", r"cannot be opened \(too many levels .*\): name another path: the symbolic links"),
    ],
)
def test_a_path_at_which_there_can_be_no_file_is_refused_with_what_to_do(
    unseen: dict[str, Path], which: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(StoreError, match=message):
        Store(unseen[which]).open()
    file = tmp_path / "psql-streamer.toml"
    file.write_text(CONFIG.format(lmdb=unseen[which]))
    assert main(["position", "-config", str(file)]) == 1
    assert re.search(message, capsys.readouterr().err.strip())
    [report, *_] = check(load(file, {}))
    assert [bool(re.search(message, f"{found.problem}: {found.remedy}")) for found in report.findings] == [True]


def test_a_folder_that_this_user_may_not_enter_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "of_somebody_else" / "positions"

    def refuse(*_: object, **__: object) -> os.stat_result:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "stat", refuse)
    with pytest.raises(StoreError, match=rf"permission denied\): make sure that the folder {path.parent} exists and"):
        Store(path).open()


def test_files_of_another_user_are_named_and_not_their_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "positions"
    store = Store(path)
    store.open()
    store.close()

    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(
        StoreError, match=rf"permission denied\): make sure that this user may read and write {path} and"
    ):
        store.open()


def test_a_file_that_is_not_lmdb_is_named_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "psql-streamer.db"
    content = bytes(16) + (0xED0CDAED).to_bytes(4, "little") + bytes(8192)
    path.write_bytes(content)
    with pytest.raises(StoreError, match="is not an LMDB file of this service: name another path"):
        Store(path).open()
    assert path.read_bytes() == content


def fill_file(path: Path) -> bytes:
    """A file with trees of several levels, a long value and free pages; what is in it."""
    store = Store(path)
    store.open()
    wide = postgres_table(
        1, "public", "wide", ReplicaIdentity.DEFAULT, tuple(postgres_column(f"c{n}", 25) for n in range(400))
    )
    for number in range(200):
        store.put(f"db{number}", RECORD, [wide] if number % 50 == 0 else [])
    for number in range(0, 200, 3):
        store.forget(f"db{number}")
    store.close()
    return path.read_bytes()


@pytest.mark.parametrize("opened", [Store.open, Store.open_to_read])
def test_a_file_that_was_cut_short_is_refused_with_what_to_do(
    tmp_path: Path, opened: Callable[[Store], object]
) -> None:
    path = tmp_path / "positions.lmdb"
    content = fill_file(path)
    for size in (0, 100, 4096, 8192, 9000, len(content) // 2):
        path.write_bytes(content[:size])
        with pytest.raises(
            StoreError, match=r"positions.lmdb is damaged \(it .*restore it from a backup, or move"
        ) as it:
            opened(Store(path))
        assert "psql-streamer snapshot start" in str(it.value)
        assert path.read_bytes() == content[:size], "it is left as it is"


@pytest.mark.parametrize("opened", [Store.open, Store.open_to_read])
def test_a_file_of_which_any_page_is_not_its_own_is_refused_or_does_not_need_it(
    tmp_path: Path, opened: Callable[[Store], object]
) -> None:
    path = tmp_path / "positions.lmdb"
    content = fill_file(path)
    refused = 0
    for at in range(0, len(content), 4096):
        path.write_bytes(content[:at] + bytes(4096) + content[at + 4096 :])
        store = Store(path)
        try:
            opened(store)
            assert len(store.read_all()) == 133
            for number in range(1, 200, 3):
                store.read_relations(f"db{number}")
        except StoreError:
            refused += 1
        store.close()
    assert refused > 4


@pytest.mark.behaviour("R3")
def test_what_a_process_leaves_that_is_killed_at_any_moment_opens_again(tmp_path: Path) -> None:
    path = tmp_path / "positions.lmdb"
    script = f"""
import pathlib
from psql_streamer.model import Position
from psql_streamer.checkpoint.store import Store
from psql_streamer.checkpoint.store_format import StoredPosition
store = Store(pathlib.Path({str(path)!r}))
print("ready", flush=True)
store.open()
number = 0
while True:
    number += 1
    position = Position({{"id": number, "more": "x" * (number * 37 % 9000)}}, "")
    store.put(f"db{{number % 50}}", StoredPosition(position, {{}}))
    store.forget(f"db{{number * 7 % 50}}")
"""
    for attempt in range(8):
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
            time.sleep(attempt * 0.004)  # the moment is any
            writer.kill()
        for _ in range(2):
            store = Store(path)
            store.open()
            store.put("other", RECORD)
            assert store.read_all()["other"] == RECORD
            store.close()
        if attempt % 2:
            path.unlink()


def test_a_file_that_a_crash_left_half_made_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "positions.lmdb"
    path.with_name("positions.lmdb-new").write_bytes(b"half")
    store = Store(path)
    store.open()
    assert store.read_all() == {}
    store.close()
    assert path.stat().st_mode & 0o777 == 0o600
    assert {file.name for file in tmp_path.iterdir()} == {f"positions.lmdb{end}" for end in ("", "-lock", "-owner")}


def test_a_file_is_looked_at_without_its_trees_while_another_process_writes_to_it(tmp_path: Path) -> None:
    path = tmp_path / "positions.lmdb"
    fill_file(path)
    holder, reader = Store(path), Store(path)
    holder.open()
    with pytest.raises(StoreError, match="in use"):
        reader.open()
    check_file(path, all_pages=False)
    holder.close()
    path.write_bytes(path.read_bytes()[:8192])
    check_file(path, all_pages=False)
    with pytest.raises(DamagedFile, match="it ends after 8192 bytes"):
        check_file(path, all_pages=True)


def test_a_full_map_says_which_option_to_raise(tmp_path: Path) -> None:
    store = Store(tmp_path / "positions.lmdb", map_size=1 << 16)
    store.open()

    def fill() -> None:
        for index in range(1000):
            store.put(f"source {index}", RECORD)

    with pytest.raises(StoreError, match="is full: raise lmdbMapSize"):
        fill()
    store.close()


@pytest.mark.parametrize(
    ("needs", "opened"),
    [("pwrite", Store.open), ("posix_fallocate", Store.open), ("posix_fallocate", Store.open_to_read)],
)
def test_a_disk_without_room_for_the_files_beside_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, needs: str, opened: Callable[[Store], object]
) -> None:
    store = Store(tmp_path / "positions.lmdb")
    store.open()
    store.close()
    (tmp_path / "positions.lmdb-lock").unlink()

    def find_no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, needs, find_no_room)
    with pytest.raises(StoreError, match=r"cannot be used \(no space left on device\): look at the disk's free space"):
        opened(store)


def test_a_file_that_is_being_written_is_not_closed_under_the_writer(tmp_path: Path) -> None:
    store = Store(tmp_path / "positions.lmdb")
    store.open()
    with store._writing:
        store.close()
    store.put("db1", RECORD)
    assert store.get("db1") == RECORD
    store.close()


@pytest.mark.parametrize(
    "garbage",
    [
        b"garbage",
        b"[]",
        b'{"position": {}, "shown": "", "stream": {}, "serial": 1e999}',
        b'{"lsn": -1, "commit_lsn": 1e99, "changes": 1, "fence": {}}',
    ],
)
def test_a_record_that_cannot_be_read_names_the_source_and_what_to_do(tmp_path: Path, garbage: bytes) -> None:
    store = Store(tmp_path / "positions.lmdb")
    store.open()
    with store._environment.begin(write=True, db=store._positions) as transaction:
        transaction.put(b"db1", garbage)
    with pytest.raises(StoreError, match=r'record of source "db1" .* cannot be read: forget it'):
        store.get("db1")
    store.close()


def test_the_shapes_of_tables_are_stored_with_the_position_and_forgotten_with_it(tmp_path: Path) -> None:
    store = Store(tmp_path / "positions.lmdb")
    store.open()
    key = postgres_column("id", 23, key=True)
    old = postgres_table(16391, "public", "tä ble", ReplicaIdentity.DEFAULT, (key,))
    new = postgres_table(16391, "public", "tä ble", ReplicaIdentity.FULL, (key, postgres_column("n", 1700, 786438)), 2)
    other = postgres_table(7, "s", "t", ReplicaIdentity.NOTHING, ())
    store.put("db1", RECORD, [old])
    store.put("db1", RECORD, [new, other])
    store.put("db11", RECORD, [old])
    store.close()
    store.open()
    assert {shape.id: shape for shape in store.read_relations("db1")} == {"16391": new, "7": other}
    assert store.read_relations("db2") == []
    assert store.forget("db1")
    assert store.read_relations("db1") == []
    assert store.read_relations("db11") == [old]
    store.close()


def test_the_shapes_of_tables_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    store = Store(tmp_path / "positions.lmdb")
    store.open()
    shapes = [postgres_table(oid, "public", f"t{oid}", ReplicaIdentity.DEFAULT, ()) for oid in (1, 2, 3)]
    store.put("db1", RECORD, shapes)
    store.put(
        "db1", RECORD, dropped=[shapes[0], shapes[2], postgres_table(4, "public", "t4", ReplicaIdentity.DEFAULT, ())]
    )
    assert store.read_relations("db1") == [shapes[1]]
    store.close()


@pytest.fixture(params=[1, 2, 3])
def of_older_format(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A file as an older version wrote it; format 1 is that of files without a format version."""
    path = tmp_path / "positions.lmdb"
    path.write_bytes(gzip.decompress((DATA / f"format-{request.param}.lmdb.gz").read_bytes()))
    return path


ORDERS = postgres_table(
    *(16390, "public", "orders", ReplicaIdentity.DEFAULT),
    (postgres_column("id", 20, key=True), postgres_column("amount", 1700, 786438), postgres_column("état", 25)),
)
LOG = postgres_table(
    16401, "audit", "log", ReplicaIdentity.FULL, (postgres_column("at", 1184, key=True), postgres_column("what", 25)), 3
)
STORED = StoredPosition(
    WalPosition(Lsn(0x16_B374_D848), Lsn(0x16_B374_E000), 41).position,
    {"slot": "s1", "timeline": "1", "system": "7412"},
    "0/16B3748",
)


@pytest.mark.parametrize("opened", [Store.open, Store.open_to_read])
def test_a_file_of_an_older_format_is_read_as_it_is(of_older_format: Path, opened: Callable[[Store], object]) -> None:
    store = Store(of_older_format)
    opened(store)
    assert store.read_all() == {"shop": STORED, "other": StoredPosition(WalPosition(Lsn(7)).position, {})}
    assert store.read_relations("shop") == [ORDERS, LOG]
    assert store.read_snapshots("shop") == []
    store.close()


def test_a_file_of_an_older_format_is_written_in_todays(of_older_format: Path) -> None:
    store = Store(of_older_format)
    store.open()
    moved = replace(STORED, position=WalPosition(Lsn(0x16_B374_F000)).position)
    store.put("shop", moved, [replace(ORDERS, version=2)])
    store.close()
    store.open()
    assert store.get("shop") == moved
    assert store.read_relations("shop") == [replace(ORDERS, version=2), LOG]
    store.close()


@pytest.mark.parametrize("written", [b"", b"three", b"-1", b"\xff"])
def test_a_file_whose_format_is_no_number_is_refused(of_older_format: Path, written: bytes) -> None:
    with lmdb.open(str(of_older_format), subdir=False, max_dbs=3) as environment:
        meta = environment.open_db(b"meta")
        with environment.begin(write=True, db=meta) as transaction:
            transaction.put(b"format", written)
    store = Store(of_older_format)
    for opened in (store.open, store.open_to_read):
        with pytest.raises(StoreError, match="is not an LMDB file of this service"):
            opened()


def test_a_shape_without_the_type_of_a_column_names_the_source_and_what_to_do(tmp_path: Path) -> None:
    store = Store(tmp_path / "positions.lmdb")
    store.open()
    store.put("db1", RECORD, [ORDERS])
    with store._environment.begin(write=True, db=store._relations) as transaction:
        [(key, value)] = transaction.cursor()
        of_nothing = base64.b64encode(pa.schema([]).serialize().to_pybytes()).decode()
        columns = [{"name": "id", "key": True, "arrow": of_nothing, "native": ""}]
        transaction.put(key, json.dumps({**json.loads(value), "columns": columns}).encode())
    with pytest.raises(StoreError, match=r'record of source "db1" .* cannot be read: forget it'):
        store.read_relations("db1")
    store.close()


def test_a_file_of_a_newer_format_is_refused_and_left_as_it_is(of_older_format: Path) -> None:
    with lmdb.open(str(of_older_format), subdir=False, max_dbs=3) as environment:
        meta = environment.open_db(b"meta")
        with environment.begin(write=True, db=meta) as transaction:
            transaction.put(b"format", b"4")
    before = of_older_format.read_bytes()
    store = Store(of_older_format)
    for opened in (store.open, store.open_to_read):
        with pytest.raises(
            StoreError, match=r"newer version of psql-streamer \(format 4, this version reads up to 3\)"
        ):
            opened()
    assert of_older_format.read_bytes() == before


def test_fields_that_are_not_known_are_kept(tmp_path: Path) -> None:
    store = Store(tmp_path / "positions.lmdb")
    store.open()
    store.put("db1", RECORD, [ORDERS])
    for database in (store._positions, store._relations):
        with store._environment.begin(write=True, db=database) as transaction:
            [(key, value)] = transaction.cursor()
            transaction.put(key, json.dumps({**json.loads(value), "snapshot": "done"}).encode())
    store.put("db1", STORED, [replace(ORDERS, version=2)])
    assert store.get("db1") == STORED
    assert store.read_relations("db1") == [replace(ORDERS, version=2)]
    for database in (store._positions, store._relations):
        with store._environment.begin(db=database) as transaction:
            [value] = [json.loads(value) for _, value in transaction.cursor()]
            assert value["snapshot"] == "done"
    store.close()


def test_fields_of_columns_that_are_not_known_are_kept_while_the_column_is_there(tmp_path: Path) -> None:
    """Those that are known are of the column as it is now, whatever its type was."""
    store = Store(tmp_path / "positions.lmdb")
    store.open()
    store.put("db1", RECORD, [ORDERS])
    with store._environment.begin(write=True, db=store._relations) as transaction:
        [(key, value)] = transaction.cursor()
        fields = json.loads(value)
        for number, column in enumerate(fields["columns"]):
            column["collation"] = number
        transaction.put(key, json.dumps(fields).encode())
    first, *others = ORDERS.columns
    changed = replace(ORDERS, columns=(*reversed(others), replace(first, type=ArrowType(pa.int64())), NEW), version=2)
    store.put("db1", STORED, [changed])
    assert store.read_relations("db1") == [changed]
    with store._environment.begin(db=store._relations) as transaction:
        [value] = [json.loads(value) for _, value in transaction.cursor()]
    collations = {column["name"]: column.get("collation") for column in value["columns"]}
    assert collations == {NEW.name: None} | {column.name: number for number, column in enumerate(ORDERS.columns)}
    assert "type_oid" not in next(column for column in value["columns"] if column["name"] == first.name)
    store.close()


NEW = Column("added", ArrowType(pa.string()))
ASKED = StoredSnapshot(
    SnapshotRequest(
        "20261122-203716-ab12",
        (TableRequest("public.orders", "id > 5"), TableRequest("audit.*")),
        Wanted.PAUSE,
        1795379836.25,
    )
)


def test_what_was_asked_of_a_source_is_there_after_the_file_was_closed(tmp_path: Path) -> None:
    store = Store(tmp_path / "positions.lmdb")
    store.open()
    later = StoredSnapshot(SnapshotRequest("0", (), asked_at=1795379837.0), SnapshotState.DONE)
    store.put_snapshots("db1", [later, ASKED])
    store.put_snapshots("db11", [ASKED])
    store.close()
    store.open()
    assert store.read_snapshots("db1") == [ASKED, later], "in the order in which it was asked"
    store.put_snapshots("db1", [replace(later, ended=None)], removed=[ASKED.request.id])
    assert store.read_snapshots("db1") == [replace(later, ended=None)]
    assert store.read_snapshots("db11") == [ASKED]
    assert store.read_snapshots("db2") == []
    store.close()


def test_forgetting_a_source_forgets_what_was_asked_of_it(tmp_path: Path) -> None:
    store = Store(tmp_path / "positions.lmdb")
    store.open()
    store.put_snapshots("db1", [ASKED])
    store.put_snapshots("db11", [ASKED])
    assert store.forget("db1")
    assert (store.read_snapshots("db1"), store.read_snapshots("db11")) == ([], [ASKED])
    store.close()


def test_to_begin_again_forgets_a_source_and_leaves_one_request(tmp_path: Path) -> None:
    store = Store(tmp_path / "positions.lmdb")
    store.open()
    store.put("db1", RECORD, [ORDERS])
    store.put_snapshots("db1", [ASKED])
    again = StoredSnapshot(SnapshotRequest("again"))
    store.begin_again("db1", again)
    assert (store.get("db1"), store.read_relations("db1"), store.read_snapshots("db1")) == (None, [], [again])
    store.close()


def test_a_store_that_is_closed_says_so_to_whoever_asks_for_a_snapshot(tmp_path: Path) -> None:
    store = Store(tmp_path / "positions.lmdb")
    with pytest.raises(StoreError, match="is not open"):
        store.put_snapshots("db1", [ASKED])


def test_a_request_that_cannot_be_read_names_the_source_and_what_to_do(tmp_path: Path) -> None:
    store = Store(tmp_path / "positions.lmdb")
    store.open()
    store.put_snapshots("db1", [ASKED])
    with store._environment.begin(write=True, db=store._snapshots) as transaction:
        [(key, value)] = transaction.cursor()
        transaction.put(key, json.dumps({**json.loads(value), "wanted": "dance"}).encode())
    with pytest.raises(StoreError, match=r'record of source "db1" .* cannot be read: forget it'):
        store.read_snapshots("db1")
    store.close()


def test_fields_of_a_request_that_are_not_known_are_kept(tmp_path: Path) -> None:
    store = Store(tmp_path / "positions.lmdb")
    store.open()
    store.put_snapshots("db1", [ASKED])
    with store._environment.begin(write=True, db=store._snapshots) as transaction:
        [(key, value)] = transaction.cursor()
        fields = {**json.loads(value), "by": "ann"}
        fields["tables"][0]["chunk"] = 5
        transaction.put(key, json.dumps(fields).encode())
    store.put_snapshots("db1", [replace(ASKED, ended=SnapshotState.CANCELLED)])
    assert store.read_snapshots("db1") == [replace(ASKED, ended=SnapshotState.CANCELLED)]
    with store._environment.begin(db=store._snapshots) as transaction:
        [value] = [json.loads(value) for _, value in transaction.cursor()]
    assert (value["by"], value["tables"][0]["chunk"]) == ("ann", 5)
    store.close()


@pytest.fixture
def with_requests(tmp_path: Path) -> Path:
    """A file as the first version wrote it that knew snapshots: format 3, and requests of `shop`."""
    path = tmp_path / "with-requests.lmdb"
    path.write_bytes(gzip.decompress((DATA / "format-3-snapshots.lmdb.gz").read_bytes()))
    return path


@pytest.mark.parametrize("opened", [Store.open, Store.open_to_read])
def test_a_file_with_requests_is_read_as_it_is(with_requests: Path, opened: Callable[[Store], object]) -> None:
    store = Store(with_requests)
    opened(store)
    assert store.get("shop") == STORED
    assert store.read_snapshots("shop") == [ASKED, StoredSnapshot(SnapshotRequest("initial"), SnapshotState.DONE)][::-1]
    store.close()


def test_a_version_that_knows_no_snapshots_reads_and_writes_a_file_with_requests(with_requests: Path) -> None:
    """It knows format 3, and opens three databases by name; the fourth is one more key to it."""
    with lmdb.open(str(with_requests), subdir=False, max_dbs=3) as environment:
        positions, _, meta = (environment.open_db(name) for name in (b"positions", b"relations", b"meta"))
        with environment.begin(write=True) as transaction:
            assert transaction.get(b"format", db=meta) == b"3"
            transaction.put(b"shop", transaction.get(b"shop", db=positions), db=positions)
    store = Store(with_requests)
    store.open()
    assert len(store.read_snapshots("shop")) == 2
    store.close()


def test_a_map_for_which_there_is_no_address_space_names_the_limit_and_not_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "positions.lmdb"
    with pytest.raises(StoreError, match=r"no 4,611,686,018,427,387,904 bytes of address space .*or lower lmdbMapSize"):
        Store(path, map_size=1 << 62).open()
