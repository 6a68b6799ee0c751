"""`psql-streamer check` on real servers: silent when all is well, and for what is not, the command that mends it."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from time import monotonic

import psycopg2
import pytest
from psycopg2.extensions import make_dsn

from psql_streamer.cli import main
from psql_streamer.embedded import java
from psql_streamer.embedded.postgres import EmbeddedPostgres
from psql_streamer.errors import SourceUnavailable
from psql_streamer.spark.handler import SparkHandler
from sources.postgres.catalog import Catalog
from sources.postgres.replication import connect
from tests.config_files import written
from tests.database import Database, fresh_database

pytestmark = pytest.mark.usefixtures("logging_as_it_was")

SILENT = ("", "")


@pytest.fixture
def shop(database: Database) -> Database:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    database.execute("CREATE PUBLICATION shop FOR TABLE orders")
    return database


@pytest.fixture
def file(tmp_path: Path, shop: Database, kafka: str, topic_prefix: str) -> Path:
    """A configuration with nothing wrong."""
    return written(
        tmp_path,
        f"""
        http = "127.0.0.1:0"
        lmdb = "{tmp_path}/positions"
        [source.db1]
        type = "postgres"
        dsn = "{shop.dsn}"
        publication = "shop"
        snapshot = "never"
        replicationSlot = "{shop.name}"
        [sink.kafka1]
        type = "kafka"
        sources = ["db1"]
        hosts = ["{kafka}"]
        topicPrefix = "{topic_prefix}"
        """,
    )


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def findings(file: Path, capsys: pytest.CaptureFixture[str], code: int) -> list[dict[str, str]]:
    """What `check --json` finds; it exits with this code."""
    assert main(["check", "--json", "-config", str(file)]) == code
    said = json.loads(capsys.readouterr().out)
    assert said["ok"] is (code == 0)
    found: list[dict[str, str]] = said["findings"]
    return found


def test_a_healthy_system_is_passed_over_in_silence_and_quickly(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    began = monotonic()
    assert main(["check", "-config", str(file)]) == 0
    assert capsys.readouterr() == SILENT
    assert monotonic() - began < 10


@pytest.mark.parametrize("given", ["true", "database"])
def test_a_dsn_that_was_made_to_replicate_is_taken_also_while_one_wal_sender_is_left(
    own_postgres: EmbeddedPostgres, file: Path, shop: Database, capsys: pytest.CaptureFixture[str], given: str
) -> None:
    own_postgres.settings |= {"max_wal_senders": "1"}
    own_postgres.restart()
    with fresh_database(own_postgres.build_dsn(), shop.name) as database:
        database.execute("CREATE TABLE orders (id int PRIMARY KEY); CREATE PUBLICATION shop FOR ALL TABLES")
        edit(file, shop.dsn, f"{database.dsn} replication={given}")
        assert main(["check", "-config", str(file)]) == 0
        assert capsys.readouterr() == SILENT
        assert database.value("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'walsender'") == 0


@pytest.mark.parametrize(
    ("done", "undone", "remedy"),
    [
        (
            "ALTER ROLE {role} CONNECTION LIMIT 0",
            "ALTER ROLE {role} CONNECTION LIMIT -1",
            "end sessions of this role, or raise its limit: ALTER ROLE ... CONNECTION LIMIT ...",
        ),
        (
            "ALTER DATABASE {database} CONNECTION LIMIT 0",
            "ALTER DATABASE {database} CONNECTION LIMIT -1",
            "end sessions of this database, or raise its limit: ALTER DATABASE ... CONNECTION LIMIT ...",
        ),
        (
            "REVOKE CONNECT ON DATABASE {database} FROM public",
            "GRANT CONNECT ON DATABASE {database} TO public",
            "allow the role to connect: GRANT CONNECT ON DATABASE ... TO ...",
        ),
    ],
)
def test_a_session_that_the_server_does_not_give_is_found_with_what_gives_it(
    file: Path, shop: Database, capsys: pytest.CaptureFixture[str], done: str, undone: str, remedy: str
) -> None:
    role, database = f"r_{shop.name}", f'"{shop.name}"'
    shop.execute(f"CREATE ROLE {role} LOGIN REPLICATION; GRANT SELECT ON orders TO {role}")
    edit(file, shop.dsn, str(make_dsn(shop.dsn, user=role)))
    try:
        shop.execute(done.format(role=role, database=database))
        [finding] = findings(file, capsys, 3)
        assert finding["remedy"] == remedy
        shop.execute(undone.format(role=role, database=database))
        assert main(["check", "-config", str(file)]) == 0
    finally:
        shop.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_a_role_with_one_session_is_found_as_the_start_would_fail(
    file: Path, shop: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    role = f"r_{shop.name}"
    shop.execute(f"CREATE ROLE {role} LOGIN REPLICATION CONNECTION LIMIT 1; GRANT SELECT ON orders TO {role}")
    edit(file, shop.dsn, str(make_dsn(shop.dsn, user=role)))
    edit(file, 'http = "127.0.0.1:0"', 'http = "127.0.0.1:0"\nstartTimeout = "1s"')
    try:
        [finding] = findings(file, capsys, 3)
        assert finding["problem"].startswith("the source needs two sessions at once, and the server gives one: ")
        assert finding["remedy"].endswith("or raise its limit: ALTER ROLE ... CONNECTION LIMIT ...")
        run = [sys.executable, "-m", "psql_streamer", "run", "-config", str(file)]
        done = subprocess.run(run, capture_output=True, text=True, timeout=60)
        assert finding["remedy"] in done.stderr, "the start fails for the same reason"
        assert done.returncode == 1
    finally:
        shop.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_too_few_connections_and_wal_senders_are_told_by_the_setting_to_raise(own_postgres: EmbeddedPostgres) -> None:
    own_postgres.settings |= {"max_connections": "5", "max_wal_senders": "1"}
    own_postgres.restart()
    dsn = own_postgres.build_dsn()
    with ExitStack() as stack:
        stack.callback(connect(dsn, 5.0, "one").close)
        with pytest.raises(SourceUnavailable, match=r"or raise max_wal_senders and restart the server$"):
            connect(dsn, 5.0, "two")
        for _ in range(5):
            stack.callback(psycopg2.connect(dsn).close)
        with (
            pytest.raises(SourceUnavailable, match=r"end sessions, or raise max_connections and restart the server$"),
            Catalog(dsn, 5.0).open_session(),
        ):
            pass


def test_nothing_is_changed_by_looking(file: Path, shop: Database) -> None:
    assert main(["check", "-config", str(file)]) == 0
    assert shop.value("SELECT count(*) FROM pg_replication_slots WHERE database = current_database()") == 0
    assert sorted(path.name for path in file.parent.iterdir()) == [file.name]


def test_asked_for_more_it_names_every_part(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "-v", "-config", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" (")[0] for line in lines] == [
        "store: ok",
        "http: ok",
        "source.db1: ok",
        "handler.spark: ok",
        "sink.kafka1: ok",
    ]


def test_a_missing_publication_is_found_with_its_remedy(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(file, 'publication = "shop"', 'publication = "shopp"')
    [finding] = findings(file, capsys, 3)
    assert (finding["part"], finding["severity"]) == ("source.db1", "error")
    assert "shopp" in finding["problem"]
    assert "CREATE PUBLICATION" in finding["remedy"]


def test_everything_wrong_is_found_at_once(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        port = closed.getsockname()[1]
        text = file.read_text()
        edit(file, text.partition('dsn = "')[2].partition('"')[0], f"host=127.0.0.1 port={port} password=hunter2")
        edit(file, text.partition('hosts = ["')[2].partition('"')[0], f"127.0.0.1:{port}")
        edit(file, f'lmdb = "{file.parent}/positions"', f'lmdb = "{file.parent}/missing/positions"')
        found = findings(file, capsys, 3)
    assert [finding["part"] for finding in found] == ["store", "source.db1", "sink.kafka1"]
    assert all(finding["remedy"] for finding in found)
    assert found[0]["remedy"] == f"mkdir -p {file.parent}/missing"
    assert "hunter2" not in json.dumps(found)


def test_no_java_is_found_with_the_command_that_installs_one(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "_list_candidates", lambda: iter(()))
    file.write_text(f'{file.read_text()}\n[spark.tables.orders]\nsql = "SELECT * FROM changes"\n')
    [finding] = findings(file, capsys, 3)
    assert finding["part"] == "handler.spark"
    assert "no Java 17 or later" in finding["problem"]
    assert "install" in finding["remedy"]


def test_without_rules_and_without_spark_nobody_misses_java(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "_list_candidates", lambda: iter(()))
    assert findings(file, capsys, 0) == []
    edit(file, 'sources = ["db1"]', 'sources = ["db1"]\nhandlers = ["passthrough"]')
    assert findings(file, capsys, 0) == []


def test_rules_are_held_against_the_tables_that_are_there(
    file: Path, capsys: pytest.CaptureFixture[str], engine: SparkHandler
) -> None:
    file.write_text(
        f"""{file.read_text()}
        [spark]
        master = "local[2]"
        [spark.tables."public.orders"]
        sql = "SELECT id, amount FROM changes"
        [spark.tables.order]
        sql = "SELECT id FROM changes"
        """
    )
    misspelt, unresolved = findings(file, capsys, 3)
    assert misspelt["problem"] == "[spark.tables] 'order' fits no table that is published; did you mean orders?"
    assert unresolved["part"] == "handler.spark"
    assert "UNRESOLVED_COLUMN" in unresolved["problem"]


def test_a_function_that_cannot_be_imported_does_not_keep_check_from_the_other_rules(
    file: Path, shop: Database, capsys: pytest.CaptureFixture[str], engine: SparkHandler
) -> None:
    shop.execute("CREATE TABLE lines (id int PRIMARY KEY)")
    shop.execute("ALTER PUBLICATION shop ADD TABLE lines")
    file.write_text(
        f"""{file.read_text()}
        [spark]
        master = "local[2]"
        [spark.tables.orders]
        function = "nowhere_at_all:mask"
        [spark.tables.lines]
        sql = "SELECT nothing FROM changes"
        """
    )
    function, unresolved = findings(file, capsys, 3)
    assert "'nowhere_at_all:mask' cannot be imported" in function["problem"]
    assert unresolved["problem"].startswith("public.lines, rule 'lines': [UNRESOLVED_COLUMN")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ('"spark.driver.memory" = "100m"', "Insufficient driver memory"),
        pytest.param('"spark.sql.session.timeZone" = "Europe/Zurch"', "Europe/Zurch", marks=pytest.mark.soak),
        pytest.param('"spark.sql.ansi.enabled" = "maybe"', "spark.sql.ansi.enabled", marks=pytest.mark.soak),
    ],
)
def test_a_setting_that_spark_refuses_when_it_starts_is_found(file: Path, setting: str, said: str) -> None:
    rule = '[spark.tables.orders]\nsql = "SELECT * FROM changes"'
    file.write_text(f"{file.read_text()}\n[spark.conf]\n{setting}\n{rule}\n")
    done = subprocess.run(
        [sys.executable, "-m", "psql_streamer", "check", "-config", str(file)],
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    [line] = (done.stdout + done.stderr).splitlines()
    assert "Spark did not start" in line
    assert said in line
    assert "correct master and conf in [spark]" in line


def test_a_folder_in_place_of_the_lmdb_file_is_found(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file.parent / "positions").mkdir()
    [finding] = findings(file, capsys, 3)
    assert finding["problem"].endswith("is a folder")


def test_a_bolt_file_of_the_go_service_is_found(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page_header = bytes(8) + b"\x04\x00" + bytes(6)
    (file.parent / "positions").write_bytes(page_header + bytes.fromhex("edda0ced") + bytes(4076))
    [finding] = findings(file, capsys, 3)
    assert "is a Bolt file of the Go service" in finding["problem"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_to_is_found(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    locked = file.parent / "locked"
    locked.mkdir(stat.S_IRUSR | stat.S_IXUSR)
    edit(file, f"{file.parent}/positions", f"{locked}/positions")
    [finding] = findings(file, capsys, 3)
    assert finding["problem"].endswith("cannot be written to")


def test_a_file_system_that_is_read_only_is_no_lack_of_rights(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = os.statvfs("/")
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result([*root[:8], os.ST_RDONLY, *root[9:]]))
    [finding] = findings(file, capsys, 3)
    assert finding["problem"].endswith("is on a read-only file system")
    assert finding["remedy"].startswith("name a path on another disk")


def test_a_bad_configuration_is_found_too(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(file, 'type = "kafka"', 'type = "kafkaa"')
    [finding] = findings(file, capsys, 3)
    assert "did you mean kafka?" in finding["problem"]
