"""A user's modules that have the names of ours, of Python's or of a library's are not run in their place."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from psql_streamer import launcher
from tests.database import Database
from tests.service import Service

NAMES = (
    *("sources", "sources/postgres", "sources/postgres/reader", "sources/postgres/reader_program"),
    *("sinks", "sinks/stub"),
    *("json", "re", "logging", "socket", "struct", "select", "dataclasses", "typing", "argparse", "queue", "random"),
    *("numpy", "pyarrow", "pydantic", "fastapi", "uvicorn", "lmdb", "psycopg2", "tomli"),
)

RUN_BY_PYTHON_ITSELF = ("collections", "contextlib", "functools", "keyword", "operator", "reprlib", "types", "warnings")
"""What `python -m` imports before it runs a module."""

# As pip writes it since 25.2; before that it imported `re` as well.
SCRIPT = """\
import sys
from psql_streamer.launcher import main
if __name__ == '__main__':
    sys.argv[0] = sys.argv[0].removesuffix('.exe')
    sys.exit(main())
"""

CONFIG = """
[source.db1]
type = "postgres"
dsn = "{database.dsn}"
publication = "p"
snapshot = "never"
replicationSlot = "{database.name}"
[sink.mine]
type = "shop.parts:Mine"
sources = ["db1"]
[sink.log]
type = "stub_log"
sources = ["db1"]
"""

PARTS = """
from sinks.stub import StubDiscardSink


class Mine(StubDiscardSink):
    pass
"""


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder of modules that leave a trace when they are run, and a package with a sink that is wanted."""
    folder = tmp_path / "theirs"
    for name in (*NAMES, *RUN_BY_PYTHON_ITSELF):
        leave_a_trace(folder, name)
    (folder / "shop").mkdir()
    (folder / "shop" / "parts.py").write_text(PARTS)
    return folder


def leave_a_trace(folder: Path, name: str) -> None:
    module = folder / f"{name}.py" if "/" in name or not (folder / name).exists() else folder / name / "__init__.py"
    module.parent.mkdir(parents=True, exist_ok=True)
    module.write_text("open(__file__ + '.was-run', 'w').close()\nraise ImportError('not ours')\n")


def traces(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.was-run"))


def environment(theirs: Path) -> Mapping[str, str]:
    return {**os.environ, "PYTHONPATH": str(theirs)}


def ways(theirs: Path, tmp_path: Path) -> dict[str, tuple[list[str], Mapping[str, str]]]:
    """How the service may be started -> the command and its environment."""
    script = tmp_path / "psql-streamer"
    script.write_text(SCRIPT)
    return {
        "console script": ([sys.executable, str(script)], environment(theirs)),
        "python -m": ([sys.executable, "-m", "psql_streamer"], {**os.environ, "PYTHONPATH": ""}),
    }


@pytest.mark.parametrize("way", ["console script", pytest.param("python -m", marks=pytest.mark.soak)])
def test_the_service_runs_in_a_folder_full_of_such_names(
    database: Database, theirs: Path, tmp_path: Path, way: str
) -> None:
    command, environ = ways(theirs, tmp_path)[way]
    if way == "python -m":
        for name in RUN_BY_PYTHON_ITSELF:
            (theirs / f"{name}.py").unlink()
    database.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION p FOR ALL TABLES")
    config = CONFIG.format(database=database)
    with Service(tmp_path, config, command, cwd=theirs, environ=environ) as service:
        service.config.rename(theirs / "psql-streamer.toml")
        service.config = theirs / "psql-streamer.toml"
        for arguments in (["version"], ["validate", "-config", service.config], ["check", "-config", service.config]):
            done = subprocess.run([*command, *arguments], cwd=theirs, env=environ, capture_output=True, text=True)
            assert (done.returncode, done.stderr) == (0, ""), arguments
        service.start()
        database.execute("INSERT INTO t VALUES (1)")
        service.until_durable(database)
        assert service.stats()["sink.mine"]["events"] > 0
        assert service.stop() == 0
        assert "not ours" not in service.tail()
    assert traces(theirs) == []


def test_the_reader_is_not_theirs_when_only_its_parent_was_started_otherwise(
    database: Database, theirs: Path, tmp_path: Path
) -> None:
    """As by a program that embeds the service: its own path stays as it is, and the reader's is put in order."""
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, time\n"
        "from sources.postgres.source import PostgresSource\n"
        "from sources.postgres.options import PostgresOptions\n"
        f"sys.path.insert(0, {str(theirs)!r})\n"
        f"options = {{'type': 'postgres', 'dsn': {database.dsn!r}, 'publication': 'p', 'replicationSlot': 's'}}\n"
        "source = PostgresSource('db1', PostgresOptions.model_validate(options))\n"
        "source.read_stream_identity()\n"
        "source.start(None)\n"
        "source.stop()\n"
    )
    database.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION p FOR ALL TABLES")
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([sys.executable, program], cwd=theirs, env=plain, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert traces(theirs) == []


RULES = """
def mask(changes):
    from pyspark.sql.functions import udf

    return changes.withColumn("name", udf(lambda name: name + "!")("name"))
"""

PROGRAM = """
def main(arguments):
    from tests.integration.test_spark_handler import batch, only, shop, values
    from psql_streamer.spark.handler import SparkHandler
    from psql_streamer.spark.options import SparkOptions

    rule = {"function": "shop.rules:mask"}
    handler = SparkHandler("spark", SparkOptions(master="local[1]", tables={"orders": rule}))
    handler.start()
    try:
        assert values(only(handler.handle(batch(shop()))), "customer") == [b"ann!", b"bob!", b"dan!"]
    finally:
        handler.stop()
    return 0
"""


@pytest.mark.slow
@pytest.mark.soak
def test_a_rule_of_the_users_runs_in_spark_in_a_folder_full_of_such_names(theirs: Path, tmp_path: Path) -> None:
    """Its Python code runs in processes that the JVM starts."""
    for name in RUN_BY_PYTHON_ITSELF:
        (theirs / f"{name}.py").unlink()
    (theirs / "shop" / "rules.py").write_text(RULES.replace('"name"', '"customer"'))
    (theirs / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        launcher.make_command("program"), cwd=theirs, env=environment(theirs), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert traces(theirs) == []
