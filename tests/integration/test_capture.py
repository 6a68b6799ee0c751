"""`psql-streamer capture` on real servers: changes as lines of JSON, and nothing that stays."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from psql_streamer.cli import main
from psql_streamer.testing import check_batch
from psql_streamer.trial.event_reading import read_lines
from tests.database import Database
from tests.event_topics import event, write
from tests.kafka_sinks import create_topic
from tests.mariadb import Schema
from tests.mysql_source import read_until, streaming
from tests.sql_sources import execute

pytestmark = pytest.mark.usefixtures("logging_as_it_was")

Lines = list[dict[str, Any]]

TABLES = """
CREATE TABLE orders (id bigint PRIMARY KEY, amount numeric(12,2), body text);
CREATE TABLE other (id bigint PRIMARY KEY);
ALTER TABLE orders ALTER COLUMN body SET STORAGE EXTERNAL;
INSERT INTO orders VALUES (1, 10, repeat('long ', 2000)), (2, 20, NULL);
CREATE PUBLICATION shop FOR ALL TABLES;
"""


@pytest.fixture
def shop(database: Database) -> Database:
    database.execute(TABLES)
    return database


@pytest.fixture
def config(shop: Database, tmp_path: Path) -> Path:
    return _configured(
        tmp_path, f'type = "postgres"\ndsn = "{shop.dsn}"\npublication = "shop"\nreplicationSlot = "shop"\n'
    )


def _configured(folder: Path, source: str) -> Path:
    file = folder / "psql-streamer.toml"
    sink = '[sink.log]\ntype = "stub_log"\nsources = ["db1"]\n'
    file.write_text(f'http = ":0"\nlmdb = "{folder}/positions"\n[source.db1]\n{source}\n{sink}')
    return file


@contextmanager
def _capturing(config: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The command at work, once it waits for changes."""
    command = [sys.executable, "-m", "psql_streamer", "capture", "-c", str(config), *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert "waits for" in said, said + process.stderr.read()
        yield process
    finally:
        process.kill()
        process.communicate()


def _captured(process: subprocess.Popen[str]) -> Lines:
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    [batch] = read_lines(out.splitlines(), "stdout")
    check_batch(batch)
    return [json.loads(line) for line in out.splitlines()]


def _changes(lines: Lines) -> Lines:
    return [line for line in lines if "op" in line]


def test_changes_are_captured_as_they_came_and_nothing_stays(config: Path, shop: Database) -> None:
    with _capturing(config, "--table", "orders", "-n", "4") as process:
        [(temporary, active)] = shop.query(
            "SELECT temporary, active FROM pg_replication_slots WHERE database = %s", shop.name
        )
        assert temporary
        assert active
        shop.execute("INSERT INTO other VALUES (1)")
        shop.execute("UPDATE orders SET amount = 11 WHERE id = 1; UPDATE orders SET id = 3 WHERE id = 2")
        shop.execute("DELETE FROM orders WHERE id = 1; INSERT INTO orders VALUES (4, 'NaN', '');")
        lines = _captured(process)
    head, shape, *_ = lines
    assert head["events"] == 1
    assert head["source"]["kind"] == "postgresql"
    assert shape["relation"]["columns"][1] == {"name": "amount", "type": "numeric(12,2)"}
    update, moved, deleted, inserted = _changes(lines)
    assert (update["op"], update["after"]) == ("update", {"id": "1", "amount": "11.00"}), "TOAST that did not change"
    assert "before" not in update
    assert (moved["before"], moved["after"]) == ({"id": "2"}, {"id": "3", "amount": "20.00", "body": None})
    assert (deleted["op"], deleted["before"]) == ("delete", {"id": "1"})
    assert inserted["after"] == {"id": "4", "amount": "NaN", "body": ""}
    assert update["xid"] == moved["xid"] < deleted["xid"]
    assert [one["seq"] for one in (update, moved, deleted, inserted)] == [0, 1, 0, 1]
    assert shop.query("SELECT slot_name FROM pg_replication_slots WHERE database = %s", shop.name) == []
    assert not config.with_name("positions").exists()


def test_ctrl_c_gives_what_was_captured(config: Path, shop: Database) -> None:
    with _capturing(config, "--table", "public.orders") as process:
        shop.execute("INSERT INTO orders VALUES (5)")
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert out == ""
    assert "captured 1 of 100 changes" in err
    assert json.loads(lines[2])["after"]["id"] == "5"
    assert shop.query("SELECT slot_name FROM pg_replication_slots WHERE database = %s", shop.name) == []


Run = Callable[..., tuple[int, Lines, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """The command with these arguments: exit code, lines, stderr."""

    def ran(config: Path, *arguments: str) -> tuple[int, Lines, str]:
        code = main(["capture", "-c", str(config), *arguments])
        out, err = capsys.readouterr()
        return code, [json.loads(line) for line in out.splitlines()], err

    return ran


def test_existing_rows_are_captured_as_reads_of_a_snapshot(config: Path, run: Run) -> None:
    code, lines, err = run(config, "--table", "orders", "--existing")
    assert code == 0
    one, two = _changes(lines)
    assert (one["op"], one["snapshot"]) == ("read", {"id": "capture", "on_demand": True})
    assert one["after"] == {"id": "1", "amount": "10.00", "body": "long " * 2000}
    assert two["after"] == {"id": "2", "amount": "20.00", "body": None}
    assert "captured 2 of 100 changes" in err


def test_existing_rows_of_several_tables_with_and_without_a_key(config: Path, shop: Database, run: Run) -> None:
    shop.execute("CREATE TABLE keyless (a text); INSERT INTO keyless SELECT 'row ' || i FROM generate_series(1, 5) i")
    code, lines, _ = run(config, "--table", "*", "--existing", "-n", "3")
    assert code == 0
    [batch] = read_lines(map(json.dumps, lines), "stdout")
    check_batch(batch)
    assert [one["after"] for one in _changes(lines)] == [{"a": f"row {i}"} for i in (1, 2, 3)]


def test_a_table_in_which_nothing_changes_says_how_to_get_rows(config: Path, run: Run) -> None:
    began = time.monotonic()
    code, lines, err = run(config, "--table", "orders", "--timeout", "0.5")
    assert (code, lines) == (1, [])
    assert "captured 0 of 100 changes: nothing has changed yet; the rows that are there: --existing" in err
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--table", "ordres"], 'source db1 does not stream "ordres"; did you mean orders?'),
        (["--table", "orders", "--source", "db2"], 'there is no source "db2"; did you mean db1?'),
        (["--table", "/(/"], "is not a regular expression"),
        (["--table", "orders", "--keep", "id"], "say --scrub, too"),
    ],
)
def test_what_cannot_be_captured_is_refused_in_words(config: Path, run: Run, arguments: list[str], says: str) -> None:
    code, _, err = run(config, *arguments)
    assert code == 2
    assert says in err


def test_scrubbed_values_tell_nothing_and_kept_ones_stay(config: Path, shop: Database, run: Run) -> None:
    shop.execute("CREATE TABLE people (id int PRIMARY KEY, mail text, born date, note jsonb)")
    shop.execute(
        "INSERT INTO people SELECT i, 'Ann.Secret' || i % 2 || '@example.com', date '1980-05-17' + i,"
        """ '{"friend": "Ann.Secret1@example.com", "n": 12.5, "yes": true}' FROM generate_series(1, 90) i"""
    )
    code, lines, said = run(config, "--table", "people", "--existing", "--scrub", "--keep", "born,male")
    assert code == 0
    assert "--keep: no change has a column male: what was meant has stand-ins" in said
    rows = [one["after"] for one in _changes(lines)]
    assert len({row["id"] for row in rows}) == 90
    assert [row["born"] for row in rows] == [str(one) for (one,) in shop.query("SELECT born FROM people ORDER BY id")]
    mails = {row["mail"] for row in rows}
    assert len(mails) == 2, "equal values stay equal"
    assert all(len(mail) == len("Ann.Secret1@example.com") and mail[3] == "." and mail[11] == "@" for mail in mails)
    note = json.loads(rows[0]["note"])
    assert list(note) == ["n", "yes", "friend"]
    assert note["friend"] == rows[0]["mail"], "a value within a document has the stand-in of the column's"
    text = json.dumps(lines)
    assert "Secret" not in text
    assert "example" not in text


def test_a_topic_is_captured_in_no_group_and_nothing_is_committed(
    kafka: str, topic_prefix: str, tmp_path: Path, run: Run
) -> None:
    create_topic(kafka, topic_prefix)
    write(kafka, topic_prefix, [event(1, note="old"), event(2, "other"), event(3)])
    hosts = json.dumps(kafka.split(","))
    config = _configured(
        tmp_path, f'type = "kafka"\nhosts = {hosts}\ntopics = ["{topic_prefix}"]\ngroupID = "{topic_prefix}"\n'
    )
    code, lines, _ = run(config, "--table", "orders", "--existing")
    assert code == 0
    assert [one["after"] for one in _changes(lines)] == [{"id": "1", "note": "old"}, {"id": "3"}]
    with _capturing(config, "--table", "orders", "-n", "1") as process:
        write(kafka, topic_prefix, [event(4)])
        assert [one["after"]["id"] for one in _changes(_captured(process))] == ["4"]
    admin = AdminClient({"bootstrap.servers": kafka})  # named, because its futures die with it
    groups = admin.list_consumer_groups().result(30).valid
    assert [one.group_id for one in groups if topic_prefix in one.group_id or "capture" in one.group_id] == []


def test_what_a_capture_of_topics_leaves_out_is_said(kafka: str, topic_prefix: str, tmp_path: Path, run: Run) -> None:
    create_topic(kafka, topic_prefix)
    write(kafka, topic_prefix, [None, event(1), b"no event"])
    hosts, missing = json.dumps(kafka.split(",")), f"{topic_prefix}-missing"
    section = f'type = "kafka"\nhosts = {hosts}\ntopics = ["{topic_prefix}", "{missing}", "^{topic_prefix}-a"]\n'
    code, lines, said = run(
        _configured(tmp_path, f'{section}groupID = "{topic_prefix}"\n'), "--table", "orders", "--existing"
    )
    assert (code, [one["after"] for one in _changes(lines)]) == (0, [{"id": "1"}])
    for one in (
        f"topics that do not exist are left out: {missing}, ^{topic_prefix}-a",
        "1 records without a value of which no record in front of them says their table are left out",
        "1 records that are no events are left out",
    ):
        assert one in said


def test_a_binary_log_is_captured_from_now_on_and_beside_the_service(schema: Schema, tmp_path: Path, run: Run) -> None:
    schema.execute(
        "CREATE TABLE orders (id bigint unsigned PRIMARY KEY, note text)", "INSERT INTO orders VALUES (1, 'a')"
    )
    config = _configured(
        tmp_path, f'type = "mysql"\ndsn = "{schema.dsn}"\ntables = ["{schema.name}.*"]\nserverId = 4711\n'
    )
    with streaming(schema, serverId=4711) as service, _capturing(config, "-t", "orders", "-n", "2") as process:
        schema.execute("INSERT INTO orders VALUES (2, 'b')", "DELETE FROM orders WHERE id = 1")
        inserted, deleted = _changes(_captured(process))
        read_until(service, lambda batches: sum(map(len, batches)) == 2)
    assert inserted["after"] == {"id": "2", "note": "b"}
    assert deleted["before"] == {"id": "1", "note": "a"}


def test_rows_that_are_there_on_mysql_are_captured_as_read(schema: Schema, tmp_path: Path, run: Run) -> None:
    schema.execute(
        "CREATE TABLE orders (id bigint unsigned PRIMARY KEY, note text)",
        "CREATE TABLE other (id int PRIMARY KEY)",
        "INSERT INTO orders VALUES (1, 'a'), (2, NULL), (3, 'c')",
        "INSERT INTO other VALUES (1)",
    )
    config = _configured(tmp_path, f'type = "mysql"\ndsn = "{schema.dsn}"\ntables = ["{schema.name}.*"]\n')
    code, lines, err = run(config, "-t", "orders", "--existing")
    assert code == 0, err
    rows = _changes(lines)
    assert [(one["op"], one["after"]) for one in rows] == [
        ("read", {"id": "1", "note": "a"}),
        ("read", {"id": "2", "note": None}),
        ("read", {"id": "3", "note": "c"}),
    ]
    assert rows[0]["snapshot"]["on_demand"] is False
    code, lines, _ = run(config, "-t", "orders", "--existing", "-n", "2")
    assert len(_changes(lines)) == 2
    assert run(config, "-t", "orders", "--timeout", "2")[:2] == (1, []), "nothing of them without being asked"


def test_a_table_that_mysql_snapshots_do_not_take_is_refused_in_words(schema: Schema, tmp_path: Path, run: Run) -> None:
    schema.execute("CREATE TABLE keyless (note text)", "INSERT INTO keyless VALUES ('a')")
    config = _configured(tmp_path, f'type = "mysql"\ndsn = "{schema.dsn}"\ntables = ["{schema.name}.*"]\n')
    code, lines, err = run(config, "-t", "keyless", "--existing", "--timeout", "20")
    assert (code, lines) == (1, [])
    assert "keyless has no primary key" in err.splitlines()[-1]


def test_rows_of_a_sql_source_are_captured_from_the_first_one_on(tmp_path: Path, run: Run) -> None:
    file = tmp_path / "shop.db"
    rows = [f"INSERT INTO orders VALUES ({number}, 'n')" for number in (1, 2, 3)]
    execute(file, "CREATE TABLE orders (id INTEGER PRIMARY KEY AUTOINCREMENT, note TEXT)", *rows)
    execute(file, "CREATE TABLE other (id INTEGER PRIMARY KEY AUTOINCREMENT)", "INSERT INTO other VALUES (1)")
    config = _configured(
        tmp_path,
        f'type = "sql"\nurl = "sqlite:///{file}"\ntables = ["other", "orders"]\nstartAt = "now"\nsettle = "0s"\n',
    )
    code, lines, _ = run(config, "--table", "orders", "-n", "3")
    assert code == 0
    assert [one["after"]["id"] for one in _changes(lines)] == ["1", "2", "3"]
    assert [one["commit"] for one in _changes(lines)] == sorted(one["commit"] for one in _changes(lines))


@pytest.mark.parametrize("settle", ["0s", "1s"])
def test_the_rows_that_a_sql_source_has_are_captured_without_waiting_for_more(
    tmp_path: Path, run: Run, settle: str
) -> None:
    """Also where rows are read a while after they were seen."""
    file = tmp_path / "shop.db"
    rows = [f"INSERT INTO orders VALUES ({number}, 'n')" for number in (1, 2, 3)]
    execute(file, "CREATE TABLE orders (id INTEGER PRIMARY KEY AUTOINCREMENT, note TEXT)", *rows)
    config = _configured(
        tmp_path,
        f'type = "sql"\nurl = "sqlite:///{file}"\ntables = ["orders"]\npollInterval = "100ms"\nsettle = "{settle}"\n',
    )
    code, lines, said = run(config, "--table", "orders", "--existing", "--timeout", "100000")
    assert code == 0
    assert [one["after"]["id"] for one in _changes(lines)] == ["1", "2", "3"]
    assert said == "psql-streamer: captured 3 of 100 changes\n"


@pytest.mark.parametrize("lines", [1, 3])
def test_a_reader_that_has_enough_lines_is_told_no_number(config: Path, lines: int) -> None:
    command = f"{sys.executable} -m psql_streamer capture -c {config} --table orders -n 2 --existing | head -{lines}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60)
    assert len(done.stdout.splitlines()) == lines
    assert "captured 0" not in done.stderr
