"""Configuration files for tests, and a part of one's own for them to name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from psql_streamer.config import load
from psql_streamer.errors import ConfigError
from psql_streamer.interfaces import Finding, Sink, Status
from psql_streamer.model import Batch, Stats
from psql_streamer.options import SinkOptions

PARTS = __name__

MINIMAL = """
http = "127.0.0.1:8080"
lmdb = "/var/lib/psql-streamer/positions"
[log]
[source.db1]
type = "postgres"
dsn = "host=localhost dbname=shop password=hunter2-in-the-dsn"
publication = "shop"
replicationSlot = "slot1"
[sink.kafka1]
type = "kafka"
sources = ["db1"]
hosts = ["localhost:9092"]
handlers = ["passthrough"]
topicPrefix = "shop"
"""


def with_line(text: str, section: str, line: str, before: str = "") -> str:
    """The file with a line more in a section, or text before it."""
    assert section in text
    return text.replace(section, f"{before}\n{section}\n{line}", 1)


def written(folder: Path, text: str) -> Path:
    path = folder / "psql-streamer.toml"
    path.write_text(text, encoding="utf-8")
    return path


def problems_of(folder: Path, text: str, environ: Mapping[str, str] | None = None) -> list[str]:
    """What `load` says is wrong with a file; nothing if it loads."""
    try:
        load(written(folder, text), environ or {})
    except ConfigError as error:
        return error.problems
    return []


class MemoryOptions(SinkOptions):
    greeting: str

    def list_resources(self) -> Iterable[str]:
        return [f'the greeting "{self.greeting}"']

    def list_warnings(self) -> Iterable[str]:
        return ["greeting is long"] if len(self.greeting) > 10 else []


class MemorySink(Sink):
    """A third party's sink, as little as it can be."""

    Options = MemoryOptions

    def check(self) -> Iterable[Finding]:
        return ()

    def start(self) -> None: ...

    def write(self, batch: Batch) -> None: ...

    def interrupt(self) -> None: ...

    def stop(self) -> None: ...

    def status(self) -> Status:
        return Status(True, "well")

    def stats(self) -> Stats:
        return {}
