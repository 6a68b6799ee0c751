"""Reads all rows of a lookup, by its kind."""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import filterfalse
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import url2pathname
from uuid import uuid4

import pyarrow as pa

from psql_streamer.entry_points import Kind, import_class
from psql_streamer.errors import HandlerError, HandlerRefused, HandlerUnavailable, SourceUnavailable, StreamerError
from psql_streamer.interfaces import Source
from psql_streamer.model import ArrowType, Column
from psql_streamer.pgtypes import casts
from psql_streamer.redaction import redact
from psql_streamer.spark.connect import is_of_a_server
from psql_streamer.spark.failures import list_causes
from psql_streamer.spark.lookups.options import FILE_KINDS, LookupOptions
from psql_streamer.spark.lookups.version import Version, let_go
from psql_streamer.table_rows import TableReader, TableRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_Made = TypeVar("_Made")

_MOST_COLLECTED_ROWS = 200_000
"""A lookup of more rows stays in Spark, which decides how it is joined."""

_NO_FILES = "no files"
"""The stamp where all files are empty, or none is there: as somebody replaces them, and not what has no rows."""

_NOT_WHOLE = "replace files by renaming others"

_ABOUT_HEADERS = ("CSV header does not conform", "Number of column in CSV header")

_OTHER_HEADER = (
    "Spark goes by the order of columns: give schema that of the file, and the files of a folder the same one; or, "
    "if names do not count, set enforceSchema = true in options"
)

_DEFAULT_SCHEMA = "public"

_WITHOUT_SCHEMA = re.compile(r'(?:relation|type) "[^".]+" does not exist|function [^.(]+\([^)]*\) does not exist')
"""What PostgreSQL says of a name that search_path does not lead to."""

_NO_DRIVER = "No suitable driver"
"""What java.sql.DriverManager says of a URL that none of its drivers knows."""


def read(options: LookupOptions, spark: SparkSession, sources: Mapping[str, Source]) -> Version:
    """All rows, in one state. HandlerUnavailable for what may pass, HandlerRefused for what will not by itself."""
    began = time.monotonic()
    if options.kind == "postgres":
        return make_version(_read_by_copy(options, make_table_reader(options, sources)), began)
    before = stamp(options, spark)
    if before == _NO_FILES:
        raise HandlerUnavailable(f"{options.path} has no file with anything in it", _NOT_WHOLE)
    version = _read_by_spark(options, spark, began, before)
    if before != stamp(options, spark):
        let_go(version)
        raise HandlerUnavailable("its files changed while they were read", _NOT_WHOLE)
    return version


def stamp(options: LookupOptions, spark: SparkSession) -> str:
    """What tells one state of the files from another: their names, sizes and modification times; empty for others."""
    if options.path is None:
        return ""
    path, local = options.path, find_local_path(options.path)
    if local is not None and spark_is_local(spark):
        found = _list_local(local)
    else:
        found = _run_converting_errors(lambda: _list_by_spark(spark, path))
    if not any(size for _, _, size in found):
        return _NO_FILES
    return hashlib.sha256(repr(sorted(found)).encode()).hexdigest()


def find_local_path(path: str) -> Path | None:
    """The path of a file or folder of this machine; None for another file system's, and for patterns."""
    parts = urlsplit(path)
    if parts.scheme not in ("", "file") or any(sign in path for sign in "*?[{"):
        return None
    return Path(url2pathname(parts.path) if parts.scheme else path)


def spark_is_local(spark: SparkSession) -> bool:
    """Whether Spark's files are this machine's."""
    return not is_of_a_server(spark) and str(spark.sparkContext.master).startswith("local")


def split_name(table: str) -> tuple[str, str]:
    """Schema and table of a table's name."""
    schema, dot, name = table.partition(".")
    return (schema, name) if dot else (_DEFAULT_SCHEMA, table)


def make_table_reader(options: LookupOptions, sources: Mapping[str, Source]) -> TableReader:
    """Who reads the tables of a lookup's database. HandlerRefused when nobody does."""
    try:
        if options.source is None:
            kind: type[Source] = import_class(Kind.SOURCE, "postgres", Source)  # type: ignore[type-abstract]
            found = kind.make_table_reader_at(options.address)
        else:
            found = sources[options.source].make_table_reader() if options.source in sources else None
    except StreamerError as error:
        raise HandlerRefused(error.what, error.remedy) from None
    if found is None:
        raise HandlerRefused(
            f"source {options.source} reads no tables", "name a postgres source that a sink takes from"
        )
    return found


def make_version(rows: TableRows, began: float) -> Version:
    """Rows with the types that rules see."""
    from pyspark.sql.pandas.types import from_arrow_schema

    table = make_typed_table(rows.columns, rows.arrays)
    schema = from_arrow_schema(table.schema, prefer_timestamp_ntz=True)
    return Version(rows.rows, table.nbytes, schema, began, table)


def make_typed_table(columns: Sequence[Column], arrays: Sequence[pa.Array]) -> pa.Table:
    """Columns with the types that rules see. arrays: as TableRows has them."""
    values = [
        array if isinstance(column.type, ArrowType) else casts.cast(array, column.type)
        for column, array in zip(columns, arrays, strict=True)
    ]
    return pa.Table.from_arrays(values, names=[column.name for column in columns])


def _read_by_copy(options: LookupOptions, reader: TableReader) -> TableRows:
    query = options.query
    if query is None:
        query = "TABLE " + ".".join(map(_quote_name, split_name(str(options.table))))
    try:
        return read_from_source(lambda: reader.read_query(str(query), options.max_bytes))
    except HandlerError as error:
        if _WITHOUT_SCHEMA.search(error.what):
            what = f"{error.what} (queries of lookups name the schema, SCHEMA.TABLE, because search_path is empty)"
            raise type(error)(what, error.remedy) from None
        raise


