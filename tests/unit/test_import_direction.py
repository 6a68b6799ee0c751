"""Dependencies run one way; this is the order, and nothing imports against it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

TIERS = [
    {
        "psql_streamer",
        "psql_streamer.batching",
        "psql_streamer.binary_columns",
        "psql_streamer.cells",
        "psql_streamer.columns",
        "psql_streamer.errors",
        "psql_streamer.few_changes",
        "psql_streamer.few_rows",
        "psql_streamer.gathering",
        "psql_streamer.geometries",
        "psql_streamer.growing",
        "psql_streamer.hashed",
        "psql_streamer.linger",
        "psql_streamer.lsn",
        "psql_streamer.model",
        "psql_streamer.pgtype",
        "psql_streamer.picked_values",
        "psql_streamer.shown_commands",
        "psql_streamer.snapshots",
        "psql_streamer.stream_rate",
        "psql_streamer.table_rows",
    },
    {"psql_streamer.option_secrets", "psql_streamer.options", "psql_streamer.redaction", "psql_streamer.shortage"},
    {
        "psql_streamer.checkpoint.store_format",
        "psql_streamer.connector_files",
        "psql_streamer.binlog",
        "psql_streamer.checkpoint.tracker",
        "psql_streamer.event_reader",
        "psql_streamer.events",
        "psql_streamer.name_counts",
        "psql_streamer.named_files",
        "psql_streamer.nearest",
        "psql_streamer.pgoutput",
        "psql_streamer.pgtypes",
        "psql_streamer.pipeline.coalescing",
        "psql_streamer.snapshot",
        "psql_streamer.snapshot_figures",
        "psql_streamer.table_patterns",
        "sinks.kafka.partitioner",
    },
    {
        "psql_streamer.bounded",
        "psql_streamer.readable",
        "psql_streamer.unexpected",
        "psql_streamer.held_interpreter",
        "psql_streamer.checkpoint",
        "psql_streamer.embedded.java",
        "psql_streamer.entry_points",
        "psql_streamer.events.avro.format",
        "psql_streamer.events.formats",
        "psql_streamer.events.options",
        "psql_streamer.interfaces",
        "psql_streamer.launcher",
        "psql_streamer.starting_signals",
        "psql_streamer.metrics",
        "psql_streamer.registry",
        "psql_streamer.retry_limits",
        "psql_streamer.circles",
        "psql_streamer.review",
    },
    {"psql_streamer.spark", "sources", "sinks"},
    {"psql_streamer.plugins"},
    {"psql_streamer.config"},
    {
        "psql_streamer.api",
        "psql_streamer.log_output",
        "psql_streamer.logs",
        "psql_streamer.pipeline",
        "psql_streamer.preflight",
    },
    {"psql_streamer.demo", "psql_streamer.embedded", "psql_streamer.testing", "psql_streamer.trial"},
    {"psql_streamer.cli", "psql_streamer.commands", "psql_streamer.standard_output"},
    {"psql_streamer.__main__"},
]
"""Unit (a module, or a package but what of it has a tier of its own) by tier; imports go to the same tier or one
before."""

PURE = TIERS[0] | TIERS[1] | TIERS[2]
IMPURE_MODULES = {
    "asyncio",
    "logging",
    "multiprocessing",
    "os",
    "random",
    "select",
    "socket",
    "subprocess",
    "threading",
    "time",
}
SPARK = {"pyspark", "py4j"}


def test_nothing_imports_a_later_tier() -> None:
    """`from psql_streamer import x` is an import of psql_streamer.x."""
    tier = {unit: number for number, units in enumerate(TIERS) for unit in units}
    against = [
        f"{module} imports {imported}"
        for module, path in modules()
        for imported in ours(path)
        if tier[unit_of(imported)] > tier[unit_of(module)]
    ]
    assert against == []


def test_every_module_has_a_tier() -> None:
    known = set().union(*TIERS)
    assert {module for module, _ in modules() if unit_of(module) not in known} == set()


def test_every_tier_is_of_modules_that_exist() -> None:
    there = {module for module, _ in modules()}
    assert set().union(*TIERS) - there == set()


def test_the_core_knows_no_concrete_source_or_sink() -> None:
    offenders = [
        f"{module} imports {imported}"
        for module, path in modules()
        if module.startswith("psql_streamer")
        for imported in ours(path)
        if imported.split(".")[0] in ("sources", "sinks")
    ]
    assert offenders == []


def test_the_pure_modules_do_no_io() -> None:
    offenders = [
        f"{module} imports {imported}"
        for module, path in modules()
        if unit_of(module) in PURE
        for imported in imports(path)
        if imported.split(".")[0] in IMPURE_MODULES
    ]
    assert offenders == []


def test_only_one_source_file_speaks_the_replication_protocol() -> None:
    users = {module for module, path in modules() if "psycopg2.extras" in set(imports(path))}
    assert users <= {"sources.postgres.replication"}


@pytest.mark.parametrize("package", ["psql_streamer.spark"])
def test_spark_is_imported_in_one_package_only(package: str) -> None:
    offenders = {
        module
        for module, path in modules()
        if not module.startswith(package) and SPARK & {imported.split(".")[0] for imported in imports(path)}
    }
    assert offenders <= {"psql_streamer.embedded.kafka_jars"}


@pytest.mark.parametrize("module", ["psql_streamer.cli", "psql_streamer.config", "sinks.kafka", "sources.postgres"])
def test_spark_is_not_loaded_by(module: str) -> None:
    program = f"import sys, {module}; print([name for name in ('pyspark', 'py4j') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_the_page_and_the_reading_of_keys_need_is_not_loaded_before() -> None:
    """4 MB, which most services never need."""
    wanted = "import sys, psql_streamer.api.app, sinks.kafka.sink"
    program = f"{wanted}; print([name for name in ('jinja2', 'sqlite3') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@cache
def modules() -> Sequence[tuple[str, Path]]:
    return tuple(_modules())


def _modules() -> Iterator[tuple[str, Path]]:
    for package in ("psql_streamer", "sources", "sinks"):
        for path in sorted((ROOT / package).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            yield name.removesuffix(".__init__"), path


@cache
def imports(path: Path) -> Sequence[str]:
    """Every module that a file imports, at the top or in a function."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            yield str(node.module)
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def ours(path: Path) -> Iterator[str]:
    known = {module for module, _ in modules()}
    yield from (imported for imported in imports(path) if imported in known)


def unit_of(module: str) -> str:
    """The module, or the nearest package around it, that has a tier; psql_streamer's own is for its __init__ alone."""
    known = set().union(*TIERS)
    parts = module.split(".")
    around = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    return next((name for name in around if name in known and name != "psql_streamer"), module)
