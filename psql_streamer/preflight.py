"""`check`: every precondition of a configuration, without changing anything."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

from psql_streamer.api.listening import listen
from psql_streamer.checkpoint.joining_sinks import find_lack
from psql_streamer.checkpoint.resume import choose_position
from psql_streamer.checkpoint.store import Store
from psql_streamer.checkpoint.store_format import StoredPosition
from psql_streamer.checkpoint.store_place import MOUNT_REMEDY, require_place
from psql_streamer.circles import find_circles
from psql_streamer.config import Config, HttpAddress, Part
from psql_streamer.errors import StreamerError
from psql_streamer.interfaces import Finding, Handler, Published, Severity, Sink, Source, TopicsRead
from psql_streamer.model import Relation
from psql_streamer.option_secrets import find_secrets
from psql_streamer.options import PartOptions, SourceOptions
from psql_streamer.pipeline.snapshot_requests import takes_snapshots
from psql_streamer.redaction import gives_away
from psql_streamer.review import review

# A Bolt file begins with a 16-byte page header; then comes this number (bbolt, db.go), in the machine's byte order.
_BOLT_MAGIC = (0xED0CDAED).to_bytes(4, "little")
_BOLT_PAGE_HEADER = 16


@dataclass(frozen=True, slots=True)
class Report:
    """What the check of one part gave. part: `store`, `source.db1`. seconds: how long it took."""

    part: str
    findings: tuple[Finding, ...]
    seconds: float

    @property
    def failed(self) -> bool:
        """Whether the service would not work."""
        return any(finding.severity is Severity.ERROR for finding in self.findings)


def check(config: Config) -> Iterator[Report]:
    """The reports on the store, the sources, the handlers and the sinks, in this order, each when it is ready."""
    published: dict[str, Sequence[Relation]] = {}
    read: dict[str, TopicsRead | None] = {}
    store = _StoreCheck(config)
    yield _report("store", None, store.look)
    yield _report("http", None, partial(_check_http, config.http, store.holder))
    for name, source in config.sources.items():
        look = partial(_check_source, source, store.records.get(name), published, read)
        yield _report(f"source.{name}", source.options, look)
    parts = {name: source.build() for name, source in config.sources.items()}
    sinks = [(sink.build(), config.build_handlers(name)) for name, sink in config.sinks.items()]
    for one in chain.from_iterable(of_sink for _, of_sink in sinks):
        one.attach(parts, None)
    for name, handler in config.handlers.items():
        alone = [(sink, [own for own in of_sink if own.name == name]) for sink, of_sink in sinks]
        yield _report(f"handler.{name}", handler.options, partial(_check_handler, name, alone, published))
    for sink, _ in sinks:
        taken = {source: parts[source] for source in sink.options.sources}
        lacks = partial(_find_lacks, sink.name, taken, store.records)
        look = partial(_check_sink, sink, published, read, lacks, config.allows_circles)
        yield _report(f"sink.{sink.name}", sink.options, look)


def _report(part: str, options: PartOptions | None, look: Callable[[], Iterable[Finding]]) -> Report:
    began = time.monotonic()
    findings: list[Finding] = []
    try:
        findings.extend(look())  # keeps what a check found before it failed
    except StreamerError as error:
        findings.append(Finding(Severity.ERROR, error.what, error.remedy))
    except (Exception, SystemExit) as error:  # a third party's part may raise anything; the others are still looked at
        secrets = find_secrets(options.model_dump(by_alias=True)) if options else ()
        said = "" if any(gives_away(str(error), secret) for secret in secrets) else f": {error}"
        problem = f"its check failed with {type(error).__name__}{said}"
        findings.append(Finding(Severity.ERROR, problem, "report this to the author of the part"))
    return Report(part, tuple(findings), time.monotonic() - began)


class _StoreCheck:
    """Looks at the position store. holder: the PID of the service that has it open. records: what is stored."""

    def __init__(self, config: Config) -> None:
        self.holder = 0
        self.records: Mapping[str, StoredPosition] = {}
        self._config = config

    def look(self) -> Iterator[Finding]:
        path = self._config.lmdb
        findings = list(_check_store_path(path))
        yield from findings
        if findings or not path.exists():
            return
        store = Store(path, self._config.lmdb_map_size)
        self.holder = store.open_to_read()
        try:
            self.records = store.read_all()
        finally:
            store.close()
        if self.holder:
            yield Finding(
                Severity.WARNING,
                f"lmdb: {path} is in use by PID {self.holder}: the service is running, and goes on during this check",
                "nothing to do, unless that is another service: then set lmdb to another path",
            )


def _check_http(address: HttpAddress, holder: int) -> Iterator[Finding]:
    """Whether the address can be had; one that the running service has is its own."""
    if not address.port:
        return
    try:
        listen(address.host, address.port).close()
    except StreamerError as error:
        if not holder:
            yield Finding(Severity.ERROR, error.what, error.remedy)


def _check_source(
    source: Part[Source, SourceOptions],
    record: StoredPosition | None,
    published: dict[str, Sequence[Relation]],
    read: dict[str, TopicsRead | None],
) -> Iterator[Finding]:
    """Its findings; what it publishes and reads goes into the last two, unless it does not work anyway."""
    part = source.build()
    findings: list[Finding] = []
    yield from _note_findings(part.check(), findings)
    if not _has_no_errors(findings):
        return
    identity = part.read_stream_identity()
    read[source.name] = part.describe_topics_read()
    resume = choose_position(part, record, identity)
    yield from part.check_position(resume.position)
    if (tables := part.list_published()) is not None:
        published[source.name] = tables


def _check_handler(
    name: str, sinks: Sequence[tuple[Sink, Sequence[Handler]]], published: Published
) -> Iterator[Finding]:
    """Its findings, and what does not fit the tables of the sources whose changes it gets."""
    handlers = [handler for _, of_sink in sinks for handler in of_sink]
    findings: list[Finding] = []
    yield from _note_findings(handlers[0].check(), findings)
    if _has_no_errors(finding for finding in findings if not finding.alone):
        try:
            yield from _review_part(f"handler.{name}", sinks, published)
        finally:
            for handler in handlers:
                handler.stop()


def _check_sink(
    sink: Sink,
    published: Published,
    read: Mapping[str, TopicsRead | None],
    find_lacks: Callable[[], Iterable[Finding]],
    allows_circles: bool,
) -> Iterator[Finding]:
    findings: list[Finding] = []
    yield from _note_findings(sink.check(), findings)
    for source in sink.options.sources if _has_no_errors(findings) else ():
        yield from (found for _, found in find_circles([sink], source, read.get(source), allows_circles))
    yield from find_lacks()
    yield from _review_part(f"sink.{sink.name}", [(sink, ())], published)


def _find_lacks(sink: str, sources: Mapping[str, Source], records: Mapping[str, StoredPosition]) -> Iterator[Finding]:
    """What came before the sink did, of each of its sources. records: what is stored of them."""
    for name, source in sources.items():
        lack = find_lack(sink, name, records.get(name), takes_snapshots=takes_snapshots(type(source)))
        if lack is not None:
            yield lack


def _review_part(part: str, sinks: Sequence[tuple[Sink, Sequence[Handler]]], published: Published) -> Iterator[Finding]:
    return (finding for name, finding in review(sinks, published) if name == part)


def _note_findings(findings: Iterable[Finding], noted: list[Finding]) -> Iterator[Finding]:
    for finding in findings:
        noted.append(finding)
        yield finding


def _has_no_errors(findings: Iterable[Finding]) -> bool:
    return all(finding.severity is not Severity.ERROR for finding in findings)


def _check_store_path(path: Path) -> Iterator[Finding]:
    folder = path.parent
    require_place(path)
    if path.is_file() and _is_bolt(path):
        remedy = "name another path; each source starts there as it does the first time"
        yield Finding(Severity.ERROR, f"lmdb: {path} is a Bolt file of the Go service", remedy)
    elif not folder.is_dir():
        yield Finding(Severity.ERROR, f"lmdb: the folder {folder} does not exist", f"mkdir -p {folder}")
    elif os.statvfs(folder).f_flag & os.ST_RDONLY:
        yield Finding(Severity.ERROR, f"lmdb: the folder {folder} is on a read-only file system", MOUNT_REMEDY)
    elif not os.access(folder, os.W_OK | os.X_OK):
        remedy = f"give the user that runs the service the right to write to {folder}"
        yield Finding(Severity.ERROR, f"lmdb: the folder {folder} cannot be written to", remedy)
    elif path.exists() and not os.access(path, os.R_OK | os.W_OK):
        remedy = f"give the user that runs the service the right to read and write {path}"
        yield Finding(Severity.ERROR, f"lmdb: {path} cannot be opened", remedy)


def _is_bolt(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            head = file.read(_BOLT_PAGE_HEADER + len(_BOLT_MAGIC))
    except OSError:
        return False
    return head[_BOLT_PAGE_HEADER:] == _BOLT_MAGIC