def read_from_source(read_rows: Callable[[], TableRows]) -> TableRows:
    """The rows; a source's errors are the handler's here."""
    try:
        return read_rows()
    except SourceUnavailable as error:
        raise HandlerUnavailable(error.what, error.remedy) from None
    except StreamerError as error:
        raise HandlerRefused(error.what, error.remedy) from None


def _read_by_spark(options: LookupOptions, spark: SparkSession, began: float, stamped: str) -> Version:
    def load() -> Version:
        frame = _load_frame(options, spark)
        schema = frame.schema
        some = frame.limit(_MOST_COLLECTED_ROWS + 1).toArrow()
        if some.num_rows <= _MOST_COLLECTED_ROWS and some.nbytes <= options.max_bytes:
            return Version(some.num_rows, some.nbytes, schema, began, some, stamp=stamped)
        del some
        # Spark takes files of the same names for the same rows: what it holds of one version would count for the next,
        # and both would be let go with the first. So each has a plan of its own.
        its_own = repr(uuid4().hex)
        held = frame.where(f"{its_own} = {its_own}").persist()
        return Version(held.count(), 0, schema, began, frame=held, stamp=stamped)

    return _run_converting_errors(load)


def _load_frame(options: LookupOptions, spark: SparkSession) -> DataFrame:
    if options.kind in FILE_KINDS:
        if not _compares_headers(options):
            return _load_files(options, spark, {})
        frame = _load_files(options, spark, {"enforceSchema": "false"})
        if options.schema_ is None and any(map(_has_number, enumerate(frame.columns))):
            # Spark gives columns names of its own where the header has none, or the same one twice.
            return _load_files(options, spark, {})
        return frame
    what = {"dbtable": options.table} if options.query is None else {"query": options.query}
    return spark.read.format("jdbc").options(url=options.address, **what, **options.options).load()


def _load_files(options: LookupOptions, spark: SparkSession, more: Mapping[str, str]) -> DataFrame:
    # Without a mode Spark makes nulls of what it cannot read, in silence.
    mode = {} if options.kind == "parquet" else {"mode": "FAILFAST"}
    reader = spark.read.options(**{**mode, **more, **options.options})
    if options.schema_ is not None:
        reader = reader.schema(options.schema_)
    return reader.format(options.kind).load(options.path)


def _compares_headers(options: LookupOptions) -> bool:
    """Whether headers of CSV files are to be what the columns are called: else Spark goes by the order alone."""
    given = {name.lower(): value.lower() for name, value in options.options.items()}
    return options.kind == "csv" and given.get("header") == "true" and "enforceschema" not in given


def _has_number(column: tuple[int, str]) -> bool:
    number, name = column
    return name.endswith(str(number))


def _list_local(path: Path) -> list[tuple[str, str, int]]:
    try:
        if path.is_file():
            return [_read_file_stamp(path)]
        found = []
        for folder, folders, names in os.walk(path):
            folders[:] = filterfalse(_is_passed_over, folders)
            found += [_read_file_stamp(Path(folder, name)) for name in names if not _is_passed_over(name)]
        return found
    except OSError as error:
        raise HandlerUnavailable(f"{path} cannot be read ({str(error.strerror).lower()})") from None


def _is_passed_over(name: str) -> bool:
    """Whether Spark reads no file, and nothing in a folder, of this name."""
    return name[0] == "." or (name[0] == "_" and "=" not in name)


def _read_file_stamp(path: Path) -> tuple[str, str, int]:
    found = path.stat()
    return str(path), str(found.st_mtime_ns), found.st_size


def _list_by_spark(spark: SparkSession, path: str) -> list[tuple[str, str, int]]:
    files = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(path)
    rows = files.select("path", "modificationTime", "length").collect()
    return [(name, str(modified), length) for name, modified, length in rows]


def _run_converting_errors(work: Callable[[], _Made]) -> _Made:
    """Spark's messages may quote values, so only those of its analysis are shown, which has seen none."""
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    try:
        return work()
    except StreamerError:
        raise
    except (AnalysisException, ParseException) as error:
        raise HandlerUnavailable(redact(str(error).split(";\n", maxsplit=1)[0].splitlines()[0])) from None
    except PySparkException as error:
        _refuse_header(error)
        raise HandlerUnavailable(f"Spark ended with {error.getCondition() or type(error).__name__}") from None
    except Exception as error:
        _refuse_header(error)
        java: Any = getattr(error, "java_exception", None)
        if java is not None and java.getMessage() == _NO_DRIVER:
            raise HandlerRefused(
                "no JDBC driver takes its url", "name the driver in [spark], under packages or jars"
            ) from None
        # Of what a JDBC driver raises only the class is shown: its text may hold the address.
        raise HandlerUnavailable(f"Spark ended with {', because of '.join(list_causes(error))}") from None


def _refuse_header(error: Exception) -> None:
    """Raise with what Spark says of a header (CSVHeaderChecker): names of columns and of the file, and no value."""
    java, said = getattr(error, "java_exception", None) or getattr(error, "_origin", None), ""
    with suppress(Exception):  # the JVM may be gone
        while java is not None and not said.startswith(_ABOUT_HEADERS):
            java, said = java.getCause(), str(java.getMessage())
    if said.startswith(_ABOUT_HEADERS):
        raise HandlerUnavailable(" ".join(said.split()), _OTHER_HEADER) from None


def _quote_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
